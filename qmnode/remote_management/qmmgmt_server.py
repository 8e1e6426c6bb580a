"""qmmgmt, the server's side (MS-MQMR 3.1): administration as it is, with the rights that the caller has.

Reading needs the right to get the properties of the queue manager or of the queue. Acting is for administrators, and
each attempt is audited. A node that is asked for "TIDY" does nothing: 3.1.4.2 would purge every queue, where its own
table says that empty message files are deleted, and the store frees the space of deleted messages by itself.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.dcerpc.errors import FaultStatus, RpcFault
from qmnode.dcerpc.server import Caller, Service, service
from qmnode.errors import MessageQueuingError
from qmnode.model.queue import OutgoingQueue
from qmnode.remote_management.properties import Machine, ManagedQueue, machine_value, queue_value
from qmnode.remote_management.qmmgmt import (
    ACTION,
    GET_INFO,
    QMMGMT,
    ActionRequest,
    ActionResponse,
    GetInfoRequest,
    GetInfoResponse,
    ManagementObject,
    ManagementObjectType,
)
from qmnode.remote_management.variants import Variant
from qmnode.remote_read.queue_format import QueueFormatValue, to_format_name
from qmnode.security.principals import Principals
from qmnode.structures.error_codes import MQ_OK, ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.names import QueueNameError

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)

_LONGEST: Final = 300
"""The most characters of a name in an audit entry."""
_STRANGERS: Final = 60
"""Audit entries in a minute about callers without a name."""
_MACHINE_ACTIONS: Final = {"CONNECT": "bring_online", "DISCONNECT": "take_offline", "TIDY": "tidy"}
_QUEUE_ACTIONS: Final = {"PAUSE": "pause_queue", "RESUME": "resume_queue", "EOD_RESEND": "resend_queue"}
_REQUESTS: Final = {
    ManagementObjectType.MGMT_MACHINE: _MACHINE_ACTIONS,
    ManagementObjectType.MGMT_QUEUE: _QUEUE_ACTIONS,
}


class RemoteAction(NamedTuple):
    """An action of an administrator elsewhere, or an attempt at one, for the audit log."""

    who: str
    peer: str
    action: str
    target: str
    outcome: str
    """``done``, ``denied`` or ``failed``."""
    problem: str | None
    """Name of the MQ_ERROR code, when it was not done."""


class QmmgmtServer:
    """Shows a queue manager to administrators of other machines."""

    def __init__(
        self,
        manager: QueueManager,
        principals: Principals,
        audit: Callable[[RemoteAction], None],
    ) -> None:
        self._manager = manager
        self._principals = principals
        self._audit = audit
        self._minute = 0
        self._strangers = 0

    def service(self) -> Service:
        """The interface with its handlers."""
        return service(QMMGMT, {GET_INFO: self.get_info, ACTION: self.act})

    # R_QMMgmtGetInfo

    async def get_info(self, caller: Caller, request: GetInfoRequest) -> GetInfoResponse:
        """R_QMMgmtGetInfo, 3.1.4.1: return the values of properties."""
        if len(request.values) != request.count:
            raise RpcFault(FaultStatus.BAD_STUB_DATA, "aProp and apVar have different lengths")
        try:
            guarded = GuardedQueueManager(self._manager, await self._principals.of_remote_user(caller.principal))
            return GetInfoResponse(values=await self._values(guarded, request))
        except MessageQueuingError as error:
            log.info(
                "a caller of qmmgmt was not answered", caller=caller.principal, peer=caller.peer, reason=str(error)
            )
            # A failure sets no out parameter: the array goes back as it came, without values.
            return GetInfoResponse(values=[Variant() for _ in request.values], status=error.code)

    async def _values(self, guarded: GuardedQueueManager, request: GetInfoRequest) -> list[Variant]:
        try:
            match request.object.type:
                case ManagementObjectType.MGMT_MACHINE:
                    machine = Machine(await guarded.status(), await guarded.queues())
                    return [machine_value(number, machine) for number in request.properties]
                case ManagementObjectType.MGMT_QUEUE:
                    queue = await self._queue(guarded, request.object)
                    return [queue_value(number, queue) for number in request.properties]
        except ValueError as error:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_PROPID, str(error)) from None
        raise _no_object()

    async def _queue(self, guarded: GuardedQueueManager, target: ManagementObject) -> ManagedQueue:
        """A queue is looked at without opening it: no right to its messages, no new outgoing queue."""
        name = _name_of(target.identifier)
        information = await guarded.queue(name)
        queue = self._manager.names.find(name)
        if isinstance(queue, OutgoingQueue):
            network = self._manager.context.network
            assert network is not None
            return ManagedQueue(
                information, transfer=network.transfer_information(queue), history=queue.connection_history
            )
        network = self._manager.context.network
        return ManagedQueue(information, network.incoming_sequences(queue) if network is not None else ())

    # R_QMMgmtAction

    async def act(self, caller: Caller, request: ActionRequest) -> ActionResponse:
        """R_QMMgmtAction, 3.1.4.2: act on the machine or on a queue."""
        target = self._target(request.object)
        outcome, problem = "done", None
        try:
            await self._act(caller, request)
        except MessageQueuingError as error:
            problem = ErrorCode(error.code)
            outcome = "denied" if problem == ErrorCode.MQ_ERROR_ACCESS_DENIED else "failed"
            log.warning(
                "an action from another machine was not done",
                caller=caller.principal or "anonymous",
                address=caller.peer,
                action=request.action[:_LONGEST],
                target=target,
                reason=str(error),
            )
        if not caller.principal and self._are_many_strangers():
            return ActionResponse(status=MQ_OK if problem is None else problem)
        self._audit(
            RemoteAction(
                who=caller.principal or "anonymous",
                peer=caller.peer,
                action=_action_of(request) or request.action[:_LONGEST],
                target=target,
                outcome=outcome,
                problem=None if problem is None else problem.name,
            )
        )
        return ActionResponse(status=MQ_OK if problem is None else problem)

    def _are_many_strangers(self) -> bool:
        """Whether callers without a name have had their entries of this minute: they must not fill the disk."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._strangers = minute, 0
        self._strangers += 1
        return self._strangers > _STRANGERS

    def _target(self, target: ManagementObject) -> str:
        if target.type == ManagementObjectType.MGMT_MACHINE:
            return self._manager.computer_name
        try:
            return _name_of(target.identifier)[:_LONGEST]
        except MessageQueuingError:
            return ""

    async def _act(self, caller: Caller, request: ActionRequest) -> None:
        principal = await self._principals.of_remote_user(caller.principal)
        if not principal.administrator:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"actions from other machines are for administrators (security.administrators), but {principal} is "
                "none",
            )
        guarded = GuardedQueueManager(self._manager, principal)
        actions: dict[str, Callable[[], Awaitable[None]]] = {
            "bring_online": lambda: guarded.set_online(True),
            "take_offline": lambda: guarded.set_online(False),
            "tidy": _nothing,
            "pause_queue": lambda: guarded.pause_queue(_name_of(request.object.identifier)),
            "resume_queue": lambda: guarded.resume_queue(_name_of(request.object.identifier)),
            "resend_queue": lambda: self._resend(guarded, _name_of(request.object.identifier)),
        }
        action = _action_of(request)
        if action is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"{request.action[:_LONGEST]!r} is no action of such an object"
            )
        await actions[action]()

    async def _resend(self, guarded: GuardedQueueManager, name: str) -> None:
        queue, network = guarded.outgoing_queue(name), self._manager.context.network
        if network is not None:
            network.resend(queue)


def _action_of(request: ActionRequest) -> str | None:
    """The operation that an action stands for; None if its object has no such action. Case does not matter."""
    if request.object.type not in (ManagementObjectType.MGMT_MACHINE, ManagementObjectType.MGMT_QUEUE):
        return None
    return _REQUESTS[ManagementObjectType(request.object.type)].get(request.action.upper())


def _name_of(value: QueueFormatValue | None) -> str:
    if not isinstance(value, QueueFormatValue):
        raise _no_object()
    try:
        return str(to_format_name(value))
    except (QueueNameError, PacketError, ValueError) as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME, str(error)) from None


def _no_object() -> MessageQueuingError:
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_INVALID_PARAMETER, "the object is neither the machine nor a queue with a QUEUE_FORMAT"
    )


async def _nothing() -> None:
    """Nothing: see the module."""
