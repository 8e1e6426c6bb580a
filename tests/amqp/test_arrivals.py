"""A sender over AMQP that wants to know whether its message has arrived at the other machine."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from proton import Delivery, symbol
from proton.reactor import LinkOption
from proton.utils import LinkDetached, SendException

from qmnode import Access, Message, QueueType
from qmnode.amqp.door import AmqpDoor
from qmnode.directory.port import WorkgroupDirectory
from qmnode.security.principals import Principals
from qmnode.settings.node import NodeSettings
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE, Acl, QueueAccess, SecurityDescriptor, allow
from tests.amqp.conftest import SECRET, amqp_message, connected, in_thread, tokens_file
from tests.lab.waiting import eventually, holds
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair, pair  # noqa: F401 (a fixture)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


# Only users with a name send to other machines.
LOGIN: Any = {"timeout": 60, "allowed_mechs": "PLAIN", "user": "ops", "password": SECRET}


class Arrival(LinkOption):
    """The link property, and that of a transactional queue."""

    def __init__(self, seconds: Any, *, transactional: bool = False) -> None:
        self.properties = {symbol("qmnode:arrival"): seconds, symbol("qmnode:transactional"): transactional}

    def apply(self, link: Any) -> None:
        link.properties = self.properties


@asynccontextmanager
async def opened(pair: Pair, path: Path) -> AsyncIterator[str]:  # noqa: F811
    """The door of ALICE; its URL."""
    amqp = {"enabled": True, "address": "127.0.0.1", "port": 0, "tokens": tokens_file(path / "tokens.yaml")}
    transport = {"address": pair.addresses["ALICE"]}
    settings = NodeSettings(data=path / "ALICE", computer_name="ALICE", amqp=amqp, transport=transport, export={})
    door = AmqpDoor(pair.alice, settings, Principals(settings.security, WorkgroupDirectory()))
    await door.start()
    try:
        yield f"amqp://127.0.0.1:{door.port}"
    finally:
        await door.stop()


async def send(url: str, address: str, option: Arrival, *bodies: bytes) -> None:
    def work() -> None:
        with connected(url, **LOGIN) as client:
            sender = client.create_sender(address, options=option)
            for body in bodies:
                sender.send(amqp_message(body))

    await in_thread(work)


@pytest.mark.parametrize(("queue", "transactional"), [(PLAIN, False), (TRANSACTIONAL, True)])
async def test_a_message_is_accepted_when_it_is_in_the_queue_of_the_other_machine(
    pair: Pair, tmp_path: Path, queue: str, transactional: bool  # noqa: F811
) -> None:  # fmt: skip
    async with opened(pair, tmp_path) as url:
        for number in range(1, 4):
            await send(url, pair.direct("BOB", queue), Arrival(20, transactional=transactional), b"order")
            assert (await pair.bob.queue(queue)).message_count == number
        assert (await pair.alice.queue(r".\private$\amqp$arrivals")).message_count == 0


async def test_a_message_is_not_accepted_while_the_other_machine_is_down(pair: Pair, tmp_path: Path) -> None:  # noqa: F811
    await pair.stop("BOB")
    async with opened(pair, tmp_path) as url:
        sending = asyncio.create_task(send(url, pair.direct("BOB", PLAIN), Arrival(60), b"order"))
        await asyncio.sleep(0.5)
        assert not sending.done()
        await pair.start("BOB")
        await sending
    assert (await pair.bob.queue(PLAIN)).message_count == 1


async def test_a_message_that_does_not_arrive_in_time_is_rejected(pair: Pair, tmp_path: Path) -> None:  # noqa: F811
    await pair.stop("BOB")
    async with opened(pair, tmp_path) as url:
        with pytest.raises(SendException) as refused:
            await send(url, pair.direct("BOB", PLAIN), Arrival(1), b"order")
    assert refused.value.state == Delivery.REJECTED


async def condition(url: str, address: str, option: Arrival, body: bytes) -> str:
    """That of the message, which is rejected."""

    def work() -> str:
        with connected(url, **LOGIN) as client:
            sender = client.create_sender(address, options=option)
            delivery = sender.link.send(amqp_message(body))
            client.wait(lambda: delivery.settled, timeout=60)
            assert delivery.remote_state == Delivery.REJECTED
            return str(delivery.remote.condition.name)

    return str(await in_thread(work))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("refused", "MQMSG_CLASS_NACK_Q_EXCEED_QUOTA"),
        ("late", "MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT"),
        ("no report", "MQ_ERROR_IO_TIMEOUT"),
    ],
)
async def test_a_message_that_is_not_in_the_queue_is_rejected_with_the_reason(
    pair: Pair, tmp_path: Path, case: str, expected: str  # noqa: F811
) -> None:  # fmt: skip
    address = pair.direct("BOB", PLAIN)
    if case == "refused":
        await pair.bob.set_queue(PLAIN, quota=1)
    elif case == "late":
        await pair.stop("BOB")
    else:
        address = pair.direct("BOB", r".\private$\nothing")
    async with opened(pair, tmp_path) as url:
        option = Arrival(20 if case == "refused" else 1)
        assert await condition(url, address, option, bytes(5000)) == expected


@pytest.mark.parametrize("message_class", [0, MessageClass.MQMSG_CLASS_REPORT, MessageClass.MQMSG_CLASS_ACK_RECEIVE])
async def test_only_an_acknowledgment_says_that_a_message_has_arrived(
    pair: Pair, tmp_path: Path, message_class: int  # noqa: F811
) -> None:  # fmt: skip
    await pair.stop("BOB")
    async with opened(pair, tmp_path) as url:
        sending = asyncio.create_task(send(url, pair.direct("BOB", PLAIN), Arrival(600), b"order"))
        await holds(lambda: _waits(pair), 60, "the message waits for the other machine")
        async with await pair.alice.open_queue(r"DIRECT=OS:.\private$\amqp$arrivals", Access.SEND) as queue:
            for number in range(50):  # message identifiers are easily guessed
                forged = Message(correlation_identifier=bytes(pair.alice.identifier) + number.to_bytes(4, "little"))
                forged.message_class = message_class
                await queue.send(forged)

        async def is_read() -> bool:
            return not (await pair.alice.queue(r".\private$\amqp$arrivals")).message_count

        await holds(is_read, 60, "the forged message is read")
        assert not sending.done()
        await pair.start("BOB")
        await sending


async def _waits(pair: Pair) -> bool:  # noqa: F811
    return any(queue.message_count for queue in await pair.alice.queues([QueueType.OUTGOING]))


async def test_a_sender_that_leaves_is_not_waited_for(pair: Pair, tmp_path: Path) -> None:  # noqa: F811
    await pair.stop("BOB")
    async with opened(pair, tmp_path) as url:

        def work() -> None:
            with connected(url, **LOGIN) as client:
                sender = client.create_sender(pair.direct("BOB", PLAIN), options=Arrival(600))
                sender.link.send(amqp_message(b"order"))

        await in_thread(work)
        await eventually(lambda: not pair.alice.amqp.connections, "the connection has ended")
        await pair.start("BOB")
        await send(url, pair.direct("BOB", PLAIN), Arrival(20), b"another")
    assert (await pair.bob.queue(PLAIN)).message_count == 2


async def test_a_queue_of_this_node_has_the_message_when_it_is_accepted(pair: Pair, tmp_path: Path) -> None:  # noqa: F811
    everybody = [allow(who, QueueAccess.MQSEC_QUEUE_GENERIC_ALL) for who in (EVERYONE, ANONYMOUS)]
    security = SecurityDescriptor(owner=EVERYONE, group=EVERYONE, dacl=Acl.of(*everybody)).write()
    await pair.alice.create_queue(r".\private$\orders", security=security)
    async with opened(pair, tmp_path) as url:
        await send(url, "orders", Arrival(1), b"order")
    assert (await pair.alice.queue(r".\private$\orders")).message_count == 1


@pytest.mark.parametrize("seconds", [True, 0, -1, "60", 10_000_000])
async def test_a_time_that_is_none_is_refused(pair: Pair, tmp_path: Path, seconds: Any) -> None:  # noqa: F811
    async with opened(pair, tmp_path) as url:
        with pytest.raises(LinkDetached, match="qmnode:arrival is a whole number of seconds"):
            await send(url, pair.direct("BOB", PLAIN), Arrival(seconds), b"order")


async def test_several_queues_at_once_have_no_common_arrival(pair: Pair, tmp_path: Path) -> None:  # noqa: F811
    address = f"{pair.direct('BOB', PLAIN)},{pair.direct('BOB', TRANSACTIONAL)}"
    async with opened(pair, tmp_path) as url:
        with pytest.raises(LinkDetached, match="one queue"):
            await send(url, address, Arrival(10), b"order")
