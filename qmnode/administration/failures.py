"""Failed messages in groups: by their reason, queue, sender or exception, with first, last, count and trend."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from qmnode.administration.criteria import LIMITS, Criteria
from qmnode.administration.dead_letters import reason
from qmnode.administration.search import chosen_queues, chunks, fits, readable
from qmnode.administration.turns import Pace
from qmnode.bodies.choice import read_headers
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import received_message
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_to_text

BY: Final = ("reason", "queue", "sender", "exception")
MOST_GROUPS: Final = 1000
_HOUR: Final = 3600.0
_LONGEST: Final = 500
_EXCEPTION_TYPE: Final = "NServiceBus.ExceptionInfo.ExceptionType"
_EXCEPTION_MESSAGE: Final = "NServiceBus.ExceptionInfo.Message"
_FAILED_QUEUE: Final = "NServiceBus.FailedQ"
_ENDPOINT: Final = "NServiceBus.OriginatingEndpoint"
_MACHINE: Final = "NServiceBus.OriginatingMachine"
_REBUS_ERROR: Final = "rbs2-error-details"
_REBUS_QUEUE: Final = "rbs2-source-queue"


@dataclass(slots=True)
class _Group:
    key: dict[str, str]
    where: tuple[str, ...]
    queues: set[str] = field(default_factory=set)
    count: int = 0
    last_hour: int = 0
    hour_before: int = 0
    first: float = 0.0
    last: float = 0.0


async def groups(
    manager: QueueManager, names: Sequence[str], criteria: Criteria, by: Sequence[str], *, caller: object = None
) -> dict[str, Any]:
    """The groups of the messages that the criteria find, the largest first. MQ_ERROR_INVALID_PARAMETER for ``by``."""
    if not by or any(one not in BY for one in by):
        raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"failures are grouped by {', '.join(BY)}")
    allowed, refused = readable(manager, await chosen_queues(manager, names), caller)
    found: dict[tuple[str, ...], _Group] = {}
    checks, pace, scanned, left_out = criteria.checks(), Pace(), 0, 0
    now = manager.clock.time()
    for queue, entries, _ in chunks(allowed, criteria):
        for entry in entries:
            scanned += 1
            message = received_message(*entry)
            if not fits(message, checks):
                continue
            key, where = _key(message, by)
            group = found.get(tuple(key.values()))
            if group is None:
                if len(found) >= MOST_GROUPS:
                    left_out += 1
                    continue
                group = found[tuple(key.values())] = _Group(key, where)
            _count(group, queue.pathname, message.arrival_time, now)
        await pace.rest()
    ordered = sorted(found.values(), key=lambda group: -group.count)
    return {
        "groups": [_plain(group) for group in ordered],
        "scanned": scanned,
        "left_out": left_out,
        "refused": list(refused),
    }


def _count(group: _Group, queue: str, arrived: float, now: float) -> None:
    group.count += 1
    if len(group.queues) < 10:
        group.queues.add(queue)
    group.first = min(group.first or arrived, arrived)
    group.last = max(group.last, arrived)
    group.last_hour += now - arrived <= _HOUR
    group.hour_before += _HOUR < now - arrived <= 2 * _HOUR


def _plain(group: _Group) -> dict[str, Any]:
    return group.key | {
        "queues": sorted(group.queues),
        "count": group.count,
        "first": group.first,
        "last": group.last,
        "last_hour": group.last_hour,
        "hour_before": group.hour_before,
        "where": list(group.where),
    }


def _key(message: Message, by: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The values that a message is grouped by, and the criteria that find the messages of its group."""
    headers = read_headers(message.extension, limits=LIMITS).values
    parts = {"reason": _reason, "queue": _queue, "sender": _sender, "exception": _exception}
    key: dict[str, str] = {}
    where: list[str] = []
    for name in by:
        value, criterion = parts[name](message, headers)
        key[name] = value[:_LONGEST]
        where += criterion
    return key, tuple(where)


def _header(headers: Any, name: str) -> tuple[str, list[str]] | None:
    value = headers.get(name)
    # A header of many lines, or with pattern characters in it, is found by its beginning.
    return None if value is None else (value, [f"header.{name}={value}" if len(value) < 1000 else f"header.{name}"])


def _reason(message: Message, headers: Any) -> tuple[str, list[str]]:
    if found := _header(headers, _EXCEPTION_TYPE):
        return found
    if error := headers.get(_REBUS_ERROR):
        line = error.partition("\n")[0].strip()[:200]
        return line, [f"header.{_REBUS_ERROR}={line}*"]
    name = reason(message)
    return name.removeprefix("MQMSG_CLASS_"), [f"class={name.removeprefix('MQMSG_CLASS_')}"]


def _queue(message: Message, headers: Any) -> tuple[str, list[str]]:
    for name in (_FAILED_QUEUE, _REBUS_QUEUE):
        if found := _header(headers, name):
            return found
    name = message.destination_queue_format_name
    return name, [f"destination={name}"] if name else []


def _sender(message: Message, headers: Any) -> tuple[str, list[str]]:
    if found := _header(headers, _ENDPOINT):
        return found
    if found := _header(headers, _MACHINE):
        return found
    machine = guid_to_text(message.source_machine_identifier)
    return machine, [f"sender={machine}"]


def _exception(message: Message, headers: Any) -> tuple[str, list[str]]:
    kind, text = _header(headers, _EXCEPTION_TYPE), _header(headers, _EXCEPTION_MESSAGE)
    if kind is None or text is None:
        return _reason(message, headers)
    return f"{kind[0]}: {text[0]}", [*kind[1], *text[1]]
