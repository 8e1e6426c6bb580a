"""The work that the command line and the management API share, on a queue manager embedded or running as a service."""
