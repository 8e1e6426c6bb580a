"""The ports of the model: a store, a clock, the network, access checks and signing."""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from qmnode.model.traffic import Histogram
from qmnode.shares import Kind

if TYPE_CHECKING:
    from qmnode.model.administration import StorageCondition
    from qmnode.model.api import Access, QueueApi, Share
    from qmnode.structures.names import FormatName


Entry = tuple[int, bytes]
"""A stored message: its lookup identifier and its value (see :mod:`qmnode.model.stored_message`)."""

Arrived = tuple[int, bytes | memoryview]
"""The same before it is in a queue: the value may be a view of memory that is lent, and is copied where it is kept."""

PutSignature = Callable[[bytes], bytes]
"""Inserts a previously made signature into the value of its message."""


class TimerHandle(Protocol):
    """A timer that was started."""

    def cancel(self) -> None:
        """Stop the timer; no effect once it has fired."""


class Clock(Protocol):
    """The time source, passed in so that tests can control it."""

    def time(self) -> float:
        """Seconds since 1970 (UTC)."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> TimerHandle:
        """Call ``callback`` after ``delay`` seconds."""


class MessageStore(Protocol):
    """The store, as the model sees it.

    Writes join the current batch of the event loop's pass. ``durable`` returns the one future that all writers of the
    pass wait for: it is done when the batch is on disk. Reads see only flushed writes, so the model flushes before it
    reads.
    """

    before_write: Callable[[], None]
    """Called before a batch is written, to add the counters of the queues that it touched."""

    @property
    def write_durations(self) -> Histogram:
        """Durations from the first change of a batch until it is on disk."""

    def put_message(self, queue_id: int, lookup_identifier: int, value: bytes) -> None:
        """Store a recoverable message that the store does not have."""

    def put_messages(self, queue_id: int, entries: Sequence[Entry]) -> None:
        """Store recoverable messages of one queue that the store does not have."""

    def replace_message(self, queue_id: int, lookup_identifier: int, value: bytes) -> None:
        """Store another value of a recoverable message."""

    def delete_message(self, queue_id: int, lookup_identifier: int, value: bytes) -> None:
        """Delete a recoverable message with this value."""

    def delete_each(self, queue_id: int, entries: Sequence[Entry]) -> None:
        """Delete recoverable messages of one queue."""

    def put_express(self, queue_id: int, lookup_identifier: int, value: bytes) -> None:
        """Store an express message, which is lost in a restart."""

    def delete_express(self, queue_id: int, lookup_identifier: int) -> None:
        """Delete an express message."""

    def get_message(self, queue_id: int, lookup_identifier: int) -> bytes | None:
        """The value of a message of either kind."""

    def read_messages(self, queue_id: int, first: int, last: int, limit: int, size: int, express: bool) -> list[Entry]:
        """Recoverable (and express) messages from ``first`` to ``last``, until ``limit`` messages or ``size`` bytes."""

    def first_beginning(self, queue_id: int, first: int, last: int, size: int, express: bool) -> bytes | None:
        """The first ``size`` bytes of the first message from ``first`` to ``last`` that is written; None if none is."""

    def end_of_run(self, queue_id: int, first: int, last: int, members: Container[int]) -> int:
        """The last of the recoverable messages from ``first`` on that follow each other and are all ``members``;
        ``first - 1`` if the next one is none.
        """

    def read_backwards(self, queue_id: int, last: int, first: int, limit: int, express: bool) -> list[Entry]:
        """The same from the end: messages from ``last`` down to ``first``."""

    def delete_messages(self, queue_id: int, first: int, stop: int) -> None:
        """Delete all messages of both kinds from ``first`` up to, but not including, ``stop``, as a range."""

    def put_outgoing(self, queue_id: int, record: bytes) -> None:
        """Store an outgoing queue's place in its sequence."""

    def get_outgoing(self, queue_id: int) -> bytes | None:
        """Read an outgoing queue's place in its sequence."""

    @property
    def sequence_time_stamp(self) -> int:
        """The lowest time stamp allowed for a new outgoing sequence; newer in a restored or copied store."""

    def put_expiry(self, when: int, queue_id: int, lookup_identifier: int) -> None:
        """Index a message that expires at ``when`` (seconds since 1970)."""

    def delete_expiry(self, when: int, queue_id: int, lookup_identifier: int) -> None:
        """Delete a message from the expiry index."""

    def read_expiry(self, first: tuple[int, int, int], last: int, limit: int) -> list[tuple[int, int, int]]:
        """Index entries (when, queue, lookup identifier) from ``first`` to the second ``last``, the earliest first."""

    def delayed_messages(self) -> None:
        """Note that a message that waits for its delivery time will be stored."""

    def put_delayed(self, due: int, lookup_identifier: int) -> None:
        """Index a delayed message by its delivery time, in milliseconds since 1970."""

    def delete_delayed(self, due: int, lookup_identifier: int) -> None:
        """Delete a delayed message from the index."""

    def read_delayed(self, first: tuple[int, int], last: int, limit: int) -> list[tuple[int, int]]:
        """Index entries (delivery time, lookup identifier) from ``first`` to the time ``last``, the earliest first."""

    def put_identity(self, queue_id: int, digest: bytes, record: bytes) -> None:
        """Store a message id that a queue remembers, by its digest."""

    def put_identity_age(self, queue_id: int, number: int, record: bytes) -> None:
        """Store the same by its number."""

    def delete_identity(self, queue_id: int, digest: bytes) -> None:
        """Delete a message id, by its digest."""

    def delete_identity_age(self, queue_id: int, number: int) -> None:
        """Delete the same by its number."""

    def delete_identities(self, queue_id: int) -> None:
        """Delete all message ids that a queue remembers."""

    def get_identity(self, queue_id: int, digest: bytes) -> bytes | None:
        """The record of a message id, by its digest."""

    def get_identity_age(self, queue_id: int, number: int) -> bytes | None:
        """The record of a message id, by its number."""

    def identity_ages(self, queue_id: int) -> tuple[int, int]:
        """The first and the last number of the message ids of a queue; (0, -1) without any."""

    def put_try(self, queue_id: int, lookup_identifier: int, second: int) -> None:
        """Store when a message may be delivered again; 0 while it is being delivered."""

    def delete_try(self, queue_id: int, lookup_identifier: int) -> None:
        """Delete that record of a message."""

    def delete_tries(self, queue_id: int) -> None:
        """Delete those records of all messages of a queue."""

    def read_tries(self) -> list[tuple[int, int, int]]:
        """All those records: queue, lookup identifier and second."""

    def put_queue(self, queue_id: int, definition: bytes) -> None:
        """Store a queue's definition."""

    def delete_queue(self, queue_id: int) -> None:
        """Delete a queue's definition and counters."""

    def read_queues(self) -> list[tuple[int, bytes]]:
        """Read the definitions of all queues."""

    def put_counters(self, queue_id: int, counters: bytes) -> None:
        """Store the message counts and heads of a queue."""

    def read_counters(self) -> dict[int, bytes]:
        """Read the counters of all queues."""

    def delete_transaction(self, identifier: bytes) -> None:
        """Delete a prepared transaction."""

    def read_transactions(self) -> list[tuple[bytes, bytes]]:
        """Read all prepared transactions."""

    def named_dead_letters(self) -> None:
        """Note that a message with a dead-letter queue of its own will be stored."""

    def put_meta_apart(self, name: str, value: bytes) -> None:
        """Store a fact about the node now, synced, and leave the current batch as it is."""

    def put_meta(self, name: str, value: bytes) -> None:
        """Store a fact about the node."""

    def get_meta(self, name: str) -> bytes | None:
        """Read a fact about the node."""

    def durable(self) -> "asyncio.Future[None]":
        """The future of the current batch. Done when it is on disk; raises StoreError if it could not be written."""

    def pending(self) -> "asyncio.Future[None] | None":
        """The future of writes that are not on disk yet, or None."""

    def make_visible(self) -> None:
        """Write the batch now, so that reads see it."""

    def check(self) -> None:
        """Raise StoreError if the store can no longer be written."""

    def condition(self) -> "StorageCondition":
        """The condition of the store, and of the disk under it."""

    def flush(self) -> None:
        """Write and sync the batch now, without waiting for the end of the pass."""

    def close(self) -> None:
        """Write pending changes and close the store."""


