"""Headers of Rebus: in Extension, as a JSON object of texts in UTF-8 (Rebus.Msmq). The body is usually JSON."""

import json
import re
from typing import Any, Final

from qmnode.bodies import json_text
from qmnode.bodies.limits import BodyError, Budget, BudgetError

NAME: Final = "rebus"
_OBJECT: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{(?:[ \t\r\n]*[\"}]|[ \t\r\n\0]*\Z)")
_KINDS: Final = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number"}


def recognise(extension: bytes) -> bool:
    """Whether it begins like a JSON object with names, complete or truncated; or is like a list."""
    return _OBJECT.match(extension) is not None or json_text.looks_like_json(extension)


def decode(extension: bytes, budget: Budget) -> tuple[dict[str, str | None], str]:
    """Decode the headers, by name; null is None. Of damaged ones, those that can be read; and what is damaged, else no
    reason.
    """
    twice: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice[:] = json_text.repeated(pairs)  # in the end, those of the outermost object
        return dict(pairs)

    try:
        found = json_text.decode(extension, budget, members=members)
    except BudgetError:
        raise
    except BodyError as error:
        found, reasons = _read_part(extension), [str(error)]
        if found and "\ufffd" not in (last := next(reversed(found))):
            reasons[0] += f", after the header {last!r:.80}"
    else:
        if not isinstance(found, dict):
            raise BodyError(f"the headers are {_KINDS.get(type(found), 'one value')}, and Rebus writes a JSON object")
        reasons = [f"the header {name!r:.80} is there more than once, and its last value is shown" for name in twice]
    headers: dict[str, str | None] = {}
    for name, value in found.items():
        if not isinstance(value, (str, type(None))):
            reasons.append(f"the header {name!r:.80} is {_KINDS[type(value)]}, and no text")
        elif reasons and "\ufffd" in f"{name}{value}":
            reasons.append(f"the header {name!r:.80} has bytes that are no UTF-8")
        else:
            headers[name] = value
    return headers, "; ".join(reasons[:_MOST]) + (f"; and {len(reasons) - _MOST} more" if len(reasons) > _MOST else "")


_MOST: Final = 5
"""Reasons that are listed."""
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder(parse_constant=str)


def _read_part(extension: bytes) -> dict[str, Any]:
    """The members of a damaged object up to where it cannot be read further; bytes that are no UTF-8 are U+FFFD."""
    text = extension.decode("utf-8-sig", "replace")

    def past_space(place: int) -> int:
        return _SPACE.match(text, place).end()  # type: ignore[union-attr]  # it matches everywhere

    found: dict[str, Any] = {}
    place = past_space(0) + 1
    try:
        while text[(place := past_space(place))] == '"':
            name, place = _DECODER.raw_decode(text, place)
            if text[(place := past_space(place))] != ":":
                break
            found[name], place = _DECODER.raw_decode(text, past_space(place + 1))
            if text[(place := past_space(place))] != ",":
                break
            place += 1
    except (ValueError, IndexError, RecursionError):  # the reason is known: the whole could not be read either
        pass
    return found


def encode(headers: dict[str, str | None]) -> bytes:
    """The object in the form that Rebus reads."""
    return json_text.encode(headers)
