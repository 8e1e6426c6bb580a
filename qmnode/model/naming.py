"""Which queue a name means: path names and format names (MS-MQMQ 2.1) against the queues of this queue manager."""

from typing import TYPE_CHECKING, Final

from qmnode.errors import MessageQueuingError
from qmnode.model.api import QueueType
from qmnode.structures.acks import ORDER_QUEUE
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import (
    LOCAL_COMPUTER,
    ConnectorFormatName,
    DirectFormatName,
    DirectProtocol,
    FormatName,
    MachineFormatName,
    MachineQueue,
    MulticastFormatName,
    MultipleElementFormatName,
    PathName,
    PrivateFormatName,
    PublicFormatName,
    QueueNameError,
    parse_format_name,
)
from qmnode.structures.names.parts import fold

if TYPE_CHECKING:
    from collections.abc import Collection

    from qmnode.model.queue import Queue
    from qmnode.model.queue_manager import QueueManager

_LOCAL_ADDRESSES: Final = frozenset(("127.0.0.1", "::1"))
_NAMED_BY_FORMAT_NAME: Final = (QueueType.OUTGOING, QueueType.CONNECTOR)
_MACHINE_QUEUES: Final = {queue: f"SYSTEM$;{queue.value}" for queue in MachineQueue}


class Names:
    """The queues of a queue manager by their names."""

    def __init__(self, manager: "QueueManager", computer_names: tuple[str, ...], addresses: tuple[str, ...]) -> None:
        self._manager = manager
        self._computers = frozenset(fold(name) for name in (LOCAL_COMPUTER, "localhost", *computer_names))
        self._addresses = _LOCAL_ADDRESSES | frozenset(addresses)
        self._by_path: dict[str, Queue] = {}
        self._by_number: dict[int, Queue] = {}
        self._by_identifier: dict[bytes, Queue] = {}
        self._outgoing: dict[str, Queue] = {}
        self._highest = ORDER_QUEUE.private_queue_identifier
        """Of the numbers of private queues. Those up to the order queue's are the system's."""

    # The collection

    def add(self, queue: "Queue") -> None:
        """A queue is there."""
        if queue.queue_type in _NAMED_BY_FORMAT_NAME:
            self._outgoing[fold(queue.pathname)] = queue
            return
        self._by_path[fold(queue.pathname.partition("\\")[2])] = queue
        if queue.queue_type is QueueType.PRIVATE and queue.parent is None:
            self._by_number[queue.private_queue_number] = queue
            self._highest = max(self._highest, queue.private_queue_number)
        elif queue.queue_type is QueueType.PUBLIC and queue.parent is None:
            self._by_identifier[queue.identifier] = queue

    def remove(self, queue: "Queue") -> None:
        """A queue is gone."""
        self._outgoing.pop(fold(queue.pathname), None)
        self._by_path.pop(fold(queue.pathname.partition("\\")[2]), None)
        if queue.parent is None:
            self._by_number.pop(queue.private_queue_number, None)
            self._by_identifier.pop(queue.identifier, None)

    def free_number(self) -> int:
        """A PrivateQueueNumber that no private queue has (3.1.7.1.3)."""
        self._highest += 1
        return self._highest

    # Names to queues

    def path(self, text: str) -> PathName:
        """A path name of this computer. MQ_ERROR_ILLEGAL_QUEUE_PATHNAME."""
        try:
            name = PathName.parse(text)
        except QueueNameError as error:
            raise MessageQueuingError(error.code, error.sentence) from None
        if fold(name.computer) not in self._computers:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME,
                f"{text} is on computer {name.computer}, and this is {self._manager.computer_name}",
            )
        return PathName(self._manager.computer_name, name.queue, name.kind, name.subqueue, name.journal)

    @staticmethod
    def parse(text: str) -> "FormatName | MultipleElementFormatName":
        """Any format name. MQ_ERROR_ILLEGAL_FORMATNAME."""
        try:
            return parse_format_name(text)
        except QueueNameError as error:
            raise MessageQueuingError(error.code, error.sentence) from None

    def by_path(self, name: PathName) -> "Queue | None":
        """The queue, journal or subqueue of a path name, whatever its computer."""
        if name.journal:
            owner = self._by_path.get(fold(PathName(name.computer, name.queue, name.kind).local_name))
            return None if owner is None or owner.parent is not None else owner.journal
        return self._by_path.get(fold(name.local_name))

    def is_local(self, name: "FormatName") -> bool:
        """Whether the queue of this name would be here."""
        match name:
            case DirectFormatName(protocol=DirectProtocol.TCP):
                return name.path.computer in self._addresses
            case DirectFormatName():
                return fold(name.path.computer) in self._computers
            case PrivateFormatName() | MachineFormatName():
                return name.computer == self._manager.identifier
            case PublicFormatName():
                return name.queue in self._by_identifier
            case ConnectorFormatName():
                return True
            case _:
                return False

    def local(self, name: "FormatName") -> "Queue | None":
        """The queue here that a name means, or None."""
        match name:
            case DirectFormatName():
                return self.by_path(name.path)
            case PrivateFormatName():
                return self._owner_or_journal(self._by_number.get(name.queue), name.journal)
            case PublicFormatName():
                return self._owner_or_journal(self._by_identifier.get(name.queue), name.journal)
            case MachineFormatName() if name.queue is not None:
                return self._by_path.get(_MACHINE_QUEUES[name.queue])
            case ConnectorFormatName():
                return self.outgoing(name)
            case _:
                return None

    @staticmethod
    def _owner_or_journal(queue: "Queue | None", journal: bool) -> "Queue | None":
        return queue.journal if queue is not None and journal else queue

    def outgoing(self, name: "FormatName") -> "Queue | None":
        """The outgoing queue to this destination."""
        return self._outgoing.get(fold(str(name)))

    def all_outgoing(self) -> "Collection[Queue]":
        """Outgoing and connector queues, the oldest first."""
        return self._outgoing.values()

    def find(self, text: str) -> "Queue":
        """The queue of a path name or a format name. MQ_ERROR_QUEUE_NOT_FOUND."""
        queue: Queue | None
        if "=" in text.partition("\\")[0]:
            name = self.parse(text)
            if isinstance(name, MultipleElementFormatName):
                queue = None
            else:
                queue = (self.local(name) if self.is_local(name) else None) or self.outgoing(name)
        else:
            queue = self.by_path(self.path(text))
        if queue is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"there is no queue {text} on {self._manager.computer_name}"
            )
        return queue

    # Queues to names

    def format_name_of(self, queue: "Queue") -> str:
        """A format name that opens the queue: direct, since subqueues have no other."""
        if queue.queue_type in _NAMED_BY_FORMAT_NAME:
            return queue.pathname
        return f"DIRECT=OS:{queue.pathname}"


def is_unsupported(name: "FormatName") -> bool:
    """Whether messages could go there only by HTTP or multicast, which the node does not speak."""
    if isinstance(name, MulticastFormatName):
        return True
    return isinstance(name, DirectFormatName) and name.protocol in (DirectProtocol.HTTP, DirectProtocol.HTTPS)
