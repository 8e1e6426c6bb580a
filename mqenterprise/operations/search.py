"""A search over nodes: their pages as they come, a bounded number at a time, with one cursor for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mqenterprise.operations.errors import NodeError, OperationsError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from mqenterprise.operations.node_client import NodeClient
    from qmnode.management.operation_routes import FailureGroup, FailureGroups, FoundDocument, FoundList


@dataclass(slots=True)
class Group:
    """A group over nodes."""

    key: tuple[str, ...]
    where: tuple[str, ...]
    """Criteria that find its messages at each of the machines."""
    machines: list[str] = field(default_factory=list)
    queues: set[str] = field(default_factory=set)
    count: int = 0
    last_hour: int = 0
    hour_before: int = 0
    first: datetime | None = None
    last: datetime | None = None

    def add(self, machine: str, group: FailureGroup) -> None:
        self.machines.append(machine)
        self.queues.update(group.queues)
        self.count += group.count
        self.last_hour += group.last_hour
        self.hour_before += group.hour_before
        self.first = min((one for one in (self.first, group.first) if one), default=None)
        self.last = max((one for one in (self.last, group.last) if one), default=None)

    def document(self, by: Sequence[str]) -> dict[str, Any]:
        """Return the JSON document of the group, whose key has these names."""
        return dict(zip(by, self.key, strict=True)) | {
            "machines": sorted(self.machines),
            "queues": sorted(self.queues),
            "count": self.count,
            "first": None if self.first is None else self.first.isoformat(),
            "last": None if self.last is None else self.last.isoformat(),
            "last_hour": self.last_hour,
            "hour_before": self.hour_before,
            "where": list(self.where),
        }


def merged(answers: Iterable[tuple[str, FailureGroups]], by: Sequence[str]) -> list[Group]:
    """The groups of all machines, the largest first."""
    found: dict[tuple[str, ...], Group] = {}
    for machine, answer in answers:
        for group in answer.groups:
            key = tuple(str(getattr(group, name)) for name in by)
            found.setdefault(key, Group(key, tuple(group.where))).add(machine, group)
    return sorted(found.values(), key=lambda group: (-group.count, group.key))


_PAGE: Final = 100
_PAGES: Final = 8
"""Pages that are held in memory at a time, of all nodes together; each has at most 4 MiB of messages."""


@dataclass(slots=True)
class Progress:
    """The progress at one node."""

    cursor: str = ""
    scanned: int = 0
    total: int = 0
    refused: list[str] = field(default_factory=list)
    """Queues that the person who asks may not read."""
    done: bool = False
    error: NodeError | None = None


class Search:
    """One search. ``nodes`` has the progress of each machine, and :attr:`cursor` goes on with what is left."""

    def __init__(
        self, clients: Sequence[NodeClient], queues: Sequence[str], where: Sequence[str], *, body: str, concurrency: int
    ) -> None:
        self._clients = list(clients)
        self._queues = list(queues)
        self._where = list(where)
        self._body = body
        self._concurrency = concurrency
        self.nodes = {client.machine: Progress() for client in clients}

    def go_on(self, cursor: str) -> None:
        """Go on where another search stopped: its finished nodes are not asked. Raises :class:`OperationsError`."""
        places: dict[str, str] = {}
        for part in cursor.split(","):
            machine, separator, place = part.partition(":")
            if not separator or machine not in self.nodes:
                raise OperationsError(
                    f"{part!r:.80} is no part of a cursor for these machines: use that of the search before, with the "
                    "same machines"
                )
            places[machine] = place
        self._clients = [client for client in self._clients if client.machine in places]
        self.nodes = {machine: Progress(place) for machine, place in places.items()}

    @property
    def cursor(self) -> str:
        """The cursor of the rest, which has the unavailable nodes too; empty when nothing is left."""
        return ",".join(f"{machine}:{one.cursor}" for machine, one in self.nodes.items() if not one.done)

    async def found(self, count: int) -> AsyncGenerator[tuple[str, FoundDocument], None]:
        """At most ``count`` messages with their machines, as the nodes find them; each node's in its order."""
        pages: asyncio.Queue[tuple[str, FoundList | NodeError]] = asyncio.Queue()
        size = min(count, _PAGE)
        room, turns = asyncio.Semaphore(_PAGES), asyncio.Semaphore(self._concurrency)

        async def ask(client: NodeClient) -> None:
            cursor: str | None = self.nodes[client.machine].cursor
            async with turns:
                try:
                    while cursor is not None:
                        page = await client.find(
                            self._queues,
                            self._where,
                            cursor=cursor,
                            limit=size,
                            body=self._body,
                            room=room,
                        )
                        cursor = page.next
                        pages.put_nowait((client.machine, page))
                except NodeError as error:
                    pages.put_nowait((client.machine, error))

        tasks = [asyncio.create_task(ask(client)) for client in self._clients]
        try:
            open_nodes = len(tasks)
            while open_nodes:
                machine, page = await pages.get()
                node = self.nodes[machine]
                if isinstance(page, NodeError):
                    node.error = page
                    open_nodes -= 1
                    continue
                node.scanned, node.total, node.refused = node.scanned + page.scanned, page.total, page.refused
                for one in page.found:
                    node.cursor = one.cursor
                    count -= 1
                    yield machine, one
                    if not count:
                        return
                room.release()
                if page.next is None:
                    node.done = True
                    open_nodes -= 1
                else:
                    node.cursor = page.next
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
