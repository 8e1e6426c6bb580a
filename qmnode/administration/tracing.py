"""The way of a message as one node knows it now: the places where it is, and whether it came here or began here.

A node is asked live. It looks through its queues for a third of a second at most, and says whether it saw all. Of a
message that it delivered without a copy, it has only the identifier in its history, for half an hour or longer.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict
from time import monotonic
from typing import Any, Final

from qmnode.administration.criteria import Criteria
from qmnode.administration.dead_letters import reason
from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.administration.promises import QueueRole, kind_of
from qmnode.administration.search import chunks, fits, readable
from qmnode.administration.turns import Pace
from qmnode.errors import MessageQueuingError
from qmnode.model.api import QueueType
from qmnode.model.message import Message
from qmnode.model.ports import Entry
from qmnode.model.queue import OutgoingQueue, Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import PREFIX_SIZE, SOURCE, received_message
from qmnode.model.waiting_reasons import Waiting, WaitReason
from qmnode.security.principals import Principal
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, guid_from_text, guid_to_text
from qmnode.structures.packet_view import IDENTIFIER

_SECONDS: Final = 0.3
_PLACES: Final = 100
"""Places of messages in one answer."""
_HOP: Final = re.compile(r"<NEXT HOP>([^<]*)</NEXT HOP>")
_COUNT: Final = re.compile(r"<HOP COUNT>([0-9A-F]+) *</HOP COUNT>")
_NUMBER: Final = slice(PREFIX_SIZE + IDENTIFIER.start, PREFIX_SIZE + IDENTIFIER.stop)


async def trace(manager: QueueManager, criteria: Criteria, caller: object = None) -> dict[str, Any]:
    """The places of the messages that the criteria mean: an identifier, a label or a correlation identifier.

    Queues that the caller may not peek at are left out and counted. Whether the message came or began here needs the
    right to read the properties of the machine, as reasons do. MQ_ERROR_INVALID_PARAMETER if nothing is asked for.
    """
    if not (criteria.identifier or criteria.label or criteria.correlation):
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_INVALID_PARAMETER, "say which message: its identifier, label or correlation identifier"
        )
    checks = criteria.checks()
    wanted = _identifier(criteria) if criteria.identifier else b""
    queues, refused = readable(manager, [*_queues(manager)], caller)
    places: list[dict[str, Any]] = []
    reports: list[dict[str, Any]] = []
    scanned, until, pace, complete = 0, monotonic() + _SECONDS, Pace(), True
    marks = {mark_of(wanted)} if wanted else set()
    reasons = not isinstance(caller, Principal) or GuardedQueueManager(manager, caller).may_do("waiting")
    for queue, entries in _entries(queues):
        for lookup_identifier, value in entries:
            scanned += 1
            is_it = not wanted or (value[SOURCE] == wanted[:16] and value[_NUMBER] == wanted[16:])
            if not is_it and queue.queue_type not in (QueueType.PUBLIC, QueueType.PRIVATE):
                continue
            message = received_message(lookup_identifier, value)
            if is_it and fits(message, checks):
                places.append(_place(manager, queue, message, reasons=reasons))
                marks.add(mark_of(message.identifier))
            elif message.message_class == MessageClass.MQMSG_CLASS_REPORT and message.label[:13] in marks:
                reports.append(_report(manager, queue, message))
        complete = len(places) < _PLACES and monotonic() < until
        if not complete:
            break
        await pace.rest()
    return {
        "machine": manager.computer_name,
        "places": places,
        "reports": reports,
        "passed": _passed(manager, wanted) if wanted and reasons else None,
        "began": wanted[:16] == manager.identifier if wanted and reasons else None,
        "scanned": scanned,
        "complete": complete,
        "refused": len(refused),
    }


def _queues(manager: QueueManager) -> Iterator[Queue]:
    """Queues in the order in which a message is likely to be there: on its way, arrived, dead, copied."""
    collection = manager.queue_collection
    every = sorted(
        (queue for queue in collection.values() if not queue.is_internal and not queue.deleted),
        key=lambda queue: (queue.queue_type is not QueueType.OUTGOING, queue.message_count),
    )
    yield from every
    yield collection.awaiting_final_ack
    for queue in every:
        if queue.journal_queue is not None:
            yield queue.journal_queue


def _entries(queues: list[Queue]) -> Iterator[tuple[Queue, list[Entry]]]:
    """The messages of queues: those under way or in transactions first, which no search shows."""
    for queue in queues:
        if queue.locked:
            yield queue, [(one, position.value) for one, position in list(queue.locked.items())]
    for queue, entries, _ in chunks(queues, Criteria()):
        yield queue, entries


def _identifier(criteria: Criteria) -> bytes:
    guid, _, number = criteria.identifier.partition("\\")
    return guid_from_text(guid) + int(number).to_bytes(4, "little") if number else bytes.fromhex(guid)


def mark_of(identifier: bytes) -> str:
    """The beginning of the labels of trace reports about a message (MS-MQQB 3.1.5.8.9)."""
    return f"{guid_to_text(Guid(identifier[:16])).upper()[:4]}:{int.from_bytes(identifier[16:20], 'little'):08X}"


def _passed(manager: QueueManager, identifier: bytes) -> bool:
    """Whether the message came to this node within the last half hour, from another."""
    network = manager.context.network
    return network is not None and network.came(Guid(identifier[:16]), int.from_bytes(identifier[16:20], "little"))


def _place(manager: QueueManager, queue: Queue, message: Message, *, reasons: bool) -> dict[str, Any]:
    return {
        "queue": queue.pathname,
        "role": _role(manager, queue),
        "lookup": message.lookup_identifier,
        "identifier": message.identifier,
        "correlation": message.correlation_identifier,
        "label": message.label,
        "source": manager.machine_name(Guid(message.identifier[:16])),
        "sent": float(message.sent_time),
        "arrived": float(message.arrival_time),
        "message_class": reason(message),
        "waiting": _waiting(manager, queue, message) if reasons else None,
    }


def _role(manager: QueueManager, queue: Queue) -> str:
    if queue is manager.queue_collection.awaiting_final_ack:
        return "arrived"
    if queue.is_delayed:
        return "delayed"
    match kind_of(queue):
        case QueueRole.OUTGOING:
            return "outgoing"
        case QueueRole.JOURNAL:
            return "journal"
        case QueueRole.DEAD_LETTERS:
            return "dead_letter"
        case _:
            return "queue"


def _waiting(manager: QueueManager, queue: Queue, message: Message) -> dict[str, Any] | None:
    found: Waiting | None = None
    role = _role(manager, queue)
    if isinstance(queue, OutgoingQueue):
        found = queue.waits_for
    elif role == "delayed":
        found = Waiting(WaitReason.DELAYED, "its delivery time has not come", queue.pathname)
    elif role == "queue":
        found = Waiting(
            WaitReason.RECEIVER, f"nobody has received it from {queue.pathname}", queue.pathname,
            machine=manager.computer_name, since=float(message.arrival_time), messages=queue.message_count,
        )  # fmt: skip
    return None if found is None else asdict(found)


def _report(manager: QueueManager, queue: Queue, message: Message) -> dict[str, Any]:
    next_hop, hops = next_hop_of(message)
    return {
        "queue": queue.pathname,
        "machine": manager.machine_name(Guid(message.identifier[:16])),
        "time": float(message.sent_time),
        "next_hop": next_hop,
        "hops": hops,
        "message": message.label[:13],
    }


def next_hop_of(report: Message) -> tuple[str, int]:
    """The address that a message was sent to, by a report on it; empty if it arrived. And the hops before."""
    text = report.body.decode("utf-16-le", "replace")
    hop, count = _HOP.search(text), _COUNT.search(text)
    hops = int(count[1], 16) if count is not None else int(report.label[14:16] or "0", 16)
    return hop[1] if hop is not None else "", hops
