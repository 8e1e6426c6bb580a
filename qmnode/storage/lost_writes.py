"""Detects synced writes that are missing: a log that was truncated, removed, or replaced by an older one.

First record the state of the directory (:func:`examine`), then open the store and compare.

The file ``SYNCED`` of :mod:`qmnode.storage.writer` says up to where writes were synced.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from rocksdict import AccessType, DBRecoveryMode, Options, Rdict

from qmnode.storage.errors import WHAT_TO_DO, StoreError
from qmnode.storage.layout import Family
from qmnode.storage.log_records import MAY_HAVE_HELD, damaged_ends, damaged_record
from qmnode.storage.writer import COMPLEMENT, DETAILS, DETAILS_AT, MARK, SYNCED_FILE, SYNCED_SIZE, Moment, logs_in


@dataclass(frozen=True, slots=True)
class Synced:
    """The contents of the file."""

    mark: Moment
    history: tuple[Moment, ...] = ()
    logs: dict[int, int] = field(default_factory=dict)
    """Sizes of the logs that were complete, and synced."""
    newest_log: int = 0
    """The log that was being written; 0 if unknown."""
    closed: bool = True
    """Whether the store was closed after that, as far as is known."""

    def at(self, number: int) -> Moment | None:
        """The approximate time when this number was written; None if it is older than the recorded history."""
        before = None
        for moment in (*self.history, self.mark):
            if moment.number < number:
                before = moment
                continue
            if before is None:
                return moment if moment.number == number else None
            part = (number - before.number) / (moment.number - before.number)
            return Moment(
                number,
                before.messages + round(part * (moment.messages - before.messages)),
                before.time + part * (moment.time - before.time),
            )
        return None


def read_synced(path: Path) -> Synced | None:
    """The contents of the file in this store's directory. None if it is missing or torn."""
    try:
        content = (path / SYNCED_FILE).read_bytes()
    except OSError:
        return None
    if len(content) != SYNCED_SIZE:
        return None
    number, complement, messages, when = MARK.unpack_from(content)
    if number ^ complement != COMPLEMENT:
        return None
    mark = Moment(number, messages, when)
    length, check = DETAILS.unpack_from(content, DETAILS_AT)
    text = content[DETAILS_AT + DETAILS.size :][:length]
    if zlib.crc32(text) != check:
        return Synced(mark)
    try:
        details = json.loads(text)
        history = tuple(Moment(*moment) for moment in details["history"])
        logs = {int(name): size for name, size in details["logs"].items()}
        return Synced(mark, history, logs, details["newest_log"], details.get("closed", True))
    except (ValueError, TypeError, KeyError, AttributeError):
        return Synced(mark)


LOSSES: Final = "losses"
"""The key of the losses that starts have found, as JSON."""
REPORTED_FOR: Final = 7 * 24 * 3600.0
"""Seconds for which a loss is reported after a start found it."""
_KEPT: Final = 20
_NAMED: Final = 100
"""Files of large messages that a loss names."""
_MORE: Final = "files of more large messages:"
_ADVICE: Final = (
    "Messages of that time may be missing, and others may be received again: restore a backup, or have them sent again"
)


@dataclass(frozen=True, slots=True)
class Loss:
    """Synced writes that are missing."""

    writes: int
    """Missing records; 0 if the number is unknown."""
    messages: int
    """Approximate number of messages that these writes stored."""
    since: float
    """When the last remaining write was made, in seconds since 1970; 0 if unknown."""
    until: float
    """When the last synced write was made."""
    logs: tuple[str, ...] = ()
    """Damage found in the logs, and in the files of large messages."""
    found: float = 0.0
    """When a start found the loss."""

    @property
    def is_certain(self) -> bool:
        """Whether synced writes are missing. A damaged end may also be a write that never completed."""
        return bool(self.writes) or not all(log.endswith(MAY_HAVE_HELD) for log in self.logs)

    @property
    def sentence(self) -> str:
        """An explanation for people: the missing data, and what to do."""
        if not self.is_certain:
            return f"{', '.join(self.logs)}. After a power cut that is a write that never completed. {_ADVICE}"
        parts = ["writes that were synced are gone"]
        if self.writes:
            count = f"{self.writes} records of about {self.messages} stored messages"
            since = f"between {moment(self.since)} and" if self.since else "until"
            parts = [f"{count}, written {since} {moment(self.until)}, were synced and are gone"]
        if self.logs:
            parts.append(", ".join(self.logs))
        return f"{': '.join(parts)}. {_ADVICE}"

    @classmethod
    def read(cls, record: bytes | None) -> list[Self]:
        """Decode the losses that starts have found, the oldest first."""
        if record is None:
            return []
        return [cls(**one | {"logs": tuple(one["logs"])}) for one in json.loads(record)]


def moment(seconds: float) -> str:
    """A time in seconds since 1970, for people."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class Before:
    """A directory as it was before opening its store, which changes the logs."""

    synced: Synced | None
    logs: dict[int, int]
    ends: dict[str, int]
    """Damaged ends of logs and of the manifest, in bytes."""


def examine(path: Path) -> Before:
    """Examine a store's directory before it is opened."""
    return Before(read_synced(path), logs_in(path), damaged_ends(path))


