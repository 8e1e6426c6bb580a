"""The layout of the store: column families, and keys that sort in the order in which they are read.

The order of delivery is the order of keys: a queue's number, then the lookup identifier, whose top byte is 7 minus the
priority and whose other seven grow with arrival (MS-MQDMPR 3.1.7.1.9). All numbers in keys are big-endian.

| family | key | value |
|---|---|---|
| meta | name | facts about the node: format version, identifier blocks, origin |
| meta | `identity`, queue (u32), 0, digest | a message id that a queue remembers (qmnode.model.duplicates) |
| meta | `identity`, queue (u32), 1, number (u64) | the same ids in the order of their arrival |
| meta | `retry`, 0, queue (u32), lookup identifier (u64) | second of the next delivery (u32); 0 during a delivery |
| meta | `delayed`, 0, delivery time (u64), lookup identifier (u64) | nothing: qmnode.model.delayed_delivery |
| meta | `large`, 0, queue (u32), lookup identifier (u64) | file of a large message, and its bytes (two u64) |
| meta | `mark`, 0, program (16 bytes), slot (u32), part (u32) | number of a call, answer: qmnode.local.program_calls |
| meta | `carry/`, `carry-held/`, `carry-ledger/`, number, key | qmnode.administration.carries |
| messages | queue (u32), lookup identifier (u64) | prefix (20 bytes), UserMessage packet: qmnode.model.stored_message |
| messages | the same, of a large message | reference to its file: qmnode.storage.large_messages |
| express | the same | the same, if memory has no room; written without the log, emptied at every start |
| expiry | second (u32), queue (u32), lookup identifier (u64) | nothing; groups: see qmnode.model.positions |
| queues | queue (u32) | definition, JSON |
| counters | queue (u32) | bytes, and per priority the count and the head (qmnode.model.queue) |
| transactions | transaction identifier | prepared transaction |
| incoming, outgoing | the protocol's | the protocol's transfer information |
| history | the protocol's | identifiers of received messages |
| events | sequential identifier of the first (u64) | events of one batch (qmnode.export.log), until they are exported |
"""

import struct
from enum import StrEnum
from typing import Final

FORMAT_VERSION: Final = 1
"""The version of a new store. Raised when older programs cannot read the new format."""
NAMED_DEAD_LETTERS: Final = 2
"""The version of a store that has, or had, messages with a dead-letter queue of their own: an older program would
transmit the data behind their packets.
"""
OPERATIONS: Final = 3
"""The version of a store that has, or had, jobs over messages: an older program would leave them undone."""
LARGE_MESSAGES: Final = 4
"""The version of a store that has, or had, large messages in files of their own: an older program would take the
references for messages.
"""
DELAYED_MESSAGES: Final = 5
"""The version of a store that has, or had, messages that wait for their delivery time: an older program would keep them
for ever.
"""
NEWEST_FORMAT: Final = DELAYED_MESSAGES

MESSAGE_KEY: Final = struct.Struct(">IQ")
EXPIRY_KEY: Final = struct.Struct(">IIQ")
QUEUE_KEY: Final = struct.Struct(">I")
EVENTS_KEY: Final = struct.Struct(">Q")
IDENTITY: Final = b"identity"
IDENTITY_KEY: Final = struct.Struct(">8sIB16s")
IDENTITY_AGE_KEY: Final = struct.Struct(">8sIBQ")
DELAYED: Final = b"delayed"
DELAYED_KEY: Final = struct.Struct(">8sQQ")
LAST_KEY: Final = b"\xff" * (MESSAGE_KEY.size + 1)
"""Behind the key of any message."""
RETRY: Final = b"retry\0"
RETRY_KEY: Final = struct.Struct(">6sIQ")
LARGE: Final = b"large\0"
LARGE_FILE: Final = struct.Struct(">QQ")
"""Number of the file, and bytes of the value."""


class Family(StrEnum):
    """The column families of a store."""

    META = "meta"
    MESSAGES = "messages"
    EXPRESS = "express"
    EXPIRY = "expiry"
    QUEUES = "queues"
    COUNTERS = "counters"
    TRANSACTIONS = "transactions"
    INCOMING = "incoming"
    OUTGOING = "outgoing"
    HISTORY = "history"
    EVENTS = "events"
