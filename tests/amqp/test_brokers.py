"""Bridges to brokers that nobody here wrote."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.amqp.bridging import arrived, bridge_settings, bridged
from tests.amqp.foreign import artemis

if TYPE_CHECKING:
    from pathlib import Path

    from tests.amqp.conftest import Door

pytestmark = [pytest.mark.servers, pytest.mark.slow]

BODIES = [b"", b"order", bytes(4_000_000), *(str(number).encode() for number in range(50))]


def folder(path: Path) -> Path:
    made = path / "broker"
    made.mkdir()
    return made


async def test_messages_go_through_artemis_and_back_exactly_once_while_it_is_killed(door: Door, tmp_path: Path) -> None:
    async with artemis(folder(tmp_path), "orders", "sent", "taken") as broker:
        exactly = {"guarantee": "exactly-once", "peer": broker.url, "address": "orders"}
        out = bridge_settings(direction="out", queue="exact", ledger="sent", **exactly)
        back = bridge_settings(direction="in", queue="done", ledger="taken", window=50, **exactly)
        async with bridged(door, out=out, back=back):
            await door.send("exact", *BODIES[:10], label="order 7")
            await arrived(door, "done", 10)
            await door.send("exact", *BODIES[10:])
            await broker.kill()
            await broker.start()
            await arrived(door, "done", len(BODIES), 120)
            await asyncio.sleep(1)
    found = await door.messages("done")
    assert sorted(message.body for message in found) == sorted(BODIES)
    assert found[0].label == "order 7"
