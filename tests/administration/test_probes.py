"""Heartbeats through applications: what a probe says while its receiver works, is gone, or may not be reached."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from qmnode import Access, Message, QueueManager
from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.administration.probes import Probes
from qmnode.management.server import ManagementServer
from qmnode.model.api import QueueType
from qmnode.model.waiting_reasons import WaitReason
from qmnode.security.principals import Principals, unix_user
from qmnode.settings.node import ExportSettings, ManagementSettings, NodeSettings, Settings, TransportSettings
from qmnode.settings.probes import ProbeSettings
from qmnode.settings.security import SecuritySettings
from qmnode.structures.guid import guid_to_text
from qmnode.structures.security_descriptor import SecurityDescriptor
from tests.export.test_export import rows
from tests.lab.waiting import eventually
from tests.transport.tls_nodes import Nodes

LOCAL = r"DIRECT=OS:ALPHA\private$\orders"


@asynccontextmanager
async def probing(node: QueueManager, **probes: dict[str, Any]) -> AsyncIterator[None]:
    """The node with these probes."""
    settings = {name: ProbeSettings.model_validate(one) for name, one in probes.items()}
    running = Probes(node, Principals(SecuritySettings()))
    await running.start(settings)
    try:
        yield
    finally:
        await running.stop()


def result(node: QueueManager, name: str = "orders") -> dict[str, Any]:
    (found,) = [one for one in node.probes() if one["name"] == name]
    return found


async def becomes(node: QueueManager, healthy: bool, reason: str = "", name: str = "orders") -> dict[str, Any]:
    """Wait for the result of a probe."""
    await eventually(
        lambda: (result(node, name)["healthy"], result(node, name)["reason"]) == (healthy, reason),
        f"{healthy} {reason}, not {result(node, name)}",
    )
    return result(node, name)


def queue_has_one(node: QueueManager) -> bool:
    return node.names.find(LOCAL).message_count > 0


async def metrics(node: QueueManager, folder: Path) -> dict[str, list[Any]]:
    server = ManagementServer(node, ManagementSettings(socket=folder / "m.sock"), lambda: True)
    await server.start()
    try:
        transport = httpx.AsyncHTTPTransport(uds=str(folder / "m.sock"))
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            families = text_string_to_metric_families((await client.get("/metrics")).text)
            return {one.name: [(sample.labels, sample.value) for sample in one.samples] for one in families}
    finally:
        await server.stop()


async def test_a_heartbeat_is_missed_while_nobody_receives_and_comes_through_when_somebody_does(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA")) as node:
        await node.create_queue(r".\private$\orders")
        async with probing(node, orders={"queue": LOCAL, "period": 1, "deadline": 1}):
            missed = await becomes(node, False, WaitReason.RECEIVER)
            assert "nobody received it from" in missed["sentence"] and missed["step"]
            (warning,) = [one for one in (await node.status()).warnings if one.startswith("probe orders: ")]
            assert "start the program" in warning
            found = await metrics(node, tmp_path)
            assert found["qmnode_probe_up"] == [({"probe": "orders"}, 0)]
            ((labels, since),) = found["qmnode_probe_failing_since_timestamp_seconds"]
            assert (labels["reason"], labels["queue"], since) == ("receiver", LOCAL, missed["since"])

        async with (
            probing(node, orders={"queue": LOCAL, "period": 3600, "deadline": 600}),
            await node.open_queue(LOCAL, Access.RECEIVE) as queue,
        ):
            while not result(node)["healthy"]:
                message = await queue.receive(60)
                assert message.label == "heartbeat orders"
                await eventually(lambda: node.probes()[0]["healthy"] or queue_has_one(node), "a result")
            assert not [one for one in (await node.status()).warnings if "probe" in one]
            found = await metrics(node, tmp_path)
            assert found["qmnode_probe_up"] == [({"probe": "orders"}, 1)]
            assert found["qmnode_probe_failing_since_timestamp_seconds"] == []
            assert found["qmnode_probe_last_success_timestamp_seconds"]


async def test_each_heartbeat_is_an_exported_event(tmp_path: Path) -> None:
    export = ExportSettings(target=str(tmp_path / "out"), roll_seconds=1)
    settings = Settings(computer_name="ALPHA", export=export, transport=TransportSettings(enabled=False))

    def exported(*, missed: bool) -> list[dict[str, Any]]:
        beats = [row for row in rows(tmp_path / "out") if row["kind"] == "heartbeat"]
        return [row for row in beats if ("cause" in row) == missed]

    async with QueueManager.open(tmp_path / "store", settings) as node:
        await node.create_queue(r".\private$\orders")
        async with probing(node, orders={"queue": LOCAL, "period": 1, "deadline": 1}):
            await eventually(lambda: bool(exported(missed=True)), "a heartbeat that was missed")
        async with (
            probing(node, orders={"queue": LOCAL, "period": 3600, "deadline": 600}),
            await node.open_queue(LOCAL, Access.RECEIVE) as queue,
        ):
            while not result(node)["healthy"]:
                await queue.receive(60)
                await eventually(lambda: node.probes()[0]["healthy"] or queue_has_one(node), "a result")
            await eventually(lambda: bool(exported(missed=False)), "a heartbeat that came through")
    missed, (came,) = exported(missed=True), exported(missed=False)
    assert {(row["label"], row["queue"], row["cause"]) for row in missed} == {("orders", LOCAL, "receiver")}
    assert all("nobody received it from" in row["detail"] and row["time"] > row["sent_time"] for row in missed)
    assert (came["label"], came["queue"], came.get("detail")) == ("orders", LOCAL, None)


async def test_an_answer_has_to_come_where_one_is_expected(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA")) as node:
        await node.create_queue(r".\private$\orders")
        probe = {"queue": LOCAL, "period": 1, "deadline": 1, "expects": "answered"}
        async with probing(node, orders=probe), await node.open_queue(LOCAL, Access.RECEIVE) as queue:
            await queue.receive(60)
            await eventually(lambda: "answered nothing" in result(node)["sentence"], "a missing answer")
            while not result(node)["healthy"]:
                request = await queue.receive(60)
                async with await node.open_queue(request.response_queue_format_name, Access.SEND) as answers:
                    await answers.send(Message(b"ok", correlation_identifier=request.identifier))


async def test_a_probe_sends_nothing_to_a_queue_whose_access_list_does_not_permit_it(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA")) as node:
        closed = SecurityDescriptor(owner=unix_user(1000)).with_dacl().write()
        await node.create_queue(r".\private$\orders", security=closed)
        async with probing(node, orders={"queue": LOCAL, "period": 1, "deadline": 1}):
            missed = await becomes(node, False, WaitReason.ACCESS)
        assert "does not let" in missed["sentence"] and "qmnode queue acl allow" in missed["step"]
        assert (missed["sent"], node.names.find(r".\private$\orders").message_count) == (0, 0)


async def test_a_stranger_neither_fills_the_queue_of_a_probe_nor_answers_for_its_receiver(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA")) as node:
        await node.create_queue(r".\private$\orders")
        stranger = GuardedQueueManager(node, await Principals(SecuritySettings()).of_local_user(65534, [65534]))
        probe = {"queue": LOCAL, "period": 3600, "deadline": 3600, "expects": "answered"}
        async with probing(node, orders=probe), await node.open_queue(LOCAL, Access.RECEIVE) as queue:
            (answers,) = [one for one in await node.queues() if one.label == "Answers to probe orders"]
            assert answers.private_queue_number >= 2**31
            assert answers.pathname not in {one.pathname for one in await stranger.queues()}
            other = await node.create_queue(r".\private$\next")
            assert other.private_queue_number == 6
            request = await queue.receive(60)
            assert request.response_queue_format_name == f"DIRECT=OS:{answers.pathname}"
            async with await node.open_queue(request.response_queue_format_name, Access.SEND) as out:
                wrong = [Message(b"x" * 1000, correlation_identifier=bytes([number] * 20)) for number in range(50)]
                for _ in range(3):  # more than there is room for
                    await out.send_many(wrong)
                    await eventually(lambda: not node.names.find(answers.pathname).message_count, "an empty queue")
                assert result(node)["healthy"] is None
                await out.send(Message(b"ok", correlation_identifier=request.identifier))
            assert (await becomes(node, True))["missed"] == 0
        assert "Answers to probe orders" not in {one.label for one in await node.queues()}


async def test_probes_change_while_others_go_on(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA")) as node:
        await node.create_queue(r".\private$\orders")
        one = ProbeSettings(queue=LOCAL, period=1, deadline=1)
        slow = ProbeSettings(queue=LOCAL, period=3600, deadline=3600)
        probes = Probes(node, None)
        await probes.start({"kept": one, "changed": one, "gone": one})
        await becomes(node, False, WaitReason.RECEIVER, "kept")
        await becomes(node, False, WaitReason.RECEIVER, "gone")
        missed = result(node, "kept")["missed"]
        await probes.apply({"kept": one, "changed": slow, "new": slow})
        assert [state["name"] for state in node.probes()] == ["kept", "changed", "new"]
        assert result(node, "kept")["missed"] >= missed and result(node, "changed")["healthy"] is None
        assert not [trouble for trouble in (await node.status()).warnings if "gone" in trouble]
        await probes.stop()
        assert not node.probes() and [queue.pathname for queue in await node.queues([QueueType.PRIVATE])] == [
            r"ALPHA\private$\orders"
        ]


@pytest.mark.servers
async def test_a_heartbeat_to_another_site_has_to_cross_the_declared_links(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        nodes = Nodes(tmp_path, stack)
        alice, bob = await nodes.start("ALICE"), await nodes.start("BOB")
        reports = await alice.create_queue(r".\reports")
        alice.context.traced.report_queue = reports.identifier
        there = f"PRIVATE={guid_to_text(bob.identifier)}\\00000005"
        probe = {"queue": there, "period": 3, "deadline": 3, "transactional": True}
        right, wrong = probe | {"links": [["north", "South"]]}, probe | {"links": [["south", "west"]]}
        async with (
            probing(alice, right=right, wrong=wrong),
            await bob.open_queue(r"DIRECT=OS:.\private$\tx", Access.RECEIVE) as queue,
        ):
            while not (result(alice, "right")["healthy"] and result(alice, "wrong")["reason"] == "link"):
                await queue.receive(60)
            sentence = result(alice, "wrong")["sentence"]
            assert "it went over the routing links north-south; declared are south-west" in sentence

            await nodes.stop("BOB")
            missed = await becomes(alice, False, WaitReason.HOST_DOWN, "right")
            assert "start the node of BOB" in missed["step"]


@pytest.mark.parametrize(
    ("probe", "mistake"),
    [
        ({"queue": "orders"}, "format name of one queue"),
        ({"queue": "MULTICAST=224.3.3.3:5000"}, "format name of one queue"),
        ({"queue": f"{LOCAL},{LOCAL}"}, "format name of one queue"),
        ({"queue": LOCAL, "deadline": 61}, "longer than the period"),
        ({"queue": LOCAL, "period": 0}, "greater than or equal to 1"),
        ({"queue": LOCAL, "links": [["a", "b"]]}, "needs tracing.report_queue"),
    ],
)
def test_a_probe_that_cannot_be_is_refused(probe: dict[str, Any], mistake: str) -> None:
    with pytest.raises(ValueError, match=mistake):
        NodeSettings.model_validate({"probes": {"orders": probe}})
