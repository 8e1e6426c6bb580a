"""What the protocol costs a message, without sockets and without a store: 1 KiB bodies, window 64, both sides.

The baseline is the least that any implementation does with the same bytes: cut each packet out of the stream as a
copy and unpack its headers with three calls of ``struct``. The bar is on the whole way of a message: the sender's
session and sequence, the receiver's session, its decisions, its records, and the acknowledgments back. Processor time
is measured, not time: a window takes long enough to be interrupted, which its baseline does not.
"""

from __future__ import annotations

import gc
import random
import statistics
import struct
from time import process_time
from typing import TYPE_CHECKING, Final

from qmnode.protocol.commands import MessagesReceived
from qmnode.protocol.incoming_sequences import IncomingSequences
from qmnode.protocol.message_id_history import MessageIdHistory
from qmnode.protocol.outgoing_sequences import OutgoingSequences
from qmnode.protocol.received import MessageReader
from qmnode.protocol.reception import Destination, DestinationKind, Neighbour, Reception
from qmnode.settings.protocol import TransferSettings
from qmnode.shares import Accountant
from qmnode.structures.packet_view import places_of, read_sequence_fields, with_sequence_fields
from tests.bench import Comparison, bench
from tests.protocol.machines import ALICE, BOB, TIME, SessionPair, message, transactional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WINDOW: Final = 64
WINDOWS: Final = 16
"""Different windows of packets that are sent one after the other; then the receiver forgets them."""
BARS: Final = {"express": 14.0, "recoverable": 15.0, "transactional": 18.0}
VARIED: Final = 1.5
"""The most that a message may cost whose sizes are others than those of the one before it, in alike ones."""
_HEADERS: Final = (struct.Struct("<BBHIII"), struct.Struct("<16s16sIIII"), struct.Struct("<BBH20s8I"))
_PROPERTIES_AT: Final = 124


class Transfer:
    """A session that is open, and messages of one kind to send on it again and again."""

    def __init__(self, kind: str, *, is_known: bool = True) -> None:
        """``is_known``: the directory or the name service says that the sender is who its messages claim."""
        self.is_known = is_known
        self.pair = SessionPair().establish()
        self.pair.alice.session.commands()
        self.kind = kind
        self.parameters = TransferSettings()
        self.outgoing = OutgoingSequences(self.parameters, TIME)
        self.sequence = self.outgoing.get(b"queue")
        count = WINDOW * WINDOWS
        body = bytes(1024)
        if kind == "transactional":
            identifier = self.outgoing.assign(b"queue", count).sequence_id
            packets = [transactional(n, identifier, n, n - 1, body=body) for n in range(1, count + 1)]
            self.header_at = places_of(packets[0]).transaction_header
        else:
            packets = [message(n, recoverable=kind == "recoverable", body=body) for n in range(count)]
        self.windows = [packets[at : at + WINDOW] for at in range(0, count, WINDOW)]
        self.tokens = range(WINDOW)
        self.turn = 0
        self.sender_seconds = 0.0
        self.receiver_seconds = 0.0

    def forget(self) -> None:
        """A receiver that has seen none of the messages, a sender that has sent none."""
        incoming = IncomingSequences(self.parameters, Accountant())
        self.reception = Reception(BOB, self.parameters, MessageIdHistory(self.parameters, Accountant()), incoming)
        self.incoming = incoming
        self.neighbour = Neighbour("127.0.0.1")
        if self.is_known:
            self.neighbour.known[ALICE] = True
        self.sequence.rewind()

    def send(self, now: float) -> bytes:
        """One window from the sender's hands to the wire."""
        packets = self.windows[self.turn]
        if self.kind == "transactional":
            packets = [self.prepared(packet) for packet in packets]
            self.outgoing.sent(self.sequence, now)
        session = self.pair.alice.session
        assert session.send_messages(self.tokens, packets, now, TIME) == WINDOW
        return b"".join(session.data_to_send())

    def prepared(self, packet: bytes) -> bytes:
        """As a node does, which keeps with a message where its TransactionHeader is."""
        identifier, number, previous = read_sequence_fields(packet, self.header_at)
        bridge = self.sequence.prepare(identifier, number)
        assert bridge is not None
        if bridge == previous:
            return packet
        return bytes(with_sequence_fields(packet, self.header_at, identifier, number, bridge))

    def receive(self, data: bytes, now: float) -> bytes:
        """One window from the wire to what is to be stored, and the acknowledgments of it."""
        session = self.pair.bob.session
        session.receive_data(data, now)
        for command in session.commands():
            assert isinstance(command, MessagesReceived)
            destinations = {
                name: Destination(DestinationKind.LOCAL, None, self.kind == "transactional")
                for name in self.reception.unresolved(command.messages, {})
            }
            admission = self.reception.admit(
                command.messages, destinations, now=now, time=TIME, neighbour=self.neighbour
            )
            assert len(admission.taken) == WINDOW
            self.reception.persisted(admission, now)
            session.messages_settled(admission.ordinal, admission.recoverable_ordinal, now)
            self.incoming.take_order_acknowledgments(now)
        return b"".join(session.data_to_send())

    def take_back(self, data: bytes, now: float) -> None:
        """The acknowledgments arrive at the sender."""
        session = self.pair.alice.session
        session.receive_data(data, now)
        session.commands()

    def __call__(self) -> None:
        """One window there and back."""
        now = self.pair.now
        if not self.turn:
            self.forget()
        start = process_time()
        data = self.send(now)
        sent = process_time()
        back = self.receive(data, now)
        received = process_time()
        self.take_back(back, now)
        self.sender_seconds += process_time() - received + sent - start
        self.receiver_seconds += received - sent
        self.turn = (self.turn + 1) % WINDOWS