def find_loss(before: Before, recovered: int, first_needed_log: Callable[[], int]) -> Loss | None:
    """Compare with the number that the store was recovered to. ``first_needed_log`` is called if a log is missing."""
    synced = before.synced
    ends = sentences(before.ends)
    if synced is None:
        return Loss(0, 0, 0.0, time.time(), ends) if ends else None
    damaged = _damaged_logs(synced, before.logs)
    if damaged:
        first = first_needed_log()
        damaged = {number: what for number, what in damaged.items() if number >= first}
    logs = *(f"{number:06}.log {what}" for number, what in sorted(damaged.items())), *ends
    mark = synced.mark
    if recovered < mark.number:
        there = synced.at(recovered)
        messages = mark.messages - (there.messages if there is not None else 0)
        return Loss(mark.number - recovered, messages, there.time if there is not None else 0.0, mark.time, logs)
    return Loss(0, 0, 0.0, mark.time, logs) if logs else None


def sentences(ends: Mapping[str, int]) -> tuple[str, ...]:
    """Damaged ends of files, for people."""
    return tuple(f"{name} has {size} damaged bytes at its end, which {MAY_HAVE_HELD}" for name, size in ends.items())


def _damaged_logs(synced: Synced, there: dict[int, int]) -> dict[int, str]:
    damaged = {}
    for number, size in synced.logs.items():
        if number not in there:
            damaged[number] = "is missing"
        elif there[number] < size:
            damaged[number] = f"has {there[number]} bytes of {size}"
    if synced.newest_log and synced.newest_log not in there:
        damaged[synced.newest_log] = "is missing"
    return damaged


def needed_log(database: Rdict) -> int:
    """The oldest log with records that are not in sorted files. Only a store opened for reading still knows it."""
    return int(database.property_value("rocksdb.min-log-number-to-keep") or 0)


def check_files(path: Path, before: Before) -> None:
    """Refuse a directory that was a store and no longer is: RocksDB would create an empty one in its place."""
    if before.synced is None or not before.synced.mark.number:
        return
    there = set(Rdict.list_cf(str(path), Options(raw_mode=True))) if (path / "CURRENT").exists() else set()
    missing = [family.value for family in (Family.META, Family.MESSAGES, Family.QUEUES) if family.value not in there]
    if missing:
        raise StoreError(
            f"the message store {path} had messages, but its files no longer contain {', '.join(missing)}: {WHAT_TO_DO}"
        )


def has_gap(before: Before) -> bool:
    """Whether a log ends too early that a newer one follows: without its end, the newer one must not be read."""
    return any(f"{number:06}.log" in before.ends for number in sorted(before.logs)[:-1])


def up_to_damage(path: Path, before: Before) -> Before | None:
    """The directory with all that is damaged at the ends of its logs, if all writes before the first damage are there
    that were synced; None otherwise.

    A disk that writes pages in any order leaves such an end of a write that never completed.
    """
    if before.synced is None:
        return None
    database = open_to_read(path, DBRecoveryMode.point_in_time())
    try:
        if database.latest_sequence_number() < before.synced.mark.number:
            return None
    finally:
        database.close()
    return replace(before, ends=before.ends | damaged_logs(path))


def damaged_logs(path: Path) -> dict[str, int]:
    """Bytes from the first damaged record of each log on."""
    places = {log: damaged_record(log) for log in sorted(path.glob("*.log"))}
    return {log.name: log.stat().st_size - place for log, place in places.items() if place is not None}


def open_to_read(path: Path, recovery: DBRecoveryMode | None = None) -> Rdict:
    """The store in this directory, which is not changed. Its exceptions are RocksDB's."""
    options = Options(raw_mode=True)
    options.set_wal_recovery_mode(recovery or DBRecoveryMode.tolerate_corrupted_tail_records())
    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(path), options)}
    return Rdict(str(path), options=options, column_families=families, access_type=AccessType.read_only())


def first_needed_log(path: Path, before: Before) -> int:
    """The oldest log whose records are not in sorted files yet, in case a needed log is missing.

    Opening the store for writing destroys this information.
    """
    if before.synced is None or not _damaged_logs(before.synced, before.logs):
        return 0
    database = open_to_read(path)
    try:
        return needed_log(database)
    finally:
        database.close()


def with_files(loss: Loss | None, faults: Sequence[str], known: Sequence[Loss]) -> Loss | None:
    """The loss, with the faults of the files of large messages that no loss reported before had."""
    before = {fault for one in known for fault in one.logs}
    faults = [fault for fault in faults if fault not in before]
    if not faults or any(fault.startswith(_MORE) for fault in before):
        return loss
    loss = loss or Loss(0, 0, 0.0, time.time())
    named = faults if len(faults) <= _NAMED else [*faults[:_NAMED], f"{_MORE} {len(faults) - _NAMED}"]
    return replace(loss, messages=max(loss.messages, len(faults)), logs=(*loss.logs, *named))


def with_loss(record: bytes | None, loss: Loss) -> bytes:
    """The record of losses with one that this start has found, for later reports."""
    known = [*Loss.read(record), replace(loss, found=time.time())]
    return json.dumps([asdict(one) for one in known[-_KEPT:]]).encode()


def recent(record: bytes | None) -> list[Loss]:
    """The losses that are still reported."""
    return [loss for loss in Loss.read(record) if loss.found + REPORTED_FOR > time.time()]
