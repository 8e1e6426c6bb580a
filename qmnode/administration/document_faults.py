"""Mistakes in the document of a machine: where, and what to write, in one short line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.text import nearest, printable

DocumentPath = tuple[str | int, ...]
LONGEST_SHOWN: Final = 80
"""Characters of a wrong value in a complaint."""
_SENTENCE: Final = 400
"""Characters of a complaint."""


class DocumentFault(MessageQueuingError):
    """A mistake in a document; ``place`` leads to it, such as ``("queues", 3, "quota")``.

    Its texts fit on one line of a terminal, whatever the document has.
    """

    def __init__(self, place: DocumentPath, sentence: str) -> None:
        steps = (f"[{step}]" if isinstance(step, int) else f".{_cut(step, LONGEST_SHOWN)}" for step in place)
        self.where = "".join(steps).removeprefix(".") or "the document"
        self.place, self.sentence_alone = place, _cut(sentence, _SENTENCE)
        super().__init__(ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"{self.where}: {self.sentence_alone}")


def _cut(text: str, most: int) -> str:
    return printable(text if len(text) <= most else f"{text[:most]}...")


def in_short(value: object) -> str:
    """A value of a document in a few characters. Those of lists and mappings may be without end."""
    match value:
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case str():
            return repr(value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}...")
        case int() if value.bit_length() > 4 * LONGEST_SHOWN:
            return "a very large number"
        case Mapping():
            return "a mapping"
        case Sequence() | set():
            return "a list"
        case _:
            return f"{value!r:.80}"


def check_key(place: DocumentPath, key: object, known: Iterable[str]) -> None:
    """Raise :class:`DocumentFault` with the nearest known key for another."""
    if isinstance(key, str) and key in known:
        return
    text = key if isinstance(key, str) else in_short(key)
    near = nearest(text[:LONGEST_SHOWN], known)
    hint = f"did you mean {near}?" if near else f"it has {', '.join(known)}"
    raise DocumentFault((*place, text), f"unknown: {hint}")
