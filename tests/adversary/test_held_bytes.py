"""Bytes that a node holds for others: a total, a reserve for those who have earned it, and a share for each block."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.adversary.attacks import Area, attack
from tests.adversary.beside import MIB, MOST, OPEN, Besieged, besieged, drip, signed
from tests.transport.conftest import loopback_address

pytestmark = pytest.mark.servers


async def send_signed(lab: Besieged, address: str, size: int, stop: asyncio.Event) -> None:
    """Send signed messages as fast as the node reads."""
    while not stop.is_set():
        peer, source = await lab.stranger(address)
        await drip(peer, lab.letter(source, 1, OPEN, body=bytes(size), security=signed()), stop)


async def besiege_with_signed(folder: Path, blocks: int, connections: int, messages: int) -> None:
    addresses = [loopback_address() for _ in range(blocks)]
    async with besieged(folder) as lab:
        async with lab.honest_traffic():
            await lab.each_sends(3)
            before = lab.memory
            attackers = [partial(send_signed, lab, one, 4 * MIB - 8192) for one in addresses * connections]
            async with lab.attacked(attackers):
                await lab.each_sends(messages)
            print(lab.report())
            assert lab.peak - before < MOST, lab.report()
        await lab.all_is_well()


@attack(
    Area.RESOURCES,
    can="send large signed messages over many connections, faster than signatures are verified",
    promised="messages that wait for a verification have a limit over all connections; an address over its share is "
    "not read for a while, and half of the limit and more is kept for declared peers",
)
async def test_signed_messages_of_a_stranger_wait_in_its_share(tmp_path: Path) -> None:
    await besiege_with_signed(tmp_path, 1, 30, 10)


@pytest.mark.soak
@pytest.mark.parametrize(("blocks", "connections"), [(1, 60), (1, 150), (10, 20)])
async def test_signed_messages_of_many_wait_in_their_shares(tmp_path: Path, blocks: int, connections: int) -> None:
    await besiege_with_signed(tmp_path, blocks, connections, 300)
