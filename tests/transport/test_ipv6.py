"""Messages over IPv6, and pings over UDP (MS-MQQB 2.1, 2.1.2, 3.1.7.6)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.structures.guid import new_guid
from qmnode.transport.ping import ping
from tests.transport.conftest import PLAIN, Pair, loopback_address, settings_of
from tests.transport.test_limits import Named


def has_ipv6() -> bool:
    """Whether this machine has the loopback address of IPv6."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_messages_and_pings_over_ipv6(tmp_path: Path) -> None:
    bobs = settings_of("BOB", "::1").model_copy(update={"other_names": ("bob.example",)})
    async with (
        QueueManager.open(tmp_path / "alice", settings_of("ALICE", loopback_address(), ping=True)) as alice,
        QueueManager.open(tmp_path / "bob", bobs) as bob,
    ):
        for node in (alice, bob):
            await node.network.start()
        alice.network.resolver = Named("::1")
        await bob.create_queue(PLAIN)
        out = await alice.open_queue(r"DIRECT=OS:bob.example\private$\plain", Access.SEND)
        await out.send(Message(b"over IPv6", recoverable=True))
        queue = await bob.open_queue(f"DIRECT=OS:{PLAIN}")
        assert (await queue.receive(timeout=60)).body == b"over IPv6"
        assert [one.address.startswith("[::1]:") for one in bob.network.connections()] == [True]
        assert await ping(new_guid(), "::1", 3527, "")


async def test_a_node_that_takes_no_more_sessions_refuses_pings(pair: Pair) -> None:
    address = pair.addresses["BOB"]
    assert await ping(new_guid(), address, 3527, pair.addresses["ALICE"])
    pair.bob.take_offline()
    assert not await ping(new_guid(), address, 3527, pair.addresses["ALICE"])


async def test_a_ping_that_nobody_answers_is_given_up(pair: Pair) -> None:
    assert not await ping(new_guid(), loopback_address(), 3527, pair.addresses["ALICE"])


async def test_garbage_is_not_answered(pair: Pair) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((pair.addresses["BOB"], 3527))
        for data in (b"", b"\x01", bytes(22), bytes(60_000)):
            probe.send(data)
    assert await ping(new_guid(), pair.addresses["BOB"], 3527, pair.addresses["ALICE"])
