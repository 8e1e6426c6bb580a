"""What the model needs of the world: a store, a clock, and whoever decides about access."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from qmnode.model.traffic import Histogram

if TYPE_CHECKING:
    from qmnode.model.administration import IncomingSequenceInformation, StorageCondition, TransferInformation
    from qmnode.model.api import Access, QueueApi, Share
    from qmnode.model.outgoing import OutgoingQueue
    from qmnode.model.queue import Queue
    from qmnode.structures.guid import Guid
    from qmnode.structures.names import FormatName


Entry = tuple[int, bytes]
"""A stored message: its lookup identifier and its value (see :mod:`qmnode.model.record`)."""

PutSignature = Callable[[bytes], bytes]
"""Puts a signature that was made before into the value of the message that it was made for."""


class TimerHandle(Protocol):
    """A timer that was started."""

    def cancel(self) -> None:
        """Stop it; a timer that has fired takes no notice."""


class Clock(Protocol):
    """Time, passed in so that tests can turn it."""

    def time(self) -> float:
        """Seconds since 1970 (UTC)."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> TimerHandle:
        """Call back after ``delay`` seconds."""


class MessageStore(Protocol):
    """The store, as the model sees it.

    Writes join the batch of this pass of the event loop. ``durable`` gives the one future that all writers of the pass
    wait for: it is done when the batch is on disk. Reads see only what was flushed, so that the model flushes before
    it reads.
    """

    before_write: Callable[[], None]
    """Called before a batch is written, to add what belongs to every batch (the counters of the queues it touched)."""

    @property
    def write_durations(self) -> Histogram:
        """From the first change of a batch until it is on disk."""

    def put_message(self, queue_id: int, lookup_identifier: int, value: bytes) -> None:
        """Store a recoverable message."""

    def delete_message(self, queue_id: int, lookup_identifier: int) -> None:
        """Delete a recoverable message."""

    def put_express(self, queue_id: int, lookup_identifier: int, value: bytes) -> None:
        """Store an express message, which no restart will find."""

    def delete_express(self, queue_id: int, lookup_identifier: int) -> None:
        """Delete an express message."""

    def get_message(self, queue_id: int, lookup_identifier: int) -> bytes | None:
        """The value of a message of either kind."""

    def read_messages(self, queue_id: int, first: int, last: int, limit: int, size: int, express: bool) -> list[Entry]:
        """Recoverable (and express) messages from ``first`` to ``last``, until ``limit`` messages or ``size`` bytes."""

    def read_backwards(self, queue_id: int, last: int, first: int, limit: int, express: bool) -> list[Entry]:
        """The same from the end: messages from ``last`` down to ``first``."""

    def delete_messages(self, queue_id: int, first: int, stop: int) -> None:
        """Delete every message from ``first`` up to but without ``stop``, of both kinds, as a range."""

    def put_outgoing(self, queue_id: int, record: bytes) -> None:
        """Store where an outgoing queue is in its sequence."""

    def get_outgoing(self, queue_id: int) -> bytes | None:
        """Read it."""

    @property
    def sequence_time_stamp(self) -> int:
        """The least time stamp that a new outgoing sequence may have; newer in a restored or copied store."""

    def put_expiry(self, when: int, queue_id: int, lookup_identifier: int) -> None:
        """Remember that a message expires at ``when`` (seconds since 1970)."""

    def delete_expiry(self, when: int, queue_id: int, lookup_identifier: int) -> None:
        """Forget it."""

    def read_expiry(self, first: tuple[int, int, int], last: int, limit: int) -> list[tuple[int, int, int]]:
        """(when, queue, lookup identifier) from such an entry to the second ``last``, the earliest first."""

    def put_queue(self, queue_id: int, definition: bytes) -> None:
        """Store a queue's definition."""

    def delete_queue(self, queue_id: int) -> None:
        """Delete a queue's definition and counters."""

    def read_queues(self) -> list[tuple[int, bytes]]:
        """All definitions."""

    def put_counters(self, queue_id: int, counters: bytes) -> None:
        """Store how many messages a queue has and where it begins."""

    def read_counters(self) -> dict[int, bytes]:
        """All counters."""

    def delete_transaction(self, identifier: bytes) -> None:
        """Forget it."""

    def read_transactions(self) -> list[tuple[bytes, bytes]]:
        """All prepared transactions."""

    def named_dead_letters(self) -> None:
        """A message with a dead-letter queue of its own will be stored."""

    def put_meta_apart(self, name: str, value: bytes) -> None:
        """Store a fact about the node now, synced, and leave the batch of this pass as it is."""

    def put_meta(self, name: str, value: bytes) -> None:
        """Store a fact about the node."""

    def get_meta(self, name: str) -> bytes | None:
        """Read it."""

    def durable(self) -> "asyncio.Future[None]":
        """The future of the batch of this pass. Done when it is on disk; raises StoreError if it could not be."""

    def pending(self) -> "asyncio.Future[None] | None":
        """The future of what is written but not yet on disk, or None."""

    def make_visible(self) -> None:
        """Write the batch now, so that reads see it."""

    def check(self) -> None:
        """Raise StoreError if the store can no longer be written."""

    def condition(self) -> "StorageCondition":
        """How the store is, and the disk under it."""

    def flush(self) -> None:
        """Write the batch now, and sync it, without waiting for the end of the pass."""

    def close(self) -> None:
        """Write what is pending and close."""


