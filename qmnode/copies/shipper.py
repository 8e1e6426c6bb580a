"""Keeps the copy of a running node: marks moments, ships the store's log and its large messages, and makes bases.

Nothing that is acknowledged waits for it. RocksDB keeps logs that it needs no longer in a folder beside the others
(``Store.open``), until they are shipped. While the target is unavailable, logs and the files of large messages stay in
the store, up to the setting ``backlog``; then the copy has a gap.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from qmnode.copies.pieces import (
    Base,
    Increment,
    LogPosition,
    Mark,
    Name,
    Sealed,
    Stored,
    base_name,
    file_name,
    log_name,
    read_name,
)
from qmnode.copies.target import PIECE, CopyError, Folder, Target, open_target
from qmnode.errors import ConfigurationError
from qmnode.settings.node import RemoteCopySettings
from qmnode.storage.errors import StoreError
from qmnode.storage.large_messages import FOLDER, file_of, is_whole
from qmnode.storage.layout import Family
from qmnode.storage.origin import COPY_MARKER
from qmnode.storage.store import ARCHIVE, COPYING, Store
from qmnode.storage.writer import logs_in

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

FAMILIES: Final = b"copied_families"
"""The key of the record that names the families; deletions of the same key follow, one in each of them."""
_INCREMENT: Final = 4 * 1024 * 1024
"""Most bytes of the log in one increment."""
_TAIL: Final = 4096
_MOST_MARKS: Final = 8192
_UNWRITTEN: Final = 600.0
"""Seconds after which a large message that never came into its file is forgotten."""
_NOT_SHIPPED: Final = ("LOCK", "LOG", COPY_MARKER, COPYING)
_TROUBLE: Final = "copy"
_CHECKPOINT: Final = "copying"
"""The folder in the store in which a base waits to be shipped: links to files of the store."""
_MARKS: Final = 1.0
"""Seconds between two moments that can be restored."""
_PATIENCE: Final = 30.0
"""Most seconds until another attempt after a failed one."""
_LAST_WORD: Final = 15.0
"""Seconds that shipping may take when the node stops; the rest is shipped after the next start."""


class GapError(CopyError):
    """A part of the log is gone that was not shipped: the copy goes on with a new base."""


@dataclass(slots=True)
class _Kept:
    """A base at the target."""

    name: Name
    files: set[str] = field(default_factory=set)


class Shipper:
    """The copy of one open store. All of it runs in one thread, and reads files only."""

    def __init__(self, path: Path, target: Target, settings: RemoteCopySettings, node: str, placed: deque[int]) -> None:
        """``placed``: numbers of large messages' files, as they are given out."""
        self._path = path
        self._target = target
        self._settings = settings
        self._node = node
        self._placed = placed
        self._unwritten: dict[int, float] = {}
        self._sealed: Sealed | None = None
        self.generation = 0
        """0 until the copy goes on."""
        self._number = 1
        self._previous = ""
        self._position = LogPosition(0, 0)
        self._tail = (0, "")
        self._marks: list[Mark] = []
        self._stored: dict[tuple[int, ...], Stored] = {}
        self._first: dict[int, int] = {}
        """The first increment of each log."""
        self._bases: list[_Kept] = []
        self._begun = time.time()
        self.shipped = 0.0
        """The newest moment of this generation that is at the target; 0 without one."""
        self.based = 0.0
        """The moment of the newest base of this generation; 0 without one."""
        self.behind = 0
        """Bytes of the log that are not shipped."""
        self.abandoned = False
        """Set by others, who took away what a call under way would ship: it ends, and :meth:`give_up` follows."""

    # Moments

    def mark(self) -> Mark:
        """Note a moment, and the place in the log that all that is acknowledged is before."""
        now = max(time.time(), self._marks[-1].time if self._marks else self.shipped)
        logs = self._logs()
        newest = max(logs, default=0)
        mark = Mark(now, newest, logs.get(newest, 0))
        same = [one for one in self._marks[-2:] if one[1:] == mark[1:]]
        if len(same) == 2:
            self._marks.pop()
        self._marks.append(mark)
        if len(self._marks) > _MOST_MARKS:
            del self._marks[1:-1:2]
        at = self._position
        self.behind = sum(size - (at.offset if one == at.log else 0) for one, size in logs.items() if one >= at.log)
        return mark

    @property
    def lag(self) -> float:
        """Seconds of accepted work that the copy does not give back."""
        return max(0.0, time.time() - (self.shipped if self.based and self.shipped >= self.based else self._begun))

    def _logs(self) -> dict[int, int]:
        """Sizes of all logs: those in use before those that are kept, as they are moved from there."""
        logs = logs_in(self._path)
        with contextlib.suppress(FileNotFoundError):
            logs = logs_in(self._path / ARCHIVE) | logs
        return logs

    # Increments

    def ship(self) -> None:
        """Write all marked moments to the target. Raises CopyError; what was written before stays."""
        if not self.generation:
            self._connect()
        sealed = self._sealed
        if not self._marks or sealed is None:
            return
        end = self._marks[-1]
        files = self._ship_large(sealed)
        logs = sorted(self._logs())
        while self._marks and self._marks[0].time <= end.time:
            self._check_abandoned()
            parts, pieces, place = self._read(logs, LogPosition(end.log, end.offset))
            marks = tuple(one for one in self._marks if (one.log, one.offset) <= place and one.time <= end.time)
            if pieces:
                last = pieces[-1][-_TAIL:]
                tail = len(last), hashlib.sha256(last).hexdigest()
            else:
                tail = self._tail
            increment = Increment(self._previous, place, tail, parts, marks, files)
            moment = marks[-1].time if marks else self.shipped or end.time
            name = log_name(self.generation, self._number, moment)
            self._previous = sealed.put(name, increment.packed(*pieces))
            for one, offset, _ in parts:
                if not offset:
                    self._first[one] = self._number
            self._number += 1
            self._position, self._tail, files = place, tail, ()
            del self._marks[: len(marks)]
            if marks:
                self.shipped = moment
        self.behind = 0
        self._drop_shipped_logs()

    def _read(
        self, logs: list[int], end: LogPosition
    ) -> tuple[tuple[tuple[int, int, int], ...], list[bytes], LogPosition]:
        """Bytes of the log from the present position, at most to ``end``, and where they end."""
        parts, pieces = [], []
        at, room = self._position, _INCREMENT
        while room:
            with self._opened(at.log) as file:
                stop = end.offset if at.log == end.log else os.fstat(file).st_size
                piece = os.pread(file, min(room, max(0, stop - at.offset)), at.offset)
            if piece:
                parts.append((at.log, at.offset, len(piece)))
                pieces.append(piece)
                room -= len(piece)
                at = LogPosition(at.log, at.offset + len(piece))
            if at.log == end.log:
                if not piece and at.offset < stop:
                    raise GapError(f"the log {at.log:06} became shorter")
                if at.offset >= stop:
                    break
            elif at.offset >= stop:
                at = LogPosition(min((one for one in logs if one > at.log), default=end.log), 0)
        return tuple(parts), pieces, at

    @contextlib.contextmanager
    def _opened(self, number: int) -> Iterator[int]:
        name = f"{number:06}.log"
        for path in (self._path / name, self._path / ARCHIVE / name, self._path / name):
            with contextlib.suppress(FileNotFoundError):
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                break
        else:
            raise GapError(f"the log {name} is gone before it was shipped")
        try:
            yield file
        except OSError as error:
            raise CopyError(f"{name} cannot be read: {error.strerror}") from error
        finally:
            os.close(file)

    def _drop_shipped_logs(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for number in logs_in(self._path / ARCHIVE):
                if number < self._position.log:
                    (self._path / ARCHIVE / f"{number:06}.log").unlink(missing_ok=True)

    def _check_abandoned(self) -> None:
        if self.abandoned:
            raise GapError("its backlog was full before the target answered")

    def kept(self) -> int:
        """Bytes of the logs that the store keeps for the copy alone, and that are not shipped; for other threads."""
        with contextlib.suppress(OSError):
            return sum(size for number, size in logs_in(self._path / ARCHIVE).items() if number >= self._position.log)
        return 0

    def _ship_large(self, sealed: Sealed) -> tuple[Stored, ...]:
        """Ship the files of large messages that are written; the others wait."""
        now = time.monotonic()
        with contextlib.suppress(IndexError):
            while True:
                self._unwritten.setdefault(self._placed.popleft(), now)
        shipped = []
        for number, since in list(self._unwritten.items()):
            self._check_abandoned()
            stored = self._ship_large_file(sealed, file_of(self._path, number))
            if stored is not None:
                shipped.append(stored)
            if stored is not None or now - since > _UNWRITTEN:
                del self._unwritten[number]
        return tuple(shipped)

    def _ship_large_file(self, sealed: Sealed, path: Path) -> Stored | None:
        try:
            with path.open("rb") as file:
                identity = _identity(os.fstat(file.fileno()))
                content = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CopyError(f"{path} cannot be read: {error.strerror}") from error
        if not is_whole(content):
            return None
        relative = f"{FOLDER}/{path.name}"
        if (stored := self._stored.get(identity)) is not None:  # a base had it first
            return replace(stored, path=relative)
        name = file_name(self.generation, self._number)
        pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
        count = sum(1 for _ in sealed.put_all(name, pieces))
        stored = Stored(relative, name, len(content), count, identity)
        self._stored[identity] = stored
        return stored

    # Bases

    def base(self, folder: Path, moment: float) -> Iterator[None]:
        """Ship a checkpoint in ``folder``, made before the mark of ``moment``, a piece at a step. Raises CopyError."""
        sealed, generation = self._sealed, self.generation
        needed = min(logs_in(folder))
        first = self._first.get(needed) if tuple(self._position) > (needed, 0) else self._number
        if sealed is None or not generation or first is None:
            raise CopyError("the copy has to go on before it gets a base")
        files = []
        for path in sorted((*folder.iterdir(), *(folder / FOLDER).glob("*"))):
            if not path.is_file() or path.name.startswith(_NOT_SHIPPED) or path.suffix == ".log":
                continue
            status = path.stat()
            stored = self._stored.get(_identity(status))
            if stored is None:
                name, count = file_name(generation, first), 0
                with path.open("rb") as file:
                    for _ in sealed.put_all(name, iter(lambda: file.read(PIECE), b"")):
                        count += 1
                        yield
                        self._check_abandoned()
                        if self.generation != generation:
                            raise CopyError("the copy began anew meanwhile")
                stored = Stored("", name, status.st_size, count, _identity(status))
                self._stored[stored.identity] = stored
            relative = str(path.relative_to(folder))
            files.append(Stored(relative, stored.name, stored.size, stored.pieces, stored.identity))
        base = Base(moment, needed, tuple(files))
        name = base_name(generation, first, moment)
        sealed.put_base(name, base)
        self._keep(name, base)
        self.based = moment

    def _keep(self, name: str, base: Base) -> None:
        parsed = read_name(f"{name}.0000")
        assert parsed is not None
        self._bases.append(_Kept(parsed, {one.name for one in base.files}))

    def expire(self) -> None:
        """Remove what no moment of the last ``keep`` seconds needs. Raises CopyError."""
        old = [one.name for one in self._bases if one.name.time <= time.time() - self._settings.keep]
        if not old:
            return
        cut = max(old, key=lambda name: (name.generation, name.time))
        first = cut.generation, cut.number
        self._bases = [one for one in self._bases if (one.name.generation, one.name.time) >= (cut.generation, cut.time)]
        used = set[str]().union(*(one.files for one in self._bases))
        removed = set()
        for text in self._target.names():
            name = read_name(text)
            if name is None:
                continue
            gone = (name.generation, name.number) < first
            if name.kind == "base":
                gone = (name.generation, name.time) < (cut.generation, cut.time)
            elif name.kind == "file" and gone:
                stem = text.rpartition(".")[0]
                gone = stem not in used
                if gone:
                    removed.add(stem)
            if gone:
                self._target.remove(text)
        self._stored = {key: one for key, one in self._stored.items() if one.name not in removed}

    # Where the copy goes on

    def _connect(self) -> None:
        """Go on where the copy ends, if this store still has the log from there; else begin a generation."""
        key = self._settings.key
        assert key is not None
        sealed = Sealed.open(self._target, key) or Sealed.create(self._target, key, self._node)
        if sealed.node.casefold() != self._node.casefold():
            raise CopyError(f"it holds the copy of {sealed.node}: name another place for the copy of {self._node}")
        names = [name for name in map(read_name, self._target.names()) if name is not None]
        newest = max((name.generation for name in names), default=0)
        self._bases, self._stored, self._first = [], {}, {}
        resumed = newest and self._state() == {"copy": sealed.identifier, "generation": newest}
        resumed = bool(resumed and self._resume(sealed, [one for one in names if one.generation == newest]))
        for text in sorted({name.text for name in names if name.kind == "base"}):
            self._read_base(sealed, text, newest if resumed else 0)
        if not resumed:
            newest += 1
            if newest > 99_999:
                raise CopyError("it has too many generations: empty it, or name another place")
            first = min(self._logs())
            self._number, self._previous, self._position, self._tail = 1, "", LogPosition(first, 0), (0, "")
            self._marks = [mark for mark in self._marks if mark.log >= first]
            self.shipped = self.based = 0.0
            state = self._path / COPYING
            state.unlink(missing_ok=True)
            state.write_text(json.dumps({"copy": sealed.identifier, "generation": newest}))
        self._sealed, self.generation = sealed, newest

    def _state(self) -> object:
        try:
            return json.loads((self._path / COPYING).read_bytes())
        except (OSError, ValueError):
            return None

    def _resume(self, sealed: Sealed, names: list[Name]) -> bool:
        logs = [one for one in names if one.kind == "log"]
        if not logs:
            return False
        last = max(logs, key=lambda one: (one.number, one.time))
        try:
            clear, tag = sealed.get(last.text)
            increment, _ = Increment.read(clear)
            with self._opened(increment.end.log) as file:
                size, digest = increment.tail
                if size > increment.end.offset:
                    return False
                if os.fstat(file).st_size < increment.end.offset:
                    return False
                there = os.pread(file, size, increment.end.offset - size)
        except CopyError as error:
            log.warning("the copy does not go on where it ended", reason=str(error))
            return False
        if size and hashlib.sha256(there).hexdigest() != digest:
            return False
        self._number, self._previous = last.number + 1, tag
        self._position, self._tail = increment.end, increment.tail
        self._marks = [one for one in self._marks if one.time > last.time]
        self.shipped = last.time
        return True

    def _read_base(self, sealed: Sealed, text: str, generation: int) -> None:
        try:
            base = sealed.get_base(text)
        except CopyError as error:
            log.warning("a base of the copy cannot be used", base=text, reason=str(error))
            return
        self._keep(text, base)
        if self._bases[-1].name.generation == generation:
            self.based = max(self.based, base.time)
            self._stored |= {one.identity: one for one in base.files}

    def give_up(self) -> None:
        """Let the log go that could not be shipped: the copy will go on with a new generation and a base."""
        self.generation, self._begun = 0, time.time()
        self.shipped = self.based = 0.0
        (self._path / COPYING).unlink(missing_ok=True)
        self.let_logs_go()
        self.abandoned = False

    def let_logs_go(self) -> None:
        """Remove the logs that the store keeps for the copy alone; for other threads, too."""
        with contextlib.suppress(FileNotFoundError):
            for number in logs_in(self._path / ARCHIVE):
                (self._path / ARCHIVE / f"{number:06}.log").unlink(missing_ok=True)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_mtime_ns, status.st_size


def check_copy(path: Path, settings: RemoteCopySettings) -> None:
    """Raise ConfigurationError if no copy of the store in ``path`` can be kept there."""
    target, own = open_target(settings.to), path.resolve()
    if isinstance(target, Folder):
        folder = target.path.resolve()
        if folder.is_relative_to(own) or own.is_relative_to(folder):
            raise ConfigurationError(
                f"storage.remote_copy.to: {settings.to} and the store {path} are one folder, or one is in the other: "
                "name a folder on another disk, best of another site"
            )


class Copier:
    """The copy of one node's store, from its start to its end."""

    def __init__(self, manager: "QueueManager", store: Store, path: Path) -> None:
        """Raises ConfigurationError if the copy cannot be kept there."""
        settings = self._settings = store.settings.remote_copy
        check_copy(path, settings)
        self._manager = manager
        self._store = store
        self._large = store.large_messages
        assert self._large.placed is not None
        target = open_target(settings.to)
        self._shipper = Shipper(path, target, settings, manager.computer_name, self._large.placed)
        self._checkpoint = path / _CHECKPOINT
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # The end of the process must not wait for a target that hangs, as a network file system may.
        Thread(target=self._work, name="qmnode-copy", daemon=True).start()
        self._held: list[int] = []
        self._held_size = 0
        """Files of large messages that wait for the shipping under way, and their bytes."""
        self._wake = asyncio.Event()
        self._large.on_held = self._wake.set
        self._task: asyncio.Task[None] | None = None
        self._period = settings.lag / 2
        self._due = 0.0
        self._patience = 1.0
        self._base_due = 0.0
        self.failure = ""
        """Why the last attempt failed; empty if it succeeded."""

    def start(self) -> None:
        """Begin, or go on where the copy ends."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="copy")

    async def stop(self) -> None:
        """Ship what is written, if that can be done soon, and end."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._large.on_held = lambda: None
        try:
            async with asyncio.timeout(_LAST_WORD):
                self._store.flush()
                await self._in_thread(self._shipper.mark)
                await self._in_thread(self._shipper.ship)
        except (CopyError, StoreError, OSError, TimeoutError) as error:
            log.warning("the end of the log is shipped after the next start", reason=_reason(error))
        self._calls.put(None)

    def state(self) -> dict[str, Any]:
        """The copy as it is now, for status and metrics. Times are in seconds since 1970 (UTC)."""
        shipper = self._shipper
        return {
            "to": self._settings.to,
            "lag_seconds": round(shipper.lag, 3),
            "lag_bytes": shipper.behind,
            "moment": shipper.shipped if shipper.based else 0.0,
            "base": shipper.based,
            "failure": self.failure,
        }

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        """Call it in the thread. Meanwhile no more than the backlog is kept for the copy."""
        called: Future[_T] = Future()

        def work() -> None:
            if called.set_running_or_notify_cancel():
                try:
                    called.set_result(call())
                except BaseException as error:
                    called.set_exception(error)

        self._calls.put(work)
        done = asyncio.wrap_future(called)
        try:
            while not (await asyncio.wait([done], timeout=_MARKS))[0]:
                self._bound_backlog()
            return done.result()
        finally:
            done.cancel()

    def _bound_backlog(self) -> None:
        """Warn while the target does not answer, and give up the backlog when it is too large."""
        shipper = self._shipper
        if shipper.lag > self._settings.lag:
            self._warn("the target does not answer, or is slower than the node")
        size = self._held_size + self._large.held_bytes() + shipper.kept()
        if size > self._settings.backlog and not shipper.abandoned:
            shipper.abandoned = True
            log.error("the copy has a gap: its backlog is full", backlog=self._settings.backlog)
        if shipper.abandoned:
            shipper.let_logs_go()
            held = self._held + self._large.take_held()[0]
            self._held, self._held_size = [], 0
            self._large.let_go(held, shipped=True)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_MARKS, self._period)):
                    await self._wake.wait()
            try:
                if self._shipper.abandoned:
                    await self._in_thread(self._shipper.give_up)
                await self._in_thread(self._shipper.mark)
                if time.monotonic() >= self._due or (self._wake.is_set() and not self.failure):
                    await self._ship()
                if self._shipper.generation and time.monotonic() >= self._base_due:
                    await self._make_base()
            except (CopyError, OSError) as error:
                await self._failed(error)
            else:
                self._works()

    def _works(self) -> None:
        if not self.failure and self._shipper.lag <= self._settings.lag:
            self._manager.troubles.pop(_TROUBLE, None)
        elif self._shipper.based and self._shipper.lag > self._settings.lag:
            self._warn(self.failure or "the target is slower than the node")

    async def _ship(self) -> None:
        """Ship all that is marked; then files of large messages may go. Raises CopyError."""
        self._held, self._held_size = self._large.take_held()
        shipped = False
        self._due = time.monotonic() + self._period
        generation = self._shipper.generation
        try:
            await self._in_thread(self._shipper.ship)
            shipped = True
        except (CopyError, OSError):
            if self._held_size + self._shipper.behind > self._settings.backlog:
                await self._in_thread(self._shipper.give_up)
                log.error("the copy has a gap: its backlog is full", backlog=self._settings.backlog)
                shipped = True
            raise
        finally:
            held, self._held, self._held_size = self._held, [], 0
            self._large.let_go(held, shipped=shipped)
        self.failure, self._patience = "", 1.0
        if self._shipper.generation != generation:
            resumed = bool(self._shipper.based)
            log.info("the copy goes on" if resumed else "the copy begins", to=self._settings.to)
            self._base_due = 0.0 if not resumed else time.monotonic() + self._settings.base

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, GapError):
            await self._in_thread(self._shipper.give_up)
        reason = _reason(error)
        if reason != self.failure:
            log.warning("the copy is not written", to=self._settings.to, reason=reason)
        self.failure = reason
        self._warn(reason)
        self._due = time.monotonic() + self._patience
        self._base_due = max(self._base_due, self._due)
        self._patience = min(2 * self._patience, _PATIENCE)

    def _warn(self, reason: str) -> None:
        self._manager.troubles[_TROUBLE] = (
            f"it is {self._shipper.lag:.0f} s behind ({reason}): if this machine is lost now, so is what was accepted "
            "since"
        )

    # Bases

    async def _make_base(self) -> None:
        """Ship the store as it is, and what comes meanwhile as well. Raises CopyError, OSError."""
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        try:
            with self._store.keep_large_messages():
                await asyncio.shield(asyncio.ensure_future(self._in_thread(self._write_checkpoint)))
            self._note_families()  # in a log that is needed after the base
            mark = await self._in_thread(self._shipper.mark)
            steps = self._shipper.base(self._checkpoint, mark.time)
            while await self._in_thread(lambda: next(steps, False)) is None:
                if time.monotonic() >= self._due:
                    await self._in_thread(self._shipper.mark)
                    await self._ship()
        finally:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._base_due = time.monotonic() + self._settings.base
        await self._in_thread(self._shipper.expire)

    def _write_checkpoint(self) -> None:
        try:
            self._store.write_checkpoint(self._checkpoint)
        except Exception as error:  # RocksDB's exceptions have no common class
            raise CopyError(f"no base can be made: {error}") from error

    def _note_families(self) -> None:
        """Let the log say which number each family has in it: a deletion of nothing in each, in this order."""
        try:
            families = [family for family in Family if family is not Family.EXPRESS]
            self._store.put_meta(FAMILIES.decode(), json.dumps(families).encode())
            for family in families:
                self._store.delete(family, FAMILIES)
            self._store.flush()
        except StoreError as error:
            raise CopyError(error.sentence) from error


def _reason(error: BaseException) -> str:
    return getattr(error, "sentence", "") or str(error) or "it takes too long"
