"""Somebody on the path: sees every packet, connects from an address of his own, first if he can, and forges.

What he cannot do is write into the connections of others. What he sends as a message of his own making says so in its
label: that anybody may send to an open queue is no finding. Where nodes speak TLS he also holds a certificate of the
enterprise that names no queue manager, and sees the messages all the same: somebody shows him what nodes have to send.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.adversary import wire
from tests.adversary.wire import FORGED, Packet
from tests.forwarding.enterprise import Machine
from tests.soak.streams import HONEST
from tests.transport.conftest import loopback_address

RATE = 200
"""Packets a second."""
_KEPT = 512
_IDENTIFIER, _FLAGS = 56, 60
_PROPERTIES_SIZE, _EXTENSION_SIZE = 56, 52
_HIGHEST = 0x7FFF_FFFF << 32
_JOURNALS = 3 << 8
_AT_ONCE = 20
_ENDS = (wire.ACK_RECEIVE, wire.BAD_DESTINATION, wire.PURGED, wire.REACH_QUEUE_TIMEOUT)
_SESSION_LIFE = 200
"""Packets after which he comes back in another name."""


def is_forged(label: str) -> bool:
    """Whether a message is the attacker's own."""
    return label == FORGED


@dataclass
class Attacker:
    """One attacker, against all machines at once."""

    machines: Sequence[Machine]
    seed: int
    tls: Sequence[ssl.SSLContext] = ()
    """How he connects to nodes that speak TLS: each in turn, and in clear. None if nodes speak in clear."""
    sent: int = 0
    seen: int = 0
    opened: int = 0
    """Sessions that were answered."""
    own: str = field(default_factory=loopback_address)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._messages: dict[str, deque[Packet]] = {one.name: deque(maxlen=_KEPT) for one in self.machines}
        self._marked: dict[str, deque[Packet]] = {one.name: deque(maxlen=_KEPT) for one in self.machines}
        """Messages of the streams, which he forges others from."""
        self._over = False

    def tap(self, name: str) -> Callable[[bytes], None]:
        """For the bytes of one connection to a machine."""
        rest = b""

        def take(data: bytes) -> None:
            nonlocal rest
            rest += data
            while len(rest) >= 16 and (found := wire.next_packet(rest)) is not None:
                packet, rest = found
                if packet.kind == 0 and not packet.flags & wire.WITH_SESSION_HEADER:
                    self.show(name, packet.data)

        return take

    def show(self, name: str, data: bytes) -> None:
        """He sees a message on its way to a machine."""
        self.seen += 1
        packet = Packet(data)
        self._messages[name].append(packet)
        if packet.message_class == wire.NORMAL and packet.label == HONEST:
            self._marked[name].append(packet)

    async def run(self) -> None:
        """Until ``stop``."""
        async with asyncio.TaskGroup() as tasks:
            for machine in self.machines:
                tasks.create_task(self._attack(machine))

    def stop(self) -> None:
        """It is enough."""
        self._over = True

    async def _attack(self, machine: Machine) -> None:
        pause = len(self.machines) / RATE
        time = asyncio.get_running_loop().time
        last = time()  # what a machine that is down or busy did not take is made up for
        while not self._over:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    machine.listens, 1801, local_addr=(self.own, 0), ssl=self._random.choice([None, *self.tls])
                )
                reading = asyncio.ensure_future(self._read_all(reader))
                try:
                    request = wire.establish_connection(self._name(machine), wire.NOBODY)
                    writer.write(request + wire.connection_parameters())
                    left = _SESSION_LIFE
                    while left > 0 and not self._over and not reading.done():
                        await asyncio.sleep(max(0.001, last + pause - time()))
                        due = min(_AT_ONCE, int((time() - last) / pause))
                        last += due * pause
                        writer.write(b"".join(self._forgery(machine) for _ in range(due)))
                        self.sent += due
                        left -= due
                        await writer.drain()
                finally:
                    reading.cancel()
                    writer.close()
            await asyncio.sleep(pause)

    def _name(self, machine: Machine) -> bytes:
        others = [bytes(one.identifier) for one in self.machines]
        return self._random.choice([*others, wire.identifier()])

    def _forgery(self, machine: Machine) -> bytes:
        dice = self._random
        to, back = self._messages[machine.name], self._sent_by(machine)
        kinds: list[Callable[[], bytes]] = [lambda: wire.session_ack(0)]
        if to:
            kinds.append(self._replayed(to))
        if marked := self._marked[machine.name]:
            kinds += [self._renumbered(marked), self._jumped(marked), self._own_source(marked, machine)]
        if back is not None:
            kinds += [self._order_ack(back, machine), self._final_ack(back, machine)]
        return dice.choice(kinds)()

    async def _read_all(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            self.opened += bool(await reader.read(65536))
            while await reader.read(65536):
                pass

    def _sent_by(self, machine: Machine) -> Packet | None:
        """A message of this machine, on its way elsewhere."""
        own = bytes(machine.identifier)
        seen = [one for name, packets in self._messages.items() if name != machine.name for one in list(packets)[-64:]]
        return self._random.choice(found) if (found := [one for one in seen if one.source == own]) else None

    def _replayed(self, seen: Sequence[Packet]) -> Callable[[], bytes]:
        """As it passed, but that it asks for no trace: reports are sent for each copy that a router passes on."""

        def make() -> bytes:
            data = bytearray(self._random.choice(seen).data)
            flags = struct.unpack_from("<H", data, 2)[0] & ~wire.TRACED
            struct.pack_into("<H", data, 2, flags)
            return bytes(data)

        return make

    def _renumbered(self, seen: Sequence[Packet]) -> Callable[[], bytes]:
        """The source's next message identifiers: its own messages are to pass for duplicates."""

        def make() -> bytes:
            packet = self._random.choice(seen)
            return _forged(packet, packet.message_id + self._random.randint(1, 200))

        return make

    def _jumped(self, seen: Sequence[Packet]) -> Callable[[], bytes]:
        """A later place in the sequence, or the highest sequence of all."""

        def make() -> bytes:
            packet = self._random.choice(seen)
            data = bytearray(_forged(packet, packet.message_id + self._random.randint(1000, 9000)))
            if packet.user_flags & wire.WITH_TRANSACTION:
                place, at = packet.place, packet._after_names()
                last = self._random.choice((0, place.number, place.number + 7))
                sequence = self._random.choice((place.sequence, place.sequence + 1, _HIGHEST))
                struct.pack_into("<QII", data, at + 4, sequence, last + 1, last)
            return bytes(data)

        return make

    def _own_source(self, seen: Sequence[Packet], machine: Machine) -> Callable[[], bytes]:
        """The receiver itself is the source."""

        def make() -> bytes:
            packet = self._random.choice(seen)
            data = bytearray(_forged(packet, packet.message_id + 1))
            data[16:32] = machine.identifier
            return bytes(data)

        return make

    def _order_ack(self, packet: Packet, machine: Machine) -> Callable[[], bytes]:
        def make() -> bytes:
            if not packet.user_flags & wire.WITH_TRANSACTION:
                return wire.session_ack(1)
            number = packet.place.number + self._random.randint(0, 50)
            return wire.order_ack(
                packet.address, self._random.getrandbits(31), bytes(machine.identifier), packet.place.sequence, number
            )

        return make

    def _final_ack(self, packet: Packet, machine: Machine) -> Callable[[], bytes]:
        """That a message was received, refused or lost, in the name of its destination."""

        def make() -> bytes:
            if not packet.user_flags & wire.WITH_TRANSACTION:
                return wire.session_ack(1)
            own, number = bytes(machine.identifier), self._random.getrandbits(31)
            reason = self._random.choice(_ENDS)
            return wire.final_ack(packet.address, number, own, reason, packet.place, own, packet.message_id)

        return make


def _forged(packet: Packet, number: int) -> bytes:
    """The message with another identifier and the attacker's mark, that asks for nothing to be told."""
    data = bytearray(packet.data)
    struct.pack_into("<I", data, _IDENTIFIER, number & 0xFFFF_FFFF)
    struct.pack_into("<I", data, _FLAGS, packet.user_flags & ~_JOURNALS)
    properties = packet._properties()
    data[properties] = 0
    flags = struct.unpack_from("<H", data, 2)[0] & ~wire.TRACED
    struct.pack_into("<H", data, 2, flags)
    label = properties + _PROPERTIES_SIZE
    data[label : label + 2 * len(FORGED)] = FORGED.encode("utf-16-le")
    if packet.body:
        at = label + 2 * packet.data[properties + 1] + packet._number(properties + _EXTENSION_SIZE)
        data[at + len(packet.body) - 1] ^= 1
    return bytes(data)
