"""The enterprise as the console shows it: read from the directory, its nodes asked over TLS."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from mqenterprise.console.moving import Carried, Moving
from mqenterprise.directory.errors import DirectoryError, ObjectNotFound
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.operations.errors import NodeError, OperationsError
from mqenterprise.operations.machine_documents import AtNode
from mqenterprise.operations.node_client import NodeClient
from mqenterprise.operations.settings import split_address
from mqenterprise.routes.documents import explained, simulated
from mqenterprise.routes.enterprise import NamedTopology, UnknownName
from mqenterprise.routes.explanation import explain, next_link
from mqenterprise.routes.simulation import TooMuch, simulate
from mqenterprise.topology.apply import plan_declared
from mqenterprise.topology.check import load
from mqenterprise.topology.declaration import machine_document
from mqenterprise.topology.ldap_target import LdapTarget
from mqenterprise.topology.names import fold
from mqenterprise.topology.plan import TargetUnavailable, to_json
from mqenterprise.topology.problems import DeclarationError
from qmnode.console.port import Answer, Credential, Machine, Outline, RefusedError, UnavailableError
from qmnode.delivery.topology import snapshot_of
from qmnode.directory.port import DirectoryOperationError
from qmnode.management.carry_routes import CarryList
from qmnode.structures.guid import guid_to_text
from qmnode.structures.names import PrivateFormatName, PublicFormatName, QueueNameError, parse_format_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from starlette.requests import Request

    from mqenterprise.directory.settings import DirectorySettings
    from mqenterprise.operations.settings import OperationsSettings
    from qmnode.console.sign_in import ConsoleSession
    from qmnode.console.view import Seen
    from qmnode.management.machine_document_routes import DocumentChanges
    from qmnode.routing import RoutingTable
    from qmnode.structures.guid import Guid

MOST_QUEUES = 10_000
"""Public queues whose path names are known; messages to further ones are counted at no link."""


class Crossings:
    """Answers for one reading of the directory."""

    def __init__(self, topology: NamedTopology, pathnames: Mapping[Guid, str | None] | None = None) -> None:
        """``pathnames`` are those of public queues that were looked up; None for a queue that does not exist."""
        self.pathnames = dict(pathnames or {})
        self.unknown: set[Guid] = set()
        """Public queues that were asked about, and whose computer is not known yet."""
        self._topology = topology
        self._tables: dict[Guid, RoutingTable] = {}
        self._found: dict[tuple[str, str], tuple[str, str] | None] = {}

    @property
    def is_incomplete(self) -> bool:
        """Whether the directory has to be read for a queue that was asked about."""
        return bool(self.unknown) and len(self.pathnames) < MOST_QUEUES

    def link(self, machine: str, format_name: str) -> tuple[str, str] | None:
        """The ends of the link that a message in this outgoing queue of a machine crosses next.

        None if the next hop is in the same site, if the name needs no route (``DIRECT=``), or if it is not known.
        """
        asked = machine, format_name
        if asked not in self._found:
            destination = self._destination(format_name)
            if destination is None:
                return None
            self._found[asked] = self._crossed(machine, destination)
        return self._found[asked]

    def destination(self, format_name: str) -> str:
        """The path name of a public queue, or the machine of a private one; empty if neither is known."""
        try:
            name = parse_format_name(format_name)
        except QueueNameError:
            return ""
        if isinstance(name, PrivateFormatName) and name.computer in self._topology.snapshot.machines:
            return f"{self._topology.machine_name(name.computer)} (private queue {name.queue})"
        if isinstance(name, PublicFormatName):
            if name.queue not in self.pathnames:
                self.unknown.add(name.queue)
            return self.pathnames.get(name.queue) or ""
        return ""

    def _destination(self, format_name: str) -> Guid | None:
        try:
            name = parse_format_name(format_name)
        except QueueNameError:
            return None
        if isinstance(name, PrivateFormatName):
            return name.computer
        if not isinstance(name, PublicFormatName):
            return None
        if name.queue not in self.pathnames:
            self.unknown.add(name.queue)
            return None
        pathname = self.pathnames[name.queue]
        try:
            return None if pathname is None else self._topology.machine(pathname.partition("\\")[0])
        except UnknownName:
            return None

    def _crossed(self, machine: str, destination: Guid) -> tuple[str, str] | None:
        try:
            source = self._topology.machine(machine)
        except UnknownName:
            return None
        if destination not in self._topology.snapshot.machines:
            return None
        link = next_link(self._topology, source, destination, self._tables)
        return None if link is None else self._topology.ends(link)


def look_up(directory: EnterpriseDirectory, before: Crossings) -> dict[Guid, str | None]:
    """The path names of public queues: those known before, and those asked about since. Raises ``DirectoryError``."""
    pathnames = dict(before.pathnames)
    for queue in list(before.unknown)[: MOST_QUEUES - len(pathnames)]:
        try:
            pathnames[queue] = directory.queues.get(queue).pathname
        except ObjectNotFound:
            pathnames[queue] = None
    return pathnames


FRESH: Final = 2.0
"""Seconds for which an answer of the directory is taken for true, if it can be read fast."""
LONGEST_FRESH: Final = 10.0
"""The same for a directory that takes long to read."""
_REST: Final = 5.0
"""The directory is read for at most one part in so many of the time."""
_SHORT: Final = 0.2
"""Seconds of a reading that is not said to take long."""
_PATIENCE: Final = 3.0
"""Seconds that the first request waits for the directory."""
_LATE: Final = 1.0
"""Seconds that each later request waits for a reading that has begun, unless the one before took about as long."""
_LARGEST_ANSWER: Final = 32 << 20
"""Bytes of an answer of a node."""


class RemoteNode:
    """The management API of a node, as the person with a token may use it."""

    def __init__(self, client: NodeClient) -> None:
        self._client = client

    async def ask(self, method: str, path: str, query: str = "", content: bytes = b"") -> Answer:
        """Send a request. Raises :class:`UnavailableError`."""
        try:
            return Answer(*await self._client.exchange(method, path, query, content, largest=_LARGEST_ANSWER))
        except NodeError as error:
            raise UnavailableError(error.sentence) from None

    async def stream(self, path: str, query: str) -> AsyncIterator[bytes]:
        """The content of an answer as it comes. Raises :class:`UnavailableError`, also when it is cut off."""
        try:
            async with aclosing(self._client.stream(path, query)) as parts:
                async for part in parts:
                    yield part
        except NodeError as error:
            if error.unavailable:
                raise UnavailableError(error.sentence) from None
            raise RefusedError(error.sentence, 404 if error.lacks_queue else 400) from None

    async def compare(self, document: Mapping[str, Any]) -> DocumentChanges:
        """Ask what this document of its machine would change. Raises :class:`NodeError`."""
        return await self._client.apply_document(document, prune=False, with_messages=False, dry_run=True)

    async def close(self) -> None:
        """Close the connections to the node."""
        await self._client.__aexit__()


@dataclass(frozen=True, slots=True)
class _Read:
    """The result of one reading of the directory."""

    outline: Outline
    topology: NamedTopology
    hosts: Mapping[str, str]
    crossings: Crossings


class DirectoryEnterprise:
    """The enterprise of a directory."""

    def __init__(
        self,
        operations: OperationsSettings,
        directory: Callable[[], DirectorySettings],
        declared: Path | None = None,
        moving: Moving | None = None,
    ) -> None:
        self.name = ""
        more = {"plan": declared, "moving": moving}
        self.features = ("map", "routes", "audit", *(name for name, part in more.items() if part is not None))
        self._moving = moving
        self._operations = operations
        self._trust = operations.trust()
        self._directory = directory
        self._declared = declared
        self._read = _Read(Outline((), reason="the directory has not answered yet"), _NOTHING, {}, Crossings(_NOTHING))
        self._asked = -math.inf
        self._took = 0.0
        """Seconds that the last reading took."""
        self._reading: asyncio.Task[None] | None = None
        self._planning: asyncio.Task[dict[str, Any]] | None = None

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The parts of the API that need the directory."""
        routes = [Route("/routes/explain", self._explain), Route("/routes/simulate", self._simulate)]
        if self._declared is not None:
            routes += [Route("/plan", self._plan), Route("/plan/nodes", self._plan_at_nodes)]
        if self._moving is not None:
            routes.append(Route("/moving", self._moved))
        return routes

    async def outline(self) -> Outline:
        """The outline of the last reading; a new one is begun when that is old."""
        if self._reading is None or self._reading.done():
            rest = 0.0 if self._read.crossings.is_incomplete or self._read.outline.reason else _REST * self._took
            if time.monotonic() - self._asked >= min(max(FRESH, rest), LONGEST_FRESH):
                self._asked = time.monotonic()
                self._reading = asyncio.create_task(self._read_again())
        if self._reading is not None and not self._reading.done() and not self._is_late:
            await asyncio.wait([self._reading], timeout=self._asked + self._patience - time.monotonic())
        outline = self._read.outline
        if outline.reason or not self._is_late:
            return outline
        return replace(outline, reason=f"it has not answered for {round(time.monotonic() - self._asked)} s")

    @property
    def _patience(self) -> float:
        """Seconds from which a reading is late."""
        return _PATIENCE if self._read.outline.as_of is None else min(max(_LATE, 2 * self._took), _PATIENCE)

    @property
    def _is_late(self) -> bool:
        """Whether a reading is awaited in vain."""
        if self._reading is None or self._reading.done():
            return False
        return time.monotonic() - self._asked >= self._patience

    def crossing(self, machine: str, format_name: str) -> tuple[str, str] | None:
        """The ends of a link. The computers of public queues that are not known yet are known soon."""
        return self._read.crossings.link(machine, format_name)

    def destination(self, format_name: str) -> str:
        """The path name of a public queue, or the machine of a private one; empty if neither is known."""
        return self._read.crossings.destination(format_name)

    def node(self, machine: str, credential: Credential) -> RemoteNode:
        """A node, for the person whom this proves."""
        settings = self._operations
        address = settings.of(machine).address or self._read.hosts.get(machine) or machine
        host, port = split_address(address, settings.port)
        client = NodeClient(
            machine,
            f"https://{host}:{port}",
            lambda: credential(machine),
            self._trust,
            connect_timeout=min(settings.connect_timeout, _PATIENCE),
            timeout=settings.timeout,
        )
        return RemoteNode(client)

    async def close(self) -> None:
        """Stop reading the directory."""
        for task in (self._reading, self._planning):
            if task is not None:
                task.cancel()

    async def _read_again(self) -> None:
        try:
            self._read = await asyncio.to_thread(self._read_directory)
            # One that was held up says little about the next one.
            self._took = min(time.monotonic() - self._asked, 2 * max(self._took, _SHORT))
        except (DirectoryOperationError, DirectoryError) as error:
            self._read = replace(self._read, outline=replace(self._read.outline, reason=error.sentence))

    def _read_directory(self) -> _Read:
        with EnterpriseDirectory(self._directory()) as directory:
            managers = list(directory.queue_managers.list())
            snapshot = snapshot_of(directory.sites.list(), managers, directory.routing_links.list())
            pathnames = look_up(directory, self._read.crossings)
        topology = NamedTopology(snapshot)
        gates = {gate for link in snapshot.links for gate in link.site_gates}
        machines = [
            Machine(
                machine.name,
                topology.site_name(machine.sites[0]) if machine.sites else "",
                machine.identifier in gates,
                machine.routing_server,
                guid_to_text(machine.identifier),
            )
            for machine in snapshot.machines.values()
            if not machine.foreign
        ]
        outline = Outline(
            machines,
            [{"name": site.name, "foreign": site.foreign} for site in snapshot.sites.values()],
            [
                {
                    "first": topology.ends(link)[0],
                    "second": topology.ends(link)[1],
                    "cost": link.cost,
                    "gates": [topology.machine_name(gate) for gate in link.site_gates],
                }
                for link in snapshot.links
            ],
            time.time(),
        )
        hosts = {one.computer_name: one.qualified_computer_name or one.computer_name for one in managers}
        return _Read(outline, topology, hosts, Crossings(topology, pathnames))

    async def _topology(self) -> NamedTopology:
        await self.outline()
        return self._read.topology

    async def _explain(self, request: Request, _: ConsoleSession) -> Response:
        topology = await self._topology()
        try:
            source = topology.machine(request.query_params.get("from", ""))
            destination = topology.machine(request.query_params.get("to", ""))
        except UnknownName as error:
            raise HTTPException(404, str(error)) from None
        return JSONResponse(explained(topology, explain(topology, source, destination)))

    async def _simulate(self, request: Request, _: ConsoleSession) -> Response:
        topology, asked = await self._topology(), request.query_params
        try:
            links = [link for text in asked.getlist("link") for link in topology.links(text)]
            machines = [topology.machine(name) for name in asked.getlist("down")]
            found = await asyncio.to_thread(simulate, topology, links=links, machines=machines, only_from=None)
        except UnknownName as error:
            raise HTTPException(404, str(error)) from None
        except TooMuch as error:
            raise HTTPException(422, str(error)) from None
        return JSONResponse(simulated(topology, found))

    async def _plan(self, _: Request, __: ConsoleSession) -> Response:
        assert self._declared is not None
        if self._planning is None or self._planning.done():
            self._planning = asyncio.create_task(asyncio.to_thread(self._made_plan, self._declared))
            self._planning.add_done_callback(lambda plan: plan.cancelled() or plan.exception())  # nobody may wait
        planning = self._planning
        try:
            while not (await asyncio.wait([planning], timeout=_LATE))[0]:
                if reason := (await self.outline()).reason:
                    raise HTTPException(503, f"the directory cannot be read: {reason}")
            return JSONResponse(planning.result())
        except DeclarationError as error:
            sentence = "; ".join(str(problem) for problem in error.problems)
            raise HTTPException(422, f"the declaration has mistakes: {sentence}"[:2000]) from None
        except (DirectoryOperationError, DirectoryError, TargetUnavailable, OSError) as error:
            raise HTTPException(503, f"the directory cannot be read: {error}") from None

    async def _plan_at_nodes(self, _: Request, session: ConsoleSession) -> Response:
        """Compare the documents of machines with their nodes, which enter it into their audit logs."""
        assert self._declared is not None
        if "administer" not in session.roles:
            raise HTTPException(403, "nodes show their documents to the role administer alone")
        try:
            declaration = (await asyncio.to_thread(load, self._declared)).declaration
        except DeclarationError as error:
            raise HTTPException(422, f"the declaration has mistakes: {error}"[:2000]) from None
        declared = {fold(machine.name) for machine in declaration.machines}
        room = asyncio.Semaphore(self._operations.concurrency)

        async def compared(machine: str, node: RemoteNode) -> dict[str, Any]:
            document = machine_document(declaration, machine)
            try:
                async with room, asyncio.timeout(_PATIENCE):
                    changes = await node.compare(document)
            except TimeoutError:
                return AtNode(machine, 0, None, NodeError(f"it has not answered for {_PATIENCE:g} s")).document()
            except NodeError as error:
                return AtNode(machine, 0, None, error).document()
            return AtNode(machine, 0, changes).document()

        nodes = [(one.machine.name, one.node) for one in await session.view.nodes()]
        known = [(name, node) for name, node in nodes if fold(name) in declared and isinstance(node, RemoteNode)]
        return JSONResponse({"machines": await asyncio.gather(*(compared(name, node) for name, node in known))})

    async def _moved(self, _: Request, session: ConsoleSession) -> Response:
        """Show the progress of the move to nodes. Nodes list carries for administrators alone."""
        assert self._moving is not None
        nodes = await session.view.refresh()
        carried: list[Carried] | None = None
        if "administer" in session.roles:
            answering = [seen for seen in nodes if not seen.fault and seen.as_of is not None]
            carried = [one for found in await asyncio.gather(*map(_carries, answering)) for one in found]
        answers = {seen.machine.name: seen.as_of is not None or seen.refuses for seen in nodes}
        sites = {fold(seen.machine.name): seen.machine.site for seen in nodes}
        try:
            document = await asyncio.to_thread(self._moving.document, answers, carried)
        except OperationsError as error:
            raise HTTPException(503, error.sentence) from None
        except (KeyError, TypeError, AttributeError) as error:
            raise HTTPException(503, f"the report of --survey is not understood: {error!r:.100}") from None
        for machine in document["machines"]:
            machine["site"] = sites.get(fold(machine["name"]), machine["site"])
        return JSONResponse(document)

    def _made_plan(self, declared: Path) -> dict[str, Any]:
        checked = load(declared, for_directory=True)
        with EnterpriseDirectory(self._directory()) as directory:
            return to_json(plan_declared(checked, LdapTarget(directory, access=checked.declaration.has_access_lists)))


async def _carries(seen: Seen) -> list[Carried]:
    """The carries into a node; none if it does not list them in time."""
    try:
        async with asyncio.timeout(_PATIENCE):
            answer = CarryList.model_validate_json((await seen.node.ask("GET", "/v1/carries")).content)
    except (TimeoutError, UnavailableError, ValueError):
        return []
    return [Carried(seen.machine.name, one.source, one.carried, one.held) for one in answer.carries]


_NOTHING: Final = NamedTopology(snapshot_of((), (), ()))


def check(settings: OperationsSettings) -> None:
    """Raise :class:`OperationsError` for what would only be found when the first person signs in."""
    if settings.token_file is not None or any(one.token_file for one in settings.machines.values()):
        raise OperationsError(
            "the console asks each node with the token of the person who signed in: leave token_file out of its --nodes"
        )
