"""A queue with a window accepts messages with the same message id once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.administration.browsing import browse
from qmnode.model.duplicates import identity_of
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.settings.node import QuotaSettings, Settings
from tests.model.conftest import Node

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from qmnode.model.transaction import Transaction
    from tests.model.conftest import FakeClock

WINDOW = 600


async def opened(qm: QueueManager, name: str = "orders") -> OpenQueueDescriptor:
    queue = await qm.open_queue(f"DIRECT=OS:.\\private$\\{name}", Access.SEND)
    assert isinstance(queue, OpenQueueDescriptor)
    return queue


async def send(
    qm: QueueManager, name: str, *texts: str, recoverable: bool = True, unit: Transaction | str | None = None
) -> None:
    """Messages whose body is their id."""
    queue = await opened(qm, name)
    for text in texts:
        message = Message(text.encode(), recoverable=recoverable)
        await queue.send_once(message, identity_of("", text), unit)  # type: ignore[arg-type]
    await queue.close()


async def bodies(qm: QueueManager, name: str = "orders") -> Sequence[bytes]:
    async with await qm.open_queue(f"DIRECT=OS:.\\private$\\{name}", Access.PEEK) as queue:
        return [message.body async for message in browse(queue)]


@pytest.fixture
async def orders(qm: QueueManager) -> QueueManager:
    await qm.create_queue(r".\private$\orders", duplicate_window=WINDOW)
    await qm.create_queue(r".\private$\exact", duplicate_window=WINDOW, transactional=True)
    return qm


async def test_the_second_message_with_an_id_is_dropped(orders: QueueManager) -> None:
    await send(orders, "orders", "a", "b", "a")
    assert await bodies(orders) == [b"a", b"b"]
    assert orders.context.duplicates.dropped == 1


async def test_an_id_is_one_with_its_type(orders: QueueManager) -> None:
    queue = await opened(orders)
    for kind in ("", "int", "int"):
        await queue.send_once(Message(kind.encode(), recoverable=True), identity_of(kind, "42"))
    assert await bodies(orders) == [b"", b"int"]


async def test_each_queue_has_ids_of_its_own(orders: QueueManager) -> None:
    await send(orders, "orders", "a")
    await send(orders, "exact", "a", unit="single")
    assert await bodies(orders) == await bodies(orders, "exact") == [b"a"]


async def test_an_id_is_forgotten_after_the_window(orders: QueueManager, clock: FakeClock) -> None:
    await send(orders, "orders", "a")
    clock.advance(WINDOW - 1)
    await send(orders, "orders", "a")
    assert await bodies(orders) == [b"a"]
    clock.advance(1)
    await send(orders, "orders", "a")
    assert await bodies(orders) == [b"a", b"a"]


async def test_nothing_is_left_on_disk_after_the_window(orders: QueueManager, clock: FakeClock) -> None:
    await send(orders, "orders", *(str(number) for number in range(600)))
    number = orders.names.find(r".\private$\orders").queue_id
    assert orders.store.identity_ages(number) == (0, 599)
    for _ in range(8):
        clock.advance(WINDOW / 4)
    await orders.store.durable()
    assert orders.store.identity_ages(number) == (0, -1)
    assert orders.store.get_identity(number, identity_of("", "7")) is None


async def test_an_id_that_comes_again_after_the_window_is_remembered_anew(
    orders: QueueManager, clock: FakeClock
) -> None:
    queue = orders.names.find(r".\private$\orders")
    await send(orders, "orders", "a")
    clock.now += WINDOW  # the timer is late
    await send(orders, "orders", "a")
    clock.advance(1)
    assert orders.context.duplicates.is_known(queue, identity_of("", "a"))


async def test_a_received_message_stays_remembered(orders: QueueManager) -> None:
    await send(orders, "orders", "a")
    async with await orders.open_queue(r"DIRECT=OS:.\private$\orders") as queue:
        await queue.receive(0)
    await send(orders, "orders", "a")
    assert await bodies(orders) == []


async def test_a_refused_message_is_not_remembered(orders: QueueManager) -> None:
    await orders.set_queue(r".\private$\orders", quota=0)
    with pytest.raises(MessageQueuingError):
        await send(orders, "orders", "a")
    await orders.set_queue(r".\private$\orders", quota=100)
    await send(orders, "orders", "a")
    assert await bodies(orders) == [b"a"]


async def test_a_duplicate_for_a_full_queue_is_accepted(orders: QueueManager) -> None:
    await send(orders, "orders", "a")
    await orders.set_queue(r".\private$\orders", quota=0)
    await send(orders, "orders", "a")
    assert await bodies(orders) == [b"a"]


async def test_in_a_transaction_the_commit_decides(orders: QueueManager) -> None:
    first, second = orders.transaction(), orders.transaction()
    await send(orders, "exact", "a", "b", unit=first)
    await send(orders, "exact", "b", "c", "c", unit=second)
    await first.commit()
    await second.commit()
    assert await bodies(orders, "exact") == [b"a", b"b", b"c"]


async def test_a_message_of_a_transaction_that_aborts_is_not_remembered(orders: QueueManager) -> None:
    unit = orders.transaction()
    await send(orders, "exact", "a", unit=unit)
    await unit.abort()
    await send(orders, "exact", "a", unit="single")
    assert await bodies(orders, "exact") == [b"a"]


async def test_ids_survive_a_restart_and_a_power_cut(node: Node, orders: QueueManager) -> None:
    await send(orders, "orders", "a")
    qm = await node.restart()
    await send(qm, "orders", "a", "b")
    qm = await node.crash()
    await send(qm, "orders", "a", "b", "c")
    assert await bodies(qm) == [b"a", b"b", b"c"]


async def test_a_restart_forgets_what_became_too_old_meanwhile(
    node: Node, orders: QueueManager, clock: FakeClock
) -> None:
    await send(orders, "orders", "a")
    clock.now += WINDOW + 1
    qm = await node.restart()
    clock.advance(2)
    await qm.store.durable()
    assert qm.store.identity_ages(qm.names.find(r".\private$\orders").queue_id) == (0, -1)


async def test_a_lost_express_message_can_be_sent_again(node: Node, orders: QueueManager) -> None:
    await send(orders, "orders", "a", "a", recoverable=False)
    assert await bodies(orders) == [b"a"]
    qm = await node.restart()
    assert await bodies(qm) == []
    await send(qm, "orders", "a", "a", recoverable=False)
    assert await bodies(qm) == [b"a"]


async def test_wherever_the_log_is_cut_a_message_and_its_id_are_both_there_or_neither(
    node: Node, orders: QueueManager, clock: FakeClock, tmp_path: Path
) -> None:
    names = [str(number) for number in range(40)]
    await send(orders, "orders", *names)
    log = max(node.path.glob("*.log"), key=lambda file: file.stat().st_size)
    size, found = log.stat().st_size, set()
    for cut in range(size * 3 // 10, size, size // 12):
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(node.path, copy)
        (copy / "LOCK").unlink()
        with (copy / log.name).open("r+b") as file:
            file.truncate(cut)
        damaged = Node(copy, clock, node.settings)
        qm = await damaged.start()
        queue = qm.names.find(r".\private$\orders")
        known = [name for name in names if qm.context.duplicates.is_known(queue, identity_of("", name))]
        assert [name.encode() for name in known] == list(await bodies(qm))
        found.add(len(known))
        await qm.close()
    assert len(found) > 4


async def test_the_oldest_ids_make_room(tmp_path: Path, clock: FakeClock) -> None:
    node = Node(tmp_path / "small", clock, Settings(quotas=QuotaSettings(message_ids=1000)))
    qm = await node.start()
    await qm.create_queue(r".\private$\orders", duplicate_window=WINDOW)
    await send(qm, "orders", *map(str, range(1010)))
    first, last = qm.store.identity_ages(qm.names.find(r".\private$\orders").queue_id)
    assert last - first < 1000
    await send(qm, "orders", "0", "1009")
    assert (await bodies(qm))[1009:] == [b"1009", b"0"]
    await qm.close()


async def test_turning_it_off_or_deleting_the_queue_forgets_all(orders: QueueManager) -> None:
    for name in ("orders", "exact"):
        await send(orders, name, "a", unit="single" if name == "exact" else None)
    numbers = [orders.names.find(f".\\private$\\{name}").queue_id for name in ("orders", "exact")]
    await orders.set_queue(r".\private$\orders", duplicate_window=0)
    await orders.delete_queue(r".\private$\exact")
    assert [orders.store.identity_ages(number) for number in numbers] == [(0, -1)] * 2
    await orders.set_queue(r".\private$\orders", duplicate_window=5)
    await send(orders, "orders", "a", "a")
    assert await bodies(orders) == [b"a", b"a"]


@pytest.mark.parametrize("wrong", [-1, 604_801, 1.5, True, "600"])
async def test_other_windows_are_refused(qm: QueueManager, wrong: int) -> None:
    with pytest.raises(MessageQueuingError, match="duplicate_window"):
        await qm.create_queue(r".\private$\orders", duplicate_window=wrong)
