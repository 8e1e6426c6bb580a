"""Refused messages as the operator of the receiver sees them: Python, the command, the management API, the metrics."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx
import pytest

import qmnode
from qmnode import Access, Message
from qmnode.local.server import LocalServer
from qmnode.management.server import ManagementServer
from qmnode.settings.node import LocalSettings, ManagementSettings
from qmnode.structures.guid import guid_to_text
from qmnode.structures.security_descriptor import QueueAccess as Right
from qmnode.structures.security_descriptor import Sid
from tests.doors.expectation import described
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, Pair

pytestmark = pytest.mark.servers
ALICE = Sid.from_text("S-1-5-21-7-8-9-1001")


async def refused(socket: Path, *arguments: str) -> str:
    """What ``qmnode queue refused`` prints."""
    code = "from qmnode.cli import main; main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, "queue", "refused", "plain", *arguments, "--socket", socket,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()


async def test_a_refusal_is_shown_with_sender_reason_and_count(pair: Pair, tmp_path: Path) -> None:
    bob = pair.bob
    await bob.set_queue(PLAIN, security=described([(True, ALICE, int(Right.MQSEC_WRITE_MESSAGE))], None))
    async with await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND) as out:
        for _ in range(3):
            named = {"sender_identifier": ALICE.write(), "sender_identifier_type": 1}
            await out.send(Message(b"x", recoverable=True, **named))
    await eventually(lambda: bob.traffic.refusals.denied.total() == 3)
    (row,) = await bob.refused_messages(PLAIN)
    assert (row.standing, row.source, row.count, row.claimed_sender) == (
        "never", pair.alice.identifier, 3, ALICE.write(),
    )  # fmt: skip

    local = LocalServer(bob, LocalSettings(socket=tmp_path / "node.sock"))
    await local.start()
    async with qmnode.connect(tmp_path / "node.sock") as remote:
        assert await remote.refused_messages(PLAIN) == [row]
    printed = json.loads(await refused(tmp_path / "node.sock", "--json"))
    table = await refused(tmp_path / "node.sock")
    await local.stop()
    (document,) = printed["refused_messages"]
    assert (document["reason"], document["standing"], document["count"]) == ("access_denied", "never", 3)
    assert (document["sender"], document["source"]) == (str(ALICE), guid_to_text(pair.alice.identifier))
    assert "security.unsigned_senders is never" in document["explanation"]
    assert document["address"] == pair.addresses["ALICE"] and document["total_bytes"] == row.size
    assert "access_denied" in table and "security.unsigned_senders is never" in table.replace("\n", " ")

    management = ManagementServer(bob, ManagementSettings(socket=tmp_path / "management.sock"), lambda: True)
    await management.start()
    transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "management.sock"))
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        answer = (await client.get("/v1/queues/plain/refused-messages")).json()
        missing = await client.get("/v1/queues/nothing/refused-messages")
        metrics = (await client.get("/metrics")).text
    await management.stop()
    assert answer == printed
    assert missing.status_code == 404
    assert 'qmnode_access_denied_messages_total{sender="never"} 3.0' in metrics
