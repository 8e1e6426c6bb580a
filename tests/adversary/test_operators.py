"""What operators see of conflicts, and how they end one that a stranger has caused."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from qmnode.local.server import LocalServer
from qmnode.management.metrics import exposition
from qmnode.management.request_context import Context
from qmnode.settings.node import LocalSettings, ManagementSettings
from qmnode.structures.guid import guid_to_text
from tests.adversary import wire
from tests.adversary.lab import receive, send, sent
from tests.adversary.peer import session
from tests.adversary.wire import Place
from tests.lab.waiting import holds
from tests.transport.conftest import TRANSACTIONAL, Pair

pytestmark = pytest.mark.servers


async def command(socket: Path, *arguments: str) -> tuple[int, str]:
    """``qmnode sequence`` with these arguments, without a terminal."""
    code = "from qmnode.cli import main; main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, "sequence", *arguments, "--socket", socket,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_sequences_are_listed_with_who_brought_them_and_reset(pair: Pair, own: str, tmp_path: Path) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    source = wire.identifier()
    await send(pair.alice, name, [b"0", b"1"])
    await sent(pair.alice)

    def message(place: Place) -> bytes:
        return wire.UserMessage(
            source=source, message_id=1, queue=wire.direct(name.removeprefix("DIRECT=")), place=place
        ).packet()

    async with session(own, pair.addresses["BOB"], source) as peer:
        await peer.say(message(Place(9 << 32, 1, 0)), message(Place(8 << 32, 1, 0)), message(Place(9 << 32, 4, 3)))
    local = LocalServer(pair.bob, LocalSettings(socket=tmp_path / "node.sock"))
    await local.start()
    try:
        code, listed = await command(tmp_path / "node.sock", "list", "--queue", "tx", "--json")
        assert code == 0
        shown = {one["address"]: one for one in json.loads(listed)["incoming_sequences"]}
        assert set(shown) == {own, pair.addresses["ALICE"]}
        assert (shown[own]["source"], shown[own]["number"], shown[own]["refused_count"]) == (guid(source), 1, 2)
        assert not shown[own]["is_known"]
        _, table = await command(tmp_path / "node.sock", "list")
        assert guid(source) in table
        assert guid(pair.alice.identifier) in table

        refused, text = await command(tmp_path / "node.sock", "reset", guid(source))
        assert (refused, "give --yes" in text) == (2, True)
        assert (await command(tmp_path / "node.sock", "reset", "nobody", "--yes"))[0] == 2
        other = ("reset", guid(source), "--address", pair.addresses["ALICE"], "--yes")
        none = (1, "there is no such sequence: see `qmnode sequence list`\n")
        assert await command(tmp_path / "node.sock", *other) == none
        wrong, text = await command(tmp_path / "node.sock", *other[:3], "ALICE", "--yes")
        assert (wrong, "--address" in text) == (2, True)
        done = await command(tmp_path / "node.sock", "reset", guid(source), "--queue", "tx", "--yes")
        assert done == (0, "1 sequence forgotten\n")
    finally:
        await local.stop()
    await pair.stop("BOB")
    await pair.start("BOB")
    assert [one.source for one in await pair.bob.incoming_sequences()] == [pair.alice.identifier]
    async with session(own, pair.addresses["BOB"], source) as peer:
        await peer.say(message(Place(8 << 32, 1, 0)))
    assert await receive(pair.bob, TRANSACTIONAL, 4) == [b"0", b"1", b"forged", b"forged"]


def guid(identifier: bytes) -> str:
    return guid_to_text(identifier)


async def test_what_was_not_believed_is_a_metric_and_one_line(pair: Pair, own: str) -> None:
    with capture_logs() as lines:
        async with session(own, pair.addresses["BOB"], wire.identifier()) as peer:
            packet = wire.UserMessage(
                source=pair.bob.identifier, message_id=1, queue=wire.direct(rf"TCP:{own}\private$\q")
            ).packet()
            await peer.say(*[packet] * 50)

            async def all_are_counted() -> bool:
                text = await exposition(Context(pair.bob, ManagementSettings()))
                return b'qmnode_distrusted_packets_total{kind="own_name"} 50.0' in text

            await holds(all_are_counted, 60, "the metric counts each")
    (line,) = [one for one in lines if "own name" in one["event"]]
    assert (line["log_level"], line["address"]) == ("warning", own)
