"""The interface that applications use: one, with two ways in.

``qmnode.QueueManager.open(path)`` runs a queue manager in this process; ``qmnode.connect(address)`` speaks to the
node that runs as a service. Both give these classes. Every operation that fails raises
:class:`qmnode.errors.MessageQueuingError` with the MQ_ERROR code that the specification names for it.

    async with QueueManager.open("/var/lib/qmnode") as qm:
        await qm.create_queue(r".\\private$\\orders", transactional=True)
        queue = await qm.open_queue(r"DIRECT=OS:.\\private$\\orders", Access.SEND)
        async with qm.transaction() as tx:
            await queue.send(Message(b"order 7", label="order"), transaction=tx)

No answer leaves before what it says is on disk: when ``send`` of a recoverable message, ``receive`` or ``commit``
returns, its write has been synced. Calls that are made at the same time share one sync, so that many tasks,
``send_many`` and ``receive_many`` are faster than one call after the other.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag, StrEnum
from types import TracebackType
from typing import Literal, Self, TypedDict, Unpack

from qmnode.model.administration import AdministrationApi
from qmnode.model.message import INFINITE, Message
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.queue_attributes import QueuePrivacyLevel


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
    """QueueShareMode: MS-MQDMPR 3.1.1.17."""

    DENY_NONE = 0
    DENY_RECEIVE = 1
    """Nobody else may receive from the queue while it is open."""


class QueueType(StrEnum):
    """QueueType: MS-MQDMPR 3.1.1.2."""

    PRIVATE = "private"
    PUBLIC = "public"
    SYSTEM = "system"
    CONNECTOR = "connector"
    OUTGOING = "outgoing"


class QueueProperties(TypedDict, total=False):
    """What may be set on a queue: MS-MQDMPR 3.1.7.1.3. Quotas are in KB, 0xFFFFFFFF is none."""

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


@dataclass(frozen=True, slots=True)
class QueueInformation:
    """A queue as its attributes stand now: MS-MQDMPR 3.1.1.2 and, for outgoing queues, 3.1.1.3."""

    pathname: str
    format_name: str
    queue_type: QueueType
    identifier: Guid = ZERO_GUID
    private_queue_number: int = 0
    label: str = ""
    type: Guid = ZERO_GUID
    journaling: bool = False
    quota: int = INFINITE
    journal_quota: int = INFINITE
    authentication: bool = False
    privacy_level: int = QueuePrivacyLevel.OPTIONAL
    transactional: bool = False
    multicast_address: str = ""
    base_priority: int = 0
    create_time: int = 0
    modify_time: int = 0
    message_count: int = 0
    total_bytes: int = 0
    journal_message_count: int = 0
    journal_total_bytes: int = 0
    active: bool = False
    subqueues: tuple[str, ...] = ()
    state: str = ""
    """State of an outgoing queue (3.1.1.3); empty for others."""
    next_hops: tuple[str, ...] = ()


class TransactionApi(ABC):
    """A unit of work: MS-MQDMPR 3.1.1.14. As a context manager it commits, or aborts when the block raises."""

    identifier: Guid

    @abstractmethod
    async def prepare(self) -> None:
        """Make sure that the transaction can be committed, also after a crash (3.1.4.3)."""

    @abstractmethod
    async def commit(self) -> None:
        """Do all of it (3.1.4.4). When this returns it is on disk. MQ_ERROR_TRANSACTION_SEQUENCE when it had ended."""

    @abstractmethod
    async def abort(self) -> None:
        """Do none of it (3.1.4.5): what was received is available again, in its old place."""

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
"""The transaction that a call is part of. ``"single"`` makes a transaction of this one call (MQ_SINGLE_MESSAGE)."""


class CursorApi(ABC):
    """A position that walks through a queue: MS-MQDMPR 3.2."""

    @abstractmethod
    async def peek(self, timeout: float | None = None) -> Message:
        """The message at the cursor. MQ_ERROR_MESSAGE_ALREADY_RECEIVED if someone took it (3.1.7.1.15)."""

    @abstractmethod
    async def peek_next(self, timeout: float | None = None) -> Message:
        """Step to the next message and return it. MQ_ERROR_ILLEGAL_CURSOR_ACTION before the first peek (3.1.7.1.14)."""

    @abstractmethod
    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Take the message at the cursor out of the queue (3.1.7.1.10)."""

    @abstractmethod
    async def close(self) -> None:
        """Close the cursor; reads that wait on it are cancelled (3.1.7.1.2)."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


Seek = Literal["first", "last", "next", "prev", "current"]


class QueueApi(ABC):
    """An open queue (OpenQueueDescriptor, MS-MQDMPR 3.1.1.16).

    ``timeout`` is in seconds. None waits for ever, 0 does not wait; MQ_ERROR_IO_TIMEOUT when it passes. After ``close``
    every call raises MQ_ERROR_INVALID_HANDLE; after the queue was deleted, MQ_ERROR_QUEUE_NOT_AVAILABLE;
    for an operation that the access it was opened with does not allow, MQ_ERROR_ACCESS_DENIED.
    """

    format_name: str
    access: Access
    share: Share
    user_id: int | None = None
    """The Linux user for whom messages are signed that ask for authentication; None is who this process runs as."""

    @abstractmethod
    async def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        """Send, and return the message identifier (20 bytes). The message object may be sent again.

        MQ_ERROR_TRANSACTION_USAGE: a transaction for a queue that is not transactional, or none for one that is.
        MQ_ERROR_INSUFFICIENT_RESOURCES: a quota would be passed; the sentence says which.
        """

    @abstractmethod
    async def send_many(self, messages: Iterable[Message], transaction: InTransaction = None) -> list[bytes]:
        """Send all of them, in order, with one sync. If one is refused, none is sent."""

    @abstractmethod
    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Take the first message, waiting for one if there is none (3.1.7.1.10)."""

    @abstractmethod
    async def receive_many(
        self, limit: int, timeout: float | None = None, transaction: InTransaction = None
    ) -> list[Message]:
        """Take up to ``limit`` messages with one sync, fewer when they are large: it stops after 16 MiB.

        Waits only for the first; the list is never empty.
        """

    @abstractmethod
    async def peek(self, timeout: float | None = None) -> Message:
        """The first message, which stays (3.1.7.1.15)."""

    @abstractmethod
    async def receive_by_lookup_id(self, lookup_identifier: int, transaction: InTransaction = None) -> Message:
        """Take the message with this lookup identifier (3.1.7.1.13).

        MQ_ERROR_MESSAGE_NOT_FOUND: it is not there. MQ_ERROR_MESSAGE_ALREADY_RECEIVED: a transaction has it.
        """

    @abstractmethod
    async def peek_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        """The message with this lookup identifier, or the one before or after it, or the first or last of the queue."""

    @abstractmethod
    async def receive_begin(self, timeout: float | None = None) -> Message:
        """Lock the first message and return it (Dequeue Message Begin, 3.1.7.1.11). Finish with ``receive_end``."""

    @abstractmethod
    async def receive_end(self, lookup_identifier: int, delete: bool) -> None:
        """Take the message that ``receive_begin`` locked out of the queue, or make it available again (3.1.7.1.12)."""

    @abstractmethod
    def cursor(self) -> CursorApi:
        """A new cursor before the first message (3.1.7.1.1)."""

    @abstractmethod
    async def move(self, lookup_identifier: int, target: "QueueApi", transaction: InTransaction = None) -> None:
        """Move a message between a queue and its subqueues; ``target`` is open with Access.MOVE (3.1.7.1.16)."""

    @abstractmethod
    async def purge(self) -> None:
        """Delete every message (3.1.7.1.7). Those that a transaction holds go when it ends, if it aborts."""

    @abstractmethod
    async def close(self) -> None:
        """Close the handle, its cursors, and cancel its waiting reads (3.1.7.1.6). Closing again does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Message]:
        while True:
            yield await self.receive()


class QueueManagerApi(AdministrationApi):
    """A queue manager: MS-MQDMPR 3.1.1.1."""

    identifier: Guid
    computer_name: str

    @abstractmethod
    async def create_queue(self, pathname: str, **properties: Unpack[QueueProperties]) -> QueueInformation:
        """Create a queue (3.1.7.1.3), ``.\\private$\\name`` or ``.\\name``. MQ_ERROR_QUEUE_EXISTS if there is one."""

    @abstractmethod
    async def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages (3.1.7.1.4). ``name`` is a path name or a format name."""

    @abstractmethod
    async def set_queue(self, name: str, **properties: Unpack[QueueProperties]) -> QueueInformation:
        """Change properties of a queue; ``transactional`` cannot change."""

    @abstractmethod
    async def queue(self, name: str) -> QueueInformation:
        """One queue, by path name or format name. MQ_ERROR_QUEUE_NOT_FOUND."""

    @abstractmethod
    async def queues(self, kinds: Sequence[QueueType] | None = None) -> list[QueueInformation]:
        """All queues, or those of the given types, in the order of their path names."""

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
        """A new internal transaction."""

    @abstractmethod
    async def pause_queue(self, name: str) -> None:
        """Stop sending from an outgoing queue (3.1.4.14)."""

    @abstractmethod
    async def resume_queue(self, name: str) -> None:
        """Send from a paused outgoing queue again (3.1.4.15)."""

    @abstractmethod
    async def close(self) -> None:
        """Stop, after what was being written is on disk."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
