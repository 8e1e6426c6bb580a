"""A large message whose receiver is about to come back is handed on to it, and not written before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from qmnode import Access, Message, allocator
from qmnode.allocator import lend
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair

if TYPE_CHECKING:
    from qmnode.model.api import QueueApi

pytestmark = pytest.mark.usefixtures("own_memory")

LARGE = 400_000
SEVERAL = 12


def written(pair: Pair) -> int:
    """The files that the receiver has made for large messages so far."""
    return len(list((pair.folder / "BOB" / "large").glob("*")))


async def receive(queue: QueueApi, count: int, pause: float) -> list[bytes]:
    """Receive messages one by one, and do something else in between."""
    found = []
    for _ in range(count):
        found.append((await queue.receive(timeout=60)).body)
        await asyncio.sleep(pause)
    return found


async def exchanged(pair: Pair, name: str, pause: float) -> None:
    """Messages that are sent together arrive in their order."""
    out = await pair.alice.open_queue(pair.direct("BOB", name), Access.SEND)
    into = await pair.bob.open_queue(f"DIRECT=OS:{name}")
    receiving = asyncio.create_task(receive(into, SEVERAL, pause))
    await eventually(lambda: into.queue.waiting)  # type: ignore[attr-defined]
    transaction = pair.alice.transaction() if name == TRANSACTIONAL else None
    bodies = [bytes([number]) * LARGE for number in range(SEVERAL)]
    for body in bodies:
        await out.send(Message(body, recoverable=True), transaction=transaction)
    if transaction is not None:
        await transaction.commit()
    assert await receiving == bodies
    assert None not in [lend(1) for _ in range(allocator._LENDERS)]  # nobody keeps what the messages were read into


@pytest.mark.parametrize("name", [PLAIN, TRANSACTIONAL])
async def test_a_receiver_that_comes_back_gets_them_unwritten(
    pair: Pair, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmnode.delivery.arrivals._PATIENCE", 60.0)
    await exchanged(pair, name, 0.001)
    assert written(pair) == 0


@pytest.mark.parametrize("patience", [60.0, 0.0])
async def test_many_small_ones_wait_for_a_receiver_that_comes_back(
    pair: Pair, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmnode.delivery.arrivals._PATIENCE_OF_MANY", patience)
    monkeypatch.setattr("qmnode.delivery.arrivals.MANY", 1)  # they may come in parts
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    into = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    queue = into.queue  # type: ignore[attr-defined]
    receiving = asyncio.create_task(into.receive_many(50, timeout=60))
    await eventually(lambda: queue.waiting)
    found = []
    for batch in range(4):
        await out.send_many([Message(bytes([batch, number]), recoverable=True) for number in range(50)])
        taken = await receiving
        while len(taken) < 50:
            taken += await into.receive_many(50 - len(taken), timeout=60)
        found += [message.body for message in taken]
        if batch < 3:
            await out.send_many([Message(b"between", recoverable=True) for _ in range(50)])
            if patience and batch:
                await eventually(lambda: queue.awaited is not None)
                assert queue.message_count == 0
            between = await into.receive_many(50, timeout=60)
            while len(between) < 50:
                between += await into.receive_many(50 - len(between), timeout=60)
            receiving = asyncio.create_task(into.receive_many(50, timeout=60))
            await eventually(lambda: queue.waiting)
    assert found == [bytes([batch, number]) for batch in range(4) for number in range(50)]


async def test_they_are_written_for_a_receiver_that_takes_its_time(pair: Pair) -> None:
    await exchanged(pair, PLAIN, 0.1)
    assert written(pair) > 0


async def test_a_receiver_that_stays_away_delays_nobody(pair: Pair) -> None:
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    other = await pair.alice.open_queue(pair.direct("BOB", r".\private$\admin"), Access.SEND)
    into = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    receiving = asyncio.create_task(into.receive(timeout=60))
    await eventually(lambda: into.queue.waiting)  # type: ignore[attr-defined]
    for _ in range(3):
        await out.send(Message(bytes(LARGE), recoverable=True))
    await other.send(Message(b"behind", recoverable=True))
    behind = await pair.bob.open_queue(r"DIRECT=OS:.\private$\admin")
    assert (await behind.receive(timeout=60)).body == b"behind"
    assert len((await receiving).body) == LARGE
    await eventually(lambda: into.queue.message_count == 2)  # type: ignore[attr-defined]
    await pair.stop("BOB")
    await pair.start("BOB")
    again = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    assert [len((await again.receive(timeout=60)).body) for _ in range(2)] == [LARGE, LARGE]


async def test_a_node_stops_while_a_message_waits(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmnode.delivery.arrivals._PATIENCE", 600.0)
    out = await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND)
    into = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    receiving = asyncio.create_task(into.receive(timeout=60))
    await eventually(lambda: into.queue.waiting)  # type: ignore[attr-defined]
    for number in range(2):
        await out.send(Message(bytes([number]) * LARGE, recoverable=True))
    assert (await receiving).body[0] == 0
    queue = into.queue  # type: ignore[attr-defined]
    await eventually(lambda: queue.awaited is not None)
    await pair.stop("BOB")
    monkeypatch.undo()
    await pair.start("BOB")
    again = await pair.bob.open_queue(f"DIRECT=OS:{PLAIN}")
    assert (await again.receive(timeout=60)).body == b"\1" * LARGE  # its sender had kept it
