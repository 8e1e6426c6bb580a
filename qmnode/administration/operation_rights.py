"""A queue manager as one caller sees it: every operation checks the descriptors first. All doors give callers this.

The rights that each operation needs are in one table. A queue's descriptor is checked once, when the queue is opened,
and never for a message. Administrators may also repair queues that lock everybody out; each repair is audited.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

from qmnode.administration.turns import Pace
from qmnode.errors import MessageQueuingError
from qmnode.model.api import (
    Access,
    DirectoryLogin,
    QueueApi,
    QueueInformation,
    QueueManagerApi,
    QueueProperties,
    QueueType,
    Share,
    TransactionApi,
    TransportSecurity,
)
from qmnode.model.public_queues import information_of
from qmnode.security.principals import Principal, parsed
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import QueueKind
from qmnode.structures.security_descriptor import QueueAccess, QueueManagerAccess

if TYPE_CHECKING:
    from qmnode.directory.port import QueueManager as Machine
    from qmnode.model.administration import AmqpCounts, IncomingSequenceInformation
    from qmnode.model.queue import OutgoingQueue, Queue
    from qmnode.model.queue_manager import QueueManager
    from qmnode.model.waiting_reasons import Waiting
    from qmnode.structures.guid import Guid
from qmnode.structures.security_descriptor import Sid

F = TypeVar("F", bound=Callable[..., Any])

NEEDED: Final[dict[str, QueueAccess | QueueManagerAccess | None]] = {
    "account_names": QueueManagerAccess.MQSEC_GET_MACHINE_PERMISSIONS,
    "backup": None,
    "create_queue": QueueManagerAccess.MQSEC_CREATE_QUEUE,
    "delete_queue": QueueAccess.MQSEC_DELETE_QUEUE,
    "find_queues": QueueAccess.MQSEC_GET_QUEUE_PROPERTIES,
    "incoming_sequences": QueueManagerAccess.MQSEC_GET_MACHINE_PROPERTIES,
    "list_transactions": QueueManagerAccess.MQSEC_GET_MACHINE_PROPERTIES,
    "pause_queue": QueueAccess.MQSEC_SET_QUEUE_PROPERTIES,
    "queue": QueueAccess.MQSEC_GET_QUEUE_PROPERTIES,
    "queue_manager_security": QueueManagerAccess.MQSEC_GET_MACHINE_PERMISSIONS,
    "queue_security": QueueAccess.MQSEC_GET_QUEUE_PERMISSIONS,
    "queues": QueueAccess.MQSEC_GET_QUEUE_PROPERTIES,
    "refused_messages": QueueAccess.MQSEC_GET_QUEUE_PROPERTIES,
    "reset_incoming_sequences": None,
    "resume_queue": QueueAccess.MQSEC_SET_QUEUE_PROPERTIES,
    "set_online": QueueManagerAccess.MQSEC_SET_MACHINE_PROPERTIES,
    "set_queue": QueueAccess.MQSEC_SET_QUEUE_PROPERTIES,
    "waiting": QueueManagerAccess.MQSEC_GET_MACHINE_PROPERTIES,
    "set_queue_manager_security": None,
    "status": QueueManagerAccess.MQSEC_GET_MACHINE_PROPERTIES,
}
"""The rights that each operation needs, to its queue or to the queue manager. None is for administrators only.

