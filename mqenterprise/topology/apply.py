"""Carry out a plan: in order, several steps at a time, and safe to interrupt at any point.

A step brings one object to its new state and is idempotent. Nothing is therefore remembered between runs: an
interrupted apply that is run again finds the finished steps in the directory and carries out the rest. The plan is
recorded in a file before the first write, so that even an interrupted apply can be rolled back.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import itertools
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from mqenterprise.topology.check import Checked, paused_collector
from mqenterprise.topology.declared_table import declared_table
from mqenterprise.topology.plan import (
    ConflictingChange,
    LeaseEntry,
    Plan,
    Snapshot,
    Standing,
    Step,
    Target,
    TargetError,
    TargetUnavailable,
    from_json,
    make_plan,
    standing,
    to_json,
)

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


WORKERS = 4
"""The number of concurrent steps: as many as the directory keeps connections open for."""


class ApplyError(Exception):
    """The apply stopped before its plan was complete; the message says how far it came, why, and what to do."""

    def __init__(self, sentence: str, done: int) -> None:
        super().__init__(sentence)
        self.done = done


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """The result of an apply: steps carried out now, and steps that an interrupted apply had carried out before."""

    done: int
    before: int = 0


def remaining(plan: Plan, snapshot: Snapshot) -> tuple[Plan, int]:
    """Return the remaining steps of a saved plan, and the number done. Raises :class:`ApplyError` if it is unusable."""
    if plan.directory != snapshot.directory:
        sentence = f"the plan is for the directory {plan.directory}, this one is {snapshot.directory}"
        raise ApplyError(sentence, 0)
    left, moved = [], []
    for step in plan.steps:
        match standing(step, snapshot.table):
            case Standing.PENDING:
                left.append(step)
            case Standing.MOVED_ON:
                moved.append(step.title)
    if moved:
        more = f" and {len(moved) - 5} more" if len(moved) > 5 else ""
        sentence = f"the directory has moved on since the plan was made: {', '.join(moved[:5])}{more}; plan anew"
        raise ApplyError(sentence, 0)
    return Plan(plan.directory, tuple(left)), len(plan.steps) - len(left)


def apply(
    plan: Plan,
    target: Target,
    lease: Lease,
    *,
    progress: Callable[[Step], None] = lambda step: None,
    workers: int = WORKERS,
) -> ApplyOutcome:
    """Carry out all steps of a plan that was just made. Raises :class:`ApplyError` at the first that fails.

    ``progress`` is called after each step, one call at a time, from any of the threads.
    """
    crew = _Crew(target, lease, progress)
    with ThreadPoolExecutor(workers, thread_name_prefix="apply") as pool:
        try:
            for _, steps in itertools.groupby(plan.steps, key=lambda step: step.rank):
                crew.carry_out(steps, pool, workers)
                if crew.failure is not None:
                    break
        except KeyboardInterrupt:
            crew.stop()
            pool.shutdown()
            sentence = f"interrupted: {crew.done} of {len(plan.steps)} steps are done; run again to go on"
            raise ApplyError(sentence, crew.done) from None
    if crew.failure is not None:
        step, error = crew.failure
        raise _as_apply_error(step, error, crew.done, len(plan.steps)) from error
    return ApplyOutcome(crew.done)


class _Crew:
    """Workers that take steps from one list until it is empty or a step fails."""

    def __init__(self, target: Target, lease: Lease, progress: Callable[[Step], None]) -> None:
        self._target, self._lease, self._progress = target, lease, progress
        self._lock = threading.Lock()
        self._steps: Iterator[Step] = iter(())
        self._stopped = False
        self.done = 0
        self.failure: tuple[Step, BaseException] | None = None

    def carry_out(self, steps: Iterable[Step], pool: ThreadPoolExecutor, workers: int) -> None:
        """Carry out steps that do not depend on each other."""
        self._steps = iter(steps)
        working = [pool.submit(self._work) for _ in range(workers)]
        wait(working)
        for worker in working:
            worker.result()  # an error outside of a step

    def stop(self) -> None:
        """Start no further step."""
        self._stopped = True

    def _work(self) -> None:
        while (step := self._next()) is not None:
            try:
                self._lease.check()
                self._target.carry_out(step, self._lease.token)
            except BaseException as error:
                with self._lock:
                    self._stopped = True
                    self.failure = self.failure or (step, error)
                return
            with self._lock:
                self.done += 1
                self._progress(step)

    def _next(self) -> Step | None:
        with self._lock:
            return None if self._stopped else next(self._steps, None)


def _as_apply_error(step: Step, error: BaseException, done: int, total: int) -> BaseException:
    how_far = f"{done} of {total} steps are done"
    match error:
        case TargetUnavailable():
            sentence = f"the directory went away at {step.title}: {error} ({how_far}; run again to go on)"
        case ConflictingChange():
            sentence = f"{step.title} was changed by someone else meanwhile: {error} ({how_far}; plan anew)"
        case TargetError():
            sentence = f"{step.action} {step.title}: {error} ({how_far}; run again to go on)"
        case _:
            return error
    return ApplyError(sentence, done)


def state_directory() -> Path:
    """Return the folder that records applied plans: ``$XDG_STATE_HOME/mqenterprise/applied``.

    A relative value is ignored, as the variable's specification demands: it would depend on the working directory.
    """
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local/state") / "mqenterprise/applied"


def record(plan: Plan, token: int, directory: Path) -> Path:
    """Record a plan durably before it is applied. The file with the greatest token is the latest."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    of = hashlib.sha256(plan.directory.encode()).hexdigest()[:12]
    path = directory / f"{token:010d}-{of}.json"
    save(plan, path)
    return path


