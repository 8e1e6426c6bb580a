"""Enterprises that are broken for real: every door gives the same reason, and none once messages pass again."""

from __future__ import annotations

import errno
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.administration.asker import Asker
from qmnode.console.own_node import WithConsole
from qmnode.local.remote import RemoteQueueManager
from qmnode.local.server import LocalServer
from qmnode.management.operation_routes import TraceDocument
from qmnode.management.server import ManagementServer
from qmnode.model.queue import OutgoingQueue
from qmnode.model.waiting_reasons import Waiting, WaitReason
from qmnode.settings.node import LocalSettings, ManagementSettings
from qmnode.structures.enumerations import PrivacyLevel
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.security_descriptor import EVERYONE
from qmnode.structures.security_descriptor import QueueAccess as Right
from tests.doors.expectation import described
from tests.lab.disks import small_disk
from tests.lab.nodes import NodeProcess, running_node
from tests.lab.waiting import eventually, patience, until
from tests.management.conftest import READER, write_certificate, write_tokens
from tests.transport.conftest import loopback_address
from tests.transport.tls_nodes import QUEUE, Nodes

pytestmark = pytest.mark.servers
BAR = 5.0
"""Seconds from the first failed attempt, or the next success, until every door of a quiet machine says so."""


class Doors:
    """A node, asked at every door why the messages of a queue wait."""

    def __init__(self, socket: Path, web: Path, console: Callable[[], int], authority: Path) -> None:
        """Its sockets for applications and management, the port of its console, and the certificate of that."""
        self.socket, self.web, self._console = socket, web, console
        self._trust = ssl.create_default_context(cafile=str(authority))

    async def answers(self, queue: str, label: str) -> dict[str, Any]:
        """Reason, sentence and machine at each door; None where it gives no reason."""
        async with await RemoteQueueManager.connect(self.socket) as remote:
            shown = (await remote.queue(queue)).waiting
            listed = [one for one in await remote.waiting() if one.queue == queue]
            status = (await remote.status()).waiting
        transport = httpx.AsyncHTTPTransport(uds=str(self.web))
        async with httpx.AsyncClient(transport=transport, base_url="http://node", timeout=60) as client:
            queues = (await client.get("/v1/queues", params={"limit": 1000})).json()["queues"]
            (document,) = [one for one in queues if one["pathname"] == queue]
            found = (await client.get("/v1/waiting", params={"queue": queue})).json()["waiting"]
            traced = (await client.get("/v1/trace", params={"label": label})).raise_for_status().json()
            families = text_string_to_metric_families((await client.get("/metrics")).text)
        (family,) = [one for one in families if one.name == "qmnode_waiting_since_timestamp_seconds"]
        metric = [one.labels for one in family.samples if one.labels["queue"] == queue]
        places = TraceDocument.model_validate(traced).places
        reasons = {place.reason for place in places if place.role in ("outgoing", "dead_letter")}
        assert len(reasons) <= 1, places
        (reason,) = reasons or {""}
        return {
            "queue show": shown and (shown.reason, shown.sentence, shown.machine),
            "waiting": next(((one.reason, one.sentence, one.machine) for one in listed), None),
            "status": next(((one["reason"], one["sentence"], one["machine"]) for one in status if one["queues"]), None),
            "document": document["waiting"] and _triple(document["waiting"]),
            "http": _triple(found[0]) if found else None,
            "console": await self._at_console(queue),
            "metric": (metric[0]["reason"], shown and shown.sentence, metric[0]["machine"]) if metric else None,
            "trace": (reason, shown and shown.sentence, shown and shown.machine) if reason else None,
        }

    async def _at_console(self, queue: str) -> tuple[str, str, str] | None:
        url = f"https://127.0.0.1:{self._console()}"
        async with httpx.AsyncClient(
            base_url=f"{url}/api/", verify=self._trust, headers={"Origin": url}, timeout=60
        ) as browser:
            signed_in = await browser.post("session", json={"method": "token", "token": READER})
            assert signed_in.status_code == 200, signed_in.text
            rows = (await browser.get("waiting")).json()["waiting"]
        return next((_triple(row) for row in rows if row["queue"] == queue), None)

    async def agree(self, queue: str, label: str) -> tuple[str, str, str] | None:
        """The one answer of all doors."""
        answers = await self.answers(queue, label)
        assert len(set(answers.values())) == 1, answers
        return answers["queue show"]


