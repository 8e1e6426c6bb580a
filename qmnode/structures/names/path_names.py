r"""Path names: MS-MQMQ 2.1.1. ``computer\queue``, ``computer\private$\queue``, ``computer\system$;queue``."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from qmnode.structures.names.parts import (
    COMPUTER,
    QUEUE,
    RESERVED_SUFFIXES,
    SUBQUEUE,
    Fault,
    NameReader,
    PathNameError,
    fold,
)

LOCAL_COMPUTER: Final = "."
"""The notation of Windows for "this computer" in a path name."""

_PRIVATE: Final = "private$"
_SYSTEM: Final = "system$"
_JOURNAL: Final = "JOURNAL"


class QueueKind(Enum):
    """The three forms of a path name."""

    PUBLIC = "public"
    PRIVATE = "private"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True, eq=False)
class PathName:
    """The name of a queue on a computer, of one of its subqueues, or of its journal. Case does not matter.

    Raises PathNameError for invalid parts, so every value prints as a name that parses to it.
    """

    computer: str
    queue: str
    kind: QueueKind = QueueKind.PUBLIC
    subqueue: str = ""
    journal: bool = False

    def __post_init__(self) -> None:
        for text, fault in (
            (self.computer, COMPUTER.fault(self.computer)),
            (self.queue, _queue_fault(self.queue, self.kind)),
            (self.subqueue, _subqueue_fault(self.subqueue) if self.subqueue else None),
        ):
            if fault:
                raise PathNameError(text, fault.position, fault.expected)
        if (self.journal and self.subqueue) or (self.kind is QueueKind.SYSTEM and (self.journal or self.subqueue)):
            raise PathNameError(self.queue, 0, "no more than one suffix, and none on a system queue")

    @classmethod
    def parse(cls, text: str) -> "PathName":
        """The value of a path name. Raises PathNameError."""
        reader = NameReader(text, PathNameError)
        name = read_path_name(reader)
        reader.finish()
        return name

    def __str__(self) -> str:
        return f"{self.computer}\\{self.local_name}"

    @property
    def local_name(self) -> str:
        r"""The name without its computer: the part after the first backslash."""
        return self.local_name_separated_by("\\")

    def local_name_separated_by(self, separator: str) -> str:
        """The local name with another character in place of the backslash after ``private$``."""
        suffix = ";JOURNAL" if self.journal else f";{self.subqueue}" if self.subqueue else ""
        match self.kind:
            case QueueKind.PUBLIC:
                return f"{self.queue}{suffix}"
            case QueueKind.PRIVATE:
                return f"{_PRIVATE}{separator}{self.queue}{suffix}"
            case QueueKind.SYSTEM:
                return f"{_SYSTEM};{self.queue}"

    def _key(self) -> tuple[object, ...]:
        return (fold(self.computer), self.kind, fold(self.queue), fold(self.subqueue), self.journal)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, PathName) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())


def read_path_name(reader: NameReader) -> PathName:
    """Read a whole path name and nothing after it."""
    computer = reader.part(COMPUTER, "\\")
    if not reader.take("\\"):
        reader.fail("a backslash and a queue name after the computer name")
    return read_local_name(reader, computer, "\\")


def read_local_name(reader: NameReader, computer: str, separators: str) -> PathName:
    """Read the part of a path name after the computer; any of ``separators`` may follow ``private$``."""
    if reader.take(_SYSTEM + ";"):
        return PathName(computer, reader.part(QUEUE, ""), QueueKind.SYSTEM)
    private = any(reader.take(_PRIVATE + separator) for separator in separators)
    kind = QueueKind.PRIVATE if private else QueueKind.PUBLIC
    start = reader.position
    queue = reader.until(";")
    if fault := _queue_fault(queue, kind):
        reader.fail(fault.expected, start + fault.position)
    if not reader.take(";"):
        return PathName(computer, queue, kind)
    start = reader.position
    suffix = reader.until("")
    if fold(suffix) == _JOURNAL:
        return PathName(computer, queue, kind, journal=True)
    if fault := _subqueue_fault(suffix):
        reader.fail(fault.expected, start + fault.position)
    return PathName(computer, queue, kind, subqueue=suffix)


def _queue_fault(queue: str, kind: QueueKind) -> Fault | None:
    if kind is QueueKind.PUBLIC and fold(queue) in (fold(_PRIVATE), fold(_SYSTEM)):
        return Fault(len(queue), f"a queue name after {queue}")
    return QUEUE.fault(queue)


def _subqueue_fault(subqueue: str) -> Fault | None:
    if fold(subqueue) in RESERVED_SUFFIXES:
        return Fault(0, f"JOURNAL or the name of a subqueue, which {subqueue} cannot be")
    return SUBQUEUE.fault(subqueue)
