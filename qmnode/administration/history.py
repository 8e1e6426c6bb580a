"""A day of the counters of the busiest queues: every ten seconds for an hour, and every minute for a day.

Kept in memory, in at most 16 MB: the queues that were idle for the longest time lose their places to busy ones. A file
beside the store keeps it over restarts.
"""

import gzip
import json
import os
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple, Self

import structlog

from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.administration.search import chosen_queues
from qmnode.administration.turns import Pace
from qmnode.errors import MessageQueuingError
from qmnode.model.queue import Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.traffic import Totals
from qmnode.security.principals import Principal
from qmnode.structures.error_codes import ErrorCode

# ----------------------------------------------------------------------------------------------------------------------
# The file in which the history of counters outlives the node: beside the store, and never part of a back-up.
#
# Gzip over the length of a head, the head as JSON, and the samples of each queue in the order of the head.

_FORMAT: Final = 1
_LENGTH: Final = Struct("<I")
_MOST_HEAD: Final = 4_000_000
"""Bytes of a head; that of 300 queues with long names has less than 400,000."""


UNREADABLE: Final = (OSError, ValueError, TypeError, KeyError, EOFError, zlib.error)
"""The errors of a file that is missing, damaged or of another program."""


class Saved(NamedTuple):
    """The samples of one queue as bytes."""

    name: str
    used: int
    fine: bytes
    minutes: bytes


async def write(
    path: Path, facts: dict[str, Any], sizes: Sequence[Sequence[Any]], samples: AsyncIterator[Saved]
) -> None:
    """Replace the file. ``sizes``: name, last use and bytes of both kinds of samples of each queue. Raises OSError."""
    head = json.dumps(facts | {"format": _FORMAT, "queues": sizes}).encode()
    written = path.with_name(f"{path.name}.new")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as raw, gzip.GzipFile("", "wb", 1, raw) as file:
        file.write(_LENGTH.pack(len(head)) + head)
        async for one in samples:
            file.write(one.fine)
            file.write(one.minutes)
    written.replace(path)


def read(path: Path, most: int, add: Callable[[Saved], None]) -> dict[str, Any]:
    """Return the facts, and add each queue: at most ``most`` bytes of a kind. Raises one of UNREADABLE."""
    with gzip.open(path, "rb") as file:
        (length,) = _LENGTH.unpack(_exactly(file, _LENGTH.size, _MOST_HEAD))
        head = json.loads(_exactly(file, length, _MOST_HEAD))
        if not isinstance(head, dict) or head.get("format") != _FORMAT:
            raise ValueError("another program wrote it")
        for name, used, fine, minutes in head["queues"]:
            add(Saved(str(name), int(used), _exactly(file, fine, most), _exactly(file, minutes, most)))
        if file.read(1):  # at the end this compares the checksum
            raise ValueError("there is more in it than its head says")
    return head


def _exactly(file: gzip.GzipFile, size: int, most: int) -> bytes:
    data = file.read(size) if 0 <= size <= most else b""
    if len(data) != size:
        raise ValueError("it is incomplete")
    return data


log = structlog.get_logger(__name__)

STEP: Final = 10.0
"""Seconds between two samples."""
_COARSE: Final = 6
"""Samples of one minute."""
SPANS: Final = {"hour": (STEP, 360), "day": (STEP * _COARSE, 1440)}
"""Seconds of a step, and the number of steps."""
MOST_QUEUES: Final = 300
"""Each takes at most 49 KB: 1,800 samples of 24 bytes, with the room that a growing buffer has left."""
COLUMNS: Final = ("arrived", "left", "died", "messages", "bytes")
_RECORD: Final = Struct("<IIIIQ")
_MOST: Final = 0xFFFFFFFF
_NONE: Final[Totals] = (0, 0, 0)
_SAVED: Final = 60
"""Steps between two times that it is saved: a crash takes as many."""
_LATE: Final = 1.1
"""A sample this much older than its span is shown: steps are late on a busy machine."""
_PASS: Final = 500
"""Queues that are looked at before others may go first."""


class Ring:
    """The latest samples, the oldest of which is overwritten."""

    __slots__ = ("_capacity", "_data", "_next")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity * _RECORD.size
        self._data = bytearray()
        self._next = 0

    def add(self, moves: Sequence[int], messages: int, size: int) -> None:
        """Add a sample: what arrived, left and died in the step, and what there is at its end."""
        counts = (min(number, _MOST) for number in (*moves, messages))
        record = _RECORD.pack(*counts, min(size, (1 << 64) - 1))
        if len(self._data) < self._capacity:
            self._data += record
        else:
            self._data[self._next : self._next + _RECORD.size] = record
            self._next = (self._next + _RECORD.size) % self._capacity

    @property
    def size(self) -> int:
        """Bytes of the samples."""
        return len(self._data)

    def content(self) -> bytes:
        """The samples as bytes, the oldest first."""
        return bytes(self._data[self._next :] + self._data[: self._next])

    def fill(self, content: bytes) -> None:
        """Take the samples of before. ValueError if they are not whole."""
        if len(content) % _RECORD.size:
            raise ValueError("a sample is incomplete")
        self._data, self._next = bytearray(content[-self._capacity :]), 0

    def samples(self) -> list[tuple[int, ...]]:
        """The samples, the oldest first."""
        return list(_RECORD.iter_unpack(self.content()))