class Recorder(Protocol):
    """Whoever keeps a record of what happens to messages. What it writes is in the batch of what it tells."""

    def inserted(self, queue: "Queue", value: bytes) -> None:
        """A message came into a queue."""

    def deleted(self, queue: "Queue", value: bytes, reason: int) -> None:
        """A message left its queue for this reason (a class of MS-MQMQ 2.2.20.1)."""

    def transferred(self, queue: "Queue", value: bytes) -> None:
        """The next hop has a message: it left its outgoing queue."""

    def refused(self, packet: bytes, reason: int) -> None:
        """A packet that arrived was not taken."""

    def key_used(self, packet: bytes, fingerprint: str) -> None:
        """A packet that arrived was decrypted with this key of the node."""

    def session(self, opened: bool, *, peer: str, peer_identifier: bytes, incoming: bool, state: str = "") -> None:
        """A session was opened or closed."""

    def queue_state(self, queue: "Queue", state: str, peer: str) -> None:
        """An outgoing queue is in another state."""


class AccessPolicy(Protocol):
    """Who may do what: the access check on open (MS-MQDMPR 3.1.7.1.5, rights of MS-MQMQ 2.2.24)."""

    def default_queue_security(self, supplied: bytes) -> bytes:
        """Create Default Queue Security Descriptor (3.1.7.1.3.1); ``supplied`` is what the creator gave, or nothing."""

    def check(self, security: bytes, rights: int, caller: object) -> bool:
        """Whether ``caller`` has these rights under this security descriptor (self-relative; empty means none)."""


class Signing(Protocol):
    """Whoever signs the messages of applications (MS-MQQB 3.1.7.1.4)."""

    async def sign(
        self, values: Sequence[tuple[bytes, int]], user_id: int | None, *, local: bool
    ) -> "list[PutSignature | None]":
        """Sign messages of a Linux user; None is the one that this process runs as.

        Each comes as it would be stored, with the AuthenticationLevel that it asks for; what has level 0, or what the
        specification leaves unsigned, stays as it is. ``local``: they go into a queue of this queue manager.
        Raises MessageQueuingError when the user has nothing to sign with.
        """


class TransitEnd(NamedTuple):
    """How the wait of a message of another queue manager ends here."""

    second: int
    """Since 1970 (UTC)."""
    reason: int
    """A class of MS-MQMQ 2.2.20.1."""


class Network(Protocol):
    """Sessions with other queue managers (MS-MQQB)."""

    def next_numbers(self, queue: "OutgoingQueue", count: int) -> tuple[int, int]:
        """TxSequenceID and TxSequenceNumber of the next transactional message of an outgoing queue (3.1.7.1.3);
        ``count`` messages have the numbers from that one on.

        The record is in the batch of this pass.
        """

    def is_awaited(self, queue: "OutgoingQueue") -> bool:
        """Whether an order acknowledgment for messages of this queue is still to come (MS-MQQB 3.1.5.6)."""

    def transfer_information(self, queue: "OutgoingQueue") -> "TransferInformation":
        """How far its transactional messages are (OutgoingTransferInfo, 3.1.1.4)."""

    def incoming_sequences(self, queue: "Queue | None") -> "list[IncomingSequenceInformation]":
        """Those that come to a queue, or to any, used last first (IncomingTransactionalTransferInfo, 3.1.1.5)."""

    def reset_incoming_sequences(self, source: "Guid", queue: "Queue | None", address: str) -> int:
        """Forget those of a queue manager, to a queue or to any, through a neighbour or any. How many there were."""

    def queue_added(self, queue: "OutgoingQueue") -> None:
        """There is a new outgoing queue."""

    def queue_removed(self, queue: "OutgoingQueue") -> None:
        """It is gone, with its messages."""

    def paused(self, queue: "OutgoingQueue") -> None:
        """Pause Queue (MS-MQQB 3.1.7.13)."""

    def resumed(self, queue: "OutgoingQueue") -> None:
        """Resume Queue (MS-MQQB 3.1.7.14)."""

    def disconnect(self) -> None:
        """Take Offline (MS-MQDMPR 3.1.4.12): close every session, and open none."""

    def connect(self) -> None:
        """Bring Online (3.1.4.13)."""

    def transit_end(self, value: bytes) -> TransitEnd:
        """When a message of another queue manager ends on its way here, as far as is known now: its time to reach its
        queue, or before that the patience with a machine that the directory does not show."""

    def gave_up(self, queue: "OutgoingQueue", value: bytes) -> bool:
        """A message of another queue manager ends here, on its way. Whether no copy of it did before: a message that
        was sent again may be here several times, and is to be told of once."""

    def message_left(self, value: bytes, reason: int) -> None:
        """Message Position Deleted (MS-MQQB 3.1.7.2), for a transactional message of another queue manager: it left
        its queue here for this reason (a class of MS-MQMQ 2.2.20.1), and its source may wait for the word."""


class RemoteReader(Protocol):
    """Whoever reads queues of other queue managers (MS-MQQP)."""

    def reads(self, name: "FormatName", access: "Access") -> bool:
        """Whether a queue can be opened so over there."""

    async def open_queue(self, name: "FormatName", access: "Access", share: "Share") -> "QueueApi":
        """Open a queue of another queue manager."""

    async def close(self) -> None:
        """End the connections to other queue managers."""


class SystemClock:
    """Wall time and the timers of the running event loop."""

    def time(self) -> float:
        """Seconds since 1970 (UTC)."""
        return time.time()

    def call_later(self, delay: float, callback: Callable[[], object]) -> TimerHandle:
        """Call back after ``delay`` seconds."""
        return asyncio.get_running_loop().call_later(delay, callback)
