"""Where messages go: the enterprise as routing sees it, next hops of names, routes to owners, addresses of machines."""

import asyncio
import contextlib
import ipaddress
import socket
import time
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, Final, NamedTuple

import structlog

from qmnode.directory.port import (
    Directory,
    DirectoryOperationError,
    DirectoryOperationResult,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    equals,
    search,
)
from qmnode.model.waiting_reasons import Cause, WaitReason
from qmnode.protocol.connection import NextHop
from qmnode.routing.router import NoRouteError, Router, RoutingTable, Rule, follow
from qmnode.routing.snapshot import Machine, TopologySnapshot
from qmnode.routing.snapshot import RoutingLink as Link
from qmnode.routing.snapshot import Site as SnapshotSite
from qmnode.structures.enumerations import ConnectionStatus
from qmnode.structures.error_codes import hresult_of_error
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text
from qmnode.structures.names import (
    DirectFormatName,
    DirectProtocol,
    PathName,
    PrivateFormatName,
    PublicFormatName,
    parse_single_format_name,
)

# ----------------------------------------------------------------------------------------------------------------------
# Resolves the name of an outgoing queue to the addresses of its next hops (MS-MQQB 3.1.5.2.1, 3.1.7.4, 3.1.7.5).

RESOLUTION_TIMEOUT: Final = 20.0
_EVERYBODY: Final = ipaddress.IPv4Address("255.255.255.255")


class ResolutionError(Exception):
    """There is no next hop now. Holds the status for the connection history, and the cause."""

    def __init__(
        self,
        status: ConnectionStatus,
        sentence: str,
        error: int = 0,
        *,
        reason: WaitReason = WaitReason.NO_NAME,
        machine: str = "",
        step: str = "",
    ) -> None:
        super().__init__(sentence)
        self.cause = Cause(reason, sentence, machine, step)
        self.status = status
        self.error = error
        """HRESULT; 0 if the status says enough."""


class ConnectorHere(Exception):
    """The path ends here: an application takes the messages to the foreign ``site`` from its connector queue."""

    def __init__(self, site: Guid) -> None:
        super().__init__("into the connector queue")
        self.site = site