def doors_settings(folder: Path) -> dict[str, Any]:
    """The settings of a management API with a console, whose certificate is in the folder."""
    certificate, key = write_certificate(folder)
    return {
        "socket": folder / "m.sock", "listen": "127.0.0.1:0", "console": True, "tokens": write_tokens(folder),
        "certificate": certificate, "private_key": key,
    }  # fmt: skip


@asynccontextmanager
async def doors_of(node: QueueManager, folder: Path) -> AsyncIterator[Doors]:
    """All doors of a node of this process."""
    settings = ManagementSettings.model_validate(doors_settings(folder))
    local = LocalServer(node, LocalSettings(socket=folder / "n.sock"))
    management = ManagementServer(
        node, settings, lambda: True, operations=node.operations,
        beside=lambda api: WithConsole(api, node.computer_name, settings),
    )  # fmt: skip
    await local.start()
    await management.start()
    try:
        assert management.address is not None and settings.certificate is not None
        port = management.address[1]
        yield Doors(folder / "n.sock", folder / "m.sock", lambda: port, settings.certificate)
    finally:
        await management.stop()
        await local.stop()


def _triple(document: dict[str, Any]) -> tuple[str, str, str]:
    return document["reason"], document["sentence"], document["machine"]


class Timed(Nodes):
    """Nodes, and whether the seconds count until every door says why messages wait, and then nothing."""

    timed = False
    label = ""
    """The label of the last message."""

    async def send(self, body: bytes, *, to: str = "BOB", privacy_level: PrivacyLevel = PrivacyLevel.NONE) -> None:
        self.label = f"message {body[:9].decode()}"
        message = Message(body, label=self.label, negative_journaling_requested=True, privacy_level=privacy_level)
        async with await self.nodes["ALICE"].open_queue(self.names[to], Access.SEND) as out:
            await out.send(message, transaction="single")

    def check(self, began: float, what: str) -> None:
        """Fail if it took longer than the bar, where seconds count."""
        seconds = time.monotonic() - began
        if self.timed:
            print(f"{what}: {seconds:.2f} s, load {os.getloadavg()[0]:.1f}")
            assert seconds < BAR * patience()


@pytest.fixture(params=[False, pytest.param(True, marks=[pytest.mark.soak, pytest.mark.timed])], ids=["", "timed"])
async def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Timed]:
    async with AsyncExitStack() as stack:
        nodes = Timed(tmp_path, stack)
        nodes.timed = request.param
        yield nodes


async def waits(node: QueueManager, queue: str, reason: WaitReason) -> None:
    """Wait for the reason, and for nothing else."""
    await eventually(lambda: _of(node, queue) is not None, "a reason")
    await eventually(lambda: getattr(_of(node, queue), "reason", None) is reason, f"{reason}, not {_of(node, queue)}")


def _of(node: QueueManager, queue: str) -> Waiting | None:
    found = node.context.names.find(queue)
    assert isinstance(found, OutgoingQueue)
    return found.waits_for


async def passes(nodes: Timed, queue: str) -> None:
    """Wait until the last message arrives, and then until no door has a reason."""
    alice, bob = nodes.nodes["ALICE"], nodes.nodes["BOB"]

    async def has_arrived() -> bool:
        found = await bob.operations.trace(Asker("program"), {"label": nodes.label})
        return any(place["role"] == "queue" for place in found["places"])

    await until(has_arrived, "the message")
    began = time.monotonic()
    await eventually(lambda: _of(alice, queue) is None and not alice.context.names.find(queue).message_count)
    async with doors_of(alice, nodes.folder) as doors:
        assert await doors.agree(queue, nodes.label) is None
    nodes.check(began, "no reason any more")


