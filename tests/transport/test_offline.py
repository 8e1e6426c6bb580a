"""Take Offline and Bring Online (MS-MQDMPR 3.1.4.12, 3.1.4.13), and what operators see of connections."""

from __future__ import annotations

import pytest

from qmnode import Access, Message
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, Pair


@pytest.mark.parametrize("name", ["ALICE", "BOB"])
async def test_offline_closes_sessions_and_keeps_messages_until_online(pair: Pair, name: str) -> None:
    node = pair.nodes[name]
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    queue = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    await out.send(Message(b"before", recoverable=True))
    assert (await queue.receive(timeout=60)).body == b"before"
    node.take_offline()
    await eventually(lambda: not any(one.established for one in node.network.connections()))
    await out.send(Message(b"held", recoverable=True))
    if name == "ALICE":
        assert (await pair.alice.queue(pair.direct("BOB", PLAIN))).state == "disconnected"
        assert not pair.alice.network.connections()
    node.bring_online()
    assert (await queue.receive(timeout=60)).body == b"held"


async def test_a_queue_that_was_paused_stays_so_when_its_node_comes_online(pair: Pair) -> None:
    name = pair.direct("BOB", PLAIN)
    out = await pair.alice.open_queue(name, Access.SEND)
    pair.alice.take_offline()
    await pair.alice.pause_queue(name)
    await out.send(Message(b"held", recoverable=True))
    pair.alice.bring_online()
    assert (await pair.alice.queue(name)).state == "on hold"
    await pair.alice.resume_queue(name)
    queue = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    assert (await queue.receive(timeout=60)).body == b"held"


async def test_unacknowledged_messages_of_an_outgoing_connection_are_those_that_it_sent(pair: Pair) -> None:
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    for number in range(3):  # express ones: their acknowledgment takes ten seconds (3.1.5.8.7)
        await out.send(Message(b"%d" % number))
    queue = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    for _ in range(3):
        await queue.receive(timeout=60)
    (outgoing,) = pair.alice.network.connections()
    (incoming,) = pair.bob.network.connections()
    assert (outgoing.unacknowledged_messages, incoming.unacknowledged_messages) == (3, 0)