def of_strangers() -> list[Comparison]:
    """Messages whose sender nobody knows, which are compared with others of the same name, against a known sender's."""
    kinds = ("express", "transactional")
    transfers = [Transfer(kind, is_known=is_known) for kind in kinds for is_known in (False, True)]
    seconds = [taken / WINDOW for taken in processor_seconds(transfers)]
    return [
        Comparison(f"{kind}, of a stranger: both sides", seconds[at], "of a known sender", seconds[at + 1])
        for at, kind in zip((0, 2), kinds, strict=True)
    ]


def arrivals() -> list[Comparison]:
    """Reading a message whose label and body have other sizes than those before it, against messages that are alike."""
    dice = random.Random(WINDOW)
    alike = [message(number, label="order", body=bytes(1024)) for number in range(WINDOW)]
    varied = [
        message(number, label="x" * dice.randrange(1, 40), body=bytes(dice.randrange(512, 1536)))
        for number in range(WINDOW)
    ]

    def read(packets: list[bytes]) -> Callable[[], object]:
        reader = MessageReader()
        return lambda: [reader.read(packet) for packet in packets]

    seconds = [taken / WINDOW for taken in processor_seconds([read(varied), read(alike)])]
    return [Comparison("read, varied labels and sizes", seconds[0], "alike", seconds[1], VARIED)]


def bare(stream: bytes, size: int) -> None:
    """Cut packets out of a stream and unpack their headers."""
    base, user, properties = (item.unpack_from for item in _HEADERS)
    for place in range(0, len(stream), size):
        packet = stream[place : place + size]
        base(packet)
        user(packet, 16)
        properties(packet, _PROPERTIES_AT)


def processor_seconds(candidates: Sequence[Callable[[], object]], rounds: int = 25) -> list[float]:
    """Median processor seconds per call of each, measured in turns."""
    times: list[list[float]] = [[] for _ in candidates]
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        for candidate, taken in zip(candidates, times, strict=True):
            start = process_time()
            for _ in range(WINDOWS * 2):
                candidate()
            taken.append((process_time() - start) / (WINDOWS * 2))
    gc.unfreeze()
    return [statistics.median(taken) for taken in times]


@bench("protocol")
def measure() -> list[Comparison]:
    """Seconds a message of each kind, and of each side."""
    transfers = [Transfer(kind) for kind in ("express", "recoverable", "transactional")]
    packets = transfers[0].windows[0]
    stream, size = b"".join(packets), len(packets[0])
    *seconds, baseline = processor_seconds([*transfers, lambda: bare(stream, size)])
    per_message = baseline / WINDOW
    lines = []
    for transfer, whole in zip(transfers, seconds, strict=True):
        part = transfer.sender_seconds / (transfer.sender_seconds + transfer.receiver_seconds)
        name = f"{transfer.kind}, 1 KiB, window {WINDOW}"
        whole /= WINDOW
        lines += [
            Comparison(f"{name}: both sides", whole, "bare struct", per_message, BARS[transfer.kind]),
            Comparison(f"{name}: sender", whole * part, "bare struct", per_message),
            Comparison(f"{name}: receiver", whole * (1 - part), "bare struct", per_message),
        ]
    return lines + of_strangers() + arrivals()
