"""Criteria as people write them, at every face: ``label=order*``, ``value.Order.Id=7``, ``older=2h``."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.text import nearest

WHERE_HELP: Final = (
    "Condition that messages must meet; may be given again. label, body (text in it), value.PATH (decoded body), "
    "header.NAME (NServiceBus, Rebus), id, correlation, class, sender, larger and smaller (bytes), older and newer "
    "(90s, 15m, 2h, 3d), after and before (UTC time), priority, response-queue, admin-queue, destination, first and "
    "last (lookup). Texts may have * and ?."
)

_TEXTS: Final = {
    "label": "label",
    "body": "body",
    "id": "identifier",
    "correlation": "correlation",
    "class": "message_class",
    "sender": "sender",
    "response-queue": "response_queue",
    "admin-queue": "administration_queue",
    "destination": "destination",
}
_NUMBERS: Final = ("larger", "smaller", "priority", "first", "last")
_AGES: Final = {"older": "arrived_before", "newer": "arrived_after"}
_TIMES: Final = {"before": "arrived_before", "after": "arrived_after"}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_where(where: Iterable[str], now: float) -> dict[str, Any]:
    """The criteria, as JSON, that such texts mean; ages are counted from ``now``. MQ_ERROR_INVALID_PARAMETER."""
    found: dict[str, Any] = {}
    for text in where:
        name, separator, value = text.partition("=")
        if name.startswith(("value.", "header.")):
            kind, _, path = name.partition(".")
            found.setdefault(f"{kind}s", []).append(f"{path}={value}" if separator else path)
        elif not separator:
            raise _bad(f"{text!r}: write NAME=VALUE")
        else:
            found.update(_criterion(name, value, now))
    return found


def _criterion(name: str, value: str, now: float) -> dict[str, Any]:
    if name in _TEXTS:
        return {_TEXTS[name]: value}
    if name in _NUMBERS:
        try:
            return {name: int(value, 0)}
        except ValueError:
            raise _bad(f"{name}={value}: expected a number") from None
    if name in _AGES:
        return {_AGES[name]: now - seconds_of(name, value)}
    if name in _TIMES:
        return {_TIMES[name]: time_of(name, value)}
    known = (*_TEXTS, "value.PATH", "header.NAME", *_NUMBERS, *_AGES, *_TIMES)
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else f"use {', '.join(known)}"
    raise _bad(f"{name!r} is nothing that a message has: {hint}")


def seconds_of(name: str, value: str) -> float:
    """The seconds of a duration such as ``90s``. MQ_ERROR_INVALID_PARAMETER."""
    match = _DURATION.fullmatch(value[:20])
    if match is None:
        raise _bad(f"{name}={value}: write 90s, 15m, 2h or 3d")
    return float(match[1]) * _SECONDS[match[2]]


def time_of(name: str, value: str) -> float:
    """The seconds since 1970 of a time, in UTC if it names no zone. MQ_ERROR_INVALID_PARAMETER."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise _bad(f"{name}={value}: write a time such as 2026-11-22T14:30:00") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _bad(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, sentence)