class AccessPolicy(Protocol):
    """The access check on open (MS-MQDMPR 3.1.7.1.5, rights of MS-MQMQ 2.2.24)."""

    @property
    def unproven(self) -> object:
        """The caller in place of the sender of a message that proves no identity."""

    def default_queue_security(self, supplied: bytes, caller: object = None) -> bytes:
        """Create Default Queue Security Descriptor (3.1.7.1.3.1); ``supplied`` is the creator's descriptor, or empty.

        ``caller`` is the creator, or None for the queue manager itself.
        """

    def changed_queue_security(self, current: bytes, supplied: bytes) -> bytes:
        """The descriptor of an existing queue that is given another one."""

    def followed_queue_security(self, current: bytes, said: bytes) -> bytes:
        """The descriptor of a published queue for which the directory says another one."""

    def upgraded_queue_security(self, security: bytes) -> bytes:
        """The descriptor of a queue of an earlier version's store, which was not asked at every door."""

    def system_queue_security(self, upgraded: bool) -> bytes:
        """The descriptor of a dead-letter queue or of the machine's journal."""

    def notification_queue_security(self) -> bytes:
        """The descriptor of the queue of change notifications."""

    def rights_of(self, caller: object) -> bytes:
        """The rights of a caller, to be stored with a message that is delivered later."""

    def caller_with(self, rights: bytes) -> object:
        """A caller with stored rights."""

    def kind_of(self, caller: object) -> Kind:
        """Whether a caller is a local application, a peer with an identity, or a stranger."""

    def outgoing_queue_security(self, machine: bytes) -> bytes:
        """The descriptor of outgoing and connector queues, by the queue manager's own."""

    def machine_security(self, upgraded: bool) -> bytes:
        """The queue manager's own descriptor, with rights of MS-MQMQ 2.2.23."""

    def check_machine(self, security: bytes, rights: int, caller: object) -> bool:
        """Whether ``caller`` has these rights under the queue manager's own descriptor."""

    def sender_identifier(self, caller: object) -> bytes:
        """The SID that unsigned messages of ``caller`` name as their sender (3.1.1.12); empty if they name none."""

    def check(self, security: bytes, rights: int, caller: object) -> bool:
        """Whether ``caller`` has these rights under this security descriptor (self-relative; empty means none)."""


