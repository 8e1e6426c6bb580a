"""Plans for documents whose tags are the same, as those of a queue usually are: each is read by one match of a pattern.

A plan is made when documents with the same tags have been seen a few times: a pattern of these tags, with a group for
each text, and a function that puts the texts in their places. The places are found by reading such a document with a
marker in place of each text.
"""

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from qmnode.bodies.limits import Budget

Texts = Sequence[str]
"""The texts of the elements without children, in order."""
Builder = Callable[[Texts], Any]
"""Makes a part of a value from the texts of a document."""
Reader = Callable[[list[str]], tuple[dict[str, Any], int] | None]
"""Reads a document that was split at its tags: its value, and how many nodes it has."""

_LONGEST: Final = 16_384
"""The most characters of a document that a plan is made of."""
_MOST_TAGS: Final = 80
_DEEPEST: Final = 16
_MOST_PLANS: Final = 8
_MOST_COUNTED: Final = 64
_SEEN: Final = 16
"""Number of documents with the same tags before a plan is made. Making one costs as much as reading some dozens."""

_WHITE_SPACE: Final = "[ \t\r\n]*+"
_TEXT: Final = "([^<&\\]\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]*+)"

_plans: Final[list["Plan"]] = []
"""The one that was used last is the first."""
_counts: Final[dict[tuple[str, ...], int]] = {}
"""Number of documents that had these tags; zero if there is a plan, or none can be made."""


class Plan(NamedTuple):
    """How documents with the same tags become values."""

    pattern: re.Pattern[str]
    build: Builder
    nodes: int
    """Nodes of a budget that such a document takes."""
    depth: int
    """Depth of the elements that have children."""


def planned(text: str, budget: Budget) -> dict[str, Any] | None:
    """The value of a document that has a plan; None for any other, or if the budget has less than it needs."""
    for number, plan in enumerate(_plans):
        if (matched := plan.pattern.fullmatch(text)) is not None:
            if number:
                _plans.insert(0, _plans.pop(number))
            if plan.nodes > budget.nodes or plan.depth >= budget.limits.depth:
                return None
            texts: Texts = matched.groups()
            if "\r" in "".join(texts):
                texts = [newlines(text) for text in texts]
            value: dict[str, Any] = plan.build(texts)
            return value
    return None


def learn(parts: list[str], length: int, read: Reader) -> None:
    """Count a document of ``length`` characters that was split at its tags, and make a plan of it in the end."""
    if length > _LONGEST or len(parts) > 6 * _MOST_TAGS:
        return
    tags = (*parts[1::6], *parts[2::6], *parts[4::6], *parts[5::6])
    count = _counts.get(tags)
    if count is None and len(_counts) >= _MOST_COUNTED:
        _counts.pop(next(iter(_counts)), None)
    if count == 0:
        return
    _counts[tags] = ((count or 0) + 1) % _SEEN
    if _counts[tags] == 0 and (plan := _make(parts, read)) is not None:
        _plans.insert(0, plan)
        del _plans[_MOST_PLANS:]


def newlines(text: str) -> str:
    """Text with the ends of lines that XML has: line feeds alone (XML 1.0, 2.11)."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


class _Marker(str):
    """Stands for a text of a document."""

    __slots__ = ("number",)
    number: int


def _make(parts: list[str], read: Reader) -> Plan | None:
    """The plan for documents with the tags of this one; None if more than the places of their texts can differ."""
    marked, pattern = [*parts], [re.escape(parts[0])]
    texts, depth, deepest = 0, 0, 0
    for at in range(1, len(parts) - 1, 6):
        name, rest, _, closed, end = parts[at : at + 5]
        if end:
            depth -= 1
            pattern.append(f"</{re.escape(end)}>{_WHITE_SPACE}")
        elif closed:
            if rest:  # its value depends on whether it has text
                return None
            pattern.append(f"<{re.escape(name)}>{_TEXT}</{re.escape(name)}>{_WHITE_SPACE}")
            marked[at + 2] = marker = _Marker()
            marker.number, texts = texts, texts + 1
        else:
            depth += not rest.endswith("/")
            deepest = max(deepest, depth)
            pattern.append(f"<{re.escape(name + rest)}>{_WHITE_SPACE}")
            marked[at + 2] = ""
    if deepest > _DEEPEST or (made := read(marked)) is None:
        return None
    value, nodes = made
    return Plan(re.compile("".join(pattern)), _builder(value), nodes, deepest)


def _builder(made: Any) -> Builder:
    """Return the function that makes the part of a value that was read with markers."""
    if isinstance(made, _Marker):
        return itemgetter(made.number)
    if isinstance(made, dict):
        return _builder_of_elements(made)
    if isinstance(made, list):
        if all(isinstance(one, _Marker) for one in made):
            take = itemgetter(*(one.number for one in made))
            return lambda texts: [*take(texts)]
        builders = [_builder(one) for one in made]
        return lambda texts: [build(texts) for build in builders]
    return lambda _: made


def _builder_of_elements(made: dict[str, Any]) -> Builder:
    if len(made) > 1 and all(isinstance(one, _Marker) for one in made.values()):
        names, take = tuple(made), itemgetter(*(one.number for one in made.values()))
        return lambda texts: dict(zip(names, take(texts), strict=True))
    builders = [(name, _builder(one)) for name, one in made.items()]
    return lambda texts: {name: build(texts) for name, build in builders}
