"""Three nodes, messages that are sent, forwarded, traced, received and that die: all of them are accounted for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from mqenterprise.pipeline.analysis import Analysis
from mqenterprise.pipeline.directory import DirectoryTables
from qmnode.structures.enumerations import MessageClass
from tests.forwarding.enterprise import Directory, Machine, Node
from tests.lab.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

EACH = 40


class ThreeNodes:
    """SOURCE in the south, TARGET in the north, and the way between them: ROUTER, which is in both."""

    def __init__(self, folder: Path) -> None:
        self.segments = folder / "segments"
        machines = [
            Machine("SOURCE", ["south"]),
            Machine("ROUTER", ["south", "north"], routing_server=True),
            Machine("TARGET", ["north"]),
        ]
        directory = Directory(folder / "directory.yaml", {one.name: one for one in machines})
        directory.write()
        export = {"target": str(self.segments), "roll_seconds": 1}
        self.nodes = [Node(folder / one.name, one, directory.file, export=export) for one in machines]
        self.source, self.router, self.target = self.nodes

    def stop(self) -> None:
        """SIGTERM, so that the last segments are written."""
        for node in self.nodes:
            assert node.process is not None
            node.process.terminate()
        for node in self.nodes:
            assert node.process is not None
            assert node.process.wait(240) == 0, node.log()
            node.process = None


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(tmp_path)
    try:
        for node in nodes.nodes:
            node.start()
        yield nodes
    finally:
        for node in nodes.nodes:
            node.kill()


async def sent(node: Node, name: str, **properties: Any) -> set[int]:
    """Send; the numbers of the messages."""
    async with await node.connect() as qm, await qm.open_queue(name, qmnode.Access.SEND) as queue:
        found = [await queue.send(qmnode.Message(b"%d" % number, **properties)) for number in range(EACH)]
    return {int.from_bytes(identifier[16:20], "little") for identifier in found}


async def test_every_message_is_accounted_for_once(three: ThreeNodes, spark: SparkSession, tmp_path: Path) -> None:
    for node in three.nodes:
        await node.ready()
    source, target = three.source, three.target
    names = {name: await target.create_queue(name) for name in ("taken", "kept", "dying")}
    names["ordered"] = await target.create_queue("ordered", transactional=True)
    admin, reports = await source.create_queue("admin"), await source.create_public_queue("reports")
    traced = {"tracing_requested": True, "tracing_queue_identifier": reports}
    asked = {"acknowledgements_requested": 0x0F, "administration_queue_format_name": admin}
    numbers = {
        "taken": await sent(source, names["taken"], recoverable=True, **traced),
        "kept": await sent(source, names["kept"], recoverable=True, **asked),
        "dying": await sent(source, names["dying"], recoverable=True, time_to_be_received=1),
        "nowhere": await sent(source, target.private_name(0x7777), recoverable=True),
    }
    await source.send(names["ordered"], [b"%d" % number for number in range(EACH)], transactional=True)
    assert len(await target.bodies("taken", EACH)) == EACH
    assert len(await target.bodies("ordered", EACH)) == EACH

    async def kept() -> bool:
        return await target.count(r".\private$\kept") == EACH and await source.count(r".\private$\admin") == EACH

    async def dead() -> bool:
        return await target.count(r".\private$\dying") == 0

    async def quiet() -> bool:
        return not await source.outgoing() and not await three.router.outgoing()

    await until(kept, "messages and their acknowledgments")
    await until(dead, "the end of those that wait too long")
    await until(quiet, "everything to be acknowledged")
    three.stop()

    analysis = Analysis(spark, [str(three.segments)], str(tmp_path / "tables"), DirectoryTables())
    assert analysis.run("routes").aside == []
    life = analysis.tables["message_life"].arrow()
    routes = analysis.tables["routes"].arrow()
    assert life is not None
    assert routes is not None

    rows = life.to_pylist()
    keys = Counter((row["source_id"], row["message_number"], row["destination"]) for row in rows)
    assert set(keys.values()) == {1}, "no message twice"
    assert len(rows) == 5 * EACH, "no message missing, and nothing that nodes tell each other"
    assert {row["origin"] for row in rows} == {"SOURCE"}
    by_name = {name: [row for row in rows if row["message_number"] in those] for name, those in numbers.items()}
    assert {name: len(those) for name, those in by_name.items()} == dict.fromkeys(numbers, EACH)
    dying = by_name.pop("dying")
    ends = {
        name: {(row["status"], (row["death"] or {}).get("reason")) for row in those} for name, those in by_name.items()
    }
    assert ends == {
        "taken": {("received", None)},
        "kept": {("reached", None)},
        "nowhere": {("died", MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q)},
    }
    # Their second may be over before they arrive, on a machine that has others to serve.
    assert {row["status"] for row in dying} == {"died"}
    late = {MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT, MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT}
    for row in dying:
        allowed = late if row["reached"] is None else {MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT}
        assert row["death"]["reason"] in allowed
    ordered = [row for row in rows if row["transactional"]]
    assert [row["status"] for row in ordered] == ["received"] * EACH
    nowhere = numbers["nowhere"] | {row["message_number"] for row in dying if row["reached"] is None}
    arrived = [row for row in routes.to_pylist() if row["message_number"] not in nowhere]
    assert {tuple(row["path"]) for row in arrived} == {("SOURCE", "ROUTER", "TARGET")}
