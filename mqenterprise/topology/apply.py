"""Carry out a plan: in order, several steps at a time, and safe to interrupt at any point.

A step brings one object to its new state and is idempotent. Nothing is therefore remembered between runs: an
interrupted apply that is run again finds the finished steps in the directory and carries out the rest. The plan is
recorded in a file before the first write, so that even an interrupted apply can be rolled back.
"""

import hashlib
import itertools
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqenterprise.topology.lease import Lease
from mqenterprise.topology.plan import Plan, Standing, Step, from_json, standing, to_json
from mqenterprise.topology.target import ConflictingChange, Snapshot, Target, TargetError, TargetUnavailable

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
