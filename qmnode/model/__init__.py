"""The queue manager's behaviour: MS-MQDMPR, the common data model and its processing rules."""
