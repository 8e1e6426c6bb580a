"""A program receives over AMQP 1.0: locked until its outcome comes, and what each outcome does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from proton import Condition, Delivery, Timeout, symbol
from proton.reactor import AtLeastOnce, AtMostOnce, DurableSubscription, ReceiverOption
from proton.utils import LinkDetached
from structlog.testing import capture_logs

from qmnode.amqp.codec import Described, ULong
from qmnode.settings.node import PoisonSettings
from qmnode.structures.enumerations import MessageClass
from tests.adversary.test_amqp_crowds import OPENED
from tests.adversary.test_amqp_door import attach, flow
from tests.amqp.conftest import Browsing, Door, amqp_message, connected, in_thread, take
from tests.amqp.raw import BEGIN, frame, opened, performative, read_frames, values
from tests.lab.waiting import holds


async def test_messages_come_in_order_and_are_gone_once_accepted(door: Door) -> None:
    await door.send("orders", *(b"%d" % number for number in range(50)))

    def work() -> list[bytes]:
        with connected(door.url) as client:
            receiver = client.create_receiver("orders", credit=7)
            bodies = []
            for _ in range(50):
                bodies.append(take(receiver))
                receiver.accept()
            return bodies

    assert await in_thread(work) == [b"%d" % number for number in range(50)]
    await is_empty(door, "orders")


async def is_empty(door: Door, name: str) -> None:
    async def empty() -> bool:
        return (await door.manager.queue(f".\\private$\\{name}")).message_count == 0

    await holds(empty, 60, f"{name} is empty")


async def test_a_message_is_locked_while_its_receiver_has_it_and_returns_with_the_link(door: Door) -> None:
    await door.send("orders", b"1", b"2", b"3")

    def receive() -> Any:
        with connected(door.url) as client:
            receiver = client.create_receiver("orders", credit=2)
            first = receiver.receive(timeout=60)
            second = receiver.receive(timeout=60)
            with connected(door.url) as other:
                third = other.create_receiver("orders", credit=3).receive(timeout=60)
            return [bytes(one.body) for one in (first, second, third)]

    assert await in_thread(receive) == [b"1", b"2", b"3"]

    async def back() -> bool:
        return await door.bodies("orders") == [b"1", b"2", b"3"]

    await holds(back, 60, "all messages are back in their places")
    assert all(message.aborted_receives == 0 for message in await door.messages("orders"))


@pytest.mark.parametrize(
    ("state", "failed", "undeliverable", "left", "aborts", "dead"),
    [
        (Delivery.ACCEPTED, False, False, [b"2"], 0, []),
        (Delivery.RELEASED, False, False, [b"1", b"2"], 0, []),
        (Delivery.MODIFIED, False, False, [b"1", b"2"], 0, []),
        (Delivery.MODIFIED, True, False, [b"1", b"2"], 1, []),
        (Delivery.MODIFIED, True, True, [b"2"], 0, [b"1"]),
        (Delivery.REJECTED, False, False, [b"2"], 0, [b"1"]),
    ],
)
@pytest.mark.parametrize("queue", ["orders", "exact"])
async def test_each_outcome_does_what_the_table_says(
    door: Door,
    queue: str,
    state: Any,
    failed: bool,
    undeliverable: bool,
    left: list[bytes],
    aborts: int,
    dead: list[bytes],
) -> None:
    await door.send(queue, b"1", b"2")

    def work() -> None:
        with connected(door.url) as client:
            receiver = client.create_receiver(queue, credit=1)
            receiver.receive(timeout=60)
            delivery = receiver.fetcher.unsettled.popleft()
            delivery.local.failed, delivery.local.undeliverable = failed, undeliverable
            delivery.local.condition = Condition("app:no", "cannot be read")
            delivery.update(state)
            delivery.settle()
            client.wait(lambda: True)

    await in_thread(work)

    async def settled() -> bool:
        return await door.bodies(queue) == left

    await holds(settled, 60, f"{left} are left")
    assert (await door.messages(queue))[0].aborted_receives == aborts
    letters = await door.messages(r".\SYSTEM$;DEADXACT" if queue == "exact" else r".\SYSTEM$;DEADLETTER")
    assert [letter.body for letter in letters] == dead
    assert all(letter.message_class == MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED for letter in letters)


@pytest.mark.parametrize("queue", ["orders", "exact"])
async def test_a_message_that_is_settled_without_an_outcome_returns(door: Door, queue: str) -> None:
    await door.send(queue, b"1")

    def work() -> list[int]:
        counts = []
        with connected(door.url) as client:
            receiver = client.create_receiver(queue, credit=0)
            for _ in range(2):
                receiver.link.flow(1)
                counts.append(receiver.receive(timeout=60).delivery_count)
                receiver.fetcher.unsettled.popleft().settle()
        return counts

    assert await in_thread(work) == [0, 0]


@pytest.mark.parametrize(("target", "place"), [("subqueue", "orders;poison"), ("dead-letter", r".\SYSTEM$;DEADXACT")])
async def test_a_message_that_fails_too_often_is_poison(door: Door, target: Any, place: str) -> None:
    door.manager.context.retries.settings = PoisonSettings(aborts=2, target=target)
    await door.send("orders", b"1")

    def work() -> list[int]:
        counts = []
        with connected(door.url) as client:
            receiver = client.create_receiver("orders", credit=0)
            for _ in range(2):
                receiver.link.flow(1)
                counts.append(receiver.receive(timeout=60).delivery_count)
                delivery = receiver.fetcher.unsettled.popleft()
                delivery.local.failed = True
                delivery.update(Delivery.MODIFIED)
                delivery.settle()
        return counts

    assert await in_thread(work) == [0, 1]
    assert await door.bodies("orders") == []
    assert await door.bodies(place) == [b"1"]


async def test_presettled_messages_are_gone_when_they_are_sent(door: Door) -> None:
    await door.send("orders", b"1")

    def work() -> bytes:
        with connected(door.url) as client:
            return take(client.create_receiver("orders", credit=1, options=AtMostOnce()))

    assert await in_thread(work) == b"1"
    assert await door.bodies("orders") == []


async def test_a_receiver_that_is_gone_takes_nothing_while_others_return_theirs(door: Door) -> None:
    await door.send("orders", b"0")
    _, writer = await asyncio.open_connection("127.0.0.1", door.door.port)
    writer.write(OPENED + BEGIN + attach("in", 0, "orders", receives=True) + flow(0, 100))

    async def waits() -> bool:
        return not await door.bodies("orders")

    await holds(waits, 60, "the receiver has the first message, and waits for more")
    for _ in range(50):
        await asyncio.sleep(0)
    turns = door.door.returning
    while not turns.locked():
        await turns.acquire()

    async def gone() -> bool:
        return not door.door.connections

    writer.transport.abort()
    try:
        await holds(gone, 60, "the connection is gone")
        await door.send("orders", b"1")
        assert await door.bodies("orders") == [b"1"]
    finally:
        for _ in range(8):
            turns.release()

    async def returned() -> bool:
        return sorted(await door.bodies("orders")) == [b"0", b"1"]

    await holds(returned, 60, "the first message returns")


async def test_a_presettled_message_is_stored(door: Door) -> None:
    def work() -> None:
        with connected(door.url) as client:
            sender = client.create_sender("orders", options=AtMostOnce())
            sender.link.send(amqp_message(b"x"))
            client.wait(lambda: sender.link.queued == 0)

    await in_thread(work)

    async def there() -> bool:
        return await door.bodies("orders") == [b"x"]

    await holds(there, 60, "the message is stored")


async def test_browsing_takes_nothing(door: Door) -> None:
    await door.send("orders", b"1", b"2", b"3")

    def work() -> list[bytes]:
        with connected(door.url) as client:
            receiver = client.create_receiver("orders", credit=10, options=[Browsing(), AtLeastOnce()])
            bodies = []
            for _ in range(3):
                bodies.append(take(receiver))
                receiver.accept()
            return bodies

    assert await in_thread(work) == [b"1", b"2", b"3"]
    assert await door.bodies("orders") == [b"1", b"2", b"3"]


async def test_a_browser_that_rejects_a_copy_is_not_logged_as_a_receiver_that_made_a_dead_letter(door: Door) -> None:
    await door.send("orders", b"1")

    def work() -> None:
        with connected(door.url) as client:
            receiver = client.create_receiver("orders", credit=10, options=[Browsing(), AtLeastOnce()])
            take(receiver)
            receiver.reject()

    with capture_logs() as lines:
        await in_thread(work)
    assert "a receiver rejected a message: it is a dead letter" not in [line["event"] for line in lines]
    assert await door.bodies("orders") == [b"1"]


async def test_a_receiver_that_waits_gets_what_comes_later(door: Door) -> None:
    def work() -> bytes:
        with connected(door.url) as client:
            receiver = client.create_receiver("orders", credit=1)
            client.create_sender("orders").send(amqp_message(b"later"))
            return take(receiver)

    assert await in_thread(work) == b"later"


async def test_credit_that_is_drained_leaves_the_messages_in_their_queue(door: Door) -> None:
    def work() -> int:
        with connected(door.url) as client:
            receiver = client.create_receiver("orders", credit=5)
            with pytest.raises(Timeout):
                receiver.receive(timeout=0.2)
            receiver.link.drain(0)
            client.wait(lambda: not receiver.link.draining() and receiver.link.credit == 0)
            return receiver.link.credit

    assert await in_thread(work) == 0
    await door.send("orders", b"1")
    assert await door.bodies("orders") == [b"1"]


@pytest.mark.public_report("Azure/azure-amqp#219")
async def test_a_receiver_that_drains_without_credit_is_answered(door: Door) -> None:
    await door.send("orders", b"1")
    source = Described(ULong(0x28), ["orders"])
    attach = performative(0x12, ["drain", 0, True, None, None, source, Described(ULong(0x29), [])])

    def flow(count: int, credit: int) -> bytes:
        return frame(performative(0x13, [0, 1000, 0, 1000, 0, count, credit, None, True]))

    def answers() -> list[list[Any]]:
        found = []
        with opened(door.door.port, BEGIN, frame(attach)) as connection:
            read_frames(connection, b"\x00\x53\x12")
            for count, credit in ((0, 0), (0, 0), (0, 1), (1, 0)):
                connection.sendall(flow(count, credit))
                flows: list[Any] = []
                while not flows:
                    data = read_frames(connection, b"\x00\x53\x13")
                    flows = [one.value for one in values(data) if one.descriptor == 0x13 and one.value[4:]]
                found.append(flows[0][5:7] + flows[0][8:9])
        return found

    assert await in_thread(answers) == [[0, 0, True], [0, 0, True], [1, 0, True], [1, 0, True]]


class Subscribing(ReceiverOption):  # type: ignore[misc]
    """A receiver of a topic, as JMS has it."""

    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_object(symbol("topic"))


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("orders", [Subscribing()]),
        ("orders", [DurableSubscription()]),
        ("topic://orders", []),
        ("/topic/orders", []),
    ],
)
async def test_topics_and_durable_subscriptions_are_refused(door: Door, address: str, options: list[Any]) -> None:
    def attach() -> None:
        with connected(door.url) as client:
            client.create_receiver(address, options=options)

    with pytest.raises(LinkDetached, match="amqp:not-implemented"):
        await in_thread(attach)
    assert door.door.counts.links == 0


async def test_dead_letters_journals_and_subqueues_are_received_from(door: Door) -> None:
    await door.manager.set_queue(r".\private$\orders", journaling=True)
    await door.send("orders", b"1")

    def work() -> list[bytes]:
        with connected(door.url) as client:
            bodies = []
            for address in ("orders", "orders;journal"):
                receiver = client.create_receiver(address, credit=1)
                bodies.append(take(receiver))
                receiver.accept()
                receiver.close()
            return bodies

    assert await in_thread(work) == [b"1", b"1"]
