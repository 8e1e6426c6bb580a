"""What a node knows of the enterprise for routing: read again, kept while the directory is away, without a stall."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from mqenterprise.directory.cache import DirectoryCache
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.port import LdapPort, PortSettings
from qmnode.delivery.topology import ResolutionError, Topology
from qmnode.directory import port as directory_port
from qmnode.directory.file import FileDirectory
from qmnode.directory.port import (
    DirectoryObject,
    DirectoryOperationError,
    DirectoryOperationResult,
    QueueManager,
    RoutingLink,
    Site,
    WorkgroupDirectory,
)
from qmnode.routing.router import Rule
from qmnode.structures.guid import Guid, new_guid
from tests.forwarding.enterprise import Directory, Machine
from tests.lab.directory_objects import create
from tests.lab.servers import DirectoryServer
from tests.lab.waiting import eventually

LONG = 3600.0


class Lab:
    """A topology over a file, and how often it said that it changed."""

    def __init__(self, folder: Path, interval: float = LONG) -> None:
        machines = [Machine("OWN", ["south"]), Machine("ROUTER", ["south"], True), Machine("FAR", ["north"])]
        self.directory = Directory(
            folder / "directory.yaml", {one.name: one for one in machines}, [("south", "north", 1, ["ROUTER"])]
        )
        self.changes = 0
        self.topology = Topology(
            FileDirectory(self.directory.file), self.identifier("OWN"), interval, lambda: self.count()
        )

    def count(self) -> None:
        self.changes += 1

    def identifier(self, name: str) -> Guid:
        return self.directory.machines[name].identifier


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    await lab.topology.stop()


async def test_it_routes_by_what_the_directory_says(lab: Lab) -> None:
    lab.directory.write()
    await lab.topology.start()
    router = lab.topology.router()
    assert router is not None
    assert router.next_hops(lab.identifier("FAR")).hops == (lab.identifier("ROUTER"),)
    assert lab.topology.knows(lab.identifier("FAR"))
    assert not lab.topology.knows(new_guid())


async def test_a_change_is_told_and_reading_the_same_again_is_not(lab: Lab) -> None:
    lab.directory.write()
    await lab.topology.start()
    await lab.topology.read()
    assert lab.changes == 1
    machines = lab.directory.machines
    machines["OWN"] = replace(machines["OWN"], sites=["north"])
    lab.directory.write()
    lab.topology.read_soon()
    await eventually(lambda: lab.changes == 2)
    router = lab.topology.router()
    assert router is not None
    assert router.next_hops(lab.identifier("FAR")).rule is Rule.SAME_SITE


async def test_the_last_known_serves_while_the_directory_is_away(lab: Lab) -> None:
    lab.directory.write()
    await lab.topology.start()
    lab.directory.file.unlink()
    with pytest.raises(DirectoryOperationError):
        await lab.topology.read()
    assert lab.topology.router() is not None
    assert lab.changes == 1


async def test_a_directory_that_is_away_at_the_start_is_caught_up_with(lab: Lab) -> None:
    await lab.topology.start()
    with pytest.raises(ResolutionError, match="has not answered"):
        lab.topology.router()
    assert lab.topology.knows(new_guid())  # nobody is refused for what was not read yet
    lab.directory.write()
    lab.topology.read_soon()
    await eventually(lambda: lab.changes == 1)
    assert lab.topology.router() is not None


async def test_without_sites_everybody_is_a_neighbour(lab: Lab) -> None:
    lab.directory.sites, lab.directory.links = {}, []
    for machine in lab.directory.machines.values():
        machine.sites = []
    lab.directory.write()
    await lab.topology.start()
    assert lab.topology.router() is None


async def test_a_node_that_the_directory_does_not_have_is_told_so(lab: Lab) -> None:
    del lab.directory.machines["OWN"]
    lab.directory.write()
    await lab.topology.start()
    with pytest.raises(ResolutionError, match="not in the directory"):
        lab.topology.router()


async def test_a_link_that_cannot_be_is_left_out(lab: Lab) -> None:
    lab.directory.links = [*lab.directory.links, ("south", "south", 1, []), ("south", "north", 0, [])]
    lab.directory.write()
    await lab.topology.start()
    assert lab.topology.router() is not None


class Large(WorkgroupDirectory):
    """2,000 sites with two queue managers each and 10,000 links, as objects."""

    def __init__(self, own: Guid) -> None:
        dice = Random(7)
        sites = [Site(identifier=new_guid(), name=f"site {number}") for number in range(2000)]
        machines = [
            QueueManager(
                identifier=own if number == 0 else new_guid(),
                computer_name=f"QM{number}",
                routing_server=number % 2 == 0,
                site_identifier_list=(_identifier(sites[number // 2]),),
            )
            for number in range(4000)
        ]
        links = []
        for number in range(10_000):
            one, other = (number, number + 1) if number < 1999 else dice.sample(range(2000), 2)
            gates = _identifier(machines[2 * one]), _identifier(machines[2 * other])
            ends = _identifier(sites[one]), _identifier(sites[other])
            links.append(
                RoutingLink(
                    identifier=new_guid(), site1_identifier=ends[0], site2_identifier=ends[1],
                    actual_cost=dice.randrange(1, 100), site_gate_identifier_list=gates,
                )
            )  # fmt: skip
        self.last = _identifier(machines[-1])
        self._objects: dict[type, list[DirectoryObject]] = {
            Site: [*sites],
            QueueManager: [*machines],
            RoutingLink: [*links],
        }
        self._found: dict[int, list[DirectoryObject]] = {}

    async def read_directory_begin(self, object_type: type[DirectoryObject], *_: object, **__: object) -> int:  # type: ignore[override]
        self._found[len(self._found) + 1] = self._objects[object_type][::-1]
        return len(self._found)

    async def read_directory_next(self, handle: int) -> DirectoryObject:
        await asyncio.sleep(0)  # as a directory elsewhere would
        if not self._found[handle]:
            raise DirectoryOperationError(DirectoryOperationResult.END_OF_DATA, "no more")
        return self._found[handle].pop()

    async def read_directory_end(self, handle: int) -> None:
        """Nothing is held."""

    def watch(self, on_changed: Callable[[Guid | None], None]) -> None:
        """Nothing changes."""


def _identifier(one: DirectoryObject) -> Guid:
    assert one.identifier is not None
    return one.identifier


@pytest.mark.soak
@pytest.mark.timed
async def test_a_large_enterprise_is_read_without_stalling_the_event_loop() -> None:
    own = new_guid()
    directory = Large(own)
    topology = Topology(directory, own, LONG, lambda: None)
    pauses: list[float] = []

    async def tick() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            pauses.append(time.thread_time() - before)  # of this thread: what other processes take does not count

    ticking = asyncio.create_task(tick())
    before = time.process_time()
    await topology.read()
    spent = time.process_time() - before
    ticking.cancel()
    router = topology.router()
    assert router is not None
    assert router.next_hops(directory.last).rule is Rule.NEXT_SITE
    assert max(pauses) < 0.1
    assert spent < 20


@pytest.mark.servers
async def test_it_follows_a_directory_server(
    directory: EnterpriseDirectory, directory_server: DirectoryServer, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    south, north = (create(directory, directory_port.Site(name=fresh_name(name))) for name in ("SOUTH", "NORTH"))

    def add(name: str, site: directory_port.Site, routing_server: bool = False) -> Guid:
        return _identifier(
            directory.queue_managers.add(
                directory_port.QueueManager(
                    computer_name=fresh_name(name),
                    site_identifier_list=(_identifier(site),),
                    routing_server=routing_server,
                )
            )
        )

    own, router, far = add("OWN", south), add("ROUTER", south, True), add("FAR", north)
    settings = PortSettings(directory=directory_server.settings, watch_interval=0.1, fresh_for=100_000)
    port = LdapPort(settings, DirectoryCache(tmp_path / "cache"))
    port.watch(lambda _: None)  # as the node's membership does, before
    topology = Topology(port, own, LONG, lambda: None)
    try:
        await topology.start()

        def hops() -> set[Guid]:
            known = topology.router()
            assert known is not None
            return set(known.next_hops(far).hops)

        assert hops() == {router}
        second = add("ROUTER", south, True)
        await eventually(lambda: hops() == {router, second})
    finally:
        await topology.stop()
        await port.close()