async def addresses_of(host: str, identifier: Guid = ZERO_GUID) -> list[NextHop]:
    """The addresses of a computer, as the system resolves its name."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLUTION_TIMEOUT):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        sentence = f"no answer about {host}"
        raise ResolutionError(ConnectionStatus.DNS_FAILURE, sentence, hresult_of_error(error), machine=host) from None
    except OSError as error:
        raise ResolutionError(
            ConnectionStatus.DNS_FAILURE, f"{host}: {error}", hresult_of_error(error), machine=host
        ) from error
    addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
    for address in addresses:
        check_address(address)
    return [NextHop(address, host, identifier) for address in addresses]


def check_address(address: str) -> None:
    """Raise ResolutionError for an address that no single machine has: it would reach this node itself, or every
    machine.

    A peer that asks for an acknowledgment chooses the address to which it goes.
    """
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return
    known = getattr(known, "ipv4_mapped", None) or known
    if known.is_unspecified or known.is_multicast or known == _EVERYBODY:
        raise ResolutionError(ConnectionStatus.DNS_FAILURE, f"{address} is the address of no machine")


class Resolver:
    """Resolves direct format names. Others need a directory (:class:`qmnode.delivery.topology.DirectoryResolver`)."""

    async def next_hops(self, format_name: str) -> list[NextHop]:
        """The next hops, best first. Raises ResolutionError if there are none."""
        name = parse_single_format_name(format_name)
        if isinstance(name, DirectFormatName):
            if name.protocol is DirectProtocol.TCP:
                check_address(name.path.computer)
                return [NextHop(name.path.computer)]
            return await addresses_of(name.path.computer)
        raise ResolutionError(
            ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE,
            f"{format_name}: this node has no directory; use a direct format name",
            reason=WaitReason.NO_ROUTE,
            step="use a direct format name, or set directory.name in node.yaml",
        )


# ----------------------------------------------------------------------------------------------------------------------
# The enterprise as routing sees it: read from the directory, turned into a router, and read again.

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


# ----------------------------------------------------------------------------------------------------------------------
# Next hops of private and public format names: the directory gives the owner, routing the path (3.1.7.4).


class DirectoryResolver(Resolver):
    """Resolves all names through the directory and the topology."""

    def __init__(self, directory: Directory, topology: Topology) -> None:
        self._directory = directory
        self._topology = topology

    async def next_hops(self, format_name: str) -> list[NextHop]:
        """The next hops, best first. Raises ResolutionError if there are none, ConnectorHere if the path ends here."""
        name = parse_single_format_name(format_name)
        if not isinstance(name, PrivateFormatName | PublicFormatName):
            return await super().next_hops(format_name)
        try:
            destination = await self.owner(name)
        except DirectoryOperationError as error:
            raise ResolutionError(ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE, error.sentence) from error
        return await self.hops_to(destination)

    async def hops_to(self, destination: Guid) -> list[NextHop]:
        """The next hops to a queue manager. Raises what ``next_hops`` raises."""
        try:
            router = self._topology.router()
            if router is None:
                return await self.addresses(destination)
            found = router.next_hops(destination)
            if found.rule is Rule.CONNECTOR:
                assert found.site is not None
                raise ConnectorHere(found.site)
            if found.dearer:
                await self._topology.check_journey(destination)
            return await self._first_that_resolve([*found.hops, *found.fall_back])
        except DirectoryOperationError as error:
            away = error.result is not DirectoryOperationResult.OBJECT_NOT_FOUND
            raise _unavailable(error.sentence, WaitReason.DIRECTORY if away else WaitReason.NO_ROUTE) from error
        except NoRouteError as error:
            self._topology.read_soon()  # it may be new
            raise _unavailable(str(error), WaitReason.NO_ROUTE) from error

    async def owner(self, name: PrivateFormatName | PublicFormatName) -> Guid:
        """The queue manager that owns a queue. Raises DirectoryOperationError if the directory does not know it."""
        if isinstance(name, PrivateFormatName):
            return name.computer
        queue = await self._directory.read_directory(Queue, [equals("identifier", name.queue)], ["pathname"])
        computer = PathName.parse(queue.pathname).computer
        found = await self._directory.read_directory(
            QueueManager, [equals("computer_name", computer)], ["identifier", "computer_name"]
        )
        assert found.identifier is not None
        return found.identifier

    async def _first_that_resolve(self, hops: list[Guid]) -> list[NextHop]:
        """The addresses of all hops that resolve: a hop whose name does not resolve does not block the others."""
        found: list[NextHop] = []
        failure: ResolutionError | None = None
        for hop in hops:
            try:
                found += await self.addresses(hop)
            except ResolutionError as error:
                failure = error
            except DirectoryOperationError as error:
                if error.result is not DirectoryOperationResult.OBJECT_NOT_FOUND:
                    raise
                name = self._topology.name_of(hop) or guid_to_text(hop)
                failure = _unavailable(f"the next hop {name} is not in the directory", WaitReason.NO_ROUTE)
        if not found and failure is not None:
            raise failure
        return found

    async def addresses(self, hop: Guid) -> list[NextHop]:
        """The addresses of a queue manager. DirectoryOperationError: it is unknown; ResolutionError: its name is."""
        found = await self._directory.read_directory(
            QueueManager, [equals("identifier", hop)], ["computer_name", "qualified_computer_name"]
        )
        return await addresses_of(found.qualified_computer_name or found.computer_name, hop)


def _unavailable(sentence: str, reason: WaitReason) -> ResolutionError:
    return ResolutionError(ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE, sentence, reason=reason)


# ----------------------------------------------------------------------------------------------------------------------
# Addresses of the directory's machines, as their names resolve: cached, and looked up once for all callers.


_FRESH: Final = 300.0
"""Seconds for which found addresses are cached."""
_FRESH_FAILURE: Final = 15.0
"""Seconds for which a failure to find addresses is cached."""
_ASK_AGAIN: Final = 10.0
"""The least time in seconds between two look-ups for one machine, so that a stranger's sessions cannot cause more."""
_PATIENCE: Final = 5.0
"""Seconds that one look-up may take."""

