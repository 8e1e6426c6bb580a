"""Other brokers beside two nodes: ``python -m tests.bench.peers`` (``make bench-peers``) prints one table."""
