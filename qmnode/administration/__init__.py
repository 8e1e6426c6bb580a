"""What the command line and the management API both do with a queue manager, embedded or running as a service."""