_NOT_FOUND: Final = DirectoryOperationResult.OBJECT_NOT_FOUND


class _Found(NamedTuple):
    addresses: frozenset[str]
    asked: float
    until: float
    """The time at which the addresses become stale."""
    unanswered: bool = False
    """Whether there was no answer in time, or the directory could not be asked, and there was no answer before."""


_NEVER: Final = _Found(frozenset(), float("-inf"), float("-inf"))


class MachineAddresses:
    """The addresses of queue managers. There is one entry at most for each machine of the directory."""

    def __init__(self, resolver: DirectoryResolver, topology: Topology) -> None:
        self._resolver = resolver
        self._topology = topology
        self._loop = asyncio.get_running_loop()
        self._found: dict[Guid, _Found] = {}
        self._asking: dict[Guid, asyncio.Task[None]] = {}

    def last(self, machine: Guid) -> frozenset[str]:
        """The addresses found last; empty if there were none."""
        return self._found.get(machine, _NEVER).addresses

    def was_asked(self, machine: Guid) -> bool:
        """Whether the addresses of a machine were looked up, with any result."""
        return machine in self._found

    def is_unanswered(self, machine: Guid) -> bool:
        """Whether a machine of the directory was not looked up, or no look-up got an answer in time, or at all."""
        found = self._found.get(machine)
        return self._topology.knows(machine) if found is None else found.unanswered

    def is_fresh(self, machine: Guid, expected: str = "") -> bool:
        """Whether no look-up is needed now. Addresses without the expected one are looked up again, not too often."""
        known, now = self._found.get(machine, _NEVER), self._loop.time()
        if expected and expected not in known.addresses:
            return now < known.asked + _ASK_AGAIN
        return now < known.until

    def fresh(self) -> Iterator[str]:
        """All addresses that need no look-up now."""
        now = self._loop.time()
        for known in self._found.values():
            if now < known.until:
                yield from known.addresses

    def look_up(self, machine: Guid) -> "asyncio.Task[None]":
        """Look up the addresses of a machine. Concurrent callers share one look-up."""
        task = self._asking.get(machine)
        if task is None:
            task = self._asking[machine] = self._loop.create_task(self._look_up(machine))
            task.add_done_callback(lambda _: self._asking.pop(machine, None))
        return task

    async def of(self, machine: Guid, expected: str = "") -> frozenset[str]:
        """The addresses of a queue manager, or the previous ones if they cannot be found now."""
        if not self._topology.knows(machine):
            return frozenset()
        if not self.is_fresh(machine, expected):
            await asyncio.wait([self.look_up(machine)])
        return self.last(machine)

    async def stop(self) -> None:
        """Cancel the look-ups that are still running."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_up(self, machine: Guid) -> None:
        asked = self._loop.time()
        addresses, lifetime, unanswered = self.last(machine), _FRESH_FAILURE, False
        try:
            async with asyncio.timeout(_PATIENCE):
                addresses = frozenset(hop.address for hop in await self._resolver.addresses(machine))
            lifetime = _FRESH
        except (DirectoryOperationError, ResolutionError, TimeoutError) as error:
            if not addresses:
                was_asked = isinstance(error, ResolutionError) or getattr(error, "result", None) is _NOT_FOUND
                unanswered = not was_asked
                log.info(
                    "the addresses of a peer are not known: it counts as a stranger",
                    machine=machine.hex(), reason=str(error) or "no answer in time",
                )  # fmt: skip
        self._found[machine] = _Found(addresses, asked, self._loop.time() + lifetime, unanswered)
