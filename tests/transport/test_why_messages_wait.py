"""Enterprises that are broken for real: every door gives the same reason, and none once messages pass again."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from qmnode import Access, Message, QueueManager
from qmnode.local.remote import RemoteQueueManager
from qmnode.local.server import LocalServer
from qmnode.management.server import ManagementServer
from qmnode.model.outgoing import OutgoingQueue
from qmnode.model.waiting import Waiting, WaitReason
from qmnode.settings.node import LocalSettings, ManagementSettings
from qmnode.structures.access_masks import QueueAccess as Right
from qmnode.structures.message_security import PrivacyLevel
from qmnode.structures.sid import EVERYONE
from tests.doors.expectation import described
from tests.lab.waiting import eventually
from tests.transport.tls_nodes import QUEUE, Nodes

pytestmark = pytest.mark.servers


class Doors:
    """A node, asked at every door why the messages of a queue wait."""

    def __init__(self, node: QueueManager, folder: Path) -> None:
        self.node, self.socket, self.web = node, folder / "n.sock", folder / "m.sock"
        self.local = LocalServer(node, LocalSettings(socket=self.socket))
        self.management = ManagementServer(node, ManagementSettings(socket=self.web), lambda: True)

    async def __aenter__(self) -> Doors:
        await self.local.start()
        await self.management.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.management.stop()
        await self.local.stop()

    async def answers(self, queue: str) -> dict[str, Any]:
        """Reason, sentence and machine at each door; None where it gives no reason."""
        async with await RemoteQueueManager.connect(self.socket) as remote:
            shown = (await remote.queue(queue)).waiting
            listed = [one for one in await remote.waiting() if one.queue == queue]
            status = (await remote.status()).waiting
        transport = httpx.AsyncHTTPTransport(uds=str(self.web))
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            queues = (await client.get("/v1/queues", params={"limit": 1000})).json()["queues"]
            (document,) = [one for one in queues if one["pathname"] == queue]
            found = (await client.get("/v1/waiting", params={"queue": queue})).json()["waiting"]
            families = text_string_to_metric_families((await client.get("/metrics")).text)
        (family,) = [one for one in families if one.name == "qmnode_waiting_since_timestamp_seconds"]
        metric = [one.labels for one in family.samples if one.labels["queue"] == queue]
        return {
            "queue show": shown and (shown.reason, shown.sentence, shown.machine),
            "waiting": next(((one.reason, one.sentence, one.machine) for one in listed), None),
            "status": next(((one["reason"], one["sentence"], one["machine"]) for one in status if one["queues"]), None),
            "document": document["waiting"] and _triple(document["waiting"]),
            "http": _triple(found[0]) if found else None,
            "metric": (metric[0]["reason"], shown and shown.sentence, metric[0]["machine"]) if metric else None,
        }

    async def agree(self, queue: str) -> Waiting | None:
        """The one answer of all doors."""
        answers = await self.answers(queue)
        assert len(set(answers.values())) == 1, answers
        return (await self.node.queue(queue)).waiting


def _triple(document: dict[str, Any]) -> tuple[str, str, str]:
    return document["reason"], document["sentence"], document["machine"]


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        yield Nodes(tmp_path, stack)


async def waits(node: QueueManager, queue: str, reason: WaitReason) -> None:
    """Wait for the reason, and for nothing else."""
    await eventually(lambda: _of(node, queue) is not None, "a reason")
    await eventually(lambda: getattr(_of(node, queue), "reason", None) is reason, f"{reason}, not {_of(node, queue)}")


def _of(node: QueueManager, queue: str) -> Waiting | None:
    found = node.context.names.find(queue)
    assert isinstance(found, OutgoingQueue)
    return found.waits_for


async def passes(nodes: Nodes, queue: str) -> None:
    """Wait until nothing is waited for, at any door."""
    alice = nodes.nodes["ALICE"]
    await eventually(lambda: _of(alice, queue) is None and not alice.context.names.find(queue).message_count)
    async with Doors(alice, nodes.folder) as doors:
        assert await doors.agree(queue) is None


async def broken(nodes: Nodes, queue: str, reason: WaitReason, machine: str, *words: str) -> Waiting:
    """Every door of ALICE says this reason, and a step."""
    alice = nodes.nodes["ALICE"]
    await waits(alice, queue, reason)
    async with Doors(alice, nodes.folder) as doors:
        found = await doors.agree(queue)
    assert found is not None
    assert (found.reason, found.machine) == (reason, machine), found
    assert all(word in found.sentence for word in words), found.sentence
    assert found.step and found.since
    return found


async def test_a_dead_host(nodes: Nodes) -> None:
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    await nodes.stop("BOB")
    await nodes.send(b"1")
    found = await broken(nodes, nodes.names["BOB"], WaitReason.HOST_DOWN, "BOB", "BOB", "Connection refused")
    assert found.messages == 1
    await nodes.start("BOB")
    await passes(nodes, nodes.names["BOB"])


async def test_a_dead_gate_is_named_and_not_the_destination(nodes: Nodes) -> None:
    nodes.machines["ALICE"].routing_server = False
    nodes.directory.links = [("south", "north", 1, ["CAROL", "BOB"])]
    nodes.directory.write()
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    await nodes.send(b"1")
    await broken(nodes, nodes.names["BOB"], WaitReason.GATE_DOWN, "CAROL", "gate", "CAROL")
    alice = nodes.nodes["ALICE"]
    for subject in ({"machine": "carol"}, {"machine": "BOB"}, {"machine": "ALICE"}, {}):
        (one,) = await alice.waiting(**subject)
        assert one.reason is WaitReason.GATE_DOWN
    assert await alice.waiting(machine="NOBODY") == await alice.waiting(link="north") == []
    assert [one.machine for one in await alice.waiting(link="South")] == ["CAROL"]
    await nodes.start("CAROL")
    await passes(nodes, nodes.names["BOB"])


async def test_a_wrong_name_in_the_dns(nodes: Nodes) -> None:
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    nodes.machines["BOB"].address = "nobody.invalid"
    nodes.directory.write()
    await nodes.send(b"1")
    await broken(nodes, nodes.names["BOB"], WaitReason.NO_NAME, "nobody.invalid", "nobody.invalid")
    nodes.machines["BOB"].address = ""
    nodes.directory.write()
    await passes(nodes, nodes.names["BOB"])


@pytest.mark.parametrize("expired", ["BOB", "ALICE"])
async def test_an_expired_certificate_on_either_side(nodes: Nodes, expired: str) -> None:
    for name in ("ALICE", "BOB"):
        await nodes.start(name, "require", expired=name == expired)
    await nodes.send(b"1")
    await broken(nodes, nodes.names["BOB"], WaitReason.CERTIFICATE, "BOB", "BOB", "expired")
    for name in ("ALICE", "BOB"):
        await nodes.stop(name)
    for name in ("BOB", "ALICE"):
        await nodes.start(name, "require")
    await passes(nodes, nodes.names["BOB"])


async def test_denied_access_at_both_ends(nodes: Nodes) -> None:
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    bob = nodes.nodes["BOB"]
    await bob.set_queue(QUEUE, security=described([(True, EVERYONE, int(Right.MQSEC_PEEK_MESSAGE))], None))
    await nodes.send(b"1")
    found = await broken(nodes, nodes.names["BOB"], WaitReason.ACCESS, "BOB", "BOB", "let the sender")
    assert "queue acl allow" in found.step
    there = (await bob.queue(QUEUE)).waiting
    assert there is not None and (there.reason, there.machine) == (WaitReason.ACCESS, "BOB")
    assert "ALICE" in there.sentence
    async with Doors(bob, nodes.folder) as doors, await RemoteQueueManager.connect(doors.socket) as remote:
        (sequence,) = await remote.incoming_sequences(QUEUE)
    assert sequence.waiting == there
    await bob.set_queue(QUEUE, security=described([(True, EVERYONE, int(Right.MQSEC_QUEUE_GENERIC_ALL))], None))
    await nodes.send(b"2")
    await passes(nodes, nodes.names["BOB"])
    assert (await bob.queue(QUEUE)).waiting is None
    assert [one.waiting for one in await bob.incoming_sequences(QUEUE)] == [None]


async def test_a_full_quota_at_both_ends(nodes: Nodes) -> None:
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    bob = nodes.nodes["BOB"]
    await bob.set_queue(QUEUE, quota=1)
    await nodes.send(b"x" * 3000)
    await broken(nodes, nodes.names["BOB"], WaitReason.QUOTA, "BOB", "BOB", "quota")
    there = (await bob.queue(QUEUE)).waiting
    assert there is not None and there.reason is WaitReason.QUOTA
    await bob.set_queue(QUEUE, quota=100)
    await nodes.send(b"2")
    await passes(nodes, nodes.names["BOB"])
    assert (await bob.queue(QUEUE)).waiting is None


async def test_a_paused_queue_and_a_node_that_is_offline(nodes: Nodes) -> None:
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    alice, queue = nodes.nodes["ALICE"], nodes.names["BOB"]
    await nodes.send(b"1")
    await passes(nodes, queue)
    await alice.pause_queue(queue)
    await nodes.send(b"2")
    found = await broken(nodes, queue, WaitReason.PAUSED, "ALICE", "paused")
    assert queue in found.step
    await alice.resume_queue(queue)
    await passes(nodes, queue)
    await alice.set_online(False)
    await nodes.send(b"3")
    await broken(nodes, queue, WaitReason.OFFLINE, "ALICE", "qmnode connect")
    await alice.set_online(True)
    await passes(nodes, queue)


async def test_a_missing_gate(nodes: Nodes) -> None:
    nodes.directory.links = []
    nodes.directory.write()
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    await nodes.send(b"1")
    await broken(nodes, nodes.names["BOB"], WaitReason.NO_ROUTE, "BOB", "BOB")
    nodes.directory.links = [("south", "north", 1, ["ALICE", "BOB"])]
    nodes.directory.write()
    await passes(nodes, nodes.names["BOB"])


async def test_a_directory_that_is_down(nodes: Nodes) -> None:
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    await nodes.stop("ALICE")
    content = nodes.directory.file.read_text()
    nodes.directory.file.write_text("sites: [")
    alice = await nodes.start("ALICE")
    await nodes.send(b"1")
    await broken(nodes, nodes.names["BOB"], WaitReason.DIRECTORY, "", "directory")
    (own, _) = await alice.waiting(machine="ALICE")
    assert (own.reason, own.queue, own.machine) == (WaitReason.DIRECTORY, "", "ALICE")
    nodes.directory.file.write_text(content)
    alice.network.read_topology_soon()
    await passes(nodes, nodes.names["BOB"])
    await eventually(lambda: not alice.network.waiting(machine="ALICE"))


async def test_a_key_that_was_rotated_away(nodes: Nodes) -> None:
    for name in ("ALICE", "BOB", "CAROL"):
        await nodes.start(name)
    alice, queue = nodes.nodes["ALICE"], nodes.names["BOB"]

    async def send(body: bytes) -> None:
        async with await alice.open_queue(queue, Access.SEND) as out:
            await out.send(Message(body, privacy_level=PrivacyLevel.ADVANCED), transaction="single")

    await send(b"1")
    await passes(nodes, queue)
    await nodes.stop("BOB")
    keys = nodes.folder / "BOB" / "keys"
    kept, before = keys.read_bytes(), nodes.directory.file.read_text()
    keys.write_bytes((nodes.folder / "CAROL" / "keys").read_bytes())
    await nodes.start("BOB")
    nodes.directory.file.write_text(before)
    await send(b"2")
    await broken(nodes, queue, WaitReason.KEY, "BOB", "BOB", "key that decrypts")
    await nodes.stop("BOB")
    keys.write_bytes(kept)
    await nodes.start("BOB")
    await send(b"3")
    await passes(nodes, queue)


async def test_a_full_disk(nodes: Nodes) -> None:
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    alice, queue = nodes.nodes["ALICE"], nodes.names["BOB"]
    await nodes.stop("BOB")
    await nodes.send(b"1")
    alice.store.fail(OSError(errno.ENOSPC, "No space left on device"))
    found = await broken(nodes, queue, WaitReason.DISK, "ALICE", "No space left")
    assert "room" in found.step
    (own, _) = await alice.waiting()
    assert (own.reason, own.queue) == (WaitReason.DISK, "")