async def broken(nodes: Timed, queue: str, reason: WaitReason, machine: str, *words: str) -> Waiting:
    """Every door of ALICE says this reason, and a step."""
    alice, began = nodes.nodes["ALICE"], time.monotonic()
    await waits(alice, queue, reason)
    async with doors_of(alice, nodes.folder) as doors:
        answer = await doors.agree(queue, nodes.label)
    nodes.check(began, reason)
    found = (await alice.queue(queue)).waiting
    assert answer is not None and found is not None
    assert (answer[0], found.reason, found.machine) == (reason, reason, machine), found
    assert all(word in found.sentence for word in words), found.sentence
    assert found.step and found.since
    return found


async def test_a_dead_host(nodes: Timed) -> None:
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    await nodes.stop("BOB")
    await nodes.send(b"1")
    found = await broken(nodes, nodes.names["BOB"], WaitReason.HOST_DOWN, "BOB", "BOB", "Connection refused")
    assert found.messages == 1
    await nodes.start("BOB")
    await passes(nodes, nodes.names["BOB"])


async def test_a_dead_gate_is_named_and_not_the_destination(nodes: Timed) -> None:
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


async def test_a_wrong_name_in_the_dns(nodes: Timed) -> None:
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    nodes.machines["BOB"].address = "nobody.invalid"
    nodes.directory.write()
    await nodes.send(b"1")
    await broken(nodes, nodes.names["BOB"], WaitReason.NO_NAME, "nobody.invalid", "nobody.invalid")
    alice = nodes.nodes["ALICE"]
    assert [len(await alice.waiting(link=site)) for site in ("North", "south", "nowhere")] == [1, 0, 0]
    nodes.machines["BOB"].address = ""
    nodes.directory.write()
    await passes(nodes, nodes.names["BOB"])


@pytest.mark.parametrize("expired", ["BOB", "ALICE"])
async def test_an_expired_certificate_on_either_side(nodes: Timed, expired: str) -> None:
    for name in ("ALICE", "BOB"):
        await nodes.start(name, "require", expired=name == expired)
    await nodes.send(b"1")
    await broken(nodes, nodes.names["BOB"], WaitReason.CERTIFICATE, "BOB", "BOB", "expired")
    for name in ("ALICE", "BOB"):
        await nodes.stop(name)
    for name in ("BOB", "ALICE"):
        await nodes.start(name, "require")
    await passes(nodes, nodes.names["BOB"])


async def test_denied_access_at_both_ends(nodes: Timed) -> None:
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
    async with doors_of(bob, nodes.folder) as doors, await RemoteQueueManager.connect(doors.socket) as remote:
        (sequence,) = await remote.incoming_sequences(QUEUE)
    assert sequence.waiting == there
    await bob.set_queue(QUEUE, security=described([(True, EVERYONE, int(Right.MQSEC_QUEUE_GENERIC_ALL))], None))
    await nodes.send(b"2")
    await passes(nodes, nodes.names["BOB"])
    assert (await bob.queue(QUEUE)).waiting is None
    assert [one.waiting for one in await bob.incoming_sequences(QUEUE)] == [None]


async def test_a_full_quota_at_both_ends(nodes: Timed) -> None:
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


async def test_a_paused_queue_and_a_node_that_is_offline(nodes: Timed) -> None:
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


async def test_a_missing_gate(nodes: Timed) -> None:
    nodes.directory.links = []
    nodes.directory.write()
    for name in ("ALICE", "BOB"):
        await nodes.start(name)
    await nodes.send(b"1")
    await broken(nodes, nodes.names["BOB"], WaitReason.NO_ROUTE, "BOB", "BOB")
    nodes.directory.links = [("south", "north", 1, ["ALICE", "BOB"])]
    nodes.directory.write()
    await passes(nodes, nodes.names["BOB"])


