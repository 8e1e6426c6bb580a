"""The messages by which a restored store differs from what the later increments of its copy hold."""

import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from rocksdict import AccessType, DBRecoveryMode, Options, Rdict

from qmnode.copies.pieces import Increment, LogPosition, Stored
from qmnode.copies.shipper import FAMILIES
from qmnode.copies.target import CopyError
from qmnode.model.queue import Queue
from qmnode.model.queue_collection import system_queue_name
from qmnode.model.stored_message import IDENTIFIER, SOURCE, arrival
from qmnode.storage.large_messages import number_of, read_value, value_in
from qmnode.storage.layout import MESSAGE_KEY, QUEUE_KEY, Family
from qmnode.storage.log_records import Change, LogError, LogReader, changes
from qmnode.storage.records import scan
from qmnode.structures.guid import Guid, guid_to_text

_FACTS: Final = struct.Struct("<16sId")
"""Facts of a message: its source, its number, and its arrival."""
_UNKNOWN: Final = _FACTS.pack(b"", 0, 0.0)


@dataclass(frozen=True, slots=True)
class Entry:
    """One message in one queue."""

    queue: str
    identifier: str
    """Message identifier: queue manager and number."""
    lookup_identifier: int
    arrived: float
    """When it arrived in its first queue here, in seconds since 1970; 0 if unknown."""


@dataclass(slots=True)
class Lacking:
    """The messages by which a restored store differs from the last state that the copy knows."""

    missing: list[Entry] = field(default_factory=list)
    """Accepted after the moment, and not received by anybody since: lost, unless sent again."""
    gone: list[Entry] = field(default_factory=list)
    """Accepted after the moment, and received, sent on or deleted since."""
    again: list[Entry] = field(default_factory=list)
    """In the restored store, and received, sent on or deleted after the moment: they come a second time."""
    moved: list[Entry] = field(default_factory=list)
    """Moved after the moment to the queue that is named here: the restored store has them where they were before."""

    def counts(self, kind: str) -> dict[str, int]:
        """Messages of a kind by queue."""
        return dict(Counter(one.queue for one in getattr(self, kind)))

    def lines(self) -> Iterator[dict[str, Any]]:
        """All of them, as objects for a file of lines."""
        for kind in KINDS:
            for one in getattr(self, kind):
                yield {
                    "state": kind,
                    "queue": one.queue,
                    "id": one.identifier,
                    "lookup_id": one.lookup_identifier,
                    "arrived": one.arrived,
                }


KINDS: Final = ("missing", "gone", "again", "moved")


