"""The store of a queue manager: RocksDB, written in batches that many callers share."""
