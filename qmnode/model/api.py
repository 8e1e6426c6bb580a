r"""The application interface, with one definition for two implementations.

``qmnode.QueueManager.open(path)`` runs a queue manager in this process; ``qmnode.connect(address)`` uses the node that
runs as a service. Both return these classes. Every operation that fails raises
:class:`qmnode.errors.MessageQueuingError` with the MQ_ERROR code that the specification names for it.

    async with QueueManager.open("/var/lib/qmnode") as qm:
        await qm.create_queue(r".\private$\orders", transactional=True)
        queue = await qm.open_queue(r"DIRECT=OS:.\private$\orders", Access.SEND)
        async with qm.transaction() as tx:
            await queue.send(Message(b"order 7", label="order"), transaction=tx)

Results are durable: when ``send`` of a recoverable message, ``receive`` or ``commit`` returns, its write has been
synced. Concurrent calls share one sync, so many tasks, ``send_many`` and ``receive_many`` are faster than one call
after the other.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag, StrEnum
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypedDict, Unpack

from qmnode.model.administration import AdministrationApi
from qmnode.model.message import Message
from qmnode.model.waiting_reasons import Waiting
from qmnode.objects.rows import NO_QUOTA
from qmnode.structures.enumerations import QueuePrivacyLevel
from qmnode.structures.guid import ZERO_GUID, Guid


class Access(IntFlag):
    """QueueAccessType: MS-MQDMPR 3.1.1.17, with the numbers that MS-MQMP gives them on the wire (dwDesiredAccess)."""

    RECEIVE = 0x01
    """Peek, receive and purge."""
    SEND = 0x02
    MOVE = 0x04
    PEEK = 0x20
    ADMIN = 0x80
    RECEIVE_ADMIN = 0x81
    """Peek, receive and purge on an outgoing queue."""
    PEEK_ADMIN = 0xA0


class Share(IntEnum):
    """How a queue is shared: QueueShareMode, MS-MQDMPR 3.1.1.17."""

    DENY_NONE = 0
    DENY_RECEIVE = 1
    """No other handle may receive from the queue while it is open."""


class QueueType(StrEnum):
    """The kinds of queue: QueueType, MS-MQDMPR 3.1.1.2."""

    PRIVATE = "private"
    PUBLIC = "public"
    SYSTEM = "system"
    CONNECTOR = "connector"
    OUTGOING = "outgoing"


class QueueProperties(TypedDict, total=False):
    """Properties that can be set on a queue: MS-MQDMPR 3.1.7.1.3. Quotas are in KB, 0xFFFFFFFF means none."""

    # properties: queue, types
    label: str
    type: Guid
    journaling: bool
    quota: int
    journal_quota: int
    authentication: bool
    privacy_level: int
    transactional: bool
    multicast_address: str
    security: bytes
    base_priority: int
    duplicate_window: int
    declared: bool
    max_deliveries: int
    retry_pause: int
    retry_factor: int
    retry_longest_pause: int
    # end of properties


@dataclass(frozen=True, slots=True)
class DirectoryLogin:
    """A user of the directory: the application's credentials, with which a node writes its public queues there.

    Where the enterprise has weakened security (MS-MQDMPR 3.1.1.6), the node uses its own instead.
    """

    account: str
    password: str = field(repr=False)


class QueueAttributes:
    """The same properties as attributes."""

    # properties: queue, types
    label: str
    type: Guid
    journaling: bool
    quota: int
    journal_quota: int
    authentication: bool
    privacy_level: int
    transactional: bool
    multicast_address: str
    security: bytes
    base_priority: int
    duplicate_window: int
    declared: bool
    max_deliveries: int
    retry_pause: int
    retry_factor: int
    retry_longest_pause: int
    # end of properties


@dataclass(frozen=True, slots=True)
class QueueInformation:
    """The current attributes of a queue: MS-MQDMPR 3.1.1.2 and, for outgoing queues, 3.1.1.3."""

    pathname: str
    format_name: str
    queue_type: QueueType
    identifier: Guid = ZERO_GUID
    private_queue_number: int = 0
    # properties: queue, of the first release
    label: str = ""
    type: Guid = ZERO_GUID
    journaling: bool = False
    quota: int = NO_QUOTA
    journal_quota: int = NO_QUOTA
    authentication: bool = False
    privacy_level: int = QueuePrivacyLevel.OPTIONAL
    transactional: bool = False
    multicast_address: str = ""
    base_priority: int = 0
    # end of properties
    create_time: int = 0
    modify_time: int = 0
    message_count: int = 0
    total_bytes: int = 0
    journal_message_count: int = 0
    journal_total_bytes: int = 0
    active: bool = False
    subqueues: tuple[str, ...] = ()
    state: str = ""
    """State of an outgoing queue (3.1.1.3). Of others ``on hold`` if they are paused, else empty."""
    next_hops: tuple[str, ...] = ()
    # properties: queue, of later releases
    duplicate_window: int = 0
    declared: bool = False
    max_deliveries: int = 0
    retry_pause: int = 0
    retry_factor: int = 2
    retry_longest_pause: int = 3600
    # end of properties
    reason: str = field(default="", kw_only=True)
    """The sentence of ``waiting``; empty without one."""
    waiting: Waiting | None = field(default=None, kw_only=True)
    """The reason why the messages of an outgoing queue wait, or why a queue refused the last message from elsewhere."""
    oldest_arrival: float | None = field(default=None, kw_only=True)
    """When the message that has waited longest arrived at the node, in seconds since 1970 (UTC)."""
    journal_oldest_arrival: float | None = field(default=None, kw_only=True)


class TransactionApi(ABC):
    """A unit of work: MS-MQDMPR 3.1.1.14. As a context manager it commits, or aborts if the block raises."""

    identifier: Guid

    @abstractmethod
    async def prepare(self) -> None:
        """Make sure that the transaction can be committed, even after a crash (3.1.4.3)."""

    @abstractmethod
    async def commit(self) -> None:
        """Apply all operations (3.1.4.4), and sync them. Raises MQ_ERROR_TRANSACTION_SEQUENCE if it has ended."""

    @abstractmethod
    async def abort(self) -> None:
        """Undo all operations (3.1.4.5): received messages are available again, in their old place."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.commit()
        else:
            await self.abort()


