"""The queues of a queue manager, by number and by name: loaded, created and deleted.

QueueCollection (MS-MQDMPR 3.1.1.1), path names and format names (MS-MQMQ 2.1), and the allowed properties of a queue
(3.1.1.2).
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from secrets import randbelow
from typing import TYPE_CHECKING, Any, Final

from qmnode.errors import MessageQueuingError
from qmnode.model.api import QueueProperties, QueueType
from qmnode.model.delayed_delivery import DelayedQueue
from qmnode.model.queue import DEFAULT_PROPERTIES, TEMPORARY, OutgoingQueue, Queue, write_counters
from qmnode.objects.table import QUEUE as ROWS
from qmnode.structures.change_notification import NOTIFICATION_QUEUE_NAME, NOTIFICATION_QUEUE_NUMBER
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, guid_from_text, new_guid
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
    QueueKind,
    QueueNameError,
    fold,
    parse_format_name,
    plain_address,
)
from qmnode.structures.packets import ORDER_QUEUE
from qmnode.structures.text import nearest

if TYPE_CHECKING:
    from qmnode.model.shared_state import Context
    from qmnode.settings.node import Settings


# ----------------------------------------------------------------------------------------------------------------------
# The names by which a queue manager knows its own machine.

_RELATIVE: Final = frozenset(map(fold, (LOCAL_COMPUTER, "localhost", "127.0.0.1", "::1")))
"""Names that every machine has for itself."""


class OwnNames:
    """The names and addresses of one machine. Case does not matter, nor a dot at the end of a DNS name."""

    def __init__(self, computer_name: str, settings: "Settings") -> None:
        self._known = set(_RELATIVE)
        self._computer = _compared(computer_name)
        self.qualified = computer_name
        """The best name for others: the full DNS name if it is known, else the computer name."""
        self._addresses: frozenset[str] = frozenset()
        self.add((computer_name, *settings.other_names), (settings.transport.address,))
        self.use_addresses(settings.addresses)

    def add(self, names: Iterable[str], addresses: Iterable[str] = (), qualified: str = "") -> None:
        """Add names and addresses. Of names that begin with the computer name, the first is its full DNS name, unless
        ``qualified`` is.
        """
        names = [name for name in (qualified, *names) if name]
        self._known.update(_compared(name) for name in (*names, *addresses) if name)
        if "." not in self.qualified:
            full = (name for name in names if _compared(name.partition(".")[0]) == self._computer and "." in name)
            self.qualified = (qualified or next(full, self.qualified)).removesuffix(".")

    def use_addresses(self, addresses: Iterable[str]) -> None:
        """Have these addresses beside those of :meth:`add`, in place of the last ones of this method."""
        self._addresses = frozenset(_compared(address) for address in addresses if address)

    def has(self, computer: str) -> bool:
        """Whether the machine has this name or address."""
        compared = _compared(computer)
        return compared in self._known or compared in self._addresses

    @staticmethod
    def is_relative(computer: str) -> bool:
        """Whether every machine takes this name for itself."""
        return _compared(computer) in _RELATIVE


@lru_cache(maxsize=4096)  # names of peers recur with each message
def _compared(computer: str) -> str:
    if not computer.strip("."):  # the local computer, or nothing that has a name
        return computer
    return fold(plain_address(computer.removeprefix("[").removesuffix("]")) or computer.removesuffix("."))


def own_identifier(computer: str) -> Guid | None:
    """The GUID that is written in the place of a computer name, or None."""
    if len(computer) not in _GUID_LENGTHS:
        return None
    try:
        return guid_from_text(computer.removeprefix("{").removesuffix("}"))
    except ValueError:
        return None


_GUID_LENGTHS: Final = (36, 38)


_FIRST_QUEUE_ID: Final = 64
_FIRST_TEMPORARY: Final = 2**31
"""Numbers of temporary queues begin here."""
DELAYED_QUEUE: Final = 14
_SYSTEM_QUEUES: Final = {
    # 3.1.3, created at initialization: number of the queue, local name, transactional.
    "dead_letter": (2, "SYSTEM$;DEADLETTER", False),
    "transactional_dead_letter": (4, "SYSTEM$;DEADXACT", True),
    "journal": (6, "SYSTEM$;JOURNAL", False),
    "order": (8, "PRIVATE$\\order_queue$", False),
    "notify": (10, NOTIFICATION_QUEUE_NAME, False),
    # AwaitingFinalACKTable of MS-MQQB 3.1.1.3: delivered messages whose FinalAck has not come.
    "awaiting_final_ack": (12, "PRIVATE$\\awaiting_final_ack$", True),
    "delayed": (DELAYED_QUEUE, "PRIVATE$\\delayed$", False),
}


def system_queue_name(queue_id: int) -> str:
    """Path name of a queue that every node has, by its number; empty for others."""
    return next((f".\\{name}" for number, name, _ in _SYSTEM_QUEUES.values() if number == queue_id), "")


NAMES_OF_NODES: Final = frozenset(
    name.upper().removeprefix("PRIVATE$\\") for _, name, _ in _SYSTEM_QUEUES.values() if "\\" in name
)
"""The names, in upper case, that no other private queue can have."""
NOTIFICATIONS_QUOTA: Final = 128
"""Kilobytes of change notifications that may wait. Many more say no more than that much has changed."""
_KINDS: Final = {
    QueueKind.PRIVATE: QueueType.PRIVATE,
    QueueKind.PUBLIC: QueueType.PUBLIC,
    QueueKind.SYSTEM: QueueType.SYSTEM,
}


_ACCESS: Final = "access"
"""Where the store has the queue manager's own descriptor. A store of an earlier version has none."""
_NAMED_BY_FORMAT_NAME: Final = (QueueType.OUTGOING, QueueType.CONNECTOR)
_MACHINE_QUEUES: Final = {queue: f"SYSTEM$;{queue.value}" for queue in MachineQueue}

