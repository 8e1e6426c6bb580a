"""Three hundred private queues of ten nodes as declared, whatever became of them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import qmnode
from mqenterprise.topology.check import load
from mqenterprise.topology.declaration import machine_document
from tests.lab.nodes import NodeProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.servers, pytest.mark.soak, pytest.mark.timed, pytest.mark.timeout(0)]
NODES, QUEUES = 10, 30
ACCESS = [
    {"to": "everyone", "allow": ["send", "get_properties"]},
    {"to": "anonymous", "deny": ["send"]},
    {"to": "uid:0", "allow": ["generic_all"]},
]


def documents(folder: Path, queues: int) -> dict[str, Any]:
    """By machine, its document in a declaration with so many queues on each."""
    machines = [f"M{number}" for number in range(NODES)]
    file = folder / "enterprise.yaml"
    declared = [
        {
            "machine": machine, "name": f"endpoint-{number}", "private": True, "transactional": number % 2 == 0,
            "label": f"Endpoint {number}", "quota": "100MB", "journaling": number % 3 == 0, "access": ACCESS,
        }
        for machine in machines for number in range(queues)
    ]  # fmt: skip
    file.write_text(
        yaml.safe_dump({
            "enterprise": {"name": "E"}, "sites": [{"name": "S"}], "queues": declared,
            "machines": [{"name": machine, "sites": ["S"]} for machine in machines],
        })
    )  # fmt: skip
    declaration = load(file).declaration
    return {machine: machine_document(declaration, machine) for machine in machines}


class Fleet:
    """Ten nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = {
            f"M{number}": NodeProcess(folder / f"M{number}", computer_name=f"M{number}") for number in range(NODES)
        }

    def apply(self, wanted: dict[str, Any], *options: str) -> list[tuple[str, str, str]]:
        """What was done: the machine, the action and the queue."""
        return [step for machine in wanted for step in self.apply_to(machine, wanted[machine], *options)]

    def apply_to(self, machine: str, document: Any, *options: str) -> list[tuple[str, str, str]]:
        file = self.folder / f"{machine}.yml"
        file.write_text(yaml.safe_dump(document))
        done = self.nodes[machine].command("apply", file, "--json", *options)
        assert done.returncode == 0, done.stderr
        return [(machine, step["action"], step["queue"]) for step in json.loads(done.stdout)["steps"]]

    def shown(self, machine: str) -> Any:
        return json.loads(self.nodes[machine].command("document", "--all", "--json").stdout)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    opened = Fleet(tmp_path)
    try:
        for node in opened.nodes.values():
            node.start()
        yield opened
    finally:
        for node in opened.nodes.values():
            node.kill()


def send(node: NodeProcess, queue: str) -> None:
    async def sent() -> None:
        name = rf"DIRECT=OS:.\private$\{queue}"
        async with await node.connect() as qm, await qm.open_queue(name, qmnode.Access.SEND) as opened:
            await opened.send(qmnode.Message(b"7", recoverable=True))

    asyncio.run(sent())


def test_three_hundred_queues_on_ten_nodes_are_as_declared_whatever_happens(fleet: Fleet, tmp_path: Path) -> None:
    wanted = documents(tmp_path, QUEUES)
    began = time.monotonic()
    assert len(fleet.apply(wanted, "--check")) == NODES * QUEUES
    planned = time.monotonic()
    assert [action for _, action, _ in fleet.apply(wanted)] == ["create"] * NODES * QUEUES
    applied = time.monotonic()
    assert fleet.apply(wanted) == []
    print(
        f"{NODES * QUEUES} queues: planned in {planned - began:.1f} s, applied in {applied - planned:.1f} s, "
        f"again without a change in {time.monotonic() - applied:.1f} s"
    )
    made = {machine: fleet.shown(machine) for machine in fleet.nodes}

    changed = fleet.nodes["M3"].command("queue", "set", "endpoint-7", "--label", "by hand", "--quota", "5")
    assert changed.returncode == 0, changed.stderr
    assert (
        fleet.nodes["M5"].command("queue", "acl", "allow", "endpoint-8", "everyone", "receive-message").returncode == 0
    )
    drift = [("M3", "change", "endpoint-7"), ("M5", "change", "endpoint-8")]
    assert fleet.apply(wanted, "--check") == drift
    assert fleet.apply(wanted) == drift
    assert fleet.apply(wanted) == []
    assert {machine: fleet.shown(machine) for machine in fleet.nodes} == made

    fewer, gone = documents(tmp_path, QUEUES - 1), f"endpoint-{QUEUES - 1}"
    send(fleet.nodes["M9"], gone)
    by_hand = fleet.nodes["M0"].command("queue", "create", "by-hand")
    assert by_hand.returncode == 0
    assert fleet.apply(fewer) == []
    pruned = fleet.apply(fewer, "--prune")
    assert pruned == [*((f"M{number}", "delete", gone) for number in range(9)), ("M9", "keep", gone)]
    assert fleet.apply(fewer, "--prune", "--with-messages") == [("M9", "delete", gone)]
    assert fleet.apply(fewer, "--prune") == []

    restored, rebuilt = fleet.nodes["M1"], fleet.nodes["M2"]
    saved = restored.command("backup", tmp_path / "backup")
    assert saved.returncode == 0, saved.stderr
    assert fleet.apply_to("M1", wanted["M1"]) == [("M1", "create", gone)]
    restored.command("queue", "set", "endpoint-4", "--label", "later")
    restored.stop()
    put_back = restored.command("restore", tmp_path / "backup", "--data", tmp_path / "restored")
    assert put_back.returncode == 0, put_back.stderr
    restored.configure(computer_name="M1", data=str(tmp_path / "restored"))
    restored.start()
    assert fleet.apply_to("M1", wanted["M1"]) == [("M1", "create", gone)]
    assert fleet.apply_to("M1", wanted["M1"]) == []
    assert fleet.shown("M1") == made["M1"]

    rebuilt.kill()
    rebuilt.configure(computer_name="M2", data=str(tmp_path / "rebuilt"))
    rebuilt.start()
    assert len(fleet.apply_to("M2", wanted["M2"], "--prune")) == QUEUES
    assert fleet.apply_to("M2", wanted["M2"], "--prune") == []
    assert fleet.shown("M2") == made["M2"]
