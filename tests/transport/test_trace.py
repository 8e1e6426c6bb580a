"""The way of a message, asked live of the nodes that it passes."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.tracing import Way, way
from qmnode import Access, Message
from qmnode.administration.asker import Asker
from qmnode.management.documents import identifier_text
from qmnode.management.operation_routes import TraceDocument
from qmnode.structures.guid import guid_to_text
from tests.lab.waiting import eventually
from tests.transport.tls_nodes import QUEUE, Nodes

pytestmark = pytest.mark.servers
ASKER = Asker("ann", "test", None, True)


class Client:
    """A node of this process, in the place of its management API."""

    def __init__(self, nodes: Nodes, machine: str) -> None:
        self.nodes, self.machine = nodes, machine

    async def trace(self, criteria: dict[str, str]) -> TraceDocument:
        node = self.nodes.nodes.get(self.machine)
        if node is None:
            raise NodeError("no connection", unavailable=True)
        wanted = {("identifier" if name == "message" else name): value for name, value in criteria.items()}
        return TraceDocument.of(await node.operations.trace(ASKER, wanted))


async def traced(nodes: Nodes, **criteria: str) -> Way:
    clients: list[Any] = [Client(nodes, name) for name in nodes.machines]
    return await way(clients, criteria, 8)


async def test_a_message_is_followed_over_a_gate_to_the_receiver(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        nodes = Nodes(tmp_path, stack)
        nodes.machines["ALICE"].routing_server = False
        nodes.directory.links = [("south", "north", 1, ["CAROL", "BOB"])]
        nodes.directory.write()
        for name in ("ALICE", "BOB", "CAROL"):
            await nodes.start(name)
        await nodes.stop("BOB")
        async with await nodes.nodes["ALICE"].open_queue(nodes.names["BOB"], Access.SEND) as out:
            identifier = await out.send(Message(b"x", label="order 7"), transaction="single")
        carol = nodes.nodes["CAROL"]
        await eventually(lambda: any(one.reason == "host_down" for one in carol.network.waiting()), "a reason")

        message = identifier_text(identifier)
        stuck = await traced(nodes, message=message)

        assert {step.machine for step in stuck.steps} == {"ALICE", "CAROL"}
        (waits,) = [step for step in stuck.steps if step.machine == "CAROL"]
        assert waits.reason == "host_down" and "start the node of BOB" in waits.text
        assert waits.message == message and waits.label == "order 7"
        assert stuck.unknown == {"BOB": "no connection"}
        by_label = await traced(nodes, label="order*")
        assert [step.message for step in by_label.steps] == [message] * len(by_label.steps)
        assert {step.machine for step in by_label.steps} == {"ALICE", "CAROL"}

        bob = await nodes.start("BOB")
        await eventually(lambda: bob.context.names.find(QUEUE).message_count == 1, "the message")
        passing = carol.context.names.find(nodes.names["BOB"])
        await eventually(lambda: not passing.message_count, "nothing on its way")
        there = await traced(nodes, message=message)

        assert not there.unknown
        assert (there.source, there.reached) == ("ALICE", "BOB")
        there.add_unrecorded(["ALICE", "CAROL", "BOB"])
        (gate,) = [step for step in there.steps if step.machine == "CAROL"]
        assert "passed, not recorded" in gate.text
        (arrived,) = [step for step in there.steps if step.machine == "BOB"]
        assert (arrived.reason, arrived.time is not None) == ("receiver", True)
        assert all(step.reason == "" for step in there.steps if step.machine != "BOB")

        plain = await bob.create_queue(r".\private$\plain")
        name = f"PRIVATE={guid_to_text(bob.identifier)}\\{plain.private_queue_number:08x}"
        async with await nodes.nodes["ALICE"].open_queue(name, Access.SEND) as out:
            identifier = await out.send(Message(b"x", recoverable=True))
        await eventually(lambda: bob.context.names.find(r".\private$\plain").message_count == 1, "the message")
        await eventually(lambda: not carol.context.names.find(name).message_count, "nothing on its way")
        there = await traced(nodes, message=identifier_text(identifier))
        assert [step.reason for step in there.steps if step.machine == "BOB"] == ["receiver"]
        async with await bob.open_queue(r"DIRECT=OS:.\private$\plain") as queue:
            await queue.receive(timeout=5)
        there = await traced(nodes, message=identifier_text(identifier))
        (passed,) = [step for step in there.steps if step.machine == "BOB"]
        assert (passed.reason, passed.time) == ("", None) and "no copy" in passed.text


async def test_a_report_queue_that_the_node_has_gives_the_hops(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        nodes = Nodes(tmp_path, stack)
        for name in ("ALICE", "BOB"):
            await nodes.start(name)
        alice = nodes.nodes["ALICE"]
        reports = await alice.create_queue(r".\reports")
        tracing = {"tracing_requested": True, "tracing_queue_identifier": reports.identifier}
        async with await alice.open_queue(nodes.names["BOB"], Access.SEND) as out:
            identifier = await out.send(Message(b"x", label="order 8", **tracing), transaction="single")
        await eventually(lambda: alice.context.names.find(r".\reports").message_count == 2, "two reports")

        found = await traced(nodes, message=identifier_text(identifier))

        reported = [(step.machine, step.text) for step in found.steps if step.text.startswith("reported")]
        assert sorted(reported) == [
            ("ALICE", f"reported: sent to {nodes.machines['BOB'].listens} after 0 hops"),
            ("BOB", "reported: arrived"),
        ]