class _Kept:
    """The samples of one queue."""

    __slots__ = ("fine", "minute", "minutes", "used")

    def __init__(self) -> None:
        self.fine = Ring(SPANS["hour"][1])
        self.minutes = Ring(SPANS["day"][1])
        self.minute = _NONE
        """The moves of the minute that has not ended."""
        self.used = 0
        """The last step in which messages moved."""

    @classmethod
    def restored(cls, saved: Saved) -> Self:
        """As it was when the history was saved, but for the minute that had not ended."""
        kept = cls()
        kept.used = saved.used
        kept.fine.fill(saved.fine)
        kept.minutes.fill(saved.minutes)
        return kept

    def add(self, moves: Totals, queue: Queue | None, step: int, *, minute_ends: bool) -> None:
        messages, size = (0, 0) if queue is None else (queue.message_count, queue.total_bytes)
        if any(moves):
            self.used = step
        self.fine.add(moves, messages, size)
        self.minute = _sum(self.minute, moves)
        if minute_ends:
            self.minutes.add(self.minute, messages, size)
            self.minute = _NONE


class History:
    """The history of one queue manager."""

    def __init__(self, manager: QueueManager, path: Path | None = None) -> None:
        """``path`` is the file in which it is saved."""
        self._manager = manager
        self._path = path
        self._kept: dict[str, _Kept] = {}
        self._times = {span: deque[float](maxlen=count) for span, (_, count) in SPANS.items()}
        self._steps = 0

    def load(self) -> None:
        """Go on with the history of the time before this start; without one it begins now."""
        if self._path is None or not self._path.exists():
            return
        kept: dict[str, _Kept] = {}

        def add(saved: Saved) -> None:
            if len(kept) < MOST_QUEUES:
                kept[saved.name] = _Kept.restored(saved)

        try:
            facts = read(self._path, max(count for _, count in SPANS.values()) * _RECORD.size, add)
            times = {span: [float(time) for time in facts["times"][span]] for span in SPANS}
            self._steps = int(facts["steps"])
        except UNREADABLE as error:
            log.warning("the history of counters is unreadable and begins anew", path=str(self._path), error=str(error))
            return
        self._kept = kept
        for span, found in times.items():
            self._times[span].extend(found)

    async def save(self) -> None:
        """Write it to its file. A failure is logged."""
        if self._path is None or not self._kept:
            return
        facts = {"steps": self._steps, "times": {span: list(times) for span, times in self._times.items()}}
        kept = list(self._kept.items())
        sizes = [(name, one.used, one.fine.size, one.minutes.size) for name, one in kept]
        try:
            await write(self._path, facts, sizes, _saved(kept))
        except OSError as error:
            log.warning("the history of counters cannot be saved", path=str(self._path), error=str(error))

    async def sample(self) -> None:
        """Take a sample of each kept queue, and find places for those that became busy."""
        self._steps += 1
        minute_ends = self._steps % _COARSE == 0
        moved: dict[str, Totals] = {}
        queues: dict[str, Queue] = {}
        pace = Pace()
        self._manager.traffic.settle()
        for number, queue in enumerate(list(self._manager.queue_collection.values())):
            if queue.is_internal:
                continue
            now = queue.tally.totals
            moves = _difference(now, queue.tally.sampled)
            queue.tally.sampled = now
            name = queue.pathname
            if any(moves):
                moved[name] = moves
            if name in self._kept or any(moves):
                queues[name] = queue
            if number % _PASS == _PASS - 1:
                await pace.rest()
        self._make_places(moved)
        for name, kept in self._kept.items():
            kept.add(moved.get(name, _NONE), queues.get(name), self._steps, minute_ends=minute_ends)
        time = self._manager.clock.time()
        self._times["hour"].append(time)
        if minute_ends:
            self._times["day"].append(time)
        if self._steps % _SAVED == 0:
            await self.save()

    def _make_places(self, moved: dict[str, Totals]) -> None:
        """The busiest queues without a place take those of the queues that have been idle for the longest time."""
        newcomers = sorted((name for name in moved if name not in self._kept), key=lambda name: -sum(moved[name]))
        idle = sorted((name for name in self._kept if name not in moved), key=lambda name: self._kept[name].used)
        for name in newcomers:
            if len(self._kept) >= MOST_QUEUES:
                if not idle:
                    return
                del self._kept[idle.pop(0)]
            self._kept[name] = _Kept()

    async def series(self, names: Sequence[str], span: str, caller: object) -> dict[str, Any]:
        """The samples of the queues that names and patterns mean and the caller may see: a list for each column.

        ``times`` are the ends of the steps; a queue with fewer samples has those of the last ones.
        """
        if span not in SPANS:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"span is {' or '.join(SPANS)}")
        queues = await chosen_queues(self._manager, names)
        if isinstance(caller, Principal):
            guarded = GuardedQueueManager(self._manager, caller)
            queues = [queue for queue in queues if guarded.may_see(queue)]
        step, count = SPANS[span]
        oldest = self._manager.clock.time() - step * count * _LATE
        times = list(self._times[span])
        del times[: next((index for index, time in enumerate(times) if time >= oldest), len(times))]
        found = []
        for name in sorted(queue.pathname for queue in queues if queue.pathname in self._kept):
            kept = self._kept[name]
            samples = (kept.fine if span == "hour" else kept.minutes).samples()
            del samples[: max(len(samples) - len(times), 0)]
            columns = (
                zip(COLUMNS, zip(*samples, strict=True), strict=True) if samples else ((one, ()) for one in COLUMNS)
            )
            found.append({"queue": name} | {column: list(values) for column, values in columns})
        return {"step": step, "times": times, "queues": found}


def _difference(now: Totals, before: Totals) -> Totals:
    return now[0] - before[0], now[1] - before[1], now[2] - before[2]


def _sum(one: Totals, other: Totals) -> Totals:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


async def _saved(kept: Sequence[tuple[str, _Kept]]) -> AsyncIterator[Saved]:
    pace = Pace()
    for name, one in kept:
        yield Saved(name, one.used, one.fine.content(), one.minutes.content())
        await pace.rest()