_COMPARED: Final = 2_000
"""Queues compared with a misspelt name to suggest the nearest: the search must not delay a node with very many."""


class Names:
    """The queues of a queue manager by their names."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._own = OwnNames(context.computer_name, context.settings)
        self._by_path: dict[str, Queue] = {}
        self._by_number: dict[int, Queue] = {}
        self._by_identifier: dict[bytes, Queue] = {}
        self._outgoing: dict[str, Queue] = {}
        self._highest = ORDER_QUEUE.private_queue_identifier
        """The highest number of a private queue. Numbers up to the order queue's are the system's."""
        self.is_in_directory = False
        """Whether the directory has this machine, so that others find its queues by their identifiers."""
        self.version = 0
        """Incremented with each change: resolved names stay valid while it is the same."""

    # The collection

    def add(self, queue: "Queue") -> None:
        self.version += 1
        if queue.queue_type in _NAMED_BY_FORMAT_NAME:
            self._outgoing[fold(queue.pathname)] = queue
            return
        self._by_path[fold(queue.pathname.partition("\\")[2])] = queue
        if queue.queue_type is QueueType.PRIVATE and queue.parent is None:
            self._by_number[queue.private_queue_number] = queue
            if not queue.is_temporary:
                self._highest = max(self._highest, queue.private_queue_number)
        elif queue.queue_type is QueueType.PUBLIC and queue.parent is None:
            self._by_identifier[queue.identifier] = queue
        elif queue.private_queue_number:  # of the system queues, only the notification queue is addressed by its number
            self._by_number[queue.private_queue_number] = queue

    def remove(self, queue: "Queue") -> None:
        """Remove the names of a queue."""
        self.version += 1
        if (
            queue.queue_type in _NAMED_BY_FORMAT_NAME
        ):  # a queue of this machine may have the same name after the computer's
            self._outgoing.pop(fold(queue.pathname), None)
            return
        self._by_path.pop(fold(queue.pathname.partition("\\")[2]), None)
        if queue.parent is None:
            self._by_number.pop(queue.private_queue_number, None)
            self._by_identifier.pop(queue.identifier, None)

    def free_number(self, *, temporary: bool) -> int:
        """A PrivateQueueNumber that no private queue has (3.1.7.1.3). That of a temporary queue cannot be guessed."""
        if temporary:
            while (number := _FIRST_TEMPORARY + randbelow(_FIRST_TEMPORARY)) in self._by_number:
                pass
            return number
        self._highest += 1
        return self._highest

    # Names to queues

    def path(self, text: str) -> PathName:
        """Parse a path name of this computer. Raises MQ_ERROR_ILLEGAL_QUEUE_PATHNAME."""
        try:
            name = PathName.parse(text)
        except QueueNameError as error:
            raise MessageQueuingError(error.code, error.sentence) from None
        if not self.is_own(name.computer):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME,
                f"{text} is on computer {name.computer}, and this is {self._context.computer_name}: {_elsewhere(name)}",
            )
        return PathName(self._context.computer_name, name.queue, name.kind, name.subqueue, name.journal)

    @staticmethod
    def parse(text: str) -> "FormatName | MultipleElementFormatName":
        """Parse any format name. Raises MQ_ERROR_ILLEGAL_FORMATNAME."""
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

    def enter_directory(self) -> None:
        """Name own queues for others by their identifiers from now on: the directory has this machine."""
        if not self.is_in_directory:
            self.is_in_directory = True
            self.version += 1

    def is_own(self, computer: str) -> bool:
        """Whether this is one of the names or addresses of this machine, or its identifier."""
        return self._own.has(computer) or own_identifier(computer) == self._context.identifier

    def add_own(self, names: Iterable[str], addresses: Iterable[str] = (), qualified: str = "") -> None:
        """Add names and addresses of this machine that its settings need not list; ``qualified``: its full DNS name."""
        self._own.add(names, addresses, qualified)
        self.version += 1

    def use_addresses(self, addresses: Iterable[str]) -> None:
        """Have these declared addresses of this machine, in place of the last ones; those of its interfaces stay."""
        self._own.use_addresses(addresses)
        self.version += 1

    def for_others(self, name: "FormatName") -> "FormatName":
        """The name by which other machines know the queue of a name that only this machine can use; other names as
        they are.

        In a directory ``PUBLIC=`` or ``PRIVATE=``; else, and for queues that have no such name, a direct name with the
        full DNS name of this machine, or its computer name if it has none.
        """
        match name:
            case DirectFormatName(protocol=DirectProtocol.OS | DirectProtocol.TCP):
                if not self._own.is_relative(name.path.computer):
                    return name
            case PrivateFormatName():
                if self.is_in_directory or name.computer != self._context.identifier:
                    return name
            case _:
                return name
        queue = self.local(name)
        if queue is None:
            if isinstance(name, PrivateFormatName):
                return name
            path = name.path
        else:
            if self.is_in_directory and queue.parent is None:
                if queue.is_published:
                    return PublicFormatName(queue.identifier)
                if queue.queue_type is QueueType.PRIVATE:
                    return PrivateFormatName(self._context.identifier, queue.private_queue_number)
            path = PathName.parse(queue.pathname)
        return DirectFormatName(DirectProtocol.OS, replace(path, computer=self._own.qualified))

    def is_local(self, name: "FormatName") -> bool:
        """Whether the queue of this name would be on this machine."""
        match name:
            case DirectFormatName():
                return self.is_own(name.path.computer)
            case PrivateFormatName() | MachineFormatName():
                return name.computer == self._context.identifier
            case PublicFormatName():
                return name.queue in self._by_identifier
            case ConnectorFormatName():
                return True
            case _:
                return False

    def local(self, name: "FormatName") -> "Queue | None":
        """The local queue that a name denotes, or None."""
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
        """The queue of a path name or a format name. Raises MQ_ERROR_QUEUE_NOT_FOUND."""
        queue: Queue | None
        if "=" in text.partition("\\")[0]:
            name = self.parse(text)
            if isinstance(name, MultipleElementFormatName):
                queue = None
            else:
                check_transport(name)
                queue = (self.local(name) if self.is_local(name) else None) or self.outgoing(name)
        else:
            queue = self.by_path(self.path(text))
        if queue is None:
            raise self.not_found(text)
        return queue

    def not_found(self, text: str) -> MessageQueuingError:
        """MQ_ERROR_QUEUE_NOT_FOUND, with the most similar name of a local queue or of its journal."""
        known = islice((queue.pathname.partition("\\")[2] for queue in self._by_path.values()), _COMPARED)
        names = {path.rpartition("\\")[2]: path for path in known if not path.upper().startswith("SYSTEM$")}
        name, _, part = text.rpartition("\\")[2].partition(";")
        near = nearest(name, names)
        named, at, machine = name.rpartition("@")
        if near is None and at and "=" not in named:
            hint = rf" ({name} of NServiceBus and Rebus is DIRECT=OS:{machine or '.'}\private$\{named})"
        else:
            hint = ""
        journal = ";journal" if nearest(part, ("journal",)) else ""
        return MessageQueuingError(
            ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND,
            f"there is no queue {text} on {self._context.computer_name}"
            + (hint if near is None else f" (did you mean .\\{names[near]}{journal}?)"),
        )

    # Queues to names

    def format_name_of(self, queue: "Queue") -> str:
        """A format name that opens the queue: a direct name, since subqueues have no other."""
        if queue.queue_type in _NAMED_BY_FORMAT_NAME:
            return queue.pathname
        return f"DIRECT=OS:{queue.pathname}"


def check_transport(name: "FormatName") -> None:
    """Raise MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION for a queue that only HTTP or multicast reaches."""
    is_http = isinstance(name, DirectFormatName) and name.protocol in (DirectProtocol.HTTP, DirectProtocol.HTTPS)
    if not is_http and not isinstance(name, MulticastFormatName):
        return
    transport = "the HTTP transport of Message Queuing" if is_http else "multicast"
    raise MessageQueuingError(
        ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
        f"{name}: a node does not speak {transport}: name the queue with DIRECT=OS: or DIRECT=TCP:",
    )


class QueueCollection(dict[int, Queue]):
    """QueueCollection (3.1.1.1): the queues by their numbers in the store."""

    def __init__(self, context: "Context") -> None:
        super().__init__()
        self._context = context
        self._next_queue_id = _FIRST_QUEUE_ID
        context.store.before_write = partial(write_counters, context)

    def load(self) -> None:
        """Load the system queues and the stored queues, with the counters of their contents."""
        context = self._context
        for queue_id, local_name, transactional in _SYSTEM_QUEUES.values():
            pathname = f"{context.computer_name}\\{local_name}"
            kind = DelayedQueue if queue_id == DELAYED_QUEUE else Queue
            self.add(kind(context, queue_id, pathname, QueueType.SYSTEM, transactional=transactional))
        self.dead_letter = self[_SYSTEM_QUEUES["dead_letter"][0]]
        self.transactional_dead_letter = self[_SYSTEM_QUEUES["transactional_dead_letter"][0]]
        self.journal = self[_SYSTEM_QUEUES["journal"][0]]
        for queue in (self.dead_letter, self.transactional_dead_letter, self.journal):
            queue.is_dead_letter = True
        self.order = self[_SYSTEM_QUEUES["order"][0]]
        self.notify = self[_SYSTEM_QUEUES["notify"][0]]
        self.awaiting_final_ack = self[_SYSTEM_QUEUES["awaiting_final_ack"][0]]
        delayed = self[DELAYED_QUEUE]
        assert isinstance(delayed, DelayedQueue)
        self.delayed = delayed
        self.notify.quota = NOTIFICATIONS_QUOTA
        self.notify.private_queue_number = NOTIFICATION_QUEUE_NUMBER
        context.names.add(self.notify)
        for queue in (self.order, self.notify, self.awaiting_final_ack):
            queue.is_internal = True
            queue.recorder = None
        for queue_id, record in context.store.read_queues():
            self._load_queue(queue_id, Queue.read_definition(record))
        for queue_id, counters in context.store.read_counters().items():
            if (counted := self.numbered(queue_id)) is not None:
                counted.restore(counters)

    def numbered(self, queue_id: int) -> Queue | None:
        """The queue or journal with a number: odd ones are journals, and some queues of early versions."""
        owner = self.get(queue_id & ~1)
        if owner is None:
            return self.get(queue_id)
        return owner.journal if queue_id & 1 else owner

    def settle_access(self) -> None:
        """Give every queue the descriptor that access is checked by, where a store of an earlier version has none."""
        context = self._context
        policy, store = context.access_policy, context.store
        if policy is None:
            return
        known = store.get_meta(_ACCESS)
        system = (self.dead_letter, self.transactional_dead_letter, self.journal)
        if known is None:
            known = policy.machine_security(not context.is_new)
            store.put_meta(_ACCESS, known)
            for queue in () if context.is_new else self.values():
                if queue.queue_type in (QueueType.PRIVATE, QueueType.PUBLIC):
                    queue.security = policy.upgraded_queue_security(queue.security)
                elif queue in system and not queue.security:
                    queue.security = policy.system_queue_security(upgraded=True)
                else:
                    continue
                store.put_queue(queue.queue_id, queue.definition())
        for queue in self.values():
            if queue.queue_type is not QueueType.SYSTEM:
                continue
            if queue is self.notify:
                queue.security = policy.notification_queue_security()
            queue.security = queue.security or policy.system_queue_security(upgraded=False)
        context.machine_security = known

    def set_machine_security(self, security: bytes) -> None:
        """Give the queue manager itself another descriptor."""
        self._context.machine_security = security
        self._context.store.put_meta(_ACCESS, security)

    def _load_queue(self, queue_id: int, attributes: dict[str, Any]) -> None:
        if queue_id < _FIRST_QUEUE_ID:
            # A system queue: only an administrator's changes are stored.
            system = self[queue_id]
            system.__dict__.update({name: attributes[name] for name in DEFAULT_PROPERTIES if name in attributes})
            return
        if queue_id & 1 and attributes["queue_type"] == QueueType.SYSTEM.value:
            return  # a journal's record, which changing a journal wrote: its queue makes it
        pathname: str = attributes.pop("pathname")
        queue_type = QueueType(attributes.pop("queue_type"))
        # Definitions are in the order of their numbers, and a subqueue has a higher number than its queue.
        parent = self.get(attributes.pop("parent"))
        self._next_queue_id = max(self._next_queue_id, (queue_id | 1) + 1)
        if queue_type is QueueType.OUTGOING:
            self.add(OutgoingQueue(self._context, queue_id, pathname, **attributes))
            return
        if queue_type is not QueueType.CONNECTOR:
            # The computer may have been renamed.
            pathname = self._context.computer_name + pathname[pathname.index("\\") :]
        queue = Queue(self._context, queue_id, pathname, queue_type, parent=parent, **attributes)
        self.add(queue)

    def add(self, queue: Queue) -> None:
        self[queue.queue_id] = queue
        self._context.names.add(queue)
        if queue.parent is not None:
            queue.parent.subqueues[queue.pathname.rpartition(";")[2].upper()] = queue
        if self._context.network is not None and isinstance(queue, OutgoingQueue):
            self._context.network.queue_added(queue)

    def create(self, name: PathName, properties: dict[str, Any], identifier: Guid, caller: object = None) -> Queue:
        """Create Queue (3.1.7.1.3), with a checked name and checked properties."""
        context, queue_type = self._context, _KINDS[name.kind]
        parent = None
        if context.access_policy is not None and not name.subqueue:
            security = context.access_policy.default_queue_security(properties.get("security", b""), caller)
            properties = properties | {"security": security}
        if name.subqueue:
            parent = context.names.by_path(PathName(name.computer, name.queue, name.kind))
            if parent is None:
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"there is no queue for the subqueue {name}"
                )
            properties = {key: getattr(parent, key) for key in DEFAULT_PROPERTIES} | {"journaling": False}
        now, number = int(context.clock.time()), 0
        if name.kind is QueueKind.PRIVATE and parent is None:
            number = context.names.free_number(temporary=properties.get("type") == TEMPORARY)
        queue = Queue(
            context,
            self.take_number(),
            str(name),
            queue_type,
            identifier=identifier,
            private_queue_number=number,
            create_time=now,
            modify_time=now,
            parent=parent,
            **properties,
        )
        self.add(queue)
        context.store.put_queue(queue.queue_id, queue.definition())
        return queue

    def adopt(self, name: PathName, properties: dict[str, Any], identifier: Guid) -> None:
        """Create a public queue that is in the directory already."""
        self.create(name, properties, identifier)

    def take_number(self) -> int:
        """The number of a new queue; the one after it is its journal's."""
        queue_id = self._next_queue_id
        self._next_queue_id += 2
        return queue_id

    def subqueue(self, queue: Queue, name: str) -> Queue:
        """A subqueue, created on first use."""
        found = queue.subqueues.get(name.upper())
        if found is None:
            path = self._context.names.path(queue.pathname)
            found = self.create(PathName(path.computer, path.queue, path.kind, name), {}, new_guid())
        return found

    def check_subqueues(self, queue: Queue) -> None:
        """Raise MQ_ERROR_INSUFFICIENT_RESOURCES if a queue may have no further subqueue."""
        limit = self._context.settings.quotas.subqueues
        if len(queue.subqueues) >= limit:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"{queue.pathname} has {limit} subqueues (quotas.subqueues): delete those that are no longer used",
            )

    def check_queues(self, owner: bytes) -> None:
        """Raise MQ_ERROR_INSUFFICIENT_RESOURCES if a user who is no administrator may create no further queue."""
        limit = self._context.settings.quotas.queues_per_user
        if len(self) < limit:
            return
        owned = sum(
            one.queue_type in (QueueType.PRIVATE, QueueType.PUBLIC) and owner_of(one.security) == owner
            for one in self.values()
        )
        if owned >= limit:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"this user has {limit} queues (quotas.queues_per_user): delete those that are no longer used, or let "
                "an administrator create more",
            )

    def forget(self, queue: Queue) -> None:
        """Remove an empty queue from the collection."""
        if self._context.network is not None and isinstance(queue, OutgoingQueue):
            self._context.network.queue_removed(queue)
        self._context.names.remove(queue)
        self.pop(queue.queue_id, None)
        self._context.traffic.retire(queue)
        self._context.duplicates.forget(queue)
        self._context.retries.forget_all(queue)
        if queue.parent is not None:
            queue.parent.subqueues.pop(queue.pathname.rpartition(";")[2].upper(), None)
        self._context.store.delete_queue(queue.queue_id)
        if queue.has_journal:
            self._context.store.delete_queue(queue.journal.queue_id)


def owner_of(security: bytes) -> bytes:
    """The owner's SID in a self-relative SECURITY_DESCRIPTOR (MS-DTYP 2.4.6); empty if it has none."""
    place = int.from_bytes(security[4:8], "little")
    return security[place : place + 8 + 4 * security[place + 1]] if place else b""


def check_properties(properties: QueueProperties, public: bool) -> None:
    """Raise MQ_ERROR_ILLEGAL_PROPERTY_VALUE for invalid properties of a public or another queue (MS-MQDMPR 3.1.1.2)."""
    for name, value in properties.items():
        if name not in DEFAULT_PROPERTIES:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_PROPERTY, f"a queue has no property {name!r}")
        if fault := ROWS[name].fault(value, public):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, fault)


def _elsewhere(name: PathName) -> str:
    """The name by which a sender addresses a queue of another computer."""
    if name.kind is QueueKind.PRIVATE:
        return f"from here it is DIRECT=OS:{name}"
    return f"from here it is DIRECT=OS:{name.computer}\\private$\\{name.queue}, or DIRECT=OS:{name} if it is public"
