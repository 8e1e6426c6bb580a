"""Bytes that a node holds for others: a total, a reserve for those who have earned it, and a share for each block."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.beside import KIB, MIB, MOST, OPEN, Besieged, besieged, drip, signed
from tests.lab.waiting import until
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


async def fill(lab: Besieged, address: str, queue: str, stop: asyncio.Event) -> None:
    """Send messages until no more are taken, then ever smaller ones."""
    size = 256 * KIB
    while not stop.is_set():
        peer, source = await lab.stranger(address)
        letters = [lab.letter(source, one, queue, body=bytes(size), flags=wire.DEAD_LETTER) for one in range(1, 65)]
        await drip(peer, b"".join(letters), stop)
        size = max(64, size // 4)


@attack(
    Area.RESOURCES,
    can="fill the quota of a node, with messages for a queue that is open to all and with dead letters for queues that "
    "do not exist",
    promised="a quarter of the quota is kept for declared peers and applications, half of that for applications alone; "
    "dead letters of strangers are kept in the first half only",
)
async def test_strangers_fill_their_part_of_the_quota_only(tmp_path: Path) -> None:
    limit = 8 * MIB
    async with besieged(tmp_path, quotas={"queue_manager_quota": limit // KIB}) as lab:
        async with lab.honest_traffic():
            await lab.each_sends(2)
            for queue, most in (("nowhere", limit // 2), (OPEN, limit * 3 // 4)):
                async with lab.attacked([partial(fill, lab, loopback_address(), queue)]):
                    await until(partial(holds, lab, most - 512 * KIB), f"strangers have filled {queue}", 60)
                    await lab.each_sends(5)
                async with await lab.node.connect() as manager:
                    assert (await manager.status()).quota_used < most + MIB // 2
        await lab.all_is_well()


async def holds(lab: Besieged, size: int) -> bool:
    """Whether the node stores so many bytes."""
    async with await lab.node.connect() as manager:
        return (await manager.status()).quota_used > size
