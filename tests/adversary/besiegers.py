"""The attackers that use up what a node has, each at work until it is stopped; ``python -m tests.adversary.besiegers``
has them in a process of their own."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qmnode.amqp.principals import AMQP_HEADER, SASL_HEADER
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.structures.user_message import SecurityHeader
from tests.adversary import wire
from tests.adversary.lab import HIGHEST
from tests.adversary.peer import Peer
from tests.adversary.test_amqp_door import attach
from tests.adversary.test_costly_names import costly
from tests.amqp.raw import BEGIN, OPEN, frame, init
from tests.certificates.enterprise import user_certificate
from tests.remote_read.raw_client import RawClient, request_pdu

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

KIB, MIB = 1 << 10, 1 << 20
PLAIN, SEQUENCED = "open", "sequenced"
"""Queues that anybody fills."""
NOWHERE = "192.0.2."
"""Where answers are to be sent to."""
FIRST = HIGHEST - (80_000 << 32)
"""A sequence identifier of about now."""


@dataclass(frozen=True)
class Target:
    """A node, as strangers reach it."""

    address: str
    amqp: int = 0
    rpc: int = 0
    """Ports of these doors."""
    certificate: str = ""
    """The file of a certificate to show over TLS, with a key beside it; in clear without."""
    machine: str = ""
    """The identifier, in hex, of the queue manager that the certificate names."""

    def source(self) -> bytes:
        """The queue manager in whose name to send."""
        return bytes.fromhex(self.machine) or wire.identifier()

    def queue(self, name: str) -> wire.Name:
        """A direct name of a queue of the node."""
        return wire.direct(rf"TCP:{self.address}\private$\{name}")

    def letter(self, source: bytes, number: int, queue: str = PLAIN, label: str = wire.FORGED, **more: object) -> bytes:
        """A message for one of its queues."""
        return wire.UserMessage(
            source=source,
            message_id=number,
            queue=self.queue(queue),
            label=label,
            **more,  # type: ignore[arg-type]
        ).packet()

    async def session(self, own: str, source: bytes, window: int = 64) -> Peer:
        """A session of a machine that the directory does not have."""
        peer = await Peer.connect(own, self.address, showing(self.certificate) if self.certificate else None)
        try:
            await peer.establish(bytes.fromhex(self.machine) or source, window=window)
        except BaseException:
            peer.abort()
            raise
        return peer


@cache
def showing(certificate: str) -> ssl.SSLContext:
    """TLS that checks nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate, Path(certificate).with_suffix(".key"))
    return context


async def drip(peer: Peer, data: bytes | Callable[[], bytes]) -> None:
    """Write the same again and again, or what is made, as fast as the other side reads, until it closes."""
    closed = asyncio.ensure_future(peer.is_closed())
    try:
        while not closed.done():
            peer.send(data if isinstance(data, bytes) else data())
            sent = asyncio.ensure_future(peer.flush())
            await asyncio.wait([closed, sent], return_when=asyncio.FIRST_COMPLETED)
            sent.cancel()
    finally:
        closed.cancel()


def signed() -> bytes:
    """A SecurityHeader with a signature that has to be verified, by a certificate that anybody can make."""
    return SecurityHeader(signature=bytes(range(128)), sender_cert=user_certificate()).write()


# Each attacker, over one connection at a time


async def send_all(at: Target, own: str, packet: Callable[[int], bytes]) -> None:
    """Send one message after the other, each of its own, while the node takes them."""
    peer = await at.session(own, wire.identifier())
    try:
        for number in count(1, 64):
            await peer.say(*(packet(number + one) for one in range(64)))
    finally:
        peer.abort()


async def begin_sequences(at: Target, own: str) -> None:
    place = wire.Place(FIRST, 1, 0)
    spellings = ("sequenced", "SEQUENCED", "Sequenced", "sequenceD")
    await send_all(
        at, own, lambda number: at.letter(wire.identifier(), number, spellings[number % 4], place=place, body=b"")
    )


async def invent_sources(at: Target, own: str) -> None:
    await send_all(at, own, lambda number: at.letter(wire.identifier(), number, body=b""))


async def ask_for_answers(at: Target, own: str) -> None:
    places = random.Random(own)

    def asking(number: int) -> bytes:
        admin = wire.direct(rf"TCP:{NOWHERE}{number % 250}\private$\answers{places.randrange(1 << 30)}")
        return at.letter(at.source(), number, asks=wire.ACK_ARRIVAL, admin=admin, body=b"")

    await send_all(at, own, asking)


