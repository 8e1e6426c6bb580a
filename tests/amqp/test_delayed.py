"""Delayed delivery over AMQP: annotations, transactions, the anonymous relay, and what is refused."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from proton import symbol, timestamp, ulong

from qmnode import Access
from qmnode.amqp.codec import Described, Long, Symbol, Timestamp, ULong, encode
from qmnode.amqp.links import Sent
from qmnode.amqp.mapping import DELIVERY_DELAY, MappingContext
from qmnode.amqp.sections import AmqpMessage
from tests.amqp.conftest import amqp_message, connected, in_thread
from tests.amqp.test_sending import answered
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from tests.amqp.conftest import Door

WAITING = r".\private$\delayed$"
HOUR = 3_600_000
PLACE = MappingContext(lambda name: True, time.time)


def delayed(body: bytes, **annotations: Any) -> Any:
    return amqp_message(body, annotations={f"x-opt-delivery-{name}": value for name, value in annotations.items()})


async def due(door: Door) -> None:
    """Let the time of all waiting messages come."""
    clock = door.manager.context.clock
    ahead = max([message.delivery_time for message in await door.messages(WAITING)]) - time.time()
    clock.time = lambda: time.time() + ahead  # type: ignore[attr-defined, method-assign]


async def test_a_delay_and_a_time_are_kept_and_receivers_see_the_time(door: Door) -> None:
    at = int(time.time() * 1000) + HOUR

    def send() -> list[str]:
        with connected(door.url) as connection:
            sender = connection.create_sender("orders")
            sender.send(delayed(b"delay", delay=ulong(2 * HOUR)))
            sender.send(delayed(b"time", time=timestamp(at)))
            sender.send(delayed(b"at once", time=1000, delay=None))
            sender.send(amqp_message(b"now"))
            return list(connection.conn.remote_offered_capabilities)

    assert await in_thread(send) == ["ANONYMOUS-RELAY", "DELAYED_DELIVERY"]
    assert await door.bodies("orders") == [b"at once", b"now"]
    delay, on_time = await door.messages(WAITING)
    assert (on_time.body, on_time.delivery_time) == (b"time", at / 1000)
    assert 0 < delay.delivery_time - time.time() <= 2 * HOUR / 1000
    await due(door)

    async def arrived() -> bool:
        return await door.bodies("orders") == [b"at once", b"now", b"time", b"delay"]

    await holds(arrived, 60, "both are delivered")

    def receive() -> list[tuple[bytes, Any]]:
        with connected(door.url) as connection:
            receiver = connection.create_receiver("orders")
            return [(bytes(found.body), found.annotations) for found in (receiver.receive(60) for _ in range(4))]

    found = dict(await in_thread(receive))
    assert found[b"time"] == {symbol("x-opt-delivery-time"): at}
    assert not found[b"delay"]


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({"time": "noon"}, "x-opt-delivery-time: it is a number of milliseconds"),
        ({"delay": True}, "x-opt-delivery-delay: it is a number of milliseconds"),
        ({"delay": 1.5}, "and not float"),
        ({"delay": -1}, "x-opt-delivery-delay, -1 milliseconds"),
        ({"time": -1}, "x-opt-delivery-time, -1 milliseconds"),
        ({"time": ULong(1 << 63)}, "milliseconds: "),
        ({"time": Timestamp(1), "delay": Long(1)}, "not both"),
    ],
)
async def test_wrong_times_are_refused_with_the_reason(door: Door, annotations: dict[str, Any], sentence: str) -> None:
    payload = b"".join(
        encode(Described(ULong(number), value))
        for number, value in (
            (0x72, {Symbol(f"x-opt-delivery-{name}"): value for name, value in annotations.items()}), (0x75, b"m")
        )
    )  # fmt: skip
    (disposition,) = [one for one in await answered(door, payload) if one is not None and one.descriptor == 0x15]
    condition, description = disposition.value[4].value[0].value[:2]
    assert condition == "MQ_ERROR_ILLEGAL_PROPERTY_VALUE"
    assert sentence in description
    assert await door.bodies("orders") == await door.bodies(WAITING) == []


async def test_a_transaction_delays_from_its_discharge(door: Door) -> None:
    await door.send("exact", b"first", deliver_in=3600)
    async with await door.manager.open_queue(r"DIRECT=OS:.\private$\exact", Access.SEND) as queue:
        transaction = door.manager.transaction()
        await Sent.read(AmqpMessage(annotations={DELIVERY_DELAY: Long(HOUR)}, body=b"second"), queue, PLACE).into(
            queue, transaction
        )
        assert await door.bodies(WAITING) == [b"first"]
        await transaction.commit()
    assert await door.bodies(WAITING) == [b"first", b"second"]


async def test_the_relay_delays_as_well_and_ttl_runs_from_the_delivery(door: Door) -> None:
    def send() -> None:
        with connected(door.url) as connection:
            message = delayed(b"relayed", delay=HOUR)
            message.address, message.ttl = "orders", 30
            connection.create_sender(None).send(message)

    await in_thread(send)
    (waiting,) = await door.messages(WAITING)
    assert (waiting.body, waiting.time_to_be_received) == (b"relayed", 30)
    await due(door)

    async def arrived() -> bool:
        return await door.bodies("orders") == [b"relayed"]

    await holds(arrived, 60, "it is delivered")
