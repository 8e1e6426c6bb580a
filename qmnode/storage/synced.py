"""The position up to which the log was synced, stored beside it to distinguish a torn tail from a loss.

A write that was never synced may end torn when power fails; it was never confirmed. A synced write must be there at the
next start. RocksDB cannot tell the two apart: to it, a log that ends early ends there. So the file ``SYNCED`` holds the
sequence number of the last synced write. It is changed after each sync, in mapped memory, and not synced itself: a mark
that is too low, as after a power cut, only makes the check weaker; it is never too high. A system call instead would
cost a fifth of a disk sync, because it changes the file's time.

The file has 4096 bytes: the mark at 0, and at 512 the details that change once a second: the times of recent writes,
and the sizes of complete logs.
"""

import contextlib
import json
import mmap
import os
import struct
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SYNCED_FILE: Final = "SYNCED"
_SIZE: Final = 4096
_DETAILS_AT: Final = 512
_MARK: Final = struct.Struct("<QQQd")
"""Sequence number, its complement, messages, and time."""
_COMPLEMENT: Final = (1 << 64) - 1
_DETAILS: Final = struct.Struct("<II")
_INTERVAL: Final = 1.0
"""Seconds between two writes of the details."""
_HISTORY: Final = 48
_LOGS: Final = 40


@dataclass(frozen=True, slots=True)
class Moment:
    """The position of the store at some time."""

    number: int
    """Sequence number of RocksDB: each record that is put or deleted has one."""
    messages: int
    """Recoverable messages stored up to then, since the file was created."""
    time: float


@dataclass(frozen=True, slots=True)
class Synced:
    """The contents of the file."""

    mark: Moment
    history: tuple[Moment, ...] = ()
    logs: dict[int, int] = field(default_factory=dict)
    """Sizes of the logs that were complete, and synced."""
    newest_log: int = 0
    """The log that was being written; 0 if unknown."""

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


def logs_in(path: Path) -> dict[int, int]:
    """The write-ahead logs in a store's directory, with their sizes."""
    with os.scandir(path) as entries:
        return {
            int(entry.name[:-4]): entry.stat().st_size
            for entry in entries
            if entry.name.endswith(".log") and entry.name[:-4].isdigit()
        }


def read_synced(path: Path) -> Synced | None:
    """The contents of the file in this store's directory. None if it is missing or torn."""
    try:
        content = (path / SYNCED_FILE).read_bytes()
    except OSError:
        return None
    if len(content) != _SIZE:
        return None
    number, complement, messages, when = _MARK.unpack_from(content)
    if number ^ complement != _COMPLEMENT:
        return None
    mark = Moment(number, messages, when)
    length, check = _DETAILS.unpack_from(content, _DETAILS_AT)
    text = content[_DETAILS_AT + _DETAILS.size :][:length]
    if zlib.crc32(text) != check:
        return Synced(mark)
    try:
        details = json.loads(text)
        history = tuple(Moment(*moment) for moment in details["history"])
        logs = {int(name): size for name, size in details["logs"].items()}
        return Synced(mark, history, logs, details["newest_log"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return Synced(mark)


def write_synced(path: Path, number: int, messages: int) -> None:
    """Write the file for a copy of a store, whose logs are complete."""
    mark = _MARK.pack(number, number ^ _COMPLEMENT, messages, time.time())
    details = _pack_details([], logs_in(path), 0)
    with (path / SYNCED_FILE).open("wb") as file:
        file.write(mark.ljust(_DETAILS_AT, b"\0") + details)
        file.flush()
        os.fsync(file.fileno())


def _pack_details(history: list[Moment], logs: dict[int, int], newest: int) -> bytes:
    kept = dict(sorted(logs.items())[-_LOGS:])
    moments = [(moment.number, moment.messages, round(moment.time, 1)) for moment in history]
    document: dict[str, Any] = {"history": moments, "logs": kept, "newest_log": newest}
    text = json.dumps(document, separators=(",", ":")).encode()
    room = _SIZE - _DETAILS_AT - _DETAILS.size
    if len(text) > room:
        text = b""
    return (_DETAILS.pack(len(text), zlib.crc32(text)) + text).ljust(_SIZE - _DETAILS_AT, b"\0")


class SyncedMark:
    """Writes the file of an open store. Raises OSError if it cannot be created."""

    __slots__ = ("_details_at", "_file", "_history", "_map", "_number", "_path", "messages")

    def __init__(self, path: Path, number: int, messages: int) -> None:
        """Begin at the write that the store was recovered to."""
        self.messages = messages
        """The counter of stored messages, which the store increases."""
        self._path = path
        self._number = -1
        self._history: list[Moment] = []
        self._details_at = 0.0
        self._file = os.open(path / SYNCED_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(self._file).st_size != _SIZE:
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, bytes(_SIZE), 0)  # reserve the mapped page's place on the disk
            self._map = mmap.mmap(self._file, _SIZE)
            self.move(number)
            os.fsync(self._file)
        except BaseException:
            os.close(self._file)
            raise

    def move(self, number: int) -> None:
        """Record that all writes up to this one are synced."""
        if number == self._number:
            return
        self._number = number
        now = time.time()
        _MARK.pack_into(self._map, 0, number, number ^ _COMPLEMENT, self.messages, now)
        if not 0 <= now - self._details_at < _INTERVAL:
            self._details_at = now
            self._write_details(Moment(number, self.messages, now))

    def _write_details(self, moment: Moment) -> None:
        history = self._history
        if len(history) >= _HISTORY:
            del history[1 : _HISTORY // 2 : 2]  # older entries are thinned out
        history.append(moment)
        with contextlib.suppress(OSError):  # the store detects disk errors itself
            logs = logs_in(self._path)
            newest = max(logs, default=0)
            logs.pop(newest, None)
            self._map[_DETAILS_AT:] = _pack_details(history, logs, newest)

    def close(self) -> None:
        """Sync the file and close it."""
        if self._map.closed:
            return
        with contextlib.suppress(OSError):
            self._map.flush()
        self._map.close()
        os.close(self._file)