class Comparison:
    """Follows the log from a moment on, beside the store that was restored to it, which is only read."""

    def __init__(self, data: Path, start: LogPosition, large_value: Callable[[Stored], bytes]) -> None:
        """``start``: the place in the log that the store in ``data`` was restored to."""
        self._start = start
        self._data = data
        self._large_value = large_value
        self._numbers: dict[int, Family] = {}
        """The families, by their numbers in the log."""
        self._expected: list[Family] = []
        self._readers: dict[int, LogReader] = {}
        self._put: dict[bytes, bytes] = {}
        """Messages accepted after the moment and still there: facts, by key."""
        self._gone: dict[bytes, bytes] = {}
        self._again: dict[bytes, bytes] = {}
        self._queues: dict[int, str] = {}
        self._large: dict[int, Stored] = {}
        options = Options(raw_mode=True)
        options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
        names = Rdict.list_cf(str(data), options)
        self._database = Rdict(
            str(data),
            options=options,
            column_families={name: Options(raw_mode=True) for name in names},
            access_type=AccessType.read_only(),
        )
        self._messages = self._database.get_column_family(Family.MESSAGES.value)
        queues = self._database.get_column_family(Family.QUEUES.value)
        for key, record in scan(queues, b""):
            self._know_queue(key, record)
        queues.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._messages.close()
        self._database.close()

    def interrupted(self) -> None:
        """The log does not go on where it ended."""
        self._readers.clear()

    def add(self, increment: Increment, data: memoryview) -> None:
        """The next increment. Records up to the moment only say which number each family has. Raises CopyError."""
        self._large |= {int(one.path.rpartition("/")[2], 16): one for one in increment.files}
        try:
            self._follow(increment, data)
        except LogError as error:
            raise CopyError(str(error)) from error

    def _follow(self, increment: Increment, data: memoryview) -> None:
        for log, record, end in self._records(increment, data):
            later = (log, end) > self._start
            if later or FAMILIES in record:
                for change in changes(record):
                    self._note_family(change)
                    if later and change.key != FAMILIES:
                        self._apply(change)

    def _records(self, increment: Increment, data: memoryview) -> Iterator[tuple[int, bytes, int]]:
        at = 0
        for log, offset, size in increment.parts:
            reader = self._readers.get(log)
            if reader is None:
                self._readers = {log: (reader := LogReader(offset))}
            for record in reader.feed(data[at : at + size]):
                yield log, record, reader.end
            at += size

    def _note_family(self, change: Change) -> None:
        if change.key != FAMILIES:
            return
        if change.value is not None:
            self._expected = [Family(name) for name in json.loads(change.value)]
        elif self._expected:
            self._numbers[change.family] = self._expected.pop(0)

    def _know_queue(self, key: bytes, record: bytes) -> None:
        self._queues[QUEUE_KEY.unpack(key)[0]] = Queue.read_definition(record)["pathname"]

    def _apply(self, change: Change) -> None:
        if not self._numbers:
            raise CopyError("the log does not say which families it has")
        match self._numbers.get(change.family):
            case Family.QUEUES if change.value is not None and len(change.key) == QUEUE_KEY.size:
                self._know_queue(change.key, change.value)
            case Family.MESSAGES if change.value is not None:
                self._accept(change.key, change.value)
            case Family.MESSAGES if change.until:
                for key in [key for key in self._put if change.key <= key < change.until]:
                    self._remove(key)
                for key, _ in scan(self._messages, change.key, change.until):
                    self._remove(key)
            case Family.MESSAGES:
                self._remove(change.key)

    def _accept(self, key: bytes, record: bytes) -> None:
        if key in self._put:
            return  # another value of it
        if key not in self._again and self._messages.get(key) is not None:
            return
        self._again.pop(key, None)
        self._put[key] = self._facts(key, record)

    def _facts(self, key: bytes, record: bytes) -> bytes:
        number = number_of(record)
        if number:
            one = self._large.get(number)
            record = b"" if one is None else value_in(self._large_value(one))
        return _facts_of(record)

    def _remove(self, key: bytes) -> None:
        if (facts := self._put.pop(key, None)) is not None:
            self._gone[key] = facts
        elif key not in self._again and (record := self._messages.get(key)) is not None:
            self._again[key] = _facts_of(read_value(self._data, key, record))

    def end(self) -> Lacking:
        """Return the differences, after the last increment."""
        there = {facts[:_IDENTIFIER] for facts in self._again.values()} - {_UNKNOWN[:_IDENTIFIER]}
        lacking = Lacking(again=[self._entry(*one) for one in self._again.items()])
        for found, part in ((lacking.missing, self._put), (lacking.gone, self._gone)):
            for key, facts in part.items():
                (lacking.moved if facts[:_IDENTIFIER] in there else found).append(self._entry(key, facts))
        return lacking

    def _entry(self, key: bytes, facts: bytes) -> Entry:
        queue_id, lookup_identifier = MESSAGE_KEY.unpack(key)
        source, number, arrived = _FACTS.unpack(facts)
        identifier = rf"{guid_to_text(Guid(source))}\{number}" if facts != _UNKNOWN else ""
        return Entry(self._queue_name(queue_id), identifier, lookup_identifier, arrived)

    def _queue_name(self, queue_id: int) -> str:
        owner = self._queues.get(queue_id & ~1) or system_queue_name(queue_id & ~1)
        if not owner or not queue_id & 1:
            return self._queues.get(queue_id) or owner or f"queue {queue_id}"
        return f"{owner};JOURNAL"


_IDENTIFIER: Final = 20


def _facts_of(value: bytes) -> bytes:
    if len(value) < IDENTIFIER.stop:
        return _UNKNOWN
    return _FACTS.pack(value[SOURCE], int.from_bytes(value[IDENTIFIER], "little"), arrival(value))
