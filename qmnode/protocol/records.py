"""Records of the queue manager's transfer state on disk: bytes, written in the batch that they belong to.

A record whose value is None is to be deleted. Keys are unique within their family; the store may prefix them.
"""

from enum import IntEnum, unique
from typing import NamedTuple


@unique
class Family(IntEnum):
    """Kinds of records; a column family each, or a prefix."""

    INCOMING_SEQUENCE = 1
    """IncomingTxSequenceID, IncomingTxSequenceNumber and TxMessageRejectCount, 3.1.1.3.1."""
    OUTGOING_SEQUENCE = 2
    """OutgoingTxSequenceID and OutgoingTxSequenceNumber, 3.1.1.3.1."""
    SEQUENCE_IDENTIFIERS = 3
    """The last assigned TxSequenceID, one record."""
    MESSAGE_ID_HISTORY = 4
    """The pages of MessageIDHistoryTable, 3.1.1.3."""
    SEQUENCE_OWNER = 6
    """The queue manager that an outgoing sequence leads to: not of the specification."""
    PEER_TLS = 5
    """Peers that have shown that they speak TLS: not of the specification."""


class Record(NamedTuple):
    """Put (or with a value of None delete) ``key`` in ``family``."""

    family: Family
    key: bytes
    value: bytes | None