async def send_signed(at: Target, own: str, size: int = 4 * MIB - 8192) -> None:
    peer = await at.session(own, source := at.source())
    try:
        await drip(peer, at.letter(source, 1, body=bytes(size), security=signed()))
    finally:
        peer.abort()


async def fill(at: Target, own: str, queue: str) -> None:
    """Send messages until no more are taken, then ever smaller ones."""
    size = 256 * KIB
    while True:
        await fill_with(at, own, queue, size)
        size = max(64, size // 4)


async def fill_with(at: Target, own: str, queue: str, size: int) -> None:
    """Send messages with bodies of this size until no more are taken."""
    peer = await at.session(own, source := at.source())
    numbers = count(random.randrange(1, 1 << 31))

    def letters() -> bytes:
        return b"".join(
            at.letter(source, number, queue, body=bytes(size), flags=wire.DEAD_LETTER) for number in islice(numbers, 16)
        )

    try:
        await drip(peer, letters)
    finally:
        peer.abort()


async def fill_the_quota(at: Target, own: str) -> None:
    async with asyncio.TaskGroup() as both:
        both.create_task(fill(at, own, "nowhere"))
        both.create_task(fill(at, own, PLAIN))


async def send_names(at: Target, own: str) -> None:
    peer = await at.session(own, source := at.source())
    try:
        await drip(peer, costly(1, at.address, source) * 20)
    finally:
        peer.abort()


FAULTING: Final = b"".join(request_pdu(3, b"", 2 + number, context=77) for number in range(600))


async def leave_answers(at: Target, own: str) -> None:
    async with RawClient(at.address, at.rpc, own=own) as client:
        await client.bind(REMOTE_READ)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        try:
            while True:
                async with asyncio.timeout(30):
                    await client.send(FAULTING)
        finally:
            client.writer.transport.abort()


LINKS: Final = 500
OPENED: Final = SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER + frame(OPEN)


def naming(length: int) -> bytes:
    """Links to a queue that does not exist, which are refused, and that nobody detaches."""
    links = (attach("n" * length + str(number), number, "nothing", receives=False) for number in range(LINKS))
    return OPENED + BEGIN + b"".join(links)


async def attach_links(at: Target, own: str) -> None:
    reader, writer = await asyncio.open_connection(at.address, at.amqp, local_addr=(own, 0))
    try:
        writer.write(naming(60_000))
        while await reader.read(65_536):
            pass
    finally:
        writer.transport.abort()


@dataclass(frozen=True)
class Siege:
    """One attack on what a node has."""

    attacker: Callable[[Target, str], Awaitable[None]]
    connections: int
    """Of all strangers together."""


SIEGES: Final = {
    "sequences": Siege(begin_sequences, 10),
    "held bytes": Siege(send_signed, 150),
    "quota": Siege(fill_the_quota, 10),
    "history": Siege(invent_sources, 10),
    "names": Siege(send_names, 20),
    "answers": Siege(ask_for_answers, 10),
    "unread answers": Siege(leave_answers, 100),
    "links": Siege(attach_links, 30),
}
"""What the strangers use up, and who does it."""


async def persist(attacker: Callable[[Target, str], Awaitable[None]], at: Target, own: str) -> None:
    """Begin again whenever the node ends the connection."""
    while True:
        with suppress(OSError, EOFError, ExceptionGroup, AssertionError):
            await attacker(at, own)
        await asyncio.sleep(0.02)


def attackers(
    name: str, at: Target, strangers: Sequence[str], most: int = 1 << 30
) -> list[Callable[[], Awaitable[None]]]:
    """The attackers of a siege, over at most so many connections."""
    siege = SIEGES[name]
    number = max(len(strangers), min(siege.connections, most))
    return [partial(persist, siege.attacker, at, strangers[one % len(strangers)]) for one in range(number)]


def arguments(name: str, at: Target, strangers: Sequence[str]) -> list[str]:
    """The command line of a siege that lasts until its process is ended."""
    return [sys.executable, "-m", __name__, json.dumps([name, asdict(at), list(strangers)])]


async def main(name: str, at: dict[str, object], strangers: list[str]) -> None:
    print("at work", flush=True)
    await asyncio.gather(*(one() for one in attackers(name, Target(**at), strangers)))  # type: ignore[arg-type]


if __name__ == "__main__":
    asyncio.run(main(*json.loads(sys.argv[1])))
