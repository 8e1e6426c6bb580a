"""The enterprise as routing sees it: read from the directory, turned into a router, and read again."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Container, Iterable
from typing import Any, Final

import structlog

from qmnode.delivery.next_hops import ResolutionError
from qmnode.directory.port import Directory, DirectoryOperationError, QueueManager, RoutingLink, Site, search
from qmnode.model.waiting import WaitReason
from qmnode.routing.paths import follow
from qmnode.routing.router import NoRouteError, Router, Rule
from qmnode.routing.snapshot import Machine, TopologySnapshot
from qmnode.routing.snapshot import RoutingLink as Link
from qmnode.routing.snapshot import Site as SnapshotSite
from qmnode.routing.table import RoutingTable
from qmnode.structures.guid import Guid
from qmnode.structures.queue_attributes import ConnectionStatus

log = structlog.get_logger(__name__)

_PAUSE: Final = 1.0
"""The least time in seconds between two readings, however often callers request one."""
_SHARE: Final = 10
"""The least pause after a reading, in multiples of its duration: a large directory is not read all the time."""


class Topology:
    """The directory's sites, links and queue managers, for the queue manager ``own``.

    The last reading serves for as long as the directory is down. Reading is asynchronous, and slow work (the index, the
    routing table) is done in a thread.
    """

    def __init__(self, directory: Directory, own: Guid, interval: float, changed: Callable[[], object]) -> None:
        """Read every ``interval`` seconds and after ``read_soon``; call ``changed`` if the reading differs."""
        self._directory = directory
        self._own = own
        self._interval = interval
        self._changed = changed
        self._snapshot: TopologySnapshot | None = None
        self._router: Router | None = None
        self._tables: dict[Guid, RoutingTable] = {}
        """Routing tables of the sites that journeys pass, for the current snapshot."""
        self._problem = ""
        self.unread_since = 0.0
        """When the directory stopped answering, in seconds since 1970 (UTC); 0 while it answers."""
        self.unread_because = ""
        self._wanted = asyncio.Event()
        self._reading = asyncio.Lock()
        self._reads = 0
        self._rests_until = 0.0
        """The time until which other queue managers cannot cause another reading."""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read, and follow the directory from then on. A directory that is down does not prevent the start."""
        await self._read_tolerantly()
        self._directory.watch(lambda _: self.read_soon())
        self._task = asyncio.create_task(self._keep_up(), name="topology")

    async def stop(self) -> None:
        """Stop following the directory."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def read_soon(self) -> None:
        """Read again soon, because the directory may have changed."""
        self._wanted.set()

    def router(self) -> Router | None:
        """The router; None in an enterprise without sites, where all queue managers are neighbours.

        Raises ResolutionError if the directory has not answered yet, or does not have this queue manager.
        """
        if self._snapshot is None:
            self.read_soon()
            raise ResolutionError(
                ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE, "the directory has not answered yet",
                reason=WaitReason.DIRECTORY,
            )  # fmt: skip
        if self._router is None and self._snapshot.sites:
            raise ResolutionError(
                ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE, self._problem, reason=WaitReason.NO_ROUTE
            )
        return self._router

    def knows(self, machine: Guid) -> bool:
        """Whether the last reading shows a queue manager, or might have, as there was no reading yet."""
        return self._snapshot is None or machine in self._snapshot.machines

    def has(self, machine: Guid) -> bool:
        """Whether the last reading shows a queue manager."""
        return self._snapshot is not None and machine in self._snapshot.machines

    @property
    def has_been_read(self) -> bool:
        """Whether the directory has answered since the start."""
        return self._snapshot is not None

    @property
    def is_due(self) -> bool:
        """Whether the last reading is old enough that another queue manager may cause a new one."""
        return asyncio.get_running_loop().time() >= self._rests_until

    def is_ordinary(self, machine: Guid) -> bool:
        """Whether the last reading shows a queue manager that is neither this one nor a foreign system."""
        known = None if self._snapshot is None else self._snapshot.machines.get(machine)
        return known is not None and not known.foreign and machine != self._own

    def find_machines(self, names: Container[str], sites: Container[str]) -> dict[Guid, str]:
        """The machines with these computer names, or in these sites (all in lower case), with their names."""
        if self._snapshot is None:
            return {}
        wanted = {site.identifier for site in self._snapshot.sites.values() if site.name.lower() in sites}
        return {
            machine.identifier: machine.name
            for machine in self._snapshot.machines.values()
            if machine.name.lower() in names or not wanted.isdisjoint(machine.sites)
        }

    def name_of(self, machine: Guid) -> str:
        """The computer name of a queue manager; empty if the last reading does not show it."""
        known = None if self._snapshot is None else self._snapshot.machines.get(machine)
        return "" if known is None else known.name

    def sites_of(self, machines: Iterable[Guid]) -> set[str]:
        """The names, in lower case, of the sites that these machines are in."""
        if self._snapshot is None:
            return set()
        known = self._snapshot.sites
        shown = (self._snapshot.machines[one] for one in machines if one in self._snapshot.machines)
        return {known[site].name.lower() for machine in shown for site in machine.sites if site in known}

    def is_routing_server(self) -> bool:
        """Whether this queue manager is a routing server, as far as is known."""
        machine = None if self._snapshot is None else self._snapshot.machines.get(self._own)
        return machine is not None and machine.routing_server

    def declared(self) -> dict[str, Any]:
        """The properties of this queue manager that routing uses, by name; empty until the directory was read."""
        snapshot = self._snapshot
        own = None if snapshot is None else snapshot.machines.get(self._own)
        if snapshot is None or own is None:
            return {}
        machines, sites = snapshot.machines, snapshot.sites
        return {
            "sites": [sites[one].name for one in own.sites if one in sites],
            "routing_server": own.routing_server,
            "out_routing_servers": [machines[one].name for one in own.out_routing_servers if one in machines],
            "in_routing_servers": [machines[one].name for one in own.in_routing_servers if one in machines],
            "foreign": own.foreign,
            "dns_name": own.dns_name or None,
        }

    def may_pass_on(self, neighbour: Guid, source: Guid) -> bool:
        """Whether a queue manager may forward messages of ``source``: routing server, or a foreign one's connector."""
        machines = {} if self._snapshot is None else self._snapshot.machines
        machine, origin = machines.get(neighbour), machines.get(source)
        if machine is None or origin is None:
            return False
        return machine.routing_server or (origin.foreign and not set(origin.sites).isdisjoint(machine.sites))

    def is_connector(self, machine: Guid, foreign: Guid) -> bool:
        """Whether a queue manager takes the messages of a foreign system, as far as is known."""
        return self._snapshot is not None and self._snapshot.is_connector(machine, foreign)

    def connector_site(self, machine: Guid) -> Guid | None:
        """The foreign site for whose messages this queue manager is a connector, if ``machine`` is in one."""
        if self._router is None:
            return None
        try:
            found = self._router.next_hops(machine)
        except NoRouteError:
            return None  # the message waits for a route
        return found.site if found.rule is Rule.CONNECTOR else None

    async def check_journey(self, destination: Guid) -> None:
        """Follow a message for a queue manager to its end. Raises NoRouteError if it would loop back or get stuck."""
        snapshot = self._snapshot
        if snapshot is not None:
            await asyncio.to_thread(follow, snapshot, self._own, destination, tables=self._tables)

    async def read(self) -> None:
        """Read the directory once; concurrent callers share the reading. Raises DirectoryOperationError."""
        reads = self._reads
        async with self._reading:
            if self._reads == reads:
                loop = asyncio.get_running_loop()
                began = loop.time()
                try:
                    await self._read()
                finally:
                    now = loop.time()
                    self._rests_until = now + _rest(now - began)
                self._reads += 1

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._wanted.wait()
            self._wanted.clear()
            began = loop.time()
            await self._read_tolerantly()
            await asyncio.sleep(_rest(loop.time() - began))

    async def _read_tolerantly(self) -> None:
        try:
            await self.read()
            self.unread_since = 0.0
        except DirectoryOperationError as error:
            self.unread_since, self.unread_because = self.unread_since or time.time(), error.sentence
            log.warning("the topology is not read: the last known serves", reason=error.sentence)

    async def _read(self) -> None:
        directory = self._directory
        sites = [one async for one in search(directory, Site)]
        machines = [one async for one in search(directory, QueueManager)]
        links = [one async for one in search(directory, RoutingLink)]
        snapshot, router, problem = await asyncio.to_thread(_router_of, sites, machines, links, self._own)
        if snapshot == self._snapshot:
            return
        self._snapshot, self._router, self._problem = snapshot, router, problem
        self._tables = {}
        log.info(
            "topology", sites=len(snapshot.sites), links=len(snapshot.links), queue_managers=len(snapshot.machines)
        )
        self._changed()