def written(plan: Plan, **more: Any) -> str:
    """Return a plan, and ``more``, as JSON with one line for each step: quick to write, and easy to compare."""
    data = to_json(plan) | more
    steps = ",\n".join(json.dumps(step, ensure_ascii=False) for step in data.pop("steps"))
    return f'{json.dumps(data, ensure_ascii=False)[:-1]}, "steps": [\n{steps}\n]}}\n'


def save(plan: Plan, path: Path) -> None:
    """Write a plan to a file atomically."""
    text = written(plan)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def latest_record(records: Iterable[Path], directory: str) -> Path | None:
    """Return the plan that was last applied to this directory, or None."""
    for path in sorted(records, reverse=True):
        if from_json(path.read_text("utf-8")).directory == directory:
            return path
    return None


class Observer(Protocol):
    """The observer of an apply's progress."""

    def waiting(self, holder: str) -> None:
        """The apply waits for another one, by this holder, to end."""

    def begin(self, total: int) -> None:
        """The apply starts with this number of steps."""

    def step(self) -> None:
        """One more step is done."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an apply: its plan, the steps done now and before, and where the plan is recorded."""

    plan: Plan
    done: int
    before: int = 0
    record: Path | None = None


Agree = Callable[[Plan], None]
"""Called with the plan before anything is written; raises an error to stop the apply."""


def agreed(plan: Plan) -> None:
    """Agree to every plan."""


def plan_declared(checked: Checked, target: Target, *, prune: bool = False) -> Plan:
    """Return the plan that makes the directory as declared."""
    with paused_collector():
        snapshot = target.snapshot([user.name for user in checked.declaration.users])
        return make_plan(snapshot.directory, declared_table(checked, snapshot.canonical), snapshot.table, prune=prune)


def apply_declared(
    checked: Checked,
    target: Target,
    observer: Observer,
    *,
    prune: bool = False,
    patience: float = 0.0,
    workers: int = WORKERS,
    time_to_live: float = TIME_TO_LIVE,
    agree: Agree = agreed,
) -> Applied:
    """Make the directory as declared. Write nothing if it already is."""

    def plan() -> tuple[Plan, int]:
        return plan_declared(checked, target, prune=prune), 0

    return _apply(plan, target, observer, patience, workers, time_to_live=time_to_live, agree=agree)


def apply_plan(
    saved: Plan,
    target: Target,
    observer: Observer,
    *,
    patience: float = 0.0,
    workers: int = WORKERS,
    keep_record: bool = True,
    agree: Agree = agreed,
) -> Applied:
    """Carry out a saved plan, or the rest of it after an interrupted apply. A rollback is not recorded."""

    def plan() -> tuple[Plan, int]:
        users = [step.name[0] for step in saved.steps if step.reference.kind == "user"]
        return remaining(saved, target.snapshot(users))

    return _apply(plan, target, observer, patience, workers, keep_record=keep_record, agree=agree)


def _apply(
    plan: Callable[[], tuple[Plan, int]],
    target: Target,
    observer: Observer,
    patience: float,
    workers: int,
    *,
    keep_record: bool = True,
    time_to_live: float = TIME_TO_LIVE,
    agree: Agree = agreed,
) -> Applied:
    entry = target.lease_entry()
    token = _token(entry)
    planned, before = plan()
    if not planned.steps:
        return Applied(planned, 0, before)
    agree(planned)
    target.prepare()
    with acquire(entry, patience=patience, time_to_live=time_to_live, waiting=observer.waiting) as lease:
        if lease.token != token + 1:
            # Another apply ran between our reading and our getting the lease.
            fresh, before = plan()
            if fresh.steps != planned.steps:
                agree(fresh)
            planned = fresh
        path = record(planned, lease.token, state_directory()) if keep_record else None
        observer.begin(len(planned.steps))
        outcome = apply(planned, target, lease, progress=lambda step: observer.step(), workers=workers)
        return Applied(planned, outcome.done, before, path)


def _token(entry: LeaseEntry) -> int:
    """Return the token of the last lease, or -1 while the lease is held: its holder is writing now."""
    text = entry.read()
    if text is None:
        return 0
    held = Record.parse(text)
    return held.token if not held.holder else -1
