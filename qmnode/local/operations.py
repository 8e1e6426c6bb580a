"""Operations on messages at the node behind a socket: the face for programs in Python, and for the command line."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from qmnode.local.connection import Connection, Line
from qmnode.model.message import Message
from qmnode.model.stored_message import received_message

_READS: Final = frozenset({"trace", "find", "failures", "history", "list_jobs", "show_job", "job_log", "show_document"})
"""Operations that change nothing."""


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that was found, which stays where it is."""

    queue: str
    """Path name, or the format name of an outgoing queue."""
    message: Message


@dataclass(frozen=True, slots=True)
class FoundPage:
    """Some of the messages that a search finds."""

    found: tuple[FoundMessage, ...]
    scanned: int
    """Messages that were looked at for this page."""
    total: int
    """Messages in all the queues that are searched."""
    next: str
    """Cursor of the next page; empty at the end."""
    refused: tuple[str, ...]
    """Queues that were left out, since the caller may not read them."""


class RemoteOperations:
    """``qm.operations`` of a connection: find messages, and do something with all that are found."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def _call(self, name: str, *arguments: object, **keywords: object) -> Any:
        async def attempt(connection: Connection) -> Any:
            return await connection.method("operations", 0, name, arguments, **keywords)

        return await (self._line.repeat(attempt) if name in _READS else self._line.once(name, attempt))

    async def trace(self, identifier: str = "", label: str = "", correlation: str = "") -> dict[str, Any]:
        """The way of a message as the node knows it: see :mod:`qmnode.administration.tracing`."""
        given = {"identifier": identifier, "label": label, "correlation": correlation}
        found: dict[str, Any] = await self._call("trace", {name: value for name, value in given.items() if value})
        return found

    async def find_page(
        self, queues: Sequence[str], criteria: Mapping[str, Any] | None = None, cursor: str = "", limit: int = 100
    ) -> FoundPage:
        """The next messages that are found. A page comes after half a second, also when it has none yet.

        ``queues`` are names and patterns with ``*``; ``criteria`` those of ``qmnode.administration.criteria.Criteria``.
        """
        page = await self._call("find", list(queues), dict(criteria or {}), cursor=cursor, limit=limit)
        return FoundPage(
            found=tuple(
                FoundMessage(one["queue"], received_message(one["lookup"], one["value"])) for one in page["found"]
            ),
            scanned=page["scanned"],
            total=page["total"],
            next=page["next"],
            refused=tuple(page["refused"]),
        )

    async def find(
        self, queues: Sequence[str], criteria: Mapping[str, Any] | None = None, cursor: str = ""
    ) -> AsyncIterator[FoundMessage]:
        """All messages that are found, one after the other. A caller that stops asking has cancelled the search."""
        while True:
            page = await self.find_page(queues, criteria, cursor)
            for one in page.found:
                yield one
            cursor = page.next
            if not cursor:
                return

    async def failures(
        self, queues: Sequence[str], by: Sequence[str] = ("reason", "queue"), criteria: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Failed messages in groups by reason, queue, sender or exception; each has the ``where`` that finds it."""
        found: dict[str, Any] = await self._call("failures", list(queues), list(by), dict(criteria or {}))
        return found

    async def history(self, queues: Sequence[str] = ("*",), span: str = "hour") -> dict[str, Any]:
        """The counters of the busiest queues, every 10 seconds of the last ``hour`` or minute of the last ``day``.

        ``times`` are the ends of the steps; each of ``queues`` has lists of how many messages arrived, left and died in
        a step, and of the messages and bytes at its end.
        """
        found: dict[str, Any] = await self._call("history", list(queues), span)
        return found

    async def edit(
        self,
        queue: str,
        lookup: int,
        changes: Mapping[str, Any],
        *,
        target: str = "",
        keep: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Send a changed message in the place of another, in one write; ``lost`` says what could not be kept.

        ``changes`` are properties of a message, ``value`` with ``format``, and ``headers`` (None removes one).
        """
        answer: dict[str, Any] = await self._call(
            "edit", queue, lookup, dict(changes), target=target, keep=keep, dry_run=dry_run
        )
        return answer

    async def import_messages(
        self,
        items: Sequence[Mapping[str, Any]],
        *,
        transactional: bool | None = None,
        again: bool = False,
        dry_run: bool = False,
    ) -> list[dict[str, Any]]:
        """Send packets (``packet``, bytes) to queues (``target``), each once; the outcome for each, at most 500."""
        results: list[dict[str, Any]] = await self._call(
            "import_messages", [dict(item) for item in items], transactional=transactional, again=again, dry_run=dry_run
        )
        return results

    async def start_job(
        self,
        kind: str,
        queues: Sequence[str],
        criteria: Mapping[str, Any] | None = None,
        *,
        lookups: Sequence[int] = (),
        target: str = "",
        transactional: bool | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Begin to ``move``, ``copy``, ``delete``, ``return`` or ``replay`` messages; the job, as JSON.

        Those with ``lookups`` in one queue, or all that the criteria find now. ``transactional``: whether messages to
        other machines are sent in transactions; without it they are sent as they were before.
        """
        job: dict[str, Any] = await self._call(
            "start_job", kind, list(queues), dict(criteria or {}), lookups=list(lookups), target=target,
            transactional=transactional, dry_run=dry_run,
        )  # fmt: skip
        return job

    async def jobs(self) -> list[dict[str, Any]]:
        """The jobs of the node, the latest first."""
        found: list[dict[str, Any]] = await self._call("list_jobs")
        return found

    async def job(self, number: int) -> dict[str, Any]:
        """One job, with its progress."""
        found: dict[str, Any] = await self._call("show_job", number)
        return found

    async def job_log(self, number: int) -> AsyncIterator[dict[str, Any]]:
        """The outcome for each message of a job, in the order in which it worked."""
        after: int | None = 0
        while after is not None:
            page = await self._call("job_log", number, after)
            for entry in page["entries"]:
                yield entry
            after = page["next"]

    async def control_job(self, number: int, action: str) -> dict[str, Any]:
        """``pause``, ``resume`` or ``cancel`` a job; ``undo`` begins another job, which takes it back."""
        job: dict[str, Any] = await self._call("control_job", number, action)
        return job

    async def apply_document(
        self,
        document: Mapping[str, Any],
        *,
        prune: bool = False,
        with_messages: bool = False,
        dry_run: bool = False,
        declares: bool = True,
    ) -> dict[str, Any]:
        """Make the document of a machine true (``docs/machine-documents.md``): ``steps`` say what that changed.

        ``prune`` deletes queues that a document made and this one lacks; those with messages only ``with_messages``.
        Without ``declares``, queues that it creates do not count as made by a document. With ``dry_run`` nothing
        changes. For administrators.
        """
        options = {"prune": prune, "with_messages": with_messages, "dry_run": dry_run, "declares": declares}
        answer: dict[str, Any] = await self._call("apply_document", dict(document), **options)
        return answer

    async def show_document(self, *, everything: bool = False) -> dict[str, Any]:
        """The document of the queues that documents made, or of all private queues. For administrators."""
        answer: dict[str, Any] = await self._call("show_document", everything=everything)
        return answer