async def test_a_directory_that_is_down(nodes: Timed) -> None:
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


async def test_a_key_that_was_rotated_away(nodes: Timed) -> None:
    for name in ("ALICE", "BOB", "CAROL"):
        await nodes.start(name)
    queue = nodes.names["BOB"]
    await nodes.send(b"1", privacy_level=PrivacyLevel.ADVANCED)
    await passes(nodes, queue)
    await nodes.stop("BOB")
    keys = nodes.folder / "BOB" / "keys"
    kept, before = keys.read_bytes(), nodes.directory.file.read_text()
    keys.write_bytes((nodes.folder / "CAROL" / "keys").read_bytes())
    await nodes.start("BOB")
    nodes.directory.file.write_text(before)
    await nodes.send(b"2", privacy_level=PrivacyLevel.ADVANCED)
    await broken(nodes, queue, WaitReason.KEY, "BOB", "BOB", "key that decrypts")
    await nodes.stop("BOB")
    keys.write_bytes(kept)
    await nodes.start("BOB")
    await nodes.send(b"3", privacy_level=PrivacyLevel.ADVANCED)
    await passes(nodes, queue)


async def test_a_disk_that_fails(nodes: Timed) -> None:
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


async def test_a_full_disk(nodes: Timed, tmp_path: Path) -> None:
    here, there, authority = loopback_address(), loopback_address(), tmp_path / "certificate.pem"
    queue = rf"DIRECT=TCP:{there}\private$\tx"
    with small_disk(tmp_path / "disk", 24) as disk, running_node(
        tmp_path / "node", data=str(disk / "store"), computer_name="ALICE", transport={"address": here},
        management={name: str(value) for name, value in doors_settings(tmp_path).items()},
    ) as alice:  # fmt: skip
        doors = Doors(alice.socket, tmp_path / "m.sock", lambda: console_of(alice), authority)

        async def say(reason: WaitReason) -> tuple[str, str, str]:
            found: list[tuple[str, str, str]] = []

            async def is_said() -> bool:
                try:
                    answers = set((await doors.answers(queue, "one")).values())
                except (httpx.HTTPError, OSError, MessageQueuingError):
                    return False  # it starts anew, as often as it cannot write
                found[:] = [answer for answer in answers if answer is not None and answer[0] == reason]
                return len(answers) == len(found) == 1

            began = time.monotonic()
            await until(is_said, f"{reason} at every door")
            nodes.check(began, reason)
            return found[0]

        async def send(label: str) -> None:
            async with await alice.connect() as qm, await qm.open_queue(queue, Access.SEND) as out:
                await out.send(Message(b"x" * 2000, label=label), transaction="single")

        async def is_refused() -> bool:
            try:
                async with await alice.connect() as qm:  # no quota keeps room from a new queue
                    await qm.create_queue(rf".\private$\{uuid4()}", label="x" * 100)
            except MessageQueuingError as error:
                return error.code is ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED
            return False

        async def is_taken() -> bool:
            try:
                await send("more")
            except (MessageQueuingError, OSError):
                return False
            return True

        await send("one")
        await say(WaitReason.HOST_DOWN)
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        await until(is_refused, "a write that fails")
        reason, sentence, machine = await say(WaitReason.DISK)
        assert (reason, machine) == (WaitReason.DISK, "ALICE") and "space" in sentence
        (disk / "filler").unlink()
        await until(is_taken, "a write that does not fail")
        await say(WaitReason.HOST_DOWN)


def console_of(node: NodeProcess) -> int:
    """The port of the last management API over TCP that the log has."""
    lines = [json.loads(line) for line in node.said().splitlines() if line.startswith("{")]
    return int([line["port"] for line in lines if line.get("event") == "management API" and "port" in line][-1])
