"""Credit follows the room that the queue has."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from proton import Timeout

from qmnode import Access
from qmnode.amqp.links import credit_to_give
from tests.amqp.conftest import amqp_message, connected, in_thread
from tests.lab.cases import cases
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from collections.abc import Callable

    from proton.utils import BlockingConnection

    from tests.amqp.conftest import Door

NAME = r"DIRECT=OS:.\private$\orders"
ROOM = 2048
"""Bytes of a message for which the door gives credit, at most, before it has seen any."""


@cases(
    ("given", "under_way", "room", "more"),
    [
        (0, 0, None, 100),
        (76, 0, None, 0),  # not each message costs a frame
        (75, 0, None, 25),
        (50, 0, None, 50),
        (0, 100, None, 0),
        (0, 76, None, 0),
        (0, 0, 0, 0),
        (0, 0, 3, 3),
        (2, 0, 3, 1),
        (2, 1, 3, 0),
        (5, 0, 3, 0),  # credit is never taken back
        (0, 0, 1000, 100),
    ],
)
def test_credit_is_given_up_to_the_window_and_the_room(given: int, under_way: int, room: int | None, more: int) -> None:
    assert credit_to_give(100, given, under_way, room) == more


def has_credit(client: BlockingConnection, link: Any, is_full: Callable[[], bool]) -> bool:
    """Whether there is credit for a message, once there is or the queue is full."""
    while not link.credit and not is_full():
        with contextlib.suppress(Timeout):
            client.wait(lambda: link.credit > 0, timeout=0.3)
    return bool(link.credit > 0)


async def test_a_full_queue_gives_no_credit_until_there_is_room(door: Door) -> None:
    await door.manager.set_queue(r".\private$\orders", quota=20)
    model = door.manager.names.find(r".\private$\orders")
    loop = asyncio.get_running_loop()
    full = asyncio.Event()

    def fill() -> int:
        sent = 0
        with connected(door.url) as client:
            sender = client.create_sender("orders")
            while has_credit(client, sender.link, lambda: model.total_bytes + ROOM > 20 * 1024):
                sender.send(amqp_message(b"x" * 1500))
                sent += 1
            loop.call_soon_threadsafe(full.set)
            client.wait(lambda: sender.link.credit > 0)
            sender.send(amqp_message(b"last"))
        return sent

    filling = asyncio.create_task(in_thread(fill))
    await asyncio.wait([filling, asyncio.ensure_future(full.wait())], return_when=asyncio.FIRST_COMPLETED)
    assert door.door.counts.rejected == 0
    async with await door.manager.open_queue(NAME, Access.RECEIVE) as queue:
        for _ in range(5):
            await queue.receive(0)
    assert await filling >= 5
    assert (await door.bodies("orders"))[-1] == b"last"
    assert door.door.counts.rejected == 0


async def test_a_receiver_with_much_credit_gets_all_and_settles_in_any_order(door: Door) -> None:
    await door.send("orders", *(b"%d" % number for number in range(300)))

    def work() -> int:
        with connected(door.url) as client:
            receiver = client.create_receiver("orders", credit=1000)
            for _ in range(300):
                receiver.receive(timeout=60)
            unsettled = list(receiver.fetcher.unsettled)
            for delivery in reversed(unsettled):
                delivery.update(delivery.ACCEPTED)
                delivery.settle()
            client.wait(lambda: True)
        return len(unsettled)

    assert await in_thread(work) == 300

    async def empty() -> bool:
        return (await door.manager.queue(r".\private$\orders")).message_count == 0

    await holds(empty, 60, "all are settled")
