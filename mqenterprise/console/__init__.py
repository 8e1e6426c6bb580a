"""The console of the enterprise: the nodes of the directory in one place, in a browser."""