Opening is in :mod:`qmnode.model.opening`; ``queues`` and ``find_queues`` leave out what their caller may not see;
``set_queue`` needs other rights for a descriptor and for another owner.
"""

BESIDE: Final[dict[str, QueueManagerAccess | None]] = {
    "connections": QueueManagerAccess.MQSEC_GET_MACHINE_PROPERTIES,
    "keys": QueueManagerAccess.MQSEC_GET_MACHINE_PROPERTIES,
    "reload_keys": None,
    "rotate_keys": None,
    "audit": None,
}
"""The same for parts of the node that are no operation of the queue manager."""

_NAMES_AT_ONCE: Final = 1000
REPAIR: Final = (
    QueueAccess.MQSEC_GET_QUEUE_PROPERTIES
    | QueueAccess.MQSEC_GET_QUEUE_PERMISSIONS
    | QueueAccess.MQSEC_CHANGE_QUEUE_PERMISSIONS
    | QueueAccess.MQSEC_TAKE_QUEUE_OWNERSHIP
)
"""The rights of administrators to every queue, which are enough to allow themselves the others."""


def _on_queue(method: F) -> F:
    """The operation on a queue, its first argument, for callers who have the right to that queue."""
    operation = method.__name__

    async def guarded(self: GuardedQueueManager, name: str, /, *arguments: Any, **keywords: Any) -> Any:
        self._queue(operation, name)
        return await getattr(self.manager, operation)(name, *arguments, **keywords)

    return cast("F", functools.wraps(method, updated=())(guarded))


def _on_machine(method: F) -> F:
    """The operation, for callers who have the right to the queue manager."""
    operation = method.__name__

    async def guarded(self: GuardedQueueManager, /, *arguments: Any, **keywords: Any) -> Any:
        self._require_machine(operation)
        return await getattr(self.manager, operation)(*arguments, **keywords)

    return cast("F", functools.wraps(method, updated=())(guarded))


class GuardedQueueManager(QueueManagerApi):
    """A queue manager as ``principal`` may use it. Refused operations raise MQ_ERROR_ACCESS_DENIED."""

    def __init__(
        self,
        manager: QueueManager,
        principal: Principal,
        repaired: Callable[[str, str], None] = lambda operation, name: None,
        login: DirectoryLogin | None = None,
    ) -> None:
        """``repaired`` is called for each operation on a queue that only an administrator could do; ``login`` has the
        caller's credentials for the directory.
        """
        self.manager = manager
        self.principal = principal
        self.identifier = manager.identifier
        self.computer_name = manager.computer_name
        self.context, self.store, self.clock = manager.context, manager.store, manager.clock
        self.traffic, self.journal_queue = manager.traffic, manager.journal_queue
        self._repaired = repaired
        self._login = login

    # Checks

    def may(self, queue: Queue, rights: int) -> bool:
        """Whether the queue's descriptor gives the caller these rights."""
        policy = self.manager.context.access_policy
        return policy is None or policy.check(self.manager.opening.security_of(queue), rights, self.principal)

    def may_see(self, queue: Queue) -> bool:
        """Whether the caller may see a queue and what is in it, in numbers."""
        return self.principal.administrator or self.may(queue, QueueAccess.MQSEC_GET_QUEUE_PROPERTIES)

    def _require(self, operation: str, queue: Queue, rights: QueueAccess) -> None:
        if self.may(queue, rights):
            return
        if not self.principal.administrator:
            self._refuse(operation, queue.pathname, rights)
        if rights & ~REPAIR:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"{operation}: {self.principal} has no right of {rights.name} to {queue.pathname}. As an administrator "
                f"give yourself one: qmnode queue acl allow '{queue.pathname}' administrators full-control",
            )
        if rights != QueueAccess.MQSEC_GET_QUEUE_PROPERTIES:
            self._repaired(operation, queue.pathname)

    def require(self, what: str) -> None:
        """Raise MQ_ERROR_ACCESS_DENIED unless the caller has the right that ``BESIDE`` names."""
        self._check_machine(what, BESIDE[what])

    def may_do(self, operation: str) -> bool:
        """Whether the caller may use an operation on the machine."""
        try:
            self._require_machine(operation)
        except MessageQueuingError:
            return False
        return True

    def _require_machine(self, operation: str) -> None:
        self._check_machine(operation, NEEDED[operation])

    def _check_machine(self, operation: str, rights: QueueAccess | QueueManagerAccess | None) -> None:
        policy, context = self.manager.context.access_policy, self.manager.context
        if self.principal.administrator or policy is None:
            return
        if rights is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"{operation} is for administrators (security.administrators: root and the user that the node runs as "
                f"by default), and {self.principal} is none",
            )
        if not policy.check_machine(context.machine_security, rights, self.principal):
            self._refuse(operation, "the queue manager", cast("QueueManagerAccess", rights))

    def _refuse(self, operation: str, what: str, rights: QueueAccess | QueueManagerAccess) -> None:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{operation}: {self.principal} has no right of {rights.name} to {what}"
        )

    def _queue(self, operation: str, name: str) -> Queue:
        queue = self.manager.names.find(name)
        self._require(operation, queue, cast("QueueAccess", NEEDED[operation]))
        return queue

    # Operations that need one right, and nothing else

    pause_queue = _on_queue(QueueManagerApi.pause_queue)
    resume_queue = _on_queue(QueueManagerApi.resume_queue)
    queue_security = _on_queue(QueueManagerApi.queue_security)
    refused_messages = _on_queue(QueueManagerApi.refused_messages)
    status = _on_machine(QueueManagerApi.status)
    set_online = _on_machine(QueueManagerApi.set_online)
    list_transactions = _on_machine(QueueManagerApi.list_transactions)
    queue_manager_security = _on_machine(QueueManagerApi.queue_manager_security)
    reset_incoming_sequences = _on_machine(QueueManagerApi.reset_incoming_sequences)
    backup = _on_machine(QueueManagerApi.backup)

    # Queues

    async def create_queue(self, pathname: str, **properties: Unpack[QueueProperties]) -> QueueInformation:
        """Create Queue (3.1.7.1.3); it is the caller's."""
        self._require_machine("create_queue")
        owner = _owner_in(properties.get("security", b""))
        if owner is not None:
            self._check_owner("create_queue", pathname, owner)
        if not self.principal.administrator:
            self.manager.queue_collection.check_queues((owner or self.principal.user).write())
        name = self.manager.names.path(pathname)
        if name.kind is QueueKind.PUBLIC and not name.subqueue and not self.manager.published.has_directory:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_NO_DS,
                f"{pathname} would be a public queue, and this node has no directory to publish it in: create it as "
                f".\\private$\\{name.queue}, or set directory.name",
            )
        if name.subqueue and (parent := self.manager.names.by_path(type(name)(name.computer, name.queue, name.kind))):
            self._require("create_queue", parent, QueueAccess.MQSEC_WRITE_MESSAGE)
            self.manager.context.queues.check_subqueues(parent)
        return await self.manager.create_queue(pathname, caller=self.principal, login=self._login, **properties)

    async def delete_queue(self, name: str) -> None:
        self._queue("delete_queue", name)
        await self.manager.delete_queue(name, login=self._login)

    def _check_owner(self, operation: str, name: str, owner: Sid) -> None:
        if not self.principal.administrator and owner not in self.principal.token.sids:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{operation}: {self.principal} cannot give {name} to {owner}"
            )

    async def set_queue(self, name: str, **properties: Unpack[QueueProperties]) -> QueueInformation:
        """Change properties of a queue; its descriptor needs a right of its own, and so does another owner."""
        queue = self.manager.names.find(name)
        if properties.keys() - {"security"} or not properties:
            self._require("set_queue", queue, QueueAccess.MQSEC_SET_QUEUE_PROPERTIES)
        if "security" in properties:
            self._require("set_queue", queue, QueueAccess.MQSEC_CHANGE_QUEUE_PERMISSIONS)
            owner = _owner_in(properties["security"])
            if owner is not None and owner != _owner_in(self.manager.opening.security_of(queue)):
                self._require("set_queue", queue, QueueAccess.MQSEC_TAKE_QUEUE_OWNERSHIP)
                self._check_owner("set_queue", name, owner)
        return await self.manager.set_queue(name, login=self._login, **properties)

    async def queue(self, name: str) -> QueueInformation:
        return self._queue("queue", name).information()

    async def queues(self, kinds: Sequence[QueueType] | None = None) -> list[QueueInformation]:
        """All queues that the caller may see, or those of these types."""
        found = [queue for queue in self.queue_collection.values() if kinds is None or queue.queue_type in kinds]
        return [queue.information() for queue in sorted(found, key=lambda queue: queue.pathname.upper())]

    @property
    def queue_collection(self) -> dict[int, Queue]:
        """The queues that the caller may see."""
        return {number: queue for number, queue in self.manager.queue_collection.items() if self.may_see(queue)}

    async def find_queues(
        self,
        *,
        label: str | None = None,
        type: Guid | None = None,
        computer: str | None = None,
        identifier: Guid | None = None,
    ) -> list[QueueInformation]:
        """The public queues of the enterprise, without those whose descriptor hides them from the caller."""
        seen, pace = [], Pace()
        for queue in await self.manager.published.find(label, type, computer, identifier):
            await pace.rest()
            if self._may_see_published(queue.security):
                seen.append(information_of(queue))
        return seen

    async def find_machine(self, wanted: str | Guid) -> Machine:
        """A queue manager of the enterprise, which everybody in it may see."""
        return await self.manager.published.find_machine(wanted)

    async def register_certificate(self, certificate: bytes) -> None:
        """Register a certificate for the user of the directory whose credentials the caller has; no right is needed
        here. Raises MQ_ERROR_INVALID_CERTIFICATE for one that no message could be verified with.
        """
        from qmnode.security.sender_identity import parse_certificate  # most nodes never load it

        if not self.manager.published.has_directory:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_NO_DS, "this node has no directory to register it in: set directory.name"
            )
        try:
            parse_certificate(certificate)
        except ValueError as error:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_CERTIFICATE, f"this cannot be registered: {error}"
            ) from None
        await self.manager.published.register_certificate(certificate, self._login)

    def _may_see_published(self, security: bytes | None) -> bool:
        """Whether a descriptor in the directory lets the caller see its queue. Without one, which this node may be
        forbidden to read, the queue is shown.
        """
        policy = self.manager.context.access_policy
        if policy is None or not security or self.principal.administrator:
            return True
        return policy.check(security, QueueAccess.MQSEC_GET_QUEUE_PROPERTIES, self.principal)

    async def open_queue(
        self, format_name: str, access: Access = Access.RECEIVE, share: Share = Share.DENY_NONE
    ) -> QueueApi:
        """Open Queue (3.1.7.1.5): here alone, rights to messages are asked for."""
        return await self.manager.open_queue(format_name, access, share, caller=self.principal)

    def transaction(self) -> TransactionApi:
        """Create Transaction (3.1.7.1.8), for which no right is needed."""
        return self.manager.transaction()

    def outgoing_queue(self, name: str) -> OutgoingQueue:
        """An outgoing queue, to look at."""
        self._queue("queue", name)
        return self.manager.outgoing_queue(name)

    # The queue manager

    async def account_names(self, security_identifiers: Sequence[str]) -> dict[str, str | None]:
        self._require_machine("account_names")
        return await self.manager.account_names(security_identifiers[:_NAMES_AT_ONCE])

    async def set_queue_manager_security(self, security: bytes) -> None:
        self._require_machine("set_queue_manager_security")
        if parsed(security) is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR, "this is no self-relative security descriptor"
            )
        await self.manager.set_queue_manager_security(security)

    async def incoming_sequences(self, name: str = "") -> list[IncomingSequenceInformation]:
        self._require_machine("incoming_sequences")
        if name:
            self._queue("queue", name)
        return await self.manager.incoming_sequences(name)

    async def waiting(self, machine: str = "", link: str = "") -> list[Waiting]:
        self._require_machine("waiting")
        found = await self.manager.waiting(machine, link)
        return [one for one in found if not one.queue or self.may_see(self.manager.context.names.find(one.queue))]

    async def close(self) -> None:
        """Nothing: the queue manager is not the caller's to close."""

    # Parts that need no right, and may be replaced

    @property
    def transport_security(self) -> TransportSecurity:
        """TLS with other queue managers."""
        return self.manager.transport_security

    @property
    def amqp(self) -> AmqpCounts:
        """The counts of the AMQP door."""
        return self.manager.amqp


def _owner_in(security: bytes) -> Sid | None:
    descriptor = parsed(security)
    return descriptor.owner if descriptor is not None else None
