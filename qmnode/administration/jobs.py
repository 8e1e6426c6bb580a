"""Jobs: operations on many messages that go on in the node, watched or not, and after a restart as well.

Only a few jobs work at a time: owners take turns, and each owner's jobs in their order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

import structlog

from qmnode.administration.asker import Asker
from qmnode.administration.criteria import Criteria
from qmnode.administration.job_records import ENDED, Job, JobRecords, JobState
from qmnode.administration.job_steps import COPIES, JobPausedError, Steps
from qmnode.administration.search import SearchPosition, chosen_queues
from qmnode.administration.transfers import Targets
from qmnode.administration.turns import JobTurns, Pace
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.model.queue import Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.security.access_check import Token
from qmnode.security.principals import Principal
from qmnode.storage.store import Store
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.security_descriptor import Sid

log = structlog.get_logger(__name__)

KINDS: Final = ("move", "copy", "delete", "return", "replay")
MOST_LOOKUPS: Final = 10_000
_KEPT: Final = 200
"""Jobs that have ended and are still listed."""
_AT_ONCE: Final = 2
_SLICE: Final = 0.25
"""Seconds that a job works while others wait for their turn."""
_OPEN: Final = 20
"""Jobs of one asker that have not ended."""
_LOG_PAGE: Final = 50
"""Records of a log in one page; each has at most 200 messages."""
_ORIGIN: Final = "origin"


class Jobs:
    """The jobs of one queue manager."""

    def __init__(self, manager: QueueManager, store: Store) -> None:
        self._manager = manager
        self._records = JobRecords(store)
        self._jobs: dict[int, Job] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._turns = JobTurns(_AT_ONCE)
        self.when_ended: Callable[[Job], None] | None = None

    @property
    def _origin(self) -> str:
        return (self._records.store.get_meta(_ORIGIN) or b"").hex()

    def start(self) -> None:
        """Read the jobs, and go on with those that were running."""
        for job in self._records.load():
            self._jobs[job.number] = job
            if job.state is not JobState.RUNNING:
                continue
            if job.origin != self._origin:
                self._pause(job, "the store is a copy or was restored: check what is done already, then resume the job")
            elif job.limited:
                self._pause(job, f"the node has started again: {job.asker} has to resume the job")
            else:
                principal = _restored(job)
                try:
                    self._check_sources(job, principal)
                except MessageQueuingError as error:
                    self._pause(job, error.sentence)
                else:
                    self._run(job, principal)

    async def stop(self) -> None:
        """Stop working. The jobs stay as they are and go on with the next start."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Faces

    async def begin(
        self,
        asker: Asker,
        kind: str,
        queues: Sequence[str],
        criteria: Criteria,
        lookups: Sequence[int],
        target: str,
        transactional: bool | None,
        *,
        dry_run: bool,
    ) -> Job:
        """Begin a job, when its queues and its target may be used for that. See ``KINDS``."""
        if kind not in KINDS:
            raise _bad(f"{kind!r:.80} is no operation: use {', '.join(KINDS)}")
        if kind in ("move", "copy") and not target:
            raise _bad(f"{kind}: say into which queue")
        if kind == "delete" and target:
            raise _bad("delete: there is no target")
        await self._check_target(asker, target, transactional)
        sources = await self._sources(asker, kind, queues, target)
        if lookups and (len(sources) != 1 or len(queues) != 1):
            raise _bad("lookup identifiers are those of one queue: name that queue alone")
        self._check_number(asker)
        now = self._manager.clock.time()
        job = Job(
            number=max(self._jobs, default=0) + 1,
            kind=kind,
            queues=list(queues),
            sources=[queue.queue_id for queue in sources],
            until=self._manager.sequence.value,
            criteria=criteria.to_plain(),
            lookups=list(dict.fromkeys(lookups)),
            target=target,
            transactional=transactional,
            dry_run=dry_run,
            created=now,
            total=len(set(lookups)) if lookups else sum(queue.message_count for queue in sources),
        )
        return await self._begin(asker, job)

    async def _check_target(self, asker: Asker, target: str, transactional: bool | None) -> None:
        if not target:
            return
        targets = Targets(self._manager, asker.principal, transactional)
        opened = await targets.open(target)
        await targets.close()
        if opened.error is None:
            return
        if opened.error.code is ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND:
            raise MessageQueuingError(
                opened.error.code,
                f"{self._manager.computer_name} has no queue {target}: create it first, or name another target",
            )
        raise opened.error

    async def _sources(self, asker: Asker, kind: str, queues: Sequence[str], target: str) -> list[Queue]:
        manager, one = self._manager, len(queues) == 1 and "*" not in queues[0] and "?" not in queues[0]
        allowed = []
        for queue in await chosen_queues(manager, queues):
            access = Access.PEEK if kind in COPIES else Access.RECEIVE
            if manager.opening.may_open(queue, access, asker.principal):
                allowed.append(queue)
            elif one:
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{queue.pathname}: {asker.name} may not {kind} its messages"
                )
        if target and not one:  # a message that was moved into the target must not be moved again
            with contextlib.suppress(MessageQueuingError):
                into = await chosen_queues(manager, [target])
                allowed = [queue for queue in allowed if queue not in into]
        return allowed

    async def undo(self, asker: Asker, number: int) -> Job:
        """Begin a job that takes back what another one has done, as far as that can be."""
        self._check_number(asker)
        of = self.owned(asker, number)
        if of.state is JobState.RUNNING:
            raise _bad(f"job {number} is running: pause or cancel it first")
        if not of.undoable:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION,
                f"job {number} ({of.kind}) left nothing that can be taken back"
                + (f": job {of.undone_by} has done so" if of.undone_by else ""),
            )
        job = Job(
            number=max(self._jobs) + 1, kind="undo", queues=of.queues, sources=[], until=0, undoes=number,
            created=self._manager.clock.time(), total=of.done, place=str(SearchPosition(0, of.logged)),
        )  # fmt: skip
        of.undone_by = job.number
        if of.state not in ENDED:
            of.state, of.ended = JobState.CANCELLED, job.created
        self._records.put(of)
        return await self._begin(asker, job)

    async def _begin(self, asker: Asker, job: Job) -> Job:
        job.asker, job.channel = asker.name, asker.channel
        # The rights of a named target were checked; where each message has its own, they count when it is opened.
        job.limited = not job.target and job.kind in ("return", "replay") and not asker.does_everything
        job.limited |= isinstance(asker.principal, Principal) and asker.principal.token.uncertain
        job.rights = _rights_of(asker)
        job.origin = self._origin
        self._jobs[job.number] = job
        self._records.put(job)
        self._forget_old()
        await self._records.store.durable()
        log.info("a job begins", job=job.number, kind=job.kind, queues=job.queues, target=job.target, who=job.asker)
        self._run(job, asker.principal)
        return job

    def all(self) -> list[Job]:
        """The jobs that are known, the latest first."""
        return [self._jobs[number] for number in sorted(self._jobs, reverse=True)]

    def get(self, number: int) -> Job:
        """One job. MQ_ERROR_INVALID_PARAMETER if there is none of this number."""
        job = self._jobs.get(number) if isinstance(number, int) else None
        if job is None:
            raise _bad(f"there is no job {number!r:.20}: list them")
        return job

    async def entries(self, number: int, after: int) -> tuple[list[dict[str, Any]], int | None]:
        """A page of the log of a job, and where the next one begins."""
        job = self.get(number)
        indexes = range(max(after, 0), min(job.logged, max(after, 0) + _LOG_PAGE))
        found, pace = [], Pace()
        for index in indexes:
            found += self._records.entries(job, index)
            await pace.rest()
        return found, indexes.stop if indexes.stop < job.logged else None

    async def control(self, asker: Asker, number: int, action: str) -> Job:
        """Pause, resume or cancel a job."""
        job = self.owned(asker, number)
        if job.state in ENDED:
            raise _bad(f"job {number} is {job.state.value}: it can no longer be changed")
        match action:
            case "pause":
                await self._interrupt(job)
                if job.state is JobState.RUNNING:
                    self._pause(job, f"paused by {asker.name}")
            case "cancel":
                await self._interrupt(job)
                if job.state not in ENDED:
                    self._end(job, JobState.CANCELLED, f"cancelled by {asker.name}")
            case "resume":
                if job.state is JobState.PAUSED:
                    self._check_sources(job, asker.principal)
                    job.rights = _rights_of(asker)
                    job.state, job.reason, job.origin = JobState.RUNNING, "", self._origin
                    self._records.put(job)
                    self._run(job, asker.principal)
            case _:
                raise _bad(f"{action!r:.80} is nothing that a job can do: use pause, resume, cancel or undo")
        await self._records.store.durable()
        return job

    def owned(self, asker: Asker, number: int) -> Job:
        """The job of this number, if the asker may see and change it."""
        job = self.get(number)
        if not asker.administers and job.asker != asker.name:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED, f"job {number} belongs to {job.asker}, and not to {asker.name}"
            )
        return job

    def _check_number(self, asker: Asker) -> None:
        if sum(one.asker == asker.name and one.state not in ENDED for one in self._jobs.values()) >= _OPEN:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"{asker.name} has {_OPEN} jobs that have not ended: let some end, or cancel them",
            )

    def _check_sources(self, job: Job, principal: object) -> None:
        """Access lists may have changed since the job began or was paused. MQ_ERROR_ACCESS_DENIED."""
        access = Access.PEEK if job.kind in COPIES else Access.RECEIVE
        for number in job.sources:  # a journal has its queue's list, and a right of its own
            owner = self._manager.queue_collection.get(number & ~1)
            queue = owner.journal if owner is not None and number & 1 else owner
            if queue is not None and not self._manager.opening.may_open(queue, access, principal):
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{queue.pathname}: {job.asker} may not {job.kind} its messages"
                )

    # Work

    def _run(self, job: Job, principal: object) -> None:
        task = asyncio.get_running_loop().create_task(self._work(job, principal), name=f"job {job.number}")
        self._tasks[job.number] = task
        task.add_done_callback(lambda done: self._tasks.pop(job.number, None) if self._is(job, done) else None)

    def _is(self, job: Job, task: asyncio.Task[None]) -> bool:
        return self._tasks.get(job.number) is task

    async def _interrupt(self, job: Job) -> None:
        """Stop its work, between two steps or while it waits."""
        task = self._tasks.pop(job.number, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _work(self, job: Job, principal: object) -> None:
        more, stopped = True, 0.0
        while more:
            async with self._turns.turn(job.asker):
                job.seconds += monotonic() - stopped if stopped else 0.0
                more = await self._slice(job, principal)
                stopped = monotonic()

    async def _slice(self, job: Job, principal: object) -> bool:
        """Work until the job ends or others should have their turn, with queues open that long. False at the end."""
        targets = Targets(self._manager, principal, job.transactional)
        try:
            return await self._steps(job, Steps(self._manager, self._records, job, targets))
        except JobPausedError as error:
            self._pause(job, str(error))
        except MessageQueuingError as error:
            if error.code != ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED:  # then nothing can be written down
                self._pause(job, error.sentence)
        except Exception as error:
            log.exception("a job failed unexpectedly", job=job.number)
            self._pause(job, f"the node failed at this job ({error}); its log says why")
        finally:
            await targets.close()
        return False

    async def _steps(self, job: Job, steps: Steps) -> bool:
        pace, store, more, until = Pace(), self._records.store, True, monotonic() + _SLICE
        while more:
            began = monotonic()
            if job.undoes:
                more = self._undo_step(job, steps)
            else:
                more = await steps.step()
            if not more:
                self._end(job, JobState.DONE, "")
            store.make_visible()  # the processor time of the write is the job's own
            with pace.waiting():
                await asyncio.shield(store.durable())
            pace_from = monotonic()
            job.seconds += pace_from - began
            await pace.rest()
            job.seconds += monotonic() - pace_from
            if self._turns.anyone_waits and monotonic() >= until:
                break
        return more

    def _undo_step(self, job: Job, steps: Steps) -> bool:
        index = SearchPosition.parse(job.place).lookup_identifier - 1 if job.place else -1
        if index < 0:
            return False
        steps.undo(self.get(job.undoes), index)
        return bool(job.place)

    def _pause(self, job: Job, reason: str) -> None:
        job.state, job.reason = JobState.PAUSED, reason
        self._records.put(job)
        log.warning("a job is paused", job=job.number, kind=job.kind, reason=reason)
        self._records.store.durable()

    def _end(self, job: Job, state: JobState, reason: str) -> None:
        job.state, job.reason, job.ended = state, reason, self._manager.clock.time()
        self._records.put(job)
        log.info("a job ended", job=job.number, kind=job.kind, state=state.value, done=job.done, failed=job.failed)
        if self.when_ended is not None:
            self.when_ended(job)

    def _forget_old(self) -> None:
        undone = {job.undoes for job in self._jobs.values() if job.state not in ENDED}
        ended = [job for job in self._jobs.values() if job.state in ENDED and job.number not in undone]
        most = Counter(job.asker for job in ended)
        ended.sort(key=lambda job: -most[job.asker])  # the asker with the most loses first, and of one asker the oldest
        for job in ended[: max(len(ended) - _KEPT, 0)]:
            self._records.forget(job)
            del self._jobs[job.number]


def _rights_of(asker: Asker) -> list[str]:
    principal = asker.principal
    return sorted(map(str, principal.token.sids)) if isinstance(principal, Principal) else []


def _restored(job: Job) -> Token | None:
    """The owner as of the beginning: with a token the policy checks as with a principal."""
    return Token(frozenset(map(Sid.from_text, job.rights))) if job.rights else None


def _bad(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, sentence)
