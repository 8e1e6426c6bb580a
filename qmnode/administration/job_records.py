"""Jobs as the store keeps them: a record for each job, and a log of its outcomes, in the batches of its changes."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, Self

from qmnode.storage.layout import Family
from qmnode.storage.store import Store

_JOB: Final = "job/"
_LOG: Final = "job-log/"
_DIGITS: Final = 10


class JobState(StrEnum):
    """The state of a job."""

    RUNNING = "running"
    PAUSED = "paused"
    """By its owner, or by the node: ``reason`` says why. It goes on where it was when it is resumed."""
    CANCELLED = "cancelled"
    DONE = "done"


ENDED: Final = (JobState.CANCELLED, JobState.DONE)


@dataclass(slots=True)
class Job:
    """One operation on many messages."""

    number: int
    kind: str
    """move, copy, delete, return, replay or undo."""
    queues: list[str]
    """The queues and patterns that were asked for."""
    sources: list[int]
    """Their numbers in the store, as they were at the start."""
    until: int
    """Messages that came after this sequential identifier are left alone."""
    criteria: dict[str, Any] = field(default_factory=dict)
    lookups: list[int] = field(default_factory=list)
    """The messages that were selected one by one; empty for all that the criteria find."""
    target: str = ""
    """Empty: each message goes to a queue of its own."""
    transactional: bool | None = None
    dry_run: bool = False
    undoes: int = 0
    """The number of the job that this one takes back."""
    asker: str = ""
    channel: str = ""
    rights: list[str] = field(default_factory=list)
    """The SIDs of its owner, with which it goes on after a restart; empty for one who may do everything."""
    limited: bool = False
    """Each message has its own target, which the owner may not be allowed to use: after a restart the owner has to
    resume the job, with the rights of then."""
    origin: str = ""
    """The store that the job was begun in: in a copy of it the job waits to be resumed."""
    state: JobState = JobState.RUNNING
    reason: str = ""
    created: float = 0.0
    ended: float = 0.0
    seconds: float = 0.0
    """The time that it has worked."""
    place: str = ""
    """Cursor: everything before it is done."""
    total: int = 0
    """Messages to look at, as counted at the start."""
    scanned: int = 0
    done: int = 0
    failed: int = 0
    logged: int = 0
    """Records of its log."""
    undone_by: int = 0

    @classmethod
    def read(cls, record: bytes) -> Self:
        """From the stored form; a later release may have added fields."""
        known = {one.name for one in fields(cls)}
        values = {name: value for name, value in json.loads(record).items() if name in known}
        return cls(**values | {"state": JobState(values["state"])})

    def write(self) -> bytes:
        """The stored form of the job."""
        return json.dumps(asdict(self)).encode()

    @property
    def undoable(self) -> bool:
        """Whether its log may have something that an undo takes back."""
        return (
            self.kind in ("move", "copy", "return", "replay")
            and not self.dry_run
            and not self.undone_by
            and self.done > 0
        )

    def describe(self) -> dict[str, Any]:
        """The job as JSON, with its rate and an estimate."""
        hidden = ("number", "sources", "until", "limited", "origin", "logged", "lookups", "rights")
        facts = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in hidden}
        rate = self.scanned / self.seconds if self.seconds > 0 else 0.0
        left = max(self.total - self.scanned, 0)
        running = self.state is JobState.RUNNING
        return {"job": self.number} | facts | {
            "state": self.state.value,
            "selected": len(self.lookups),
            "undoable": self.undoable,
            "rate": round(rate, 1),
            "seconds_left": round(left / rate, 1) if running and rate else None,
        }  # fmt: skip


class JobRecords:
    """The records of jobs in a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def load(self) -> Iterator[Job]:
        """Read the jobs, the oldest first."""
        self.store.make_visible()
        for _, record in self.store.scan(Family.META, _JOB.encode(), _after(_JOB)):
            yield Job.read(record)

    def put(self, job: Job, entries: list[dict[str, Any]] | None = None) -> None:
        """Write a job in this pass's batch, and what it has just done."""
        self.store.operations_recorded()
        if entries:
            self.store.put_meta(_log_key(job.number, job.logged), json.dumps(entries).encode())
            job.logged += 1
        self.store.put_meta(f"{_JOB}{job.number:0{_DIGITS}}", job.write())

    def entries(self, job: Job, index: int) -> list[dict[str, Any]]:
        """One record of the log of a job."""
        self.store.make_visible()
        record = self.store.get_meta(_log_key(job.number, index))
        return list(json.loads(record)) if record else []

    def forget(self, job: Job) -> None:
        """Delete a job with its log."""
        self.store.delete(Family.META, f"{_JOB}{job.number:0{_DIGITS}}".encode())
        begin = f"{_LOG}{job.number:0{_DIGITS}}/"
        self.store.delete_range(Family.META, begin.encode(), _after(begin))


def _log_key(number: int, index: int) -> str:
    return f"{_LOG}{number:0{_DIGITS}}/{index:0{_DIGITS}}"


def _after(prefix: str) -> bytes:
    return prefix[:-1].encode() + bytes((ord(prefix[-1]) + 1,))
