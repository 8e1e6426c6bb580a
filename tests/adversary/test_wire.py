"""The packets that attackers write are those of the specification: the suite would prove nothing with others."""

from __future__ import annotations

import pytest

from qmnode.structures.packets import FinalAckBody, MessageKind, OrderAckBody, message_kind
from qmnode.structures.user_message import UserMessage
from tests.adversary import wire
from tests.adversary.attacks import all_attacks
from tests.adversary.wire import Packet, Place
from tests.conformance.frames import FRAMES

CLIENT, SERVER = FRAMES[2].data[20:36], FRAMES[2].data[36:52]
SOURCE = wire.identifier()
PLACE = Place(7 << 32 | 3, 9, 8)


def frame(number: int) -> bytes:
    """A frame of MS-MQQB 4.1 without BaseHeader.Reserved, which may be anything."""
    data = FRAMES[number - 1].data
    return data[:1] + b"\0" + data[2:]


def test_establishment_is_that_of_the_example() -> None:
    stamp, system = (int.from_bytes(frame(3)[at:end], "little") for at, end in ((52, 56), (56, 58)))
    assert wire.establish_connection(CLIENT, SERVER, stamp=stamp, system=system) == frame(3)
    assert wire.connection_parameters(recoverable=0x5D8) == frame(5)
    assert wire.session_ack(1) == frame(8)


def test_the_message_of_the_example_is_read() -> None:
    packet = Packet(frame(7))
    assert packet.source == CLIENT
    assert packet.message_id == 0x8EE
    assert packet.kind == 0
    stream = frame(7) + frame(8) + frame(3)[:15]
    found = wire.next_packet(stream)
    assert found is not None
    assert found[0].data == frame(7)
    assert wire.next_packet(found[1]) == (Packet(frame(8)), frame(3)[:15])
    assert wire.next_packet(frame(3)[:15]) is None


@pytest.mark.parametrize("queue", [wire.direct(r"TCP:192.0.2.1\private$\q"), wire.private(5), wire.public(SOURCE)])
@pytest.mark.parametrize("place", [None, PLACE])
def test_messages_are_read_by_both_sides_alike(queue: wire.Name, place: Place | None) -> None:
    packet = wire.UserMessage(
        source=SOURCE, address=CLIENT, message_id=77, queue=queue, place=place, body=b"hello", label="a label", hops=3,
        asks=wire.NACK_ARRIVAL, admin=wire.private(6, 2), sent=1000, flags=wire.DEAD_LETTER,
    ).packet()  # fmt: skip
    read, own = UserMessage.parse(packet), Packet(packet)
    assert (own.source, own.address, own.message_id, own.body) == (SOURCE, CLIENT, 77, b"hello")
    header = read.user_header
    assert (header.source_queue_manager, header.message_id, header.sent_time) == (SOURCE, 77, 1000)
    assert (read.message_properties_header.message_body, read.message_properties_header.label) == (b"hello", "a label")
    if place is None:
        assert read.transaction_header is None
    else:
        assert own.place == place
        assert read.transaction_header is not None
        assert read.transaction_header.tx_sequence_id == place.sequence


@pytest.mark.parametrize("target", [CLIENT, "192.0.2.1"])
def test_order_and_final_acknowledgments_are_read_as_such(target: bytes | str) -> None:
    order = UserMessage.parse(wire.order_ack(SOURCE, 1, target, PLACE.sequence, PLACE.number))
    assert message_kind(order) is MessageKind.ORDER_ACK
    assert OrderAckBody.parse(order.message_properties_header.message_body).tx_sequence_number == PLACE.number
    final = UserMessage.parse(wire.final_ack(SOURCE, 2, target, wire.REACH_QUEUE_TIMEOUT, PLACE, CLIENT, 77))
    assert message_kind(final) is MessageKind.FINAL_ACK
    body = FinalAckBody.parse(final.message_properties_header.message_body)
    assert (body.source_guid, body.message_id, body.tx_sequence_id) == (CLIENT, 77, PLACE.sequence)


def test_each_attack_is_described_in_one_line() -> None:
    for attack in all_attacks():
        assert attack.can and attack.promised
        assert "\n" not in attack.can + attack.promised
