"""Restores a copy: the store as it was at a moment, with a list of the messages that differ since.

First the increments from a base on are read, to find the moments that can be restored; then files and logs are written.
A damaged or missing piece is named, and nothing behind it is taken for whole.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from qmnode.copies.missing import Comparison, Lacking
from qmnode.copies.pieces import Base, Increment, LogPosition, Mark, Name, Sealed, Stored, moment_text, read_name
from qmnode.copies.target import PIECE, CopyError, open_target
from qmnode.errors import ConfigurationError
from qmnode.storage.errors import StoreError
from qmnode.storage.large_messages import FOLDER, sync_folder
from qmnode.storage.log_records import LogError, LogReader
from qmnode.storage.origin import COPY_MARKER
from qmnode.storage.store import make_private

MISSING: Final = "missing.jsonl"
"""The list of messages by which a restored store differs from later moments, in its folder."""
_CURRENT: Final = "CURRENT"


@dataclass(slots=True)
class Restored:
    """A restored store, and what is known of the time after its moment."""

    moment: float
    """The moment, in seconds since 1970 (UTC): all that was acknowledged before it is there."""
    ends: float
    """The last moment that the copy knows of: what was accepted after it is unknown."""
    size: int
    """Bytes of the restored store."""
    lacking: Lacking
    damaged: list[str] = field(default_factory=list)
    """Pieces of the copy that are missing, torn or altered, and what that means."""

    def document(self) -> dict[str, Any]:
        """The facts for programs, with counts in place of the lists."""
        return {
            "moment": self.moment,
            "ends": self.ends,
            "bytes": self.size,
            "missing": self.lacking.counts("missing"),
            "gone": self.lacking.counts("gone"),
            "again": self.lacking.counts("again"),
            "moved": self.lacking.counts("moved"),
            "damaged": self.damaged,
        }


@dataclass(slots=True)
class _Chain:
    """The increments of a generation from a base on, as far as they follow each other."""

    base: Base
    name: Name
    increments: list[Name] = field(default_factory=list)
    marks: list[tuple[Mark, int]] = field(default_factory=list)
    """Moments, each with the place of its increment in the list."""
    break_: str = ""
    """Why it ends, if something is missing or damaged."""

    def usable(self) -> list[tuple[Mark, int]]:
        """The moments that can be restored from the base."""
        return [one for one in self.marks if one[0].time >= self.base.time]


def restore_copy(
    source: str,
    key: Path,
    data: Path,
    at: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Restored:
    """Restore the copy at ``source`` to ``data``, which is empty or missing, as it was at ``at`` (seconds since 1970;
    None: as late as possible).

    The node will know that it runs on a copy. Raises StoreError if there is no copy, the key is another one, the
    moment is not covered, or a needed piece is damaged; then ``data`` is left empty.
    """
    if data.exists() and any(data.iterdir()):
        raise StoreError(f"{data} is not empty: restore into an empty directory, or move its files away first")
    try:
        target = open_target(source)
        sealed = Sealed.open(target, key)
        if sealed is None:
            raise StoreError(
                f"{source} is no copy: there is no copy.json in it; name what storage.remote_copy.to names"
            )
        reading = _Reading(sealed)
        while True:
            chain, index = reading.choose(source, at)
            make_private(data)
            try:
                return reading.write(chain, index, data, progress)
            except CopyError as error:
                _empty(data)
                reading.leave_out(chain, str(error))
            except BaseException:
                _empty(data)
                raise
    except (CopyError, ConfigurationError) as error:
        raise StoreError(f"{source} cannot be restored: {error}") from error
    except OSError as error:
        raise StoreError(f"{source} cannot be restored to {data}: {error.strerror or error}") from error


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


class _Reading:
    """The pieces of one copy, as a restore reads them."""

    def __init__(self, sealed: Sealed) -> None:
        self._sealed = sealed
        names = [name for name in map(read_name, sealed.target.names()) if name is not None]
        self._logs: dict[int, dict[int, list[Name]]] = {}
        for name in sorted(names, key=lambda one: (one.number, one.time), reverse=True):
            if name.kind == "log":
                self._logs.setdefault(name.generation, {}).setdefault(name.number, []).append(name)
        self._bases = sorted(
            {name for name in names if name.kind == "base"}, key=lambda one: (one.generation, one.time)
        )
        self.damaged: list[str] = []

    # The moment

    def choose(self, source: str, at: float | None) -> tuple[_Chain, int]:
        """The chain and the place of the moment in its usable ones. Raises CopyError, StoreError."""
        fitting = [one for one in self._bases if at is None or one.time <= at + 0.001]
        for name in reversed(fitting):
            try:
                chain = self._chain(name)
                self._check_files(chain)
            except CopyError as error:
                self._damage(f"{name.text}: {error}")
                continue
            usable = chain.usable()
            found = [place for place, (mark, _) in enumerate(usable) if at is None or mark.time <= at]
            if not found:
                continue
            if at is not None and found[-1] == len(usable) - 1 and at > usable[-1][0].time and self._goes_on(chain):
                why = chain.break_ or "the copying was interrupted there"
                raise StoreError(
                    f"{moment_text(at)} is not covered by {source}: {why}. The last moment before it is "
                    f"--at {_option(usable[-1][0].time)}; {self._windows()}"
                )
            if chain.break_:
                self._damage(chain.break_)
            return chain, found[-1]
        text = f"{moment_text(at)} is not covered by {source}" if at is not None else f"{source} cannot be restored"
        damage = f"; damaged: {'; '.join(self.damaged[:5])}" if self.damaged else ""
        raise StoreError(f"{text}: {self._windows()}{damage}")

    def leave_out(self, chain: _Chain, why: str) -> None:
        """Use older bases only."""
        self._damage(f"{chain.name.text}: {why}")
        self._bases.remove(chain.name)

    def _damage(self, sentence: str) -> None:
        if sentence not in self.damaged:
            self.damaged.append(sentence)

    def _goes_on(self, chain: _Chain) -> bool:
        """Whether the copy has anything later than the chain."""
        return bool(chain.break_) or any(generation > chain.name.generation for generation in self._logs)

    def _windows(self) -> str:
        """The times that the names of the pieces cover, whether these are whole or not."""
        found: list[str] = []
        for generation, logs in sorted(self._logs.items()):
            bases = [one for one in self._bases if one.generation == generation]
            if bases:
                first, last = bases[0].time, max(name.time for names in logs.values() for name in names)
                if first <= last:
                    found.append(f"{moment_text(first)} to {moment_text(last)}")
        return f"it covers {', '.join(found[-5:])}" if found else "it has no whole base, and covers nothing"

    def _chain(self, name: Name) -> _Chain:
        chain = _Chain(self._sealed.get_base(name.text), name)
        logs = self._logs.get(name.generation, {})
        previous: str | None = None
        last = max(logs, default=0)
        for number in range(name.number, last + 1):
            one = self._increment(logs.get(number, []), previous)
            if isinstance(one, str):
                what = one or f"increment {number} of generation {name.generation} is missing"
                after = moment_text(chain.marks[-1][0].time) if chain.marks else "the base"
                chain.break_ = f"{what}, after {after}"
                break
            piece, increment, previous = one
            chain.increments.append(piece)
            chain.marks += [(mark, len(chain.increments) - 1) for mark in increment.marks]
        return chain

    def _increment(self, names: list[Name], previous: str | None) -> tuple[Name, Increment, str] | str:
        """The increment among those of a number that follows the previous one; or what is wrong, empty if none is
        there.
        """
        wrong = ""
        for name in names:
            try:
                clear, tag = self._sealed.get(name.text)
                increment, _ = Increment.read(clear)
            except CopyError as error:
                wrong = str(error)
                continue
            if previous is None or increment.previous == previous:
                return name, increment, tag
            wrong = f"{name.text} does not follow the increment before it"
        return wrong

    def _check_files(self, chain: _Chain) -> None:
        """Raise CopyError unless all pieces of the base's files are there, and may belong together."""
        there = set(self._sealed.target.names())
        for one in chain.base.files:
            if not _is_inside(one.path) or not 0 <= one.size <= one.pieces * PIECE:
                raise CopyError(f"it names a file {one.path!r:.100}, which no store has")
            for number in range(one.pieces):
                if f"{one.name}.{number:04}" not in there and not one.path.startswith(f"{FOLDER}/"):
                    raise CopyError(f"{one.name}.{number:04} is missing")

    # Writing

    def write(self, chain: _Chain, place: int, data: Path, progress: Callable[[int, int], None]) -> Restored:
        """Write the store as it was at a moment, and compare it with what came later."""
        mark, last = chain.usable()[place]
        total = sum(one.size for one in chain.base.files)
        done = 0
        large = {one.path: one for one in chain.base.files if one.path.startswith(f"{FOLDER}/")}
        (data / COPY_MARKER).touch(0o600)
        current = next((one for one in chain.base.files if one.path == _CURRENT), None)
        if current is None:
            raise CopyError(f"{chain.name.text} has no file {_CURRENT}")
        for name in chain.increments[: last + 1]:
            increment, bytes_ = self._read(name)
            self._write_logs(data, chain.base.log, increment, bytes_, mark)
            large |= {one.path: one for one in increment.files}
        (data / f"{mark.log:06}.log").touch(0o600)
        for log in data.glob("*.log"):
            _end_at_a_record(log)
        for one in large.values():
            if not _is_inside(one.path):
                raise CopyError(f"it names a file {one.path!r:.100}, which no store has")
            try:
                done += self._write_file(data / one.path, one)
            except CopyError as error:
                self._damage(f"{error}: if a message was in {one.path}, it is lost")
                (data / one.path).unlink(missing_ok=True)
            progress(min(done, total), total)
        plain = [one for one in chain.base.files if one is not current and one.path not in large]
        for one in (*plain, current):  # CURRENT last: without it, the directory is not taken for a store
            done += self._write_file(data / one.path, one)
            progress(min(done, total), total)
        for log in data.glob("*.log"):
            _sync_file(log)
            done += log.stat().st_size
        for folder in (data / FOLDER, data):
            if folder.is_dir():
                sync_folder(folder)
        lacking, ends = self._compare(chain, mark, data)
        restored = Restored(mark.time, ends, done, lacking, self.damaged)
        _write_private(data / MISSING, "".join(json.dumps(line) + "\n" for line in lacking.lines()))
        marker = {"moment": restored.moment, "ends": ends, "missing": len(lacking.missing), "again": len(lacking.again)}
        _write_private(data / COPY_MARKER, json.dumps(marker))
        sync_folder(data)
        return restored

    def _read(self, name: Name) -> tuple[Increment, memoryview]:
        clear, _ = self._sealed.get(name.text)
        return Increment.read(clear)

    @staticmethod
    def _write_logs(data: Path, first: int, increment: Increment, bytes_: memoryview, until: Mark) -> None:
        at = 0
        for log, offset, size in increment.parts:
            piece = bytes_[at : at + size]
            at += size
            if log < first or (log, offset) >= (until.log, until.offset):
                continue
            if log == until.log:
                piece = piece[: until.offset - offset]
            path = data / f"{log:06}.log"
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(file).st_size != offset:
                    raise CopyError(f"a part of the log {log:06} is missing")
                os.lseek(file, offset, os.SEEK_SET)
                while piece:
                    piece = piece[os.write(file, piece) :]
            finally:
                os.close(file)

    def _write_file(self, path: Path, one: Stored) -> int:
        path.parent.mkdir(0o700, exist_ok=True)
        written = 0
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            for number in range(one.pieces):
                piece, _ = self._sealed.get(f"{one.name}.{number:04}")
                written += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if written != one.size:
            raise CopyError(f"{one.name} has {written} bytes of {one.size}")
        return written

    # Later increments

    def _compare(self, chain: _Chain, mark: Mark, data: Path) -> tuple[Lacking, float]:
        ends = mark.time
        with Comparison(data, LogPosition(mark.log, mark.offset), self._large_value) as later:
            for name in (*chain.increments, *self._later(chain)):
                if name.generation != chain.name.generation and name.number == 1:
                    self._damage(f"the copying was interrupted before {moment_text(name.time)}: see the moments before")
                    later.interrupted()
                try:
                    increment, bytes_ = self._read(name)
                    later.add(increment, bytes_)
                    ends = max([ends, *(one.time for one in increment.marks)])
                except CopyError as error:
                    self._damage(f"{error}: what was accepted then is unknown")
                    later.interrupted()
            return later.end(), ends

    def _later(self, chain: _Chain) -> Iterator[Name]:
        """The increments behind the chain."""
        known = {name.text for name in chain.increments}
        number = chain.increments[-1].number if chain.increments else chain.name.number - 1
        for generation, logs in sorted(self._logs.items()):
            for one, names in sorted(logs.items()):
                if (generation, one) > (chain.name.generation, number) and names[0].text not in known:
                    yield names[0]

    def _large_value(self, one: Stored) -> bytes:
        return b"".join(self._sealed.get(f"{one.name}.{number:04}")[0] for number in range(one.pieces))


def _end_at_a_record(path: Path) -> None:
    """Cut a record that was being written at the moment, or when the node was killed: it was not acknowledged."""
    reader = LogReader()
    try:
        with path.open("rb+") as file:
            while piece := file.read(PIECE):
                for _ in reader.feed(piece):
                    pass
            file.truncate(reader.end)
    except LogError as error:
        raise CopyError(str(error)) from error


def _is_inside(path: str) -> bool:
    """Whether a name is one that a store has: a file in its folder, or in that of large messages."""
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") and "\0" not in part for part in parts)
    return plain and (len(parts) == 1 or (len(parts) == 2 and parts[0] == FOLDER)) and not path.endswith(".log")


def _option(seconds: float) -> str:
    return moment_text(seconds + 0.001).removesuffix(" UTC").replace(" ", "T") + "Z"


def _sync_file(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