def _rest(took: float) -> float:
    """Seconds to the next reading after one that took ``took`` seconds."""
    return max(_PAUSE, _SHARE * took)


def _router_of(
    sites: list[Site], machines: list[QueueManager], links: list[RoutingLink], own: Guid
) -> tuple[TopologySnapshot, Router | None, str]:
    """Build the index, and the router with the tables that it will need; or return why there is no router."""
    snapshot = snapshot_of(sites, machines, links)
    if not snapshot.sites:
        return snapshot, None, ""
    try:
        router = Router(snapshot, own)
    except NoRouteError as error:
        return snapshot, None, str(error)
    machine = snapshot.machines[own]
    if snapshot.is_site_gate(machine):
        for site in machine.sites:
            router.routing_table(site)
    return snapshot, router, ""


def snapshot_of(
    sites: Iterable[Site], machines: Iterable[QueueManager], links: Iterable[RoutingLink]
) -> TopologySnapshot:
    """The directory's contents as routing sees them. A link with an invalid cost is left out and logged."""
    usable = [link for one in links if (link := _link(one)) is not None]
    return TopologySnapshot.of(map(_machine, machines), map(_site, sites), usable)


def _identified(identifier: Guid | None) -> Guid:
    assert identifier is not None, "the directory gives every object an identifier"
    return identifier


def _site(one: Site) -> SnapshotSite:
    return SnapshotSite(_identified(one.identifier), one.name, one.foreign_site)


def _link(one: RoutingLink) -> Link | None:
    try:
        return Link(one.site1_identifier, one.site2_identifier, one.actual_cost, one.site_gate_identifier_list)
    except ValueError as error:
        log.warning("a routing link in the directory is not used", link=one.full_path, reason=str(error))
        return None


def _machine(one: QueueManager) -> Machine:
    return Machine(
        _identified(one.identifier),
        one.computer_name,
        one.site_identifier_list,
        one.routing_server,
        one.out_routing_server_identifier_list,
        one.in_routing_server_identifier_list,
        one.foreign_system,
        one.qualified_computer_name or "",
    )
