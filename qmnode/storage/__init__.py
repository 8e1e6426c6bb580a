"""Where a queue manager keeps things: RocksDB, written in batches that many callers share."""
