"""Four nodes in two sites, with no direct way from SOURCE to TARGET: messages pass one of two routing servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qmnode.routing.router import Router
from qmnode.routing.snapshot import Machine as SnapshotMachine
from qmnode.routing.snapshot import Site, TopologySnapshot
from tests.forwarding.enterprise import Directory, Machine, Node


class Enterprise:
    """SOURCE in the south, TARGET in the north, and two routing servers that are in both sites. FOREIGN, in a foreign
    site of which ROUTER1 is a connector, is no node.

    ``first`` is the routing server that SOURCE prefers for TARGET, ``second`` its fall-back.
    """

    def __init__(self, folder: Path) -> None:
        machines = [
            Machine("SOURCE", ["south"]),
            Machine("ROUTER1", ["south", "north"], routing_server=True),
            Machine("ROUTER2", ["south", "north"], routing_server=True),
            Machine("TARGET", ["north"]),
            Machine("FOREIGN", ["mainframe"], foreign=True),
        ]
        self.directory = Directory(
            folder / "directory.yaml",
            {one.name: one for one in machines},
            [("south", "mainframe", 1, ["ROUTER1"])],
            ["mainframe"],
        )
        self.directory.write()
        self.nodes = {
            one.name: Node(folder / one.name, one, self.directory.file) for one in machines if not one.foreign
        }
        self.source, self.target = self.nodes["SOURCE"], self.nodes["TARGET"]
        self.reports = ""
        self.first, self.second = (self.nodes[name] for name in self._preference())

    def _preference(self) -> list[str]:
        sites, machines = self.directory.sites, self.directory.machines
        known = TopologySnapshot.of(
            [
                SnapshotMachine(one.identifier, one.name, tuple(sites[site] for site in one.sites), one.routing_server)
                for one in machines.values()
            ],
            [Site(identifier, name) for name, identifier in sites.items()],
            [],
        )
        hops = Router(known, machines["SOURCE"].identifier).next_hops(machines["TARGET"].identifier).hops
        return [known.machines[hop].name for hop in hops]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enterprise]:
    enterprise = Enterprise(tmp_path_factory.mktemp("enterprise"))
    try:
        for node in enterprise.nodes.values():
            node.start()
        yield enterprise
    finally:
        for node in enterprise.nodes.values():
            node.kill()


@pytest.fixture
async def enterprise(running: Enterprise) -> Enterprise:
    """All of its nodes run, whatever the test before has done to them."""
    for node in running.nodes.values():
        if node.process is None:
            node.start()
    for node in running.nodes.values():
        await node.ready()
    return running
