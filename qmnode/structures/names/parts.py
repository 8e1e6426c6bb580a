"""The parts of names, their limits, their comparison, and the error that explains a malformed one: MS-MQMQ 2.1.

The grammar of the specification is ASCII. Windows also accepts other characters, and spaces in the names of queues, and
so does this package. Delimiters and control characters stay excluded.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple, NoReturn

from qmnode.structures.error_codes import ErrorCode

MAX_COMPUTER_LENGTH: Final = 256
MAX_QUEUE_LENGTH: Final = 124
MAX_SUBQUEUE_LENGTH: Final = 32
MAX_DOMAIN_LENGTH: Final = 255
MAX_NAME_LENGTH: Final = 512
"""Longest name of one queue, in any form: the limits above and the longest prefixes add up to less."""

RESERVED_SUFFIXES: Final = frozenset({"JOURNAL", "DEADLETTER", "DEADXACT", "XACTONLY"})
"""Suffixes after a semicolon that have a meaning of their own, and so cannot name a subqueue."""


class QueueNameError(ValueError):
    """A name that does not parse. ``position`` counts characters of ``text``; ``expected`` describes correct text."""

    code: ErrorCode

    def __init__(self, text: str, position: int, expected: str) -> None:
        self.text = text
        self.position = position
        self.expected = expected
        super().__init__(text, position, expected)

    @property
    def sentence(self) -> str:
        """The explanation without the code."""
        shown = self.text if len(self.text) <= 80 else self.text[:77] + "..."
        return f"{shown!r} is wrong at character {self.position}: expected {self.expected}"

    def __str__(self) -> str:
        return f"{self.code.name}: {self.sentence}"


class PathNameError(QueueNameError):
    """Not a valid path name (2.1.1)."""

    code = ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME


class FormatNameError(QueueNameError):
    """Not a valid format name (2.1.2 to 2.1.7)."""

    code = ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME


class MachineQueue(StrEnum):
    """The system queues that every computer has: MachineQueuePath in 2.1.2, and the suffixes of 2.2.11."""

    JOURNAL = "JOURNAL"
    DEADLETTER = "DEADLETTER"
    DEADXACT = "DEADXACT"


def fold(text: str) -> str:
    """The form in which names are compared: as Windows does, character for character, without regard to case."""
    return text.upper() if text.isascii() else "".join(map(_fold_character, text))


def _fold_character(character: str) -> str:
    # Python also maps one letter to two, and a few letters into ASCII; the ordinal comparison of Windows does neither.
    upper = character.upper()
    return upper if len(upper) == 1 and upper.isascii() == character.isascii() else character


def utf16_length(text: str) -> int:
    """Length in 16-bit units, as Windows counts; characters beyond U+FFFF take two."""
    return len(text) + sum(character > "\uffff" for character in text)


class Fault(NamedTuple):
    """The position of a fault in a part of a name, and the expected text."""

    position: int
    expected: str


class Part(NamedTuple):
    """One kind of part: its name, its forbidden characters, and its maximum length."""

    title: str
    excluded: re.Pattern[str]
    exclusion: str
    maximum: int

    def fault(self, text: str) -> Fault | None:
        """The fault of ``text`` as this part, or None."""
        if not text:
            return Fault(0, f"{self.title}, which must not be empty")
        if match := self.excluded.search(text):
            return Fault(match.start(), f"{self.title} without {self.exclusion}")
        if utf16_length(text) > self.maximum:
            return Fault(min(self.maximum, len(text)), f"{self.title} of at most {self.maximum} characters")
        return None


# Text with half a surrogate pair cannot be written as UTF-16, so it is no name.
_UNPRINTABLE: Final = r"\x00-\x1f\x80-\x9f\ud800-\udfff"

# VCHAR of 2.1.1 without delimiters: the backslash ends the computer's name, the comma an element (2.1.7).
COMPUTER: Final = Part(
    "a computer name",
    re.compile(rf"[{_UNPRINTABLE} \x7f\\,]"),
    "space, control character, backslash or comma",
    MAX_COMPUTER_LENGTH,
)
_QUEUE_EXCLUDED: Final = re.compile(rf'[{_UNPRINTABLE}\\;+,"]')
_QUEUE_EXCLUSION: Final = "control character, backslash, semicolon, plus, comma or double quote"
QUEUE: Final = Part("a queue name", _QUEUE_EXCLUDED, _QUEUE_EXCLUSION, MAX_QUEUE_LENGTH)
SUBQUEUE: Final = Part("a subqueue name", _QUEUE_EXCLUDED, _QUEUE_EXCLUSION, MAX_SUBQUEUE_LENGTH)
DOMAIN: Final = Part(
    "a domain name",
    re.compile(rf"[{_UNPRINTABLE} \x7f,]"),
    "space, control character or comma",
    MAX_DOMAIN_LENGTH,
)


class NameReader:
    """Reads a name from left to right and tracks the position for errors."""

    def __init__(self, text: str, error: type[QueueNameError], maximum: int = MAX_NAME_LENGTH) -> None:
        self.text = text
        self.position = 0
        self._error = error
        if len(text) > maximum:
            self.fail(f"a name of at most {maximum} characters", maximum)

    def fail(self, expected: str, position: int | None = None) -> NoReturn:
        """Raise the reader's error at ``position``, or where the reader is."""
        raise self._error(self.text, self.position if position is None else position, expected)

    def take(self, word: str) -> bool:
        """Step over ``word`` if it comes next, in any case."""
        end = self.position + len(word)
        found = self.text[self.position : end]
        if found != word and fold(found) != fold(word):
            return False
        self.position = end
        return True

    def until(self, stops: str) -> str:
        """Read up to the first of the characters ``stops``, or to the end. The reader then stands at the stop."""
        start = self.position
        places = (self.text.find(stop, start) for stop in stops)
        self.position = min((place for place in places if place >= 0), default=len(self.text))
        return self.text[start : self.position]

    def part(self, kind: Part, stops: str) -> str:
        """Read a part up to one of ``stops`` and check it."""
        start = self.position
        text = self.until(stops)
        if fault := kind.fault(text):
            self.fail(fault.expected, start + fault.position)
        return text

    @property
    def at_end(self) -> bool:
        """Whether the whole name is read."""
        return self.position == len(self.text)

    def finish(self) -> None:
        """Raise unless the whole name is read."""
        if not self.at_end:
            self.fail("the end of the name")
