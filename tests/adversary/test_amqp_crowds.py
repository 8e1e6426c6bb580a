"""Crowds of clients at the AMQP door of a node of its own: limits hold, others are served, and memory stays flat."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from proton import Delivery
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

import qmnode.sync
from qmnode.amqp.principals import AMQP_HEADER, SASL_HEADER
from tests.adversary.attacks import Area, attack
from tests.adversary.besiegers import naming
from tests.adversary.test_amqp_door import attach, flow, transfer
from tests.amqp.conftest import amqp_message, connected, in_thread, open_door, take
from tests.amqp.raw import BEGIN, OPEN, frame, init, performative, read_all
from tests.amqp.test_transactions import move
from tests.lab.addresses import free_port
from tests.lab.nodes import NodeProcess
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.servers

ATTACKER = "127.0.0.9"
PER_PEER = 100
CROWD = 2 * PER_PEER
WAITING = 40
HELD = 1 << 20
WARMING = 3
ROUNDS = 6
FLAT = 6 * 1024
"""Kilobytes by which the last round may leave the node larger than the largest of those that fill its caches."""
OPENED = SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER + frame(OPEN)
HALVES = (
    b"", SASL_HEADER, SASL_HEADER + init("PLAIN"), SASL_HEADER + init("ANONYMOUS"),
    SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER, OPENED[:-7],
)  # fmt: skip
GREEDY = OPENED + BEGIN + attach("in", 0, "large", receives=True) + flow(0, 100_000)
WITHOUT_CREDIT = OPENED + BEGIN + attach("in", 0, "orders", receives=True)


def resident(node: NodeProcess) -> int:
    """Kilobytes of memory that the node has."""
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


class Door:
    """A node with a door, in a process of its own, and a queue with messages."""

    def __init__(self, folder: Path, **amqp: object) -> None:
        self.port = free_port()
        settings = {"enabled": True, "address": "", "port": self.port, "anonymous": True, **amqp}
        self.node = NodeProcess(folder, amqp=settings)

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.node.start()
        for name in ("orders", "large", "honest"):
            self.node.command("queue", "create", name)
            rights = ("send-message", "receive-message", "peek-message")
            self.node.command("queue", "acl", "allow", name, "anonymous", *rights)

    def connections(self) -> int:
        with qmnode.sync.connect(self.node.socket) as manager:
            return manager.status().amqp_connections


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("door")
    door = Door(
        folder, connections_per_peer=PER_PEER, handshake_timeout=10, idle_timeout=10, prefetch=100, held_bytes=HELD
    )
    door.start()
    yield door
    door.node.stop()


def crowd(door: Door, begin: Callable[[int], bytes], size: int) -> list[socket.socket]:
    """Connections of an attacker, all from one address."""
    found = []
    for number in range(size):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.bind((ATTACKER, 0))
        one.settimeout(30)
        one.connect((ATTACKER, door.port))
        with contextlib.suppress(OSError):  # refused
            one.sendall(begin(number))
        found.append(one)
    return found


def is_served(door: Door) -> None:
    with connected(door.url) as client:
        client.create_sender("honest").send(amqp_message(b"served"))
        receiver = client.create_receiver("honest", credit=1)
        assert take(receiver) == b"served"
        receiver.accept()


def stays_flat(door: Door, begin: Callable[[int], bytes], size: int, rounds: int = ROUNDS, flat: int = FLAT) -> None:
    sizes = []
    for _ in range(rounds):
        attackers = crowd(door, begin, size)
        is_served(door)
        assert door.connections() <= PER_PEER
        is_served(door)
        for one in attackers:
            one.close()
        wait_until(lambda: door.connections() == 0, 60, "nothing is left of the attacker's connections")
        sizes.append(resident(door.node))
    assert sizes[-1] - max(sizes[:WARMING]) < flat, sizes
    print(f"\n{sizes} KB after each round")


@attack(
    Area.AMQP,
    can="begin hundreds of handshakes and finish none",
    promised="one address can have a limited number of them, for a limited time; the node serves others, and its "
    "memory stays flat",
)
def test_half_handshakes(door: Door) -> None:
    stays_flat(door, lambda number: HALVES[number % len(HALVES)], CROWD)
    silent = crowd(door, lambda _: SASL_HEADER, WAITING)
    assert all(b"AMQP" in read_all(one) for one in silent)  # until the node closes
    assert "Traceback" not in door.node.log.read_text()


@attack(
    Area.AMQP,
    can="receive the messages of a queue over many connections, and read nothing from the sockets",
    promised="messages of closed connections return to the queue; the node serves others, and its memory stays flat",
)
def test_slow_readers(door: Door) -> None:
    with connected(door.url) as client:
        sender = client.create_sender("large")
        for _ in range(50):
            sender.send(amqp_message(b"x" * 200_000))
    freed = WAITING * HELD // 1024  # of a round; the C library gives it back to the system, or does not
    stays_flat(door, lambda _: GREEDY, WAITING, rounds=16, flat=freed)
    with connected(door.url) as client:
        receiver = client.create_receiver("large", credit=10)
        for _ in range(50):
            assert len(take(receiver)) == 200_000
            receiver.accept()


@attack(
    Area.AMQP,
    can="attach hundreds of receivers that give no credit",
    promised="none of these receivers locks a message; the node serves others, and its memory stays flat",
)
def test_receivers_without_credit(door: Door) -> None:
    with connected(door.url) as client:
        client.create_sender("orders").send(amqp_message(b"x"))
    stays_flat(door, lambda _: WITHOUT_CREDIT, CROWD)
    attackers = crowd(door, lambda _: WITHOUT_CREDIT, WAITING)
    with connected(door.url) as client:
        receiver = client.create_receiver("orders", credit=1)
        assert take(receiver) == b"x"
        receiver.accept()
    for one in attackers:
        one.close()


NAMING = 15
ROOM = 48 * 1024
"""Kilobytes by which such attackers may make the node larger while they are connected."""


@pytest.mark.parametrize("length", [60_000, 7_000])
@attack(
    Area.AMQP,
    can="attach links that are refused, with long names, and detach none",
    promised="the names of links have a limit over all connections, and an address has a share; the node serves others",
)
def test_refused_links_with_long_names(door: Door, length: int) -> None:
    before = resident(door.node)
    links = naming(length)
    attackers = crowd(door, lambda _: links, NAMING)
    is_served(door)
    assert resident(door.node) - before < ROOM
    for one in attackers:
        one.close()
    wait_until(lambda: door.connections() == 0, 60, "nothing is left of the attacker's connections")


@attack(
    Area.AMQP,
    can="attach a link that is refused in each of many sessions, and send messages on it all the same",
    promised="the node keeps none of their bytes; it serves others",
)
def test_messages_on_refused_links(door: Door) -> None:
    before = resident(door.node)
    payload = b"x" * 60_000
    out = bytearray(OPENED)
    for channel in range(60):
        out += frame(performative(0x11, [None, 0, 1000, 1000]), channel)
        out += on(channel, attach("refused", 0, "nothing", receives=False))
        out += b"".join(on(channel, transfer(0, number, payload)) for number in range(20))
    attackers = crowd(door, lambda _: bytes(out), NAMING)
    is_served(door)
    assert resident(door.node) - before < ROOM
    for one in attackers:
        one.close()
    wait_until(lambda: door.connections() == 0, 60, "nothing is left of the attacker's connections")


def on(channel: int, one: bytes) -> bytes:
    """A frame of channel 0 on another channel."""
    return one[:6] + channel.to_bytes(2, "big") + one[8:]


@attack(
    Area.AMQP,
    can="send large messages in transactions that never end",
    promised="the messages of open transactions have a limit over all connections, and an address has a share of it",
)
async def test_transactions_without_an_end(tmp_path: Path) -> None:
    async with open_door(tmp_path, anonymous=True, transaction_bytes=8 << 20) as door:

        def refusals() -> list[str]:
            filler = Filler(door.url)
            Container(filler).run()
            return filler.refused

        assert await in_thread(refusals) == ["amqp:resource-limit-exceeded"]
        assert not any(door.door.in_transactions.used.values())
        await door.send("exact", b"1")
        assert (await move(door, "commit", size=1)).failures == []


class Filler(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Sends in one transaction until a message is refused."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.refused: list[str] = []
        self.sent = 0

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = self.container.connect(self.url, allowed_mechs="ANONYMOUS", reconnect=False)
        self.sender = self.container.create_sender(self.connection, "exact")
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.more()

    def more(self) -> None:
        self.sent += 1
        assert self.sent < 100
        self.transaction.send(self.sender, amqp_message(b"x" * 500_000))

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if event.link != self.sender or not delivery.updated or self.refused:
            return
        if delivery.remote_state == Delivery.REJECTED:
            self.refused.append(delivery.remote.condition.name)
            self.connection.close()
        else:
            delivery.settle()
            self.more()
