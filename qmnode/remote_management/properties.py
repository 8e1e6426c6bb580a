"""The properties of the machine and of queues that R_QMMgmtGetInfo returns: tables of MS-MQMR 3.1.4.1.

A property that an object does not have, such as the resend time of a local queue, is VT_NULL.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from qmnode.model.administration import IncomingSequenceInformation, NodeStatus, SequencePlace, TransferInformation
from qmnode.model.api import QueueInformation, QueueType
from qmnode.remote_management.variants import Variant, variant, vector
from qmnode.structures.enumerations import OutgoingQueueState
from qmnode.structures.enumerations import VariantType as V
from qmnode.structures.properties import (
    ConnectedState,
    ManagedQueueType,
    QueueForeign,
    QueueLocation,
    QueueState,
    QueueTransactional,
    SequenceInfo,
)
from qmnode.structures.properties import ManagementMachineProperty as M
from qmnode.structures.properties import ManagementQueueProperty as Q
from qmnode.version import program_version

if TYPE_CHECKING:
    from qmnode.model.queue import ConnectionAttempt

_LARGEST: Final = 0xFFFF_FFFF
_LATEST: Final = 0x7FFF_FFFF
_STATES: Final = {
    OutgoingQueueState.CONNECTED: QueueState.MGMT_QUEUE_STATE_CONNECTED.value,
    OutgoingQueueState.DISCONNECTED: QueueState.MGMT_QUEUE_STATE_DISCONNECTED.value,
    OutgoingQueueState.DISCONNECTING: QueueState.MGMT_QUEUE_STATE_DISCONNECTING.value,
    OutgoingQueueState.INACTIVE: QueueState.MGMT_QUEUE_STATE_NONACTIVE.value,
    OutgoingQueueState.LOCKED: "LOCKED",  # in MS-MQMR 3.1.4.1 alone
    OutgoingQueueState.NEED_VALIDATION: QueueState.MGMT_QUEUE_STATE_NEED_VALIDATE.value,
    OutgoingQueueState.WAITING: QueueState.MGMT_QUEUE_STATE_WAITING.value,
    OutgoingQueueState.ON_HOLD: QueueState.MGMT_QUEUE_STATE_ONHOLD.value,
}
_KINDS: Final = {
    QueueType.PUBLIC: ManagedQueueType.MGMT_QUEUE_TYPE_PUBLIC,
    QueueType.PRIVATE: ManagedQueueType.MGMT_QUEUE_TYPE_PRIVATE,
    QueueType.SYSTEM: ManagedQueueType.MGMT_QUEUE_TYPE_MACHINE,
    QueueType.CONNECTOR: ManagedQueueType.MGMT_QUEUE_TYPE_CONNECTOR,
}
_WITH_NEXT_HOPS: Final = (OutgoingQueueState.CONNECTED, OutgoingQueueState.WAITING)


@dataclass(frozen=True, slots=True)
class Machine:
    """The queue manager as its caller may see it."""

    status: NodeStatus
    queues: Sequence[QueueInformation]


@dataclass(frozen=True, slots=True)
class ManagedQueue:
    """A queue and, if it is outgoing, how far its messages are."""

    queue: QueueInformation
    incoming: Sequence[IncomingSequenceInformation] = ()
    transfer: TransferInformation | None = None
    """None for a local queue."""
    history: Sequence[ConnectionAttempt] = ()

    @property
    def outgoing(self) -> bool:
        """Whether it is on its way to another machine."""
        return self.transfer is not None


_MACHINE: Final[Mapping[M, Callable[[Machine], Any]]] = {
    M.PROPID_MGMT_MSMQ_ACTIVEQUEUES: lambda one: [
        queue.format_name for queue in one.queues if queue.active or queue.message_count
    ],
    M.PROPID_MGMT_MSMQ_PRIVATEQ: lambda one: [
        queue.pathname for queue in one.queues if queue.queue_type is QueueType.PRIVATE and ";" not in queue.pathname
    ],
    # A node has no MSMQ Directory Service server: it reads the directory itself.
    M.PROPID_MGMT_MSMQ_DSSERVER: lambda _: None,
    M.PROPID_MGMT_MSMQ_CONNECTED: lambda one: (
        (ConnectedState.MSMQ_CONNECTED if one.status.online else ConnectedState.MSMQ_DISCONNECTED).value
    ),
    M.PROPID_MGMT_MSMQ_TYPE: lambda one: f"qmnode {program_version()}",
    M.PROPID_MGMT_MSMQ_BYTES_IN_ALL_QUEUES: lambda one: one.status.total_bytes,
}


def _kind(queue: QueueInformation) -> str:
    if queue.queue_type is not QueueType.OUTGOING:
        return _KINDS[queue.queue_type].value
    name = queue.format_name.upper()
    if name.startswith("MULTICAST="):
        return ManagedQueueType.MGMT_QUEUE_TYPE_MULTICAST.value
    private = name.startswith("PRIVATE=") or "\\PRIVATE$\\" in name
    return (ManagedQueueType.MGMT_QUEUE_TYPE_PRIVATE if private else ManagedQueueType.MGMT_QUEUE_TYPE_PUBLIC).value


def _next_hops(one: ManagedQueue) -> list[str] | None:
    if one.queue.state not in _WITH_NEXT_HOPS:
        return None
    if one.queue.format_name.upper().startswith("MULTICAST="):
        return [one.queue.format_name]
    return [_address(hop) for hop in one.queue.next_hops]


def _address(hop: str) -> str:
    """An address as 2.3.12.12 has it; the name of a host that is not resolved stays as it is."""
    try:
        return f"IP{'v6' if ipaddress.ip_address(hop).version == 6 else ''}={hop}"
    except ValueError:
        return hop


def _place(place: SequencePlace | None) -> bytes | None:
    if place is None:
        return None
    return SequenceInfo(seq_id=place.sequence_identifier, seq_no=place.number, prev_no=place.previous).write()


def _time(seconds: float) -> int:
    """Seconds since 1970 in 32 bits; 0 for never."""
    return min(int(seconds), _LATEST)


def _sequences(one: ManagedQueue) -> list[Variant]:
    """2.3.12.24: six arrays with an entry for each sequence."""
    found = one.incoming
    return [
        vector(V.VT_VECTOR_LPWSTR, (each.destination for each in found)),
        vector(V.VT_VECTOR_CLSID, (each.source for each in found)),
        vector(V.VT_VECTOR_UI8, (each.sequence_identifier for each in found)),
        vector(V.VT_VECTOR_UI4, (each.number for each in found)),
        vector(V.VT_VECTOR_I4, (_time(each.last_access_time) for each in found)),
        vector(V.VT_VECTOR_UI4, (each.reject_count for each in found)),
    ]


def _history(one: ManagedQueue) -> list[Variant] | None:
    """2.3.12.25: four arrays with an entry for each attempt. The addresses of each are an array of their own."""
    if not one.outgoing:
        return None
    return [
        vector(V.VT_VECTOR_UI4, (attempt.status for attempt in one.history)),
        vector(V.VT_VECTOR_I4, (_time(attempt.time) for attempt in one.history)),
        vector(V.VT_VECTOR_I4, (_signed(attempt.error) for attempt in one.history)),
        vector(V.VT_VECTOR_VARIANT, (vector(V.VT_VECTOR_LPWSTR, attempt.addresses) for attempt in one.history)),
    ]


def _signed(hresult: int) -> int:
    return hresult - (1 << 32) if hresult > _LATEST else hresult


def _of_transfer(value: Callable[[TransferInformation], Any]) -> Callable[[ManagedQueue], Any]:
    return lambda one: None if one.transfer is None else value(one.transfer)


_QUEUE: Final[Mapping[Q, Callable[[ManagedQueue], Any]]] = {
    Q.PROPID_MGMT_QUEUE_PATHNAME: lambda one: one.queue.pathname,
    Q.PROPID_MGMT_QUEUE_FORMATNAME: lambda one: one.queue.format_name,
    Q.PROPID_MGMT_QUEUE_TYPE: lambda one: _kind(one.queue),
    Q.PROPID_MGMT_QUEUE_LOCATION: lambda one: (
        (QueueLocation.MGMT_QUEUE_REMOTE_LOCATION if one.outgoing else QueueLocation.MGMT_QUEUE_LOCAL_LOCATION).value
    ),
    Q.PROPID_MGMT_QUEUE_XACT: lambda one: (
        (
            QueueTransactional.MGMT_QUEUE_TRANSACTIONAL_TYPE
            if one.queue.transactional
            else QueueTransactional.MGMT_QUEUE_NOT_TRANSACTIONAL_TYPE
        ).value
    ),
    # A node is never a foreign system: it is not declared as one in the directory.
    Q.PROPID_MGMT_QUEUE_FOREIGN: lambda one: QueueForeign.MGMT_QUEUE_NOT_FOREIGN_TYPE.value,
    Q.PROPID_MGMT_QUEUE_MESSAGE_COUNT: lambda one: min(one.queue.message_count, _LARGEST),
    Q.PROPID_MGMT_QUEUE_BYTES_IN_QUEUE: lambda one: min(one.queue.total_bytes, _LARGEST),
    Q.PROPID_MGMT_QUEUE_JOURNAL_MESSAGE_COUNT: lambda one: min(one.queue.journal_message_count, _LARGEST),
    Q.PROPID_MGMT_QUEUE_BYTES_IN_JOURNAL: lambda one: min(one.queue.journal_total_bytes, _LARGEST),
    Q.PROPID_MGMT_QUEUE_STATE: lambda one: (
        _STATES[OutgoingQueueState(one.queue.state)] if one.outgoing else QueueState.MGMT_QUEUE_STATE_LOCAL.value
    ),
    Q.PROPID_MGMT_QUEUE_NEXTHOPS: lambda one: _next_hops(one) if one.outgoing else None,
    Q.PROPID_MGMT_QUEUE_EOD_LAST_ACK: _of_transfer(lambda each: _place(each.last_acknowledged)),
    Q.PROPID_MGMT_QUEUE_EOD_LAST_ACK_TIME: _of_transfer(lambda each: _time(each.last_acknowledged_time)),
    Q.PROPID_MGMT_QUEUE_EOD_LAST_ACK_COUNT: _of_transfer(lambda each: each.acknowledgment_count & _LARGEST),
    Q.PROPID_MGMT_QUEUE_EOD_FIRST_NON_ACK: _of_transfer(lambda each: _place(each.first_unacknowledged)),
    Q.PROPID_MGMT_QUEUE_EOD_LAST_NON_ACK: _of_transfer(lambda each: _place(each.last_unacknowledged)),
    Q.PROPID_MGMT_QUEUE_EOD_NEXT_SEQ: _of_transfer(lambda each: _place(each.next)),
    Q.PROPID_MGMT_QUEUE_EOD_NO_READ_COUNT: _of_transfer(lambda each: each.unread_count),
    Q.PROPID_MGMT_QUEUE_EOD_NO_ACK_COUNT: _of_transfer(lambda each: each.unacknowledged_count),
    Q.PROPID_MGMT_QUEUE_EOD_RESEND_TIME: _of_transfer(lambda each: _time(each.resend_time)),
    Q.PROPID_MGMT_QUEUE_EOD_RESEND_INTERVAL: _of_transfer(lambda each: each.resend_interval),
    Q.PROPID_MGMT_QUEUE_EOD_RESEND_COUNT: _of_transfer(lambda each: each.resend_count),
    Q.PROPID_MGMT_QUEUE_EOD_SOURCE_INFO: lambda one: None if one.outgoing else _sequences(one),
    Q.PROPID_MGMT_QUEUE_CONNECTION_HISTORY: _history,
    Q.PROPID_MGMT_QUEUE_SUBQUEUE_COUNT: lambda one: len(one.queue.subqueues),
    Q.PROPID_MGMT_QUEUE_SUBQUEUE_NAMES: lambda one: list(one.queue.subqueues),
}


def machine_value(number: int, machine: Machine) -> Variant:
    """The value of a property of the machine. Raises ValueError for a number that is none (2.2.3.1)."""
    identifier = M(number)
    return variant(identifier.variant_type, _MACHINE[identifier](machine))


def queue_value(number: int, queue: ManagedQueue) -> Variant:
    """The value of a property of a queue. Raises ValueError for a number that is none (2.2.3.2)."""
    identifier = Q(number)
    return variant(identifier.variant_type, _QUEUE[identifier](queue))