InTransaction = TransactionApi | Literal["single"] | None
"""The transaction that a call is part of. ``"single"`` makes a transaction for this call alone (MQ_SINGLE_MESSAGE)."""


class Closing(ABC):
    """As a context manager it is closed at the end of the block."""

    @abstractmethod
    async def close(self) -> None:
        """Release everything that it holds. Closing again does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class CursorApi(Closing):
    """A position that moves through a queue: MS-MQDMPR 3.2."""

    @abstractmethod
    async def peek(self, timeout: float | None = None) -> Message:
        """Return the message at the cursor (3.1.7.1.15). Raises MQ_ERROR_MESSAGE_ALREADY_RECEIVED if it is gone."""

    @abstractmethod
    async def peek_next(self, timeout: float | None = None) -> Message:
        """Step to the next message and return it. MQ_ERROR_ILLEGAL_CURSOR_ACTION before the first peek (3.1.7.1.14)."""

    @abstractmethod
    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Receive the message at the cursor (3.1.7.1.10)."""

    @abstractmethod
    async def close(self) -> None:
        """Close the cursor; reads that wait on it are cancelled (3.1.7.1.2)."""


Seek = Literal["first", "last", "next", "prev", "current"]


class QueueApi(Closing):
    """An open queue (OpenQueueDescriptor, MS-MQDMPR 3.1.1.16).

    ``timeout`` is in seconds: None waits for ever, 0 does not wait. A timeout raises MQ_ERROR_IO_TIMEOUT. Every call
    raises MQ_ERROR_INVALID_HANDLE after ``close``, and MQ_ERROR_QUEUE_NOT_AVAILABLE after the queue was deleted. An
    operation that the handle's access does not allow raises MQ_ERROR_ACCESS_DENIED.
    """

    format_name: str
    access: Access
    share: Share
    user_id: int | None = None
    """The Linux user who signs messages that ask for authentication; None is the user of this process."""

    @abstractmethod
    async def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        """Send a message and return its identifier (20 bytes). The message object may be sent again.

        Raises MQ_ERROR_TRANSACTION_USAGE for a transaction on a queue that is not transactional, or none on one that
        is, and MQ_ERROR_INSUFFICIENT_RESOURCES if a quota would be exceeded; the message says which.
        """

    @abstractmethod
    async def send_many(self, messages: Iterable[Message], transaction: InTransaction = None) -> list[bytes]:
        """Send all messages, in order, with one sync. If one is refused, none is sent."""

    @abstractmethod
    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Receive the first message, waiting for one if the queue is empty (3.1.7.1.10)."""

    @abstractmethod
    async def receive_many(
        self, limit: int, timeout: float | None = None, transaction: InTransaction = None
    ) -> list[Message]:
        """Receive up to ``limit`` messages with one sync, fewer if they are large: it stops after 16 MiB.

        Waits only for the first message; the list is never empty.
        """

    @abstractmethod
    async def peek(self, timeout: float | None = None) -> Message:
        """Return the first message without removing it (3.1.7.1.15)."""

    @abstractmethod
    async def receive_by_lookup_id(self, lookup_identifier: int, transaction: InTransaction = None) -> Message:
        """Receive the message with this lookup identifier (3.1.7.1.13).

        Raises MQ_ERROR_MESSAGE_NOT_FOUND if there is none, MQ_ERROR_MESSAGE_ALREADY_RECEIVED if a transaction has
        received it.
        """

    @abstractmethod
    async def peek_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        """Return the message with this lookup identifier, its neighbour on either side, or the first or last."""

    @abstractmethod
    async def receive_begin(self, timeout: float | None = None) -> Message:
        """Lock the first message and return it (Dequeue Message Begin, 3.1.7.1.11). Finish with ``receive_end``."""

    @abstractmethod
    async def receive_end(self, lookup_identifier: int, delete: bool) -> None:
        """Remove the message that ``receive_begin`` locked, or make it available again (3.1.7.1.12)."""

    @abstractmethod
    def cursor(self) -> CursorApi:
        """Open a cursor that stands before the first message (3.1.7.1.1)."""

    @abstractmethod
    async def move(self, lookup_identifier: int, target: "QueueApi", transaction: InTransaction = None) -> None:
        """Move a message between a queue and its subqueues; ``target`` must be open with Access.MOVE (3.1.7.1.16)."""

    @abstractmethod
    async def purge(self) -> None:
        """Delete all messages (3.1.7.1.7). Those that a transaction holds are deleted when it ends, if it aborts."""

    @abstractmethod
    async def close(self) -> None:
        """Close the handle and its cursors, and cancel its waiting reads (3.1.7.1.6). Closing again does nothing."""

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Message]:
        while True:
            yield await self.receive()


class QueueManagerApi(Closing, AdministrationApi):
    """A queue manager with its queues: MS-MQDMPR 3.1.1.1."""

    identifier: Guid
    computer_name: str

    @abstractmethod
    async def create_queue(self, pathname: str, **properties: Unpack[QueueProperties]) -> QueueInformation:
        r"""Create a queue (3.1.7.1.3), ``.\private$\name`` or ``.\name``. Raises MQ_ERROR_QUEUE_EXISTS."""

    @abstractmethod
    async def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages (3.1.7.1.4). ``name`` is a path name or a format name."""

    @abstractmethod
    async def set_queue(self, name: str, **properties: Unpack[QueueProperties]) -> QueueInformation:
        """Change properties of a queue; ``transactional`` cannot change."""

    @abstractmethod
    async def queue(self, name: str) -> QueueInformation:
        """Return one queue, by path name or format name. Raises MQ_ERROR_QUEUE_NOT_FOUND."""

    @abstractmethod
    async def queues(self, kinds: Sequence[QueueType] | None = None) -> list[QueueInformation]:
        """All queues, or those of the given types, in the order of their path names."""

    @abstractmethod
    async def find_queues(
        self, *, label: str | None = None, type: Guid | None = None, computer: str | None = None
    ) -> list[QueueInformation]:
        """The public queues of the enterprise with this label and type, on this computer, in the order of path names.

        They are read from the directory, so counts of messages are 0. Raises MQ_ERROR_NO_DS without a directory and
        while it is away, and MQ_ERROR_MACHINE_NOT_FOUND for a computer that it does not know.
        """

    @abstractmethod
    async def open_queue(
        self, format_name: str, access: Access = Access.RECEIVE, share: Share = Share.DENY_NONE
    ) -> QueueApi:
        """Open a queue (3.1.7.1.5), with the specification's errors for access and share modes that do not go together.

        Format names of several elements and distribution lists open for SEND only. A queue on another machine opens
        for SEND through an outgoing queue.
        """

    @abstractmethod
    def transaction(self) -> TransactionApi:
        """Begin an internal transaction."""

    @abstractmethod
    async def pause_queue(self, name: str) -> None:
        """Keep the messages of a queue in it until it is resumed, also after a restart: an outgoing queue sends none
        (3.1.4.14), and receives from any other wait as if it were empty. Messages still come in, and can be peeked.
        A receive that names its message fails with MQ_ERROR_MESSAGE_NOT_FOUND.
        """

    @abstractmethod
    async def resume_queue(self, name: str) -> None:
        """Send from a paused outgoing queue again (3.1.4.15), or let receivers have the messages of another one."""

    @abstractmethod
    async def close(self) -> None:
        """Stop the queue manager after pending writes are on disk."""


class TransportSecurity(NamedTuple):
    """The settings in force now."""

    mode: str = ""
    """``offer``, ``prefer`` or ``require``; empty without TLS."""
    plain_peers: tuple[str, ...] = ()
    """Machines that are declared to speak in clear."""
    certificate: Path | None = None
    """The file with the node's own certificate."""
