"""What a queue manager does: MS-MQDMPR, the common data model and its processing rules."""
