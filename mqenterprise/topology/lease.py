"""One apply at a time: a lease in the directory, with a fencing token that grows each time it changes hands.

The lease is one text that only changes by compare and set, which both servers do atomically on one entry. The holder
renews it. A contender takes over after it has seen the text unchanged for the holder's whole time to live; it measures
that by its own clock, so that no two clocks are compared. There is no wait for a holder on the same machine whose
process is gone.

A holder that was suspended for longer than its time to live may wake up and try to write. Its token is outdated by
then. Every object carries the token of its last writer, so the change is refused there
(:class:`~mqenterprise.topology.target.MovedOn`).
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from mqenterprise.topology.target import LeaseEntry, TargetError

TIME_TO_LIVE = 20.0
"""Seconds without renewal after which a lease can be taken over."""
LONGEST_TIME_TO_LIVE = 3600.0
"""The longest accepted time in seconds. A longer one, or no number, is not ours: it would never expire."""
POLL = 0.5
"""Seconds between two reads of a lease that someone else holds."""


class LeaseTaken(TargetError):
    """Someone else is applying a plan; the message says who."""


class LeaseLost(TargetError):
    """The lease was not renewed in time or was taken over: nothing more may be written."""


@dataclass(frozen=True, slots=True)
class Record:
    """The lease's text. ``holder`` is empty while it is free; ``place`` and ``process`` reveal a dead holder."""

    token: int
    renewal: int = 0
    time_to_live: float = TIME_TO_LIVE
    holder: str = ""
    place: str = ""
    process: str = ""

    def text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Record:
        """Parse a record. Raises :class:`TargetError` for a text that no apply wrote."""
        try:
            data = json.loads(text)
            record = cls(**data)
            numbers = type(record.token) is int and type(record.renewal) is int
            texts = all(isinstance(text, str) for text in (record.holder, record.place, record.process))
            if numbers and texts and 0 < float(record.time_to_live) <= LONGEST_TIME_TO_LIVE:
                return replace(record, time_to_live=float(record.time_to_live))
        except (ValueError, TypeError):
            pass
        raise TargetError(f"the lease in the directory is not one of ours ({text[:60]!r}); delete that entry")


def this_place() -> str:
    """Identify this boot of this machine and this process's namespace of process numbers."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


def process_mark(pid: int) -> str | None:
    """Return a process as number and start time, or None when no running process has that number."""
    try:
        # The command's name may contain anything, so the fields are counted from its closing parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in ("Z", "X") else f"{pid}/{fields[19]}"


def is_dead(record: Record) -> bool:
    """Return whether the holder was a process of this machine that no longer runs."""
    if not record.place or record.place != this_place():
        return False
    number = record.process.partition("/")[0]
    return not number.isdecimal() or process_mark(int(number)) != record.process


@dataclass(frozen=True, slots=True)
class Clock:
    """A monotonic time in seconds, and waiting. Tests pass a fake clock."""

    now: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep


class Lease:
    """A held lease. As a context manager it is renewed inside the block and released at its end."""

    def __init__(self, entry: LeaseEntry, record: Record, confirmed: float, clock: Clock) -> None:
        self._entry, self._record, self._clock = entry, record, clock
        self._confirmed = confirmed
        self._lost = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_stopped, name="lease", daemon=True)

    @property
    def token(self) -> int:
        """The fencing token: greater than those of all earlier holders."""
        return self._record.token

    def check(self) -> None:
        """Raise :class:`LeaseLost` when the lease may have been lost."""
        late = self._clock.now() - self._confirmed
        if not self._lost and late >= self._record.time_to_live:
            self._lost = f"it could not be renewed for {late:.0f} s"
        if self._lost:
            raise LeaseLost(f"another apply may be running: the lease was lost ({self._lost}); run again")

    def renew(self) -> None:
        """Extend the lease once. An answer that another process holds it is final; an error only costs time."""
        asked = self._clock.now()
        new = replace(self._record, renewal=self._record.renewal + 1)
        try:
            if self._entry.swap(self._record.text(), new.text()):
                self._record, self._confirmed = new, asked
                return
            # If only the answer to a renewal was lost, the directory holds the text that we meant to write.
            if self._entry.read() == new.text():
                self._record, self._confirmed = new, asked
                return
            self._lost = "it was taken over"
        except TargetError:
            return

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(self._record.time_to_live / 4):
            self.renew()
            if self._lost:
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        free = Record(self._record.token, self._record.renewal + 1, self._record.time_to_live)
        # An unreleased lease expires. A failed release must not hide an earlier error.
        with contextlib.suppress(TargetError):
            self._entry.swap(self._record.text(), free.text())


def acquire(
    entry: LeaseEntry,
    *,
    patience: float = 0.0,
    time_to_live: float = TIME_TO_LIVE,
    waiting: Callable[[str], None] = lambda holder: None,
    clock: Clock | None = None,
) -> Lease:
    """Get the lease within ``patience`` seconds, or raise :class:`LeaseTaken`. ``waiting`` gets its holder once."""
    clock = clock or Clock()
    begun, seen, since, told = clock.now(), None, clock.now(), False
    while True:
        text = entry.read()
        record = Record.parse(text) if text is not None else Record(0)
        now = clock.now()
        if text != seen:
            seen, since = text, now
        if not record.holder or is_dead(record) or now - since >= record.time_to_live:
            mine = _mine(record.token + 1, time_to_live)
            asked = clock.now()
            if entry.swap(text, mine.text()):
                return Lease(entry, mine, asked, clock)
            continue
        if now - begun >= patience:
            raise LeaseTaken(f"{record.holder} is applying a plan; wait for it, or give --wait SECONDS")
        if not told:
            waiting(record.holder)
            told = True
        clock.wait(min(POLL, patience))


def _mine(token: int, time_to_live: float) -> Record:
    holder = f"{getpass.getuser()} on {socket.gethostname()}, process {os.getpid()}"
    return Record(token, 0, time_to_live, holder[:200], this_place(), process_mark(os.getpid()) or "")
