"""A receiver over AMQP in a queue that limits deliveries: what counts, and what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from proton import Delivery
from proton.reactor import Selector

from tests.amqp.conftest import connected, in_thread, take
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from proton.utils import BlockingConnection

    from tests.amqp.conftest import Door

RETRIES = {"max_deliveries": 2, "retry_pause": 3600, "retry_longest_pause": 3600}


def fails(client: BlockingConnection, name: str) -> int:
    """Receive a message whose processing fails: the failures that its header shows."""
    receiver = client.create_receiver(name, credit=0)
    receiver.link.flow(1)
    count = receiver.receive(timeout=60).delivery_count
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.failed = True
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    receiver.close()
    return int(count)


@pytest.mark.parametrize("queue", ["orders", "exact"])
async def test_a_failed_message_waits_and_dies_after_its_last_delivery(door: Door, queue: str) -> None:
    name = rf".\private$\{queue}"
    await door.manager.set_queue(name, **RETRIES)
    await door.send(queue, b"1", b"2")

    def work() -> list[int]:
        with connected(door.url) as client:
            return [fails(client, queue), fails(client, queue)]

    assert await in_thread(work) == [0, 0]

    async def waits() -> bool:
        return [(one.body, one.aborted_receives) for one in await door.messages(queue)] == [(b"1", 1), (b"2", 1)]

    await holds(waits, 60, "both are in their places")
    assert all(message.next_try for message in await door.messages(queue))
    await door.manager.set_queue(name, retry_pause=0)
    assert await in_thread(work) == [1, 1]

    async def dead() -> bool:
        letters = await door.messages(r".\SYSTEM$;DEADXACT" if queue == "exact" else r".\SYSTEM$;DEADLETTER")
        return [(letter.body, letter.aborted_receives) for letter in letters] == [(b"1", 2), (b"2", 2)]

    await holds(dead, 60, "both are dead letters")


async def test_a_connection_that_ends_counts_a_failure_in_a_queue_with_retries(door: Door) -> None:
    await door.manager.set_queue(r".\private$\orders", **RETRIES)
    await door.send("orders", b"1", b"2")

    def work() -> None:
        with connected(door.url) as client:
            receiver = client.create_receiver("orders", credit=0)
            for state in (Delivery.RELEASED, None):
                receiver.link.flow(1)
                receiver.receive(timeout=60)
                if state is not None:
                    receiver.fetcher.unsettled.popleft().update(state)
                    receiver.fetcher.unsettled.clear()

    await in_thread(work)

    async def counted() -> bool:
        return sum(message.aborted_receives for message in await door.messages("orders")) == 1

    await holds(counted, 60, "the message without an outcome failed, and the released one did not")


async def test_a_selecting_receiver_does_not_get_a_message_that_waits(door: Door) -> None:
    await door.manager.set_queue(r".\private$\orders", **RETRIES)
    await door.send("orders", b"1", b"2")

    def work() -> tuple[int, bytes]:
        with connected(door.url) as client:
            count = fails(client, "orders")
            receiver = client.create_receiver("orders", credit=1, options=Selector("JMSPriority >= 0"))
            return count, take(receiver)

    assert await in_thread(work) == (0, b"2")