class OwnQueueNames(Protocol):
    """The names of the queues of the sending machine (:class:`qmnode.model.queue_collection.Names`)."""

    version: int

    def for_others(self, name: "FormatName") -> "FormatName":
        """The name by which other machines know the queue of a name that only this machine can use."""


class Signing(Protocol):
    """Signs the messages of applications (MS-MQQB 3.1.7.1.4)."""

    async def sign(
        self, values: Sequence[tuple[bytes, int]], user_id: int | None, *, local: bool
    ) -> "list[PutSignature | None]":
        """Sign messages for a Linux user; None is the user of this process.

        Each value is in its stored form, with the requested AuthenticationLevel; messages with level 0, or that the
        specification leaves unsigned, are unchanged. ``local``: they go into a queue of this queue manager. Raises
        MessageQueuingError if the user has no key to sign with.
        """


class TransitEnd(NamedTuple):
    """The end of the wait of another queue manager's message."""

    second: int
    """Seconds since 1970 (UTC)."""
    reason: int
    """A class of MS-MQMQ 2.2.20.1."""


class RemoteReader(Protocol):
    """Reads queues of other queue managers (MS-MQQP)."""

    def check(self, name: "FormatName", caller: object) -> None:
        """Raise MQ_ERROR_ACCESS_DENIED if this node does not read elsewhere for this caller."""

    def reads(self, name: "FormatName", access: "Access") -> bool:
        """Whether a remote queue can be opened with this access."""

    async def open_queue(self, name: "FormatName", access: "Access", share: "Share") -> "QueueApi":
        """Open a queue of another queue manager."""

    async def close(self) -> None:
        """Close the connections to other queue managers."""
