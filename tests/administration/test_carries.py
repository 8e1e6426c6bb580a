"""The node's half of a carry: messages are held in no queue, confirmed in their order, and known for good."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.administration.asker import Asker
from qmnode.administration.carry_exchange import CarryExchange, key_of, key_text
from qmnode.model.stored_message import PREFIX_SIZE, TransferredMessage, stored_value
from qmnode.settings.node import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence
    from pathlib import Path

    from qmnode.administration.operations import Operations
    from qmnode.model.api import QueueApi

ROOT = Asker("uid:0")
SOURCE = r"DIRECT=OS:old\private$\orders"


class Node:
    """A queue manager with its operations."""

    def __init__(self, manager: QueueManager, operations: Operations) -> None:
        self.manager, self.operations = manager, operations

    async def begin(self, source: str = SOURCE, target: str = "orders") -> dict[str, Any]:
        return await self.operations.begin_carry(ROOT, source, target)

    async def exchange(self, begun: dict[str, Any], **more: Any) -> dict[str, Any]:
        content = CarryExchange(begun["epoch"], **more).write()
        return await self.operations.carry_messages(ROOT, begun["carry"], content)

    async def bodies(self, name: str = "orders") -> list[bytes]:
        return [message.body for message in await messages(self.manager, name)]


@asynccontextmanager
async def node(folder: Path, name: str = "NEW", **properties: Any) -> AsyncIterator[Node]:
    async with QueueManager.open(folder / name, Settings(computer_name=name)) as manager:
        if not manager.names.by_path(manager.names.path(r".\private$\orders")):
            await manager.create_queue(r".\private$\orders", **properties)
        yield Node(manager, manager.operations)


async def messages(manager: QueueManager, name: str = "orders") -> list[Message]:
    async with (
        await manager.open_queue(rf"DIRECT=OS:.\private$\{name}", Access.PEEK) as queue,
        queue.cursor() as cursor,
    ):
        count = (await manager.queue(rf".\private$\{name}")).message_count
        return [await (cursor.peek_next if index else cursor.peek)(0) for index in range(count)]


async def receive(manager: QueueManager) -> bytes:
    async with await manager.open_queue(r"DIRECT=OS:.\private$\orders", Access.RECEIVE) as queue:
        return (await queue.receive(0)).body


async def sender(manager: QueueManager) -> QueueApi:
    return await manager.open_queue(r"DIRECT=OS:.\private$\orders", Access.SEND)


async def read_elsewhere(folder: Path, *sent: Message, transactional: bool = False) -> list[TransferredMessage]:
    """Messages as a carrier has read them from the queue of another queue manager."""
    async with node(folder, "OLD", transactional=transactional) as old:
        await (await sender(old.manager)).send_many(sent, "single" if transactional else None)
        return [item_of(message) for message in await messages(old.manager)]


def item_of(message: Message) -> TransferredMessage:
    packet = stored_value(message)[PREFIX_SIZE:]
    return TransferredMessage(message.lookup_identifier, 1_700_000_000, aborts=2, moves=1, packet=packet)


def keys(items: Sequence[TransferredMessage]) -> list[bytes]:
    return [key_of(item) for item in items]


async def test_a_held_message_is_in_no_queue_until_it_is_confirmed_also_after_a_restart(tmp_path: Path) -> None:
    items = await read_elsewhere(tmp_path, *(Message(b"%d" % number, priority=3) for number in range(3)))
    async with node(tmp_path) as new:
        begun = await new.begin()
        assert (await new.exchange(begun, hold=items))["states"] == ["held"] * 3
        assert await new.bodies() == []
    async with node(tmp_path) as new:
        begun = await new.begin()
        assert [one["key"] for one in begun["unconfirmed"]] == [key_text(key) for key in keys(items)]
        assert await new.bodies() == []
        await new.exchange(begun, confirm=keys(items)[:2], drop=keys(items)[2:])
        assert await new.bodies() == [b"0", b"1"]
        assert (await new.begin())["unconfirmed"] == []
    async with node(tmp_path) as new:  # express messages, too
        assert await new.bodies() == [b"0", b"1"]
        assert [one["state"] for one in (await new.operations.carry_ledger(ROOT, 1))["entries"]] == [
            "carried", "carried", "dropped",
        ]  # fmt: skip


async def test_a_carried_message_has_all_its_properties_and_no_second_copy_comes(tmp_path: Path) -> None:
    sent = Message(
        b"body", label="L", extension=b"e", correlation_identifier=b"c" * 20, app_specific=7, body_type=8,
        response_queue_format_name=r"DIRECT=OS:x\private$\answers", time_to_be_received=900, priority=6,
    )  # fmt: skip
    (item,) = await read_elsewhere(tmp_path, sent)
    async with node(tmp_path) as new:
        begun = await new.begin()
        await new.exchange(begun, hold=[item])
        await new.exchange(begun, hold=[item], confirm=keys([item]))
        assert (await new.exchange(begun, hold=[item], confirm=keys([item])))["states"] == ["carried"]
        (found,) = await messages(new.manager)
        assert found.packet == item.packet
        assert (found.aborted_receives, found.move_count, int(found.arrival_time)) == (2, 1, 1_700_000_000)


async def test_messages_sent_since_the_carry_began_wait_behind_the_carried_ones(tmp_path: Path) -> None:
    items = await read_elsewhere(tmp_path, *(Message(b"old %d" % number) for number in range(4)))
    async with node(tmp_path) as new:
        begun = await new.begin()
        queue = await sender(new.manager)
        await queue.send(Message(b"new 0"))
        await new.exchange(begun, hold=items[:2])
        await queue.send(Message(b"new 1", recoverable=True))
        await new.exchange(begun, hold=items[2:], confirm=keys(items[:2]))
        assert await new.bodies() == [b"old 0", b"old 1", b"new 0", b"new 1"]
    async with node(tmp_path) as new:
        begun = await new.begin()
        await (await sender(new.manager)).send(Message(b"new 2"))
        await new.exchange(begun, confirm=keys(items[2:]))
        assert await new.bodies() == [b"old 0", b"old 1", b"old 2", b"old 3", b"new 1", b"new 2"]


async def test_a_carrier_that_was_replaced_does_nothing_more(tmp_path: Path) -> None:
    items = await read_elsewhere(tmp_path, Message(b"1"))
    async with node(tmp_path) as new:
        first, _ = await new.begin(), await new.begin()
        with pytest.raises(MessageQueuingError, match="another carrier"):
            await new.exchange(first, hold=items)


async def test_what_does_not_fit_the_queue_is_refused_and_nothing_is_held(tmp_path: Path) -> None:
    items = await read_elsewhere(tmp_path, Message(b"x" * 5000), Message(b"y" * 5000), transactional=True)
    async with node(tmp_path) as new:
        begun = await new.begin()
        with pytest.raises(MessageQueuingError, match="is not transactional"):
            await new.exchange(begun, hold=items)
        await new.manager.create_queue(r".\private$\small", quota=6, transactional=True)
        small = await new.begin(target="small")
        with pytest.raises(MessageQueuingError, match="quota"):
            await new.exchange(small, hold=items)
        assert (await new.exchange(small, hold=items[:1]))["held"] == 1
        with pytest.raises(MessageQueuingError, match="quota"):
            await new.exchange(small, hold=items[1:])
        with pytest.raises(MessageQueuingError, match="unconfirmed"):
            await new.begin(r"DIRECT=OS:other\private$\orders", "small")


async def test_carries_are_for_administrators(tmp_path: Path) -> None:
    async with node(tmp_path) as new:
        with pytest.raises(MessageQueuingError, match="for administrators"):
            await new.operations.begin_carry(Asker("uid:7", principal=object()), SOURCE, "orders")


async def test_a_message_is_settled_once_whatever_a_carrier_asks_for(tmp_path: Path) -> None:
    items = await read_elsewhere(tmp_path, Message(b"1"), Message(b"2"))
    first, second = keys(items)
    async with node(tmp_path) as new:
        begun = await new.begin()
        await new.exchange(begun, hold=items)
        for more in ({"confirm": [first], "drop": [first]}, {"hold": items[:1], "drop": [first]}):
            with pytest.raises(MessageQueuingError, match="to be dropped"):
                await new.exchange(begun, **more)
        done = await new.exchange(begun, confirm=[first, first], drop=[second, second])
        assert (done["carried"], done["held"], await new.bodies()) == (1, 0, [b"1"])


async def test_what_is_left_of_messages_that_were_held_together_is_known_after_a_restart(tmp_path: Path) -> None:
    items = await read_elsewhere(tmp_path, *(Message(b"%d" % number) for number in range(4)))
    first, second, third, fourth = keys(items)
    async with node(tmp_path) as new:
        begun = await new.begin()
        await new.exchange(begun, hold=items)
        await new.exchange(begun, confirm=[first], drop=[second])
        reserved = new.manager.names.find(r".\private$\orders").reserved_bytes
    async with node(tmp_path) as new:
        begun = await new.begin()
        assert [one["key"] for one in begun["unconfirmed"]] == [key_text(third), key_text(fourth)]
        assert new.manager.names.find(r".\private$\orders").reserved_bytes == reserved
        states = [one["state"] for one in (await new.operations.carry_ledger(ROOT, 1))["entries"]]
        assert states == ["carried", "dropped", "held", "held"]
        page = await new.operations.carry_ledger(ROOT, 1, key_text(second))
        assert [one["key"] for one in page["entries"]] == [key_text(third), key_text(fourth)]
        await new.exchange(begun, confirm=[third, fourth])
        assert await new.bodies() == [b"0", b"2", b"3"]


async def test_a_message_that_was_dropped_and_comes_again_is_held_again(tmp_path: Path) -> None:
    items = await read_elsewhere(tmp_path, Message(b"1"), Message(b"2"))
    async with node(tmp_path) as new:
        begun = await new.begin()
        await new.exchange(begun, hold=items)
        await new.exchange(begun, confirm=keys(items)[1:], drop=keys(items)[:1])
        assert (await new.exchange(begun, hold=items))["states"] == ["held", "carried"]
    async with node(tmp_path) as new:
        begun = await new.begin()
        assert [one["key"] for one in begun["unconfirmed"]] == [key_text(key) for key in keys(items)[:1]]
        await new.exchange(begun, confirm=keys(items))
        assert await new.bodies() == [b"2", b"1"]


async def test_what_was_dropped_and_held_again_leaves_nothing_behind(tmp_path: Path) -> None:
    items = await read_elsewhere(tmp_path, Message(b"1"), Message(b"2"))
    async with node(tmp_path) as new:
        begun = await new.begin()
        await new.exchange(begun, hold=items)
        await new.exchange(begun, drop=keys(items)[:1])
        await new.exchange(begun, hold=items[:1])
        reserved = new.manager.names.find(r".\private$\orders").reserved_bytes
    async with node(tmp_path) as new:
        queue = new.manager.names.find(r".\private$\orders")
        assert queue.reserved_bytes == reserved
        await new.exchange(await new.begin(), confirm=keys(items))
        assert (queue.reserved_bytes, await new.bodies()) == (0, [b"1", b"2"])
        await new.operations.delete_carry(ROOT, 1)
        assert (await new.begin(r"DIRECT=OS:other\private$\orders"))["carry"] == 1
    async with node(tmp_path) as new:  # the next carry of that number does not find them
        assert (await new.begin(r"DIRECT=OS:other\private$\orders"))["unconfirmed"] == []


@pytest.mark.parametrize("size", [0, 1, 2, 3, 60])
async def test_a_packet_that_is_cut_off_is_carried_among_others(tmp_path: Path, size: int) -> None:
    first, broken, last = await read_elsewhere(tmp_path, Message(b"1"), Message(b"2"), Message(b"3"))
    items = [first, broken._replace(packet=broken.packet[:size]), last]
    async with node(tmp_path) as new:
        begun = await new.begin()
        await new.exchange(begun, hold=items)
        assert (await new.exchange(begun, confirm=keys(items)))["carried"] == 3
        assert {await receive(new.manager) for _ in items} == {b"1", b"", b"3"}


async def test_a_request_that_is_not_as_long_as_it_says_is_refused(tmp_path: Path) -> None:
    (item,) = await read_elsewhere(tmp_path, Message(b"1"))
    whole = CarryExchange(7, keys([item]), keys([item]), [item]).write()
    assert CarryExchange.read(whole) == (7, keys([item]), keys([item]), [item])
    for wrong in (*(whole[:end] for end in range(len(whole))), whole + b"\0"):
        with pytest.raises(MessageQueuingError, match="not as long as it says"):
            CarryExchange.read(wrong)
    with pytest.raises(MessageQueuingError, match="at most 500 messages"):
        CarryExchange.read(CarryExchange(7, hold=[item] * 501).write())


async def test_messages_that_are_held_for_a_deleted_queue_come_into_the_next_of_its_name(tmp_path: Path) -> None:
    items = await read_elsewhere(tmp_path, Message(b"1"), Message(b"2"))
    async with node(tmp_path) as new:
        await new.exchange(await new.begin(), hold=items)
        used = new.manager.quotas.used
        await new.manager.delete_queue(r".\private$\orders")
        assert new.manager.quotas.used == used
    async with node(tmp_path) as new:
        assert new.manager.quotas.used == used
        begun = await new.begin()
        assert [one["key"] for one in begun["unconfirmed"]] == [key_text(key) for key in keys(items)]
        await new.exchange(begun, confirm=keys(items)[:1], drop=keys(items)[1:])
        assert await new.bodies() == [b"1"]
        await new.manager.delete_queue(r".\private$\orders")
        assert new.manager.quotas.used == 0


async def test_messages_of_a_journal_are_carried_into_a_journal_within_its_quota(tmp_path: Path) -> None:
    items = await read_elsewhere(tmp_path, Message(b"x" * 4000), Message(b"y" * 4000))
    async with node(tmp_path, journaling=True) as new:
        new.manager.quotas.journal_limit = 6000
        begun = await new.begin(target="orders;journal")
        await new.exchange(begun, hold=items[:1])
        with pytest.raises(MessageQueuingError, match="quota"):
            await new.exchange(begun, hold=items[1:])
        await new.exchange(begun, confirm=keys(items))
        assert await new.bodies("orders;journal") == [b"x" * 4000]
    async with node(tmp_path) as new:
        assert await new.bodies("orders;journal") == [b"x" * 4000]


async def test_others_have_turns_of_the_loop_while_many_messages_are_carried(tmp_path: Path) -> None:
    (item,) = await read_elsewhere(tmp_path, Message(b"1"))
    items = [item._replace(lookup_identifier=number) for number in range(320)]
    async with node(tmp_path) as new:
        begun = await new.begin()
        assert await turns_during(new.exchange(begun, hold=items)) >= 9
        assert await turns_during(new.operations.begin_carry(ROOT, SOURCE, "orders", dry_run=True)) >= 9
        assert await turns_during(new.exchange(begun, confirm=keys(items))) >= 9
        assert len(await new.bodies()) == 320


async def turns_during(work: Coroutine[Any, Any, Any]) -> int:
    """Turns of the loop that others have before this ends."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns
