"""What is told of the transactional messages that come to a queue: by Python, the management API and a command."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import datetime
from pathlib import Path

import httpx
import pytest

import qmnode
from qmnode import Message
from qmnode.local.server import LocalServer
from qmnode.management.server import ManagementServer
from qmnode.model.administration import IncomingSequenceInformation
from qmnode.settings.node import LocalSettings, ManagementSettings
from qmnode.structures.guid import guid_to_text
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair
from tests.transport.test_transfer import bodies, send_in_transaction

pytestmark = pytest.mark.servers


async def show(socket: Path, *arguments: str) -> str:
    """What ``qmnode queue show`` prints."""
    code = "from qmnode.cli import main; main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, "queue", "show", *arguments, "--socket", socket, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_what_came_again_is_counted_and_shown(pair: Pair, tmp_path: Path) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    bob = pair.bob
    bob.network.notices.order = lambda acknowledgment: None  # lost on its way: the messages come again
    began = int(bob.clock.time())
    await send_in_transaction(pair.alice, name, [Message(b"1"), Message(b"2")])
    assert await bodies(bob, TRANSACTIONAL, 2) == [b"1", b"2"]
    (before,) = await bob.incoming_sequences(TRANSACTIONAL)
    assert (before.number, before.reject_count) == (2, 0)
    await pair.stop("ALICE")
    await pair.start("ALICE")

    def shown() -> list[IncomingSequenceInformation]:
        return bob.network.incoming_sequences(bob.names.find(TRANSACTIONAL))

    await eventually(lambda: shown()[0].reject_count == 2)
    (sequence,) = shown()
    assert (sequence.source, sequence.destination, sequence.number) == (pair.alice.identifier, name, 2)
    assert sequence.address == pair.addresses["ALICE"]
    assert sequence.sequence_identifier == before.sequence_identifier
    assert began <= sequence.last_access_time <= bob.clock.time()
    assert await bob.incoming_sequences(PLAIN) == []

    local = LocalServer(bob, LocalSettings(socket=tmp_path / "node.sock"))
    await local.start()
    async with qmnode.connect(tmp_path / "node.sock") as remote:
        assert await remote.incoming_sequences(TRANSACTIONAL) == [sequence]
    printed = json.loads(await show(tmp_path / "node.sock", "tx", "--json"))
    table = await show(tmp_path / "node.sock", "tx")
    other = await show(tmp_path / "node.sock", "plain")
    await local.stop()
    (document,) = printed["incoming_sequences"]
    assert printed["pathname"].endswith(r"\private$\tx")
    accessed = document.pop("last_access_time")
    assert datetime.fromisoformat(accessed).timestamp() == sequence.last_access_time
    source = guid_to_text(pair.alice.identifier)
    assert document == {
        "source": source,
        "destination": name,
        "address": pair.addresses["ALICE"],
        "sequence": hex(sequence.sequence_identifier),
        "number": 2,
        "reject_count": 2,
        "is_known": False,
        "refused_count": 2,
        "waiting": None,
    }
    row = next(line for line in table.splitlines() if line.startswith(source))
    assert row.split()[1:6] == [pair.addresses["ALICE"], name, hex(sequence.sequence_identifier), "2", "2"]
    assert "rejected" not in other

    management = ManagementServer(bob, ManagementSettings(socket=tmp_path / "management.sock"), lambda: True)
    await management.start()
    transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "management.sock"))
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        answer = (await client.get("/v1/queues/tx/incoming-sequences")).json()
        missing = await client.get("/v1/queues/nothing/incoming-sequences")
    await management.stop()
    assert answer == {"incoming_sequences": [document | {"last_access_time": accessed}]}
    assert (missing.status_code, missing.json()["name"]) == (404, "MQ_ERROR_QUEUE_NOT_FOUND")
