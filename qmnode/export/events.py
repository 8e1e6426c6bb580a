"""The events of a node, and the columns that describe them. Imported without pyarrow."""

import re
from enum import StrEnum
from typing import Final

FORMAT: Final = 1
"""The format of segments. Raised when older readers would misunderstand newer segments; a new column is no reason."""


class EventKind(StrEnum):
    """The kind of an event. Every event is one row of a segment."""

    SENT = "sent"
    """An application, or the queue manager itself, sent the message here; in a transaction, at its commit."""
    ACCEPTED = "accepted"
    """The message came from another queue manager, to be forwarded."""
    TRANSFERRED = "transferred"
    """The next hop has the message: it left this node."""
    REACHED = "reached"
    """The message is in its destination queue."""
    RECEIVED = "received"
    """An application received it there; in a transaction, at its commit."""
    MOVED = "moved"
    """The message was moved to a subqueue, or back."""
    DIED = "died"
    """The message ended here without being received."""
    REFUSED = "refused"
    """The message arrived and was refused: it never was in a queue here."""
    DEAD_LETTER = "dead_letter"
    """A copy went to a dead-letter queue."""
    JOURNALED = "journaled"
    """A copy went to a journal."""
    REMOVED = "removed"
    """A copy left a journal or a dead-letter queue."""
    ACKNOWLEDGMENT = "acknowledgment"
    """An administration acknowledgment reached its queue; recorded instead of ``reached``."""
    REPORT = "report"
    """A trace report reached its queue; recorded instead of ``reached``."""
    SESSION_OPENED = "session_opened"
    SESSION_CLOSED = "session_closed"
    QUEUE_STATE = "queue_state"
    """An outgoing queue changed its state (MS-MQDMPR 3.1.1.3)."""
    KEY_USED = "key_used"
    """A message was decrypted with one of this node's keys."""
    SAMPLE = "sample"
    """The fill level of a queue, or of the whole node."""
    STARTED = "started"
    """The node started; express messages that were in its queues are lost."""
    STOPPED = "stopped"
    DROPPED = "dropped"
    """A number of earlier events was discarded, because the limit of the disk was reached."""
    HEARTBEAT = "heartbeat"
    """A heartbeat of a probe ended: ``label`` is the probe, ``cause`` and ``detail`` say why it was missed."""


COLUMNS: Final[dict[str, str]] = {
    "offset": "int64",
    "time": "timestamp",
    "kind": "string",
    "node_id": "string",
    "node": "string",
    "site": "string",
    "source_id": "string",
    "message_number": "int64",
    "destination": "string",
    "queue": "string",
    "reason": "int32",
    "message_class": "int32",
    "priority": "int32",
    "recoverable": "bool",
    "transactional": "bool",
    "hop_count": "int32",
    "size": "int64",
    "body_size": "int64",
    "sent_time": "timestamp",
    "time_to_reach_queue": "int64",
    "time_to_be_received": "int64",
    "label": "string",
    "sender": "string",
    "administration_queue": "string",
    "response_queue": "string",
    "about_source_id": "string",
    "about_message_number": "int64",
    "peer": "string",
    "peer_id": "string",
    "incoming": "bool",
    "provider": "string",
    "key_fingerprint": "string",
    "state": "string",
    "count": "int64",
    "bytes": "int64",
    "quota": "int64",
    "cause": "string",
    "detail": "string",
}
"""The columns of a segment in their order, and their types; timestamps are microseconds in UTC."""

REQUIRED: Final = ("offset", "time", "kind", "node_id", "node", "site")
"""Columns that never contain nulls."""

_LATEST: Final = 7_258_118_400_000_000
"""2200-01-01 in microseconds: no clock or message names a later time."""
RANGES: Final[dict[str, tuple[int, int]]] = {
    "time": (0, _LATEST),
    "sent_time": (0, _LATEST),
    "priority": (0, 255),
    "hop_count": (0, 255),
    "size": (0, 0xFFFF_FFFF),
    "body_size": (0, 0xFFFF_FFFF),
    "time_to_reach_queue": (0, 0xFFFF_FFFF),
    "time_to_be_received": (0, 0xFFFF_FFFF),
    "count": (0, 1 << 50),
    "bytes": (0, 1 << 50),
    "quota": (0, 1 << 62),
}
"""The least and the greatest value of a column. Readers add such values up, so a segment with others is no segment."""


def shown(address: str) -> str:
    """The address of a place for a log, without any credentials."""
    return re.sub(r"(?<=://)[^/@]*@", "", address)
