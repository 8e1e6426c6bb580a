"""The steps of an apply: read, plan, get the lease, record, carry out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mqenterprise.topology.apply import WORKERS, apply, record, remaining, state_directory
from mqenterprise.topology.check import Checked
from mqenterprise.topology.collector import paused_collector
from mqenterprise.topology.declared_table import declared_table
from mqenterprise.topology.lease import TIME_TO_LIVE, Record, acquire
from mqenterprise.topology.plan import Plan, make_plan
from mqenterprise.topology.target import LeaseEntry, Target


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
