"""The bounded resources of a node, one row each.

``docs/security.md`` shows these rows as a table: ``python -m tests.docs.shares_table`` writes it.
"""

from typing import Final, NamedTuple


class Resource(NamedTuple):
    """One bounded resource, and how it is shared."""

    name: str
    """Its name in status and metrics."""
    what: str
    """One unit of it, for the table: 'messages that wait for an unknown machine'."""
    unit: str
    """The unit of the total: ``bytes`` or ``places``."""
    setting: str
    """The setting from which the total follows."""
    refused: str
    """The answer to a party that gets no more, for the table."""
    reserve: float = 0.5
    """The part of the total that strangers cannot take."""
    own: float = 0.0
    """The part of the reserve that only local applications and administrators can take."""
    block: float = 0.25
    """The part of the total that one block of strangers may hold."""
    peer: float = 1.0
    """The part of the total that one declared peer may hold, and at most three times what it leaves free."""
    evicted: str = "nothing"
    """The holdings that make room for a party that may have more."""


UNKNOWN_MACHINE_MESSAGES: Final = Resource(
    "unknown_machine_messages",
    "passing messages that wait for a machine which the directory does not show",
    "places",
    "transfer.unknown_machine_messages",
    "a negative acknowledgment: no such queue",
    block=1 / 8,
    peer=1 / 8,
)
UNKNOWN_MACHINE_BYTES: Final = Resource(
    "unknown_machine_bytes",
    "the bytes of these messages",
    "bytes",
    "transfer.unknown_machine_bytes",
    "the same",
    block=1 / 8,
    peer=1 / 8,
)
TRANSIT_QUEUES: Final = Resource(
    "transit_queues",
    "outgoing queues that passing messages create: half of all outgoing queues",
    "places",
    "quotas.outgoing_queues",
    "the messages wait at the peer",
    block=1 / 8,
    evicted="queues that are empty",
)
