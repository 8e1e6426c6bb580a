"""The table of duplicates in docs/amqp.md, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from proton import ulong
from proton.reactor import Container
from proton.utils import SendException

from qmnode import Access, Message
from qmnode.management.metrics import exposition
from qmnode.management.request_context import Context
from qmnode.settings.node import ManagementSettings
from tests.amqp.bridging import arrived, bridge_settings, bridged, emptied
from tests.amqp.conftest import amqp_message, connected, in_thread, open_door
from tests.amqp.test_transactions import Mover

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.amqp.conftest import Door


@pytest.fixture(autouse=True)
async def windows(door: Door) -> None:
    for name in ("orders", "exact", "done"):
        await door.manager.set_queue(f".\\private$\\{name}", duplicate_window=600)


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Door]:
    (tmp_path / "peer").mkdir()
    async with open_door(tmp_path / "peer", anonymous=True) as opened:
        yield opened


async def send(door: Door, queue: str, *messages: tuple[bytes, Any], durable: bool = True) -> None:
    """All are accepted: anything else raises."""

    def work() -> None:
        with connected(door.url) as client:
            sender = client.create_sender(queue)
            for body, identifier in messages:
                sender.send(amqp_message(body, id=identifier, durable=durable))

    await in_thread(work)


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "express"])
@pytest.mark.parametrize("queue", ["orders", "exact"])
async def test_a_duplicate_is_accepted_and_dropped(door: Door, queue: str, durable: bool) -> None:
    await send(door, queue, (b"1", "a"), (b"2", "a"), (b"3", "b"), durable=durable)
    assert await door.bodies(queue) == [b"1", b"3"]
    metrics = (await exposition(Context(door.manager, ManagementSettings()))).decode()
    assert "qmnode_amqp_duplicates_total 1.0" in metrics
    assert 'qmnode_amqp_messages_total{outcome="accepted"} 3.0' in metrics


async def test_a_message_without_an_id_is_no_duplicate(door: Door) -> None:
    await send(door, "orders", (b"1", None), (b"1", None))
    assert await door.bodies("orders") == [b"1", b"1"]


async def test_ids_of_different_types_differ(door: Door) -> None:
    one = UUID(int=1)
    await send(door, "orders", (b"1", "1"), (b"2", ulong(1)), (b"3", one), (b"4", str(one)), (b"5", one))
    assert await door.bodies("orders") == [b"1", b"2", b"3", b"4"]


async def test_a_message_that_was_rejected_may_come_again(door: Door) -> None:
    await door.manager.set_queue(r".\private$\orders", quota=8)
    with pytest.raises(SendException):
        await send(door, "orders", (bytes(9000), "a"))
    await send(door, "orders", (b"again", "a"), (b"and again", "a"))
    assert await door.bodies("orders") == [b"again"]


async def test_in_a_transaction_the_commit_drops_duplicates(door: Door) -> None:
    class Repeating(Mover):
        def on_message(self, event: Any) -> None:
            event.message.body = bytes(event.message.body)
            self.transaction.send(self.sender, amqp_message(event.message.body, id="same"))
            self.transaction.accept(event.delivery)
            self.moved += 1
            if self.moved == self.size:
                getattr(self.transaction, self.ends.pop(0))()

    await door.manager.set_queue(r".\private$\exact", duplicate_window=0)
    await door.send("exact", b"1", b"2")
    await in_thread(lambda: Container(Repeating(door.url, ["abort", "commit"])).run())
    assert await door.bodies("done") == [b"1"]
    assert await door.bodies("exact") == []


@pytest.mark.parametrize(
    ("guarantee", "kept"),
    [({}, [b"1", b"3"]), ({"guarantee": "exactly-once", "ledger": "ledger"}, [b"1", b"2", b"3"])],
    ids=["at-least-once", "exactly-once"],
)
async def test_a_bridge_at_least_once_drops_duplicates_of_its_peer(
    door: Door, peer: Door, guarantee: dict[str, str], kept: list[bytes]
) -> None:
    security = await peer.manager.queue_security(r".\private$\exact")
    await peer.manager.create_queue(r".\private$\ledger", transactional=True, security=security)
    await send(peer, "exact", (b"1", "a"), (b"2", "a"), (b"3", "b"))
    settings = bridge_settings(direction="in", peer=peer.url, queue="exact", address="exact", **guarantee)
    async with bridged(door, inward=settings):
        await arrived(door, "exact", len(kept))
        await emptied(peer, "exact")
    assert await door.bodies("exact") == kept


async def test_messages_to_several_queues_at_once_are_no_duplicates(door: Door) -> None:
    await door.manager.create_queue(
        r".\private$\copies", security=await door.manager.queue_security(r".\private$\orders")
    )
    both = r"DIRECT=OS:.\private$\orders,DIRECT=OS:.\private$\copies"
    await send(door, both, (b"1", "a"), (b"2", "a"))
    assert await door.bodies("orders") == [b"1", b"2"]


async def test_messages_that_do_not_come_over_amqp_are_no_duplicates(door: Door) -> None:
    await send(door, "orders", (b"1", "a"))
    (received,) = await door.messages("orders")
    async with await door.manager.open_queue(r"DIRECT=OS:.\private$\orders", Access.SEND) as queue:
        await queue.send(Message(b"2", extension=received.extension, recoverable=True))
    assert await door.bodies("orders") == [b"1", b"2"]
