"""The bounded resources of a node, one row each.

``docs/reference/shares.md`` shows these rows as a table: ``python -m tests.docs.shares_table`` writes it.
"""

from typing import Final, NamedTuple


class Resource(NamedTuple):
    """One bounded resource, and how it is shared."""

    name: str
    """Its name in status and metrics."""
    what: str
    """One unit of it, for the table: 'messages that wait for an unknown machine'."""
    unit: str
    """The unit of the total, such as bytes or places."""
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
    times_free: float = 0.25
    """The most that a block may hold, as a multiple of the units that are free for strangers."""
    peer: float = 1.0
    """The part of the total that one declared peer may hold, and at most three times what it leaves free."""
    evicted: str = "nothing"
    """The holdings that make room for a party that may have more."""


INCOMING_SEQUENCES: Final = Resource(
    "incoming_sequences",
    "positions of incoming transactional sequences: pairs of a source and a destination",
    "places",
    "transfer.incoming_sequences",
    "the message waits at its source",
    evicted="positions of strangers without a message for an hour",
)
HISTORY_SOURCES: Final = Resource(
    "history_sources",
    "sources in the history of message identifiers",
    "places",
    "transfer.history_sources",
    "nothing: the message is accepted",
    times_free=1.0,
    evicted="the oldest of the same party, then of the block with the most",
)
HISTORY_PAGES: Final = Resource(
    "history_sparse_pages",
    "pages with few messages in this history: eight times the setting",
    "places",
    "transfer.history_sparse_pages",
    "nothing: the message is accepted",
    times_free=1.0,
    evicted="the oldest of the same party, then of the block with the most",
)
UNKNOWN_MACHINE_MESSAGES: Final = Resource(
    "unknown_machine_messages",
    "passing messages that wait for a machine which the directory does not show",
    "places",
    "transfer.unknown_machine_messages",
    "a negative acknowledgment: no such queue",
    block=1 / 8,
    times_free=1.0,
    peer=1 / 8,
)
UNKNOWN_MACHINE_BYTES: Final = Resource(
    "unknown_machine_bytes",
    "the bytes of these messages",
    "bytes",
    "transfer.unknown_machine_bytes",
    "the same",
    block=1 / 8,
    times_free=1.0,
    peer=1 / 8,
)
OUTGOING_QUEUES: Final = Resource(
    "outgoing_queues",
    "outgoing queues for messages of others: for messages that pass, and for answers; half of all outgoing queues",
    "places",
    "quotas.outgoing_queues",
    "passing messages wait at the peer; answers are not sent",
    block=1 / 8,
    evicted="queues that are empty",
)
QUOTA: Final = Resource(
    "quota",
    "stored messages: strangers' are taken while all together leave the reserve free, whoever stored them",
    "bytes",
    "quotas.queue_manager_quota",
    "the session is closed, and the messages wait at the peer; refused copies for the dead-letter queue are discarded",
    reserve=1 / 4,
    own=1 / 8,
    block=3 / 4,
)
DELAYED_BYTES: Final = Resource(
    "delayed_bytes",
    "messages that wait for their delivery time: half of the quota; strangers' are taken while all together leave the "
    "reserve free, whoever sent them",
    "bytes",
    "quotas.queue_manager_quota",
    "the message is refused",
    reserve=1 / 2,
    own=1 / 4,
    block=1.0,
    times_free=1.0,
)
HELD_BYTES: Final = Resource(
    "held_bytes",
    "incomplete packets, and received messages that wait for a verification, the directory or the disk",
    "bytes",
    "transport.incomplete_bytes",
    "its connections are not read until some of its messages are stored",
    reserve=5 / 8,
    block=3 / 16,
    evicted="incomplete packets of the same peer that do not grow",
)
NOTICES: Final = Resource(
    "notices",
    "waiting acknowledgments and trace reports that messages of others cause",
    "bytes",
    "quotas.notices",
    "its acknowledgments and reports are not sent",
)
AMQP_PARTIAL_BYTES: Final = Resource(
    "amqp_partial_bytes",
    "messages over AMQP that have begun and are not whole; who logs in is a declared peer",
    "bytes",
    "amqp.partial_bytes",
    "its connection is closed",
    block=0.5,
    times_free=1.0,
)
AMQP_ATTACHED_BYTES: Final = Resource(
    "amqp_attached_bytes",
    "the frames that open AMQP connections and attach their links, also refused ones",
    "bytes",
    "amqp.attached_bytes",
    "its connection is closed",
    times_free=1.0,
)
AMQP_TRANSACTION_BYTES: Final = Resource(
    "amqp_transaction_bytes",
    "messages that AMQP clients have sent in transactions that have not ended",
    "bytes",
    "amqp.transaction_bytes",
    "the message is refused, and the transaction rolled back",
    times_free=1.0,
)
AMQP_TEMPORARY_QUEUES: Final = Resource(
    "amqp_temporary_queues",
    "temporary queues of AMQP clients; who logs in is a declared peer",
    "places",
    "amqp.temporary_queues",
    "its link is refused",
    times_free=1.0,
)
RPC_ANSWER_BYTES: Final = Resource(
    "rpc_answer_bytes",
    "answers to remote procedure calls that the clients have not read; a client that authenticated is a declared peer",
    "bytes",
    "remote_read.answer_bytes",
    "its connection is closed; messages that it was sent return to their queue",
    times_free=1.0,
)
