"""One step of a job: some messages are read, and what is to be done with them is done in one batch of the store.

A step waits only before its first change, to open a queue; then the messages are read again.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from qmnode.administration.criteria import Check, Criteria
from qmnode.administration.job_records import Job, JobRecords
from qmnode.administration.promises import QueueRole, TransferMode, kind_of
from qmnode.administration.search import SearchPosition, came_before, fits, read_some
from qmnode.administration.transfers import Target, Targets, TransferOutcome, is_foreign, take_out
from qmnode.bodies.choice import read_headers
from qmnode.bodies.limits import CARRIED
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.model.ports import Entry
from qmnode.model.queue import Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import received_message
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode

# ----------------------------------------------------------------------------------------------------------------------
# Where a message goes back to: to where it failed, or to where it was sent.

_FAILED_QUEUE: Final = ("NServiceBus.FailedQ", "rbs2-source-queue")
"""Headers in which NServiceBus and Rebus name the queue whose consumer failed: ``queue@machine``."""


def return_target(queue: Queue, message: Message) -> str:
    """The queue that a message of this queue is returned to. MQ_ERROR_QUEUE_NOT_FOUND if nothing says which.

    A failed message of NServiceBus or Rebus goes to the queue that its headers name, a dead letter to where it was
    sent, a message of a subqueue to the queue.
    """
    headers = read_headers(message.extension, limits=CARRIED).values
    for name in _FAILED_QUEUE:
        if address := headers.get(name):
            return _queue_at_machine(address)
    if kind_of(queue) is QueueRole.DEAD_LETTERS and message.destination_queue_format_name:
        return message.destination_queue_format_name
    if queue.parent is not None and not queue.is_journal:
        return queue.parent.pathname
    raise _unknown("nothing says where it failed: name a queue")


def replay_target(queue: Queue, message: Message) -> str:
    """The queue that a message of this journal was in, or was sent to. MQ_ERROR_QUEUE_NOT_FOUND for other queues."""
    if queue.is_journal and queue.parent is not None:
        return queue.parent.pathname
    if kind_of(queue) is QueueRole.JOURNAL and message.destination_queue_format_name:
        return message.destination_queue_format_name
    raise _unknown("only messages of journals are replayed without naming a queue")


def _queue_at_machine(address: str) -> str:
    """``sales@ALPHA`` as a format name; what has a backslash is a path name already."""
    address = address.strip()
    name, separator, machine = address.rpartition("@")
    if "\\" in address:
        return f"DIRECT=OS:{address}"
    if not separator:
        return f"DIRECT=OS:.\\private$\\{address}"
    return f"DIRECT=OS:{machine or '.'}\\private$\\{name}"


def _unknown(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, sentence)


_AT_ONCE: Final = 200
"""Selected messages of one step."""
_FULL: Final = (ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED)
COPIES: Final = ("copy", "replay")


class JobPausedError(Exception):
    """The job cannot go on now; nothing of the message at hand was done."""


class _Chunk(NamedTuple):
    queue: Queue | None
    entries: list[Entry]
    missing: list[int]
    """Selected messages that are not there."""
    scanned: int
    next: str
    """Where the job goes on; empty at the end."""


class Steps:
    """The steps of one job over the messages of its queues."""

    def __init__(self, manager: QueueManager, records: JobRecords, job: Job, targets: Targets) -> None:
        self._manager = manager
        self._records = records
        self._job = job
        self._targets = targets
        self._checks: Sequence[Check] = Criteria.from_plain(job.criteria).checks()

    async def step(self) -> bool:
        """Do some of it, and put it into the batch of this pass. False when the job is at its end."""
        job = self._job
        while True:
            chunk = self._read()
            wanted = self._named(chunk)
            missing = {name for name, _ in wanted.values() if name and self._targets.get(name) is None}
            if not missing:
                break
            for name in missing:
                if (await self._targets.open(name)).error is not None and name == job.target:
                    self._check_target(name)
        self._manager.store.check()
        entries = [
            {"queue": chunk.queue.pathname if chunk.queue else "", "lookup": one, "result": "gone"}
            for one in chunk.missing
        ]
        job.failed += len(chunk.missing)
        pause = None
        place = chunk.next
        planned = self._plan(chunk, wanted)
        for lookup_identifier, value, message, target, way in planned:
            assert chunk.queue is not None
            try:
                entries.append(self._do(chunk.queue, lookup_identifier, value, message, target, way))
            except MessageQueuingError as error:
                if error.code in _FULL:
                    pause, place = error, self._place_of(chunk.queue, lookup_identifier)
                    break
                entries.append(_failed(chunk.queue, lookup_identifier, error))
                job.failed += 1
            except ValueError as error:
                sentence = MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, str(error))
                entries.append(_failed(chunk.queue, lookup_identifier, sentence))
                job.failed += 1
        if pause is None:
            job.scanned += chunk.scanned
        job.place = place
        self._records.put(job, entries)
        if pause is not None:
            raise JobPausedError(pause.sentence)
        return bool(job.place)

    def _check_target(self, name: str) -> None:
        target = self._targets.get(name)
        if target is not None and target.error is not None:
            raise JobPausedError(target.error.sentence)

    # Reading

    def _read(self) -> _Chunk:
        return self._read_selected() if self._job.lookups else self._read_found()

    def _read_selected(self) -> _Chunk:
        job = self._job
        first = SearchPosition.parse(job.place).lookup_identifier
        queue = self._manager.queue_collection.get(job.sources[0] & ~1)
        queue = queue.journal if queue is not None and job.sources[0] & 1 else queue
        chosen = job.lookups[first : first + _AT_ONCE]
        entries, missing = [], []
        for lookup_identifier in chosen:
            known = queue is not None and not queue.deleted and came_before(lookup_identifier, job.until)
            value = queue.value_of(lookup_identifier) if known and queue is not None else None
            if value is None:
                missing.append(lookup_identifier)
            else:
                entries.append((lookup_identifier, value))
        after = first + len(chosen)
        return _Chunk(
            queue, entries, missing, len(chosen), str(SearchPosition(0, after)) if after < len(job.lookups) else ""
        )

    def _read_found(self) -> _Chunk:
        job, place = self._job, SearchPosition.parse(self._job.place)
        self._manager.store.make_visible()
        for number in job.sources:
            if number < place.queue:
                continue
            owner = self._manager.queue_collection.get(number & ~1)
            queue = owner.journal if owner is not None and number & 1 else owner
            if queue is None or queue.deleted:
                continue
            first = place.lookup_identifier if number == place.queue else 0
            entries, after = read_some(queue, first)
            if after < 0:
                continue
            found = [
                entry
                for entry in entries
                if came_before(entry[0], job.until) and fits(received_message(*entry), self._checks)
            ]
            return _Chunk(queue, found, [], len(entries), str(SearchPosition(number, after)))
        return _Chunk(None, [], [], 0, "")

    def _place_of(self, queue: Queue, lookup_identifier: int) -> str:
        if self._job.lookups:
            return str(SearchPosition(0, self._job.lookups.index(lookup_identifier)))
        return str(SearchPosition(queue.queue_id, lookup_identifier))

    # Deciding

    def _named(self, chunk: _Chunk) -> dict[int, tuple[str, MessageQueuingError | None]]:
        """The name of the queue that each message goes to, or why it goes nowhere; an empty name is for deletion."""
        names: dict[int, tuple[str, MessageQueuingError | None]] = {}
        for lookup_identifier, value in chunk.entries:
            assert chunk.queue is not None
            try:
                name = self._target_of(chunk.queue, received_message(lookup_identifier, value))
                names[lookup_identifier] = name, None
            except MessageQueuingError as error:
                names[lookup_identifier] = "", error
        return names

    def _target_of(self, queue: Queue, message: Message) -> str:
        job = self._job
        if job.kind == "delete" or job.target:
            return job.target
        return return_target(queue, message) if job.kind == "return" else replay_target(queue, message)

    def _plan(
        self, chunk: _Chunk, wanted: dict[int, tuple[str, MessageQueuingError | None]]
    ) -> list[tuple[int, bytes, Message, Target | None, TransferMode | MessageQueuingError]]:
        """The way of each message. This may read the store: nothing is changed before all of it."""
        planned: list[tuple[int, bytes, Message, Target | None, TransferMode | MessageQueuingError]] = []
        for lookup_identifier, value in chunk.entries:
            assert chunk.queue is not None
            message = received_message(lookup_identifier, value)
            name, error = wanted[lookup_identifier]
            target = self._targets.get(name) if name else None
            way: TransferMode | MessageQueuingError = TransferMode.REFUSED
            if error is not None:
                way = error
            elif self._job.kind == "delete":
                if is_foreign(chunk.queue, value):
                    way = MessageQueuingError(
                        ErrorCode.MQ_ERROR_ACCESS_DENIED, "it is another machine's message on its way: purge the queue"
                    )
            elif target is not None:
                try:
                    copies = self._job.kind in COPIES
                    way = self._targets.plan(chunk.queue, target, lookup_identifier, message, copies=copies)
                except MessageQueuingError as refusal:
                    way = refusal
            planned.append((lookup_identifier, value, message, target, way))
        return planned

    # Doing

    def _do(
        self,
        queue: Queue,
        lookup_identifier: int,
        value: bytes,
        message: Message,
        target: Target | None,
        way: TransferMode | MessageQueuingError,
    ) -> dict[str, Any]:
        job = self._job
        if isinstance(way, MessageQueuingError):
            job.failed += 1
            return _failed(queue, lookup_identifier, way)
        entry: dict[str, Any] = {"queue": queue.pathname, "lookup": lookup_identifier}
        if job.dry_run:
            job.done += 1
            entry |= {"result": "would be done"}
            if target is None:
                return entry
            entry |= {"way": way.value, "target": target.name}
            onward = self._targets.onward(target, message)
            return entry | {"detail": onward} if onward else entry
        if target is None:
            queue.take_this(lookup_identifier)
            queue.delete(lookup_identifier, value, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)
            job.done += 1
            return entry | {"result": "deleted"}
        copies = job.kind in COPIES
        outcome = self._targets.put(queue, target, lookup_identifier, value, way, message, copies=copies)
        job.done += 1
        return entry | {"result": "copied" if copies else "moved"} | _as_json(outcome)

    # Undoing

    def undo(self, of: Job, index: int) -> None:
        """Take back one record of the log of another job, in the batch of this pass."""
        made = [one for one in reversed(self._records.entries(of, index)) if one["result"] in ("moved", "copied")]
        planned = [self._plan_back(entry) for entry in made]  # this reads the store, before anything is changed
        taken = []
        for entry, plan in zip(made, planned, strict=True):
            told = {"queue": entry["target"], "lookup": entry.get("to_lookup", 0)}
            self._job.scanned += 1
            if isinstance(plan, MessageQueuingError):
                self._job.failed += 1
                taken.append(told | {"result": "failed", "detail": plan.sentence})
                continue
            queue, value, source = plan
            take_out(queue, entry["to_lookup"], value)
            if source is not None:
                source.insert(entry["to_lookup"], value)
            self._job.done += 1
            taken.append(told | {"result": "undone", "target": entry["queue"]})
        self._job.place = str(SearchPosition(0, index)) if index else ""
        self._records.put(self._job, taken)

    def _plan_back(self, entry: dict[str, Any]) -> tuple[Queue, bytes, Queue | None] | MessageQueuingError:
        """The queue that a message is in now, its value, and the queue that it goes back to: none for a copy."""
        try:
            return self._find_again(entry)
        except MessageQueuingError as error:
            return error

    def _find_again(self, entry: dict[str, Any]) -> tuple[Queue, bytes, Queue | None]:
        copied, lookup_identifier = entry["result"] == "copied", entry.get("to_lookup", 0)
        if not lookup_identifier:
            raise _lost("it was sent to another machine")
        if not copied and entry["way"] != TransferMode.AS_IT_IS:
            raise _lost("it was sent anew, so that the message of before is no more")
        queue = self._manager.names.find(entry["target"])
        value = queue.value_of(lookup_identifier)
        if value is None:
            raise _lost(f"it is no longer in {queue.pathname}: it was received, or is being received")
        source = None if copied else self._manager.names.find(entry["queue"])
        if source is not None:
            self._targets.check_return(source, queue, len(value))
        return queue, value, source


def _as_json(outcome: TransferOutcome) -> dict[str, Any]:
    entry: dict[str, Any] = {"way": outcome.way.value, "target": outcome.target}
    if outcome.lookup_identifier:
        entry["to_lookup"] = outcome.lookup_identifier
    if outcome.identifier:
        entry["identifier"] = outcome.identifier.hex()
    if outcome.detail:
        entry["detail"] = outcome.detail
    return entry


def _failed(queue: Queue, lookup_identifier: int, error: MessageQueuingError) -> dict[str, Any]:
    return {
        "queue": queue.pathname,
        "lookup": lookup_identifier,
        "result": "failed",
        "name": error.name,
        "detail": error.sentence,
    }


def _lost(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, sentence)
