"""Messages whose link, session or connection ends right after them: all that came whole is stored, once."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container

from qmnode import Access
from qmnode.amqp.codec import Described, UInt, ULong, encode
from tests.amqp.conftest import amqp_message, in_thread
from tests.amqp.raw import CLOSE, frame, opened, performative, read_all, read_until, values
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.amqp.conftest import Door

pytestmark = pytest.mark.servers

QUEUES = ("orders", "exact", "window")
"""One that stores all messages of a pass at once, and two that look at each of them."""
LARGE = 100_000


@pytest.fixture
async def windowed(door: Door) -> Door:
    security = await door.manager.queue_security(r".\private$\orders")
    await door.manager.create_queue(r".\private$\window", security=security)
    await door.manager.set_queue(r".\private$\window", duplicate_window=60)
    return door


def attach(handle: int, queue: str) -> bytes:
    target = Described(ULong(0x29), [queue])
    source = Described(ULong(0x28), ["here"])
    return performative(0x12, [f"{queue} {handle}", handle, False, None, None, source, target, None, None, UInt(0)])


@dataclass
class Program:
    """A program that has one link to each queue, all in a session of their own or all in one."""

    port: int
    sessions: int
    numbers: Iterator[int]
    out: bytearray = field(default_factory=bytearray)
    expected: dict[str, list[bytes]] = field(default_factory=lambda: {queue: [] for queue in QUEUES})
    delivery_ids: list[int] = field(default_factory=lambda: [0, 0, 0])
    gone: set[int] = field(default_factory=set)
    begun: dict[int, int] = field(default_factory=dict)
    """Deliveries that are not whole, by link."""

    def channel(self, link: int) -> int:
        return link % self.sessions

    def connect(self) -> socket.socket:
        begins = [frame(performative(0x11, [None, 0, 1000, 1000]), one) for one in range(self.sessions)]
        attaches = [frame(attach(link, QUEUES[link]), self.channel(link)) for link in range(len(QUEUES))]
        connection = opened(self.port, *begins, *attaches)
        data = b""
        while data.count(b"\x00\x53\x13") < len(QUEUES):  # each link has its credit
            data += read_until(connection, b"\x00\x53\x13")
        return connection

    def transfer(self, link: int, settled: bool, large: bool, whole: bool) -> None:
        if link in self.gone or link in self.begun:
            return
        number = next(self.numbers)
        body = b"%d " % number + b"x" * (LARGE if large else 0)
        message = encode(Described(ULong(0x73), [f"id {number}"])) + encode(Described(ULong(0x75), body))
        channel = self.channel(link)
        identifier, self.delivery_ids[channel] = self.delivery_ids[channel], self.delivery_ids[channel] + 1
        pieces = [message[at : at + 60_000] for at in range(0, len(message), 60_000)]
        for place, piece in enumerate(pieces):
            more = not whole or place < len(pieces) - 1
            fields = [link, identifier, b"%d" % identifier, 0, settled, more]
            self.out += frame(performative(0x14, fields) + piece, channel)
        if whole:
            self.expected[QUEUES[link]].append(body)
        else:
            self.begun[link] = identifier

    def detach(self, link: int, closed: bool) -> None:
        if link not in self.gone:
            self.gone.add(link)
            self.out += frame(performative(0x16, [link, closed]), self.channel(link))

    def end(self, session: int) -> None:
        links = {link for link in range(len(QUEUES)) if self.channel(link) == session % self.sessions}
        if not links & self.gone:  # no handle of a session that has ended is used
            self.gone |= links
            self.out += frame(performative(0x17, []), session % self.sessions)


Step = tuple[Any, ...]
LINKS = st.sampled_from(range(len(QUEUES)))
TRANSFERS = st.tuples(st.just("transfer"), LINKS, st.booleans(), st.sampled_from([False] * 7 + [True]), st.just(True))
STEPS = st.one_of(
    TRANSFERS,
    TRANSFERS,
    TRANSFERS,
    st.tuples(st.just("transfer"), LINKS, st.booleans(), st.just(False), st.just(False)),
    st.tuples(st.just("detach"), LINKS, st.booleans()),
    st.tuples(st.just("end"), LINKS),
)


def run(port: int, numbers: Iterator[int], sessions: int, steps: list[Step], orderly: bool) -> dict[str, list[bytes]]:
    """Send all in one piece, and the end of the connection with it. The messages that came whole."""
    program = Program(port, sessions, numbers)
    with program.connect() as connection:
        for name, *arguments in steps:
            getattr(program, name)(*arguments)
        connection.sendall(bytes(program.out) + (frame(performative(0x18, [])) if orderly else b""))
        if not orderly:
            connection.shutdown(socket.SHUT_WR)
        read_all(connection)
    return program.expected


async def find_a_loss(door: Door, examples: int) -> None:
    loop = asyncio.get_running_loop()
    numbers = iter(range(1_000_000))

    def stored() -> dict[str, list[bytes]]:
        async def bodies() -> dict[str, list[bytes]]:
            return {queue: await door.bodies(queue) for queue in QUEUES}

        return asyncio.run_coroutine_threadsafe(bodies(), loop).result(60)

    async def empty() -> None:
        for name in QUEUES:
            async with await door.manager.open_queue(rf"DIRECT=OS:.\private$\{name}", Access.RECEIVE) as queue:
                await queue.purge()

    @settings(max_examples=examples, deadline=None)
    @given(st.integers(1, 3), st.lists(STEPS, min_size=1, max_size=12), st.booleans())
    def orders(sessions: int, steps: list[Step], orderly: bool) -> None:
        expected = run(door.door.port, numbers, sessions, steps, orderly)
        if orderly:  # the door has answered: all is stored by then
            assert stored() == expected
        wait_until(lambda: stored() == expected, 60, f"all of {expected} is stored")
        asyncio.run_coroutine_threadsafe(empty(), loop).result(60)

    await in_thread(orders)


async def test_nothing_is_lost_by_any_order_of_messages_and_endings(windowed: Door) -> None:
    await find_a_loss(windowed, 60)


@pytest.mark.soak
async def test_nothing_is_lost_by_thousands_of_orders_of_messages_and_endings(windowed: Door) -> None:
    await find_a_loss(windowed, 4000)


class Detaching(MessagingHandler):  # type: ignore[misc]
    """Sends messages that are settled already, and detaches."""

    def __init__(self, url: str, bodies: list[bytes]) -> None:
        super().__init__()
        self.url, self.bodies = url, bodies

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, allowed_mechs="ANONYMOUS")
        event.container.create_sender(connection, "orders", options=AtMostOnce())

    def on_sendable(self, event: Any) -> None:
        for body in self.bodies:
            event.sender.send(amqp_message(body))
        self.bodies = []
        event.sender.close()

    def on_link_closed(self, event: Any) -> None:
        event.connection.close()


@pytest.mark.parametrize("size", [10, 3_000, 200_000])
async def test_proton_detaches_right_after_settled_messages(door: Door, size: int) -> None:
    bodies = [b"%d " % number + b"x" * size for number in range(20)]
    await in_thread(lambda: Container(Detaching(door.url, list(bodies))).run())
    assert await door.bodies("orders") == bodies


async def test_a_session_that_ends_at_once_is_answered_with_its_channel(door: Door) -> None:
    end = frame(performative(0x17, []), 5)

    def answers() -> list[Any]:
        with opened(door.door.port, frame(performative(0x11, [None, 0, 1000, 1000]), 5), end, CLOSE) as connection:
            return [one for one in values(read_all(connection)) if one is not None]

    begun = [one.value[0] for one in await in_thread(answers) if one.descriptor == 0x11]
    assert begun == [5]
