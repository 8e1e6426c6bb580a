"""Bridges to brokers that nobody here wrote."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from qmnode.bodies.choice import read_headers
from tests.amqp.bridging import arrived, bridge_settings, bridged, emptied
from tests.amqp.conftest import open_door
from tests.amqp.foreign import artemis
from tests.amqp.rabbitmq import queue_address, rabbitmq, shovel_in, shovel_out
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from pathlib import Path

    from qmnode import Message
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


async def test_bridges_and_shovels_go_through_rabbitmq_and_on_after_it_is_killed(tmp_path: Path) -> None:
    # This version of the shovel counts frames where it should count messages, so each message has to fit one frame.
    async with open_door(tmp_path, anonymous=True, frame_size=5_000_000) as door:
        security = await door.manager.queue_security(r".\private$\exact")
        for name in ("fetched", "brought"):
            await door.manager.create_queue(f".\\private$\\{name}", transactional=True, security=security)
        shovels = {
            "fetches": shovel_in(door.url, "fetched", "between"),
            "brings": shovel_out(door.url, "between", "brought"),
        }
        async with rabbitmq(folder(tmp_path), "orders", "between", shovels=shovels) as broker:
            peer = {"peer": broker.url, "address": queue_address("orders")}
            out = bridge_settings(direction="out", queue="exact", **peer)
            back = bridge_settings(direction="in", queue="done", window=50, **peer)
            async with bridged(door, out=out, back=back):
                await door.send("exact", *BODIES[:10], label="order 7")
                await door.send("fetched", *BODIES[:10], label="order 7")
                await arrived(door, "done", 10, 60)
                await arrived(door, "brought", 10, 60)
                await door.send("exact", *BODIES[10:])
                await door.send("fetched", *BODIES[10:])
                await broker.kill()
                await broker.start()
                for queue in ("done", "brought"):
                    await _all_are_there(door, queue, 120)
                for queue in ("exact", "fetched"):
                    await emptied(door, queue)
        found = await door.messages("done")
        assert_explained(found)
        assert found[0].label == "order 7"


async def _all_are_there(door: Door, queue: str, seconds: float) -> None:
    async def are() -> bool:
        return set(await door.bodies(queue)) == set(BODIES)

    await holds(are, seconds, f"all messages are in {queue}")


def assert_explained(found: list[Message]) -> None:
    """Each message came, and one that came again has the message-id that it had before."""
    identifiers: dict[bytes, set[str]] = {}
    for message in found:
        identifiers.setdefault(message.body, set()).add(read_headers(message.extension).values["AMQP.message-id"])
    assert set(identifiers) == set(BODIES)
    assert all(len(one) == 1 for one in identifiers.values())
