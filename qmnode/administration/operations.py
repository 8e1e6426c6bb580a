"""Operations on messages as the faces call them: every argument and every answer is plain, so that it can travel."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from qmnode.administration.asker import Asker
from qmnode.administration.carries import Carries
from qmnode.administration.carry_exchange import CarryExchange
from qmnode.administration.criteria import Criteria
from qmnode.administration.editing import edit
from qmnode.administration.failures import groups
from qmnode.administration.history import STEP, History
from qmnode.administration.imports import AT_ONCE, Imports
from qmnode.administration.job_records import Job
from qmnode.administration.jobs import MOST_LOOKUPS, Jobs
from qmnode.administration.local_settings import LocalSettings
from qmnode.administration.machine_documents import MachineDocuments
from qmnode.administration.search import PAGE, search_page
from qmnode.administration.tracing import trace
from qmnode.errors import MessageQueuingError
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import whole_value
from qmnode.storage.store import Store
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import utf16_length

HISTORY_FILE: Final = "COUNTERS"
"""Beside the store's own files: it is no part of the store, and a back-up does not have it."""


class Operations:
    """The engine over one queue manager."""

    def __init__(self, manager: QueueManager, store: Store) -> None:
        self._manager = manager
        self._jobs = Jobs(manager, store)
        self._imports = Imports(manager, store)
        self._carries = Carries(manager, store)
        self.local_settings = LocalSettings(manager)
        self._documents = MachineDocuments(manager, self.local_settings)
        self._history = History(manager, store.path / HISTORY_FILE)
        self._sampling: asyncio.Task[None] | None = None

    def start(self, job_ended: Callable[[Job], None] | None = None) -> None:
        """Go on with the jobs of the time before this start, and begin the history of counters. ``job_ended`` is called
        at the end of each job.
        """
        self._jobs.when_ended = job_ended
        self._jobs.start()
        self._carries.start()
        self._history.load()
        self._sampling = asyncio.get_running_loop().create_task(self._sample(), name="history")

    async def stop(self) -> None:
        """Interrupt the jobs, which go on after the next start."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
            self._sampling = None
            await self._history.save()
        await self._jobs.stop()

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + STEP, loop.time())
            await asyncio.sleep(due - loop.time())
            await self._history.sample()

    async def history(self, asker: Asker, queues: Sequence[str], span: str = "hour") -> dict[str, Any]:
        """The counters of the busiest of these queues over the last ``hour`` or ``day``, a list for each column."""
        return await self._history.series(checked_names(queues), span, asker.principal)

    async def find(
        self, asker: Asker, queues: Sequence[str], criteria: Mapping[str, Any], cursor: str = "", limit: int = PAGE
    ) -> dict[str, Any]:
        """Return a page of found messages: ``found`` has the queue, the lookup identifier and the stored value of each.

        Ask again with ``next`` as cursor, until it is empty.
        """
        wanted = criteria_of(asker, criteria)
        names = checked_names(queues)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise _bad("limit is a number, at least 1")
        page = await search_page(self._manager, names, wanted, str(cursor), limit, caller=asker.principal)
        return {
            "found": [
                {
                    "queue": one.queue,
                    "lookup": one.message.lookup_identifier,
                    "value": whole_value(one.message),
                    "after": str(one.after),
                }
                for one in page.found
            ],
            "scanned": page.scanned,
            "total": page.total,
            "next": page.next,
            "refused": list(page.refused),
        }

    async def trace(self, asker: Asker, criteria: Mapping[str, Any]) -> dict[str, Any]:
        """The way of a message as this node knows it: by ``identifier``, ``label`` or ``correlation``."""
        if not isinstance(criteria, Mapping) or criteria.keys() - {"identifier", "label", "correlation"}:
            raise _bad("a message is traced by its identifier, label or correlation")
        return await trace(self._manager, criteria_of(asker, criteria), asker.principal)

    async def failures(
        self, asker: Asker, queues: Sequence[str], by: Sequence[str], criteria: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The failed messages of queues in groups, with the criteria that find each group."""
        if not asker.reads_bodies:  # headers say who failed, and why
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{asker.name} may not read bodies and headers")
        if isinstance(by, str) or not isinstance(by, Sequence):
            raise _bad("by is a list of names")
        wanted, names = criteria_of(asker, criteria or {}), checked_names(queues)
        return await groups(self._manager, names, wanted, by, caller=asker.principal)

    async def edit(
        self,
        asker: Asker,
        queue: str,
        lookup: int,
        changes: Mapping[str, Any],
        *,
        target: str = "",
        keep: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Send a changed message in the place of another. The answer says what could not be kept."""
        if not isinstance(changes, Mapping) or not isinstance(target, str):
            raise _bad("changes are names with values, and target is a text")
        if isinstance(lookup, bool) or not isinstance(lookup, int):
            raise _bad("a lookup identifier is a number of 64 bits")
        (name,) = checked_names([queue])
        return await edit(
            self._manager, name, lookup, changes, target, keep=keep, dry_run=dry_run, caller=asker.principal
        )

    async def import_messages(
        self,
        asker: Asker,
        items: Sequence[dict[str, Any]],
        *,
        transactional: bool | None = None,
        again: bool = False,
        dry_run: bool = False,
    ) -> list[dict[str, Any]]:
        """Send exported packets, each to its target and once: a second import of a message is refused."""
        if isinstance(items, str) or not isinstance(items, Sequence) or len(items) > AT_ONCE:
            raise _bad(f"at most {AT_ONCE} messages are imported with one call")
        if not all(isinstance(item, Mapping) for item in items):
            raise _bad("an imported message is an object with its packet and its target")
        return await self._imports.take(items, transactional, again=again, dry_run=dry_run, caller=asker.principal)

    async def start_job(
        self,
        asker: Asker,
        kind: str,
        queues: Sequence[str],
        criteria: Mapping[str, Any] | None = None,
        *,
        lookups: Sequence[int] = (),
        target: str = "",
        transactional: bool | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Begin to move, copy, delete, return or replay messages: the selected ones, or all that are found."""
        if isinstance(lookups, str) or not isinstance(lookups, Sequence) or len(lookups) > MOST_LOOKUPS:
            raise _bad(f"lookups is a list of at most {MOST_LOOKUPS} lookup identifiers")
        if not all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 1 << 64 for one in lookups):
            raise _bad("a lookup identifier is a number of 64 bits")
        if not isinstance(kind, str) or not isinstance(target, str) or len(target) > 512:
            raise _bad("kind and target are texts")
        if transactional not in (None, True, False) or not isinstance(dry_run, bool):
            raise _bad("transactional and dry_run are true or false")
        wanted, names = criteria_of(asker, criteria or {}), checked_names(queues)
        job = await self._jobs.begin(asker, kind, names, wanted, lookups, target, transactional, dry_run=dry_run)
        return job.describe()

    async def list_jobs(self, asker: Asker) -> list[dict[str, Any]]:
        """The jobs that the asker may see, the latest first."""
        return [job.describe() for job in self._jobs.all() if asker.administers or job.asker == asker.name]

    async def show_job(self, asker: Asker, number: int) -> dict[str, Any]:
        """One job, with its progress."""
        return self._jobs.owned(asker, number).describe()

    async def job_log(self, asker: Asker, number: int, after: int = 0) -> dict[str, Any]:
        """A page of the outcomes of a job, message by message; ask again with ``next`` until that is null."""
        self._jobs.owned(asker, number)
        entries, following = await self._jobs.entries(number, after)
        return {"entries": entries, "next": following}

    async def control_job(self, asker: Asker, number: int, action: str) -> dict[str, Any]:
        """Pause, resume or cancel a job; or undo it, which is another job."""
        if action == "undo":
            return (await self._jobs.undo(asker, number)).describe()
        return (await self._jobs.control(asker, number, action)).describe()

    async def apply_document(
        self,
        asker: Asker,
        document: Mapping[str, Any],
        *,
        prune: bool = False,
        with_messages: bool = False,
        dry_run: bool = False,
        declares: bool = True,
    ) -> dict[str, Any]:
        """Make the document of this machine true, and return what that changed, or would change. For administrators.

        ``prune`` deletes queues that a document made and this one lacks; those with messages only ``with_messages``.
        Without ``declares``, queues that it creates do not count as made by a document.
        """
        _require_administrator(asker, "apply_document")
        if not all(isinstance(flag, bool) for flag in (prune, with_messages, dry_run, declares)):
            raise _bad("prune, with_messages, dry_run and declares are true or false")
        if with_messages and not prune:
            raise _bad("with_messages is about what prune deletes: say prune, too")
        return await self._documents.apply(
            document, prune=prune, with_messages=with_messages, dry_run=dry_run, declares=declares, asker=asker
        )

    async def begin_carry(self, asker: Asker, source: str, target: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Begin or go on with the carry from a queue of another queue manager into one here. For administrators."""
        _require_administrator(asker, "begin_carry")
        (name, known) = checked_names([target, source])
        return await self._carries.begin(known, name, dry_run=dry_run)

    async def carry_messages(self, asker: Asker, number: int, content: bytes) -> dict[str, Any]:
        """Confirm messages that their source has let go of, drop others, and hold more: a written ``CarryExchange``.
        For administrators.
        """
        _require_administrator(asker, "carry_messages")
        return await self._carries.exchange(number, CarryExchange.read(content))

    async def list_carries(self, asker: Asker) -> list[dict[str, Any]]:
        """The carries into this node, the latest first. For administrators."""
        _require_administrator(asker, "list_carries")
        return [carry.describe() for carry in self._carries.all()]

    async def carry_ledger(self, asker: Asker, number: int, after: str = "") -> dict[str, Any]:
        """A page of the ledger of a carry; ask again with ``next`` until that is empty. For administrators."""
        _require_administrator(asker, "carry_ledger")
        entries, following = self._carries.ledger(number, after)
        return {"entries": entries, "next": following}

    async def delete_carry(self, asker: Asker, number: int) -> None:
        """Delete a finished carry with its ledger. For administrators."""
        _require_administrator(asker, "delete_carry")
        await self._carries.delete(number)

    async def show_document(self, asker: Asker, *, everything: bool = False) -> dict[str, Any]:
        """Return the document of the machine, with ``everything`` also what no document made. For administrators."""
        _require_administrator(asker, "show_document")
        return await self._documents.show(everything=bool(everything))


def _require_administrator(asker: Asker, operation: str) -> None:
    if not asker.administers:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED,
            f"{operation} is for administrators (security.administrators: root and the user that the node runs as by "
            f"default), and {asker.name} is none",
        )


def criteria_of(asker: Asker, given: object) -> Criteria:
    """Criteria from JSON, if the asker may ask for these. MQ_ERROR_INVALID_PARAMETER, MQ_ERROR_ACCESS_DENIED."""
    if not isinstance(given, Mapping):
        raise _bad("criteria are names with values")
    criteria = Criteria.from_plain(given)
    if criteria.reads_bodies and not asker.reads_bodies:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{asker.name} may not read bodies, and so not search by them"
        )
    return criteria


def checked_names(queues: object) -> list[str]:
    """Names of queues from JSON. MQ_ERROR_INVALID_PARAMETER."""
    if isinstance(queues, str) or not isinstance(queues, Sequence) or not queues or len(queues) > 1000:
        raise _bad("queues is a list of 1 to 1000 names or patterns")
    if not all(isinstance(name, str) and 0 < utf16_length(name) <= 512 for name in queues):
        raise _bad("the name of a queue is a text of at most 512 UTF-16 units")
    return list(queues)


def _bad(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, sentence)
