"""A packet that is addressed in place is the message that would be built of its parts."""

from __future__ import annotations

from typing import Any

import pytest

from qmnode.errors import MessageQueuingError, MessageTooLargeError
from qmnode.model.message import Message
from qmnode.model.serialization import Destination, TransactionFields, address_packets, serialize
from qmnode.model.stored_message import PREFIX_SIZE, message_from_packet, received_message, shapes_of
from qmnode.structures.guid import Guid
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.security_descriptor import Sid
from qmnode.structures.user_message import BaseFlags, SessionHeader, UserFlags, UserMessage
from tests.lab.cases import cases

APPLICATION, NODE, OTHER = (Guid(bytes([number]) * 16) for number in (1, 2, 3))
NOW = 1_700_000_000.25
NAMES = [
    r"DIRECT=OS:.\private$\orders",
    f"PUBLIC={OTHER.hex()[:8]}-0303-0303-0303-030303030303",
    "PRIVATE=03030303-0303-0303-0303-030303030303\\0000002a",
]
MESSAGES: list[dict[str, Any]] = [
    {},
    {"recoverable": True, "label": "order 7", "priority": 6},
    {"extension": b"abc", "app_specific": 7, "body_type": 8, "correlation_identifier": bytes(range(20))},
    {"time_to_be_received": 60, "time_to_reach_queue": 30},
    {"positive_journaling_requested": True, "negative_journaling_requested": True, "recoverable": True},
    {
        "acknowledgements_requested": 5,
        "administration_queue_format_name": r"DIRECT=OS:here\private$\admin",
        "response_queue_format_name": "PUBLIC=03030303-0303-0303-0303-030303030303",
    },
    {"response_queue_format_name": "PRIVATE=01010101-0101-0101-0101-010101010101\\00000007"},
    {"connector_type_identifier": OTHER, "label": "é𐍈" * 20},
]


def packet_of_application(properties: dict[str, Any], body: bytes = b"some body") -> bytes:
    destination = Destination(APPLICATION, parse_single_format_name(r"DIRECT=TCP:10.0.0.1\private$\elsewhere"))
    return serialize(Message(body, **properties), destination, 99, 5.0)[PREFIX_SIZE:]


def destination_to(name: str, transit: bool, sender: bytes | None) -> Destination:
    destination = Destination(NODE, parse_single_format_name(name), OTHER, transit)
    if sender is not None:
        destination.name_sender(sender)
    return destination


@cases("sender", [None, b"", Sid.from_text("S-1-5-21-1-2-3-4").write()], ids=["any", "none", "named"])
@cases("transit", [False, True])
@cases("name", NAMES, ids=["direct", "public", "private"])
@cases("properties", MESSAGES, ids=range(len(MESSAGES)))
def test_a_packet_in_place_is_the_message_built_of_its_parts(
    properties: dict[str, Any], name: str, transit: bool, sender: bytes | None
) -> None:
    packet = packet_of_application(properties)
    destination = destination_to(name, transit, sender)
    for fields in (None, TransactionFields(77, 1 << 32 | 5, 3, 2)):
        built = serialize(message_from_packet(packet).copy(), destination, 41, NOW, fields, True)
        assert serialize(message_from_packet(packet), destination, 41, NOW, fields, True) == built
        assert serialize(received_message(0, built), destination, 41, NOW, fields, True) == built


@pytest.mark.parametrize("transactional", [False, True])
def test_many_packets_are_each_what_one_alone_would_be(transactional: bool) -> None:
    destination = destination_to(NAMES[0], True, None)
    fields = TransactionFields(77) if transactional else None
    packets = [packet_of_application({"label": "x" * size, "recoverable": True}, bytes(size)) for size in range(20)]
    many = address_packets(packets, shapes_of(packets), destination, range(1, 21), NOW, fields, True)
    assert many == [
        serialize(message_from_packet(packet), destination, number, NOW, fields, number == 1)
        for number, packet in enumerate(packets, 1)
    ]


def test_the_properties_of_a_packet_can_be_read_before_it_is_sent() -> None:
    packet = packet_of_application({"label": "order 7", "recoverable": True, "priority": 5})
    message = message_from_packet(packet)
    assert (message.label, message.body, message.priority, message.packet) == ("order 7", b"some body", 5, packet)
    destination = destination_to(NAMES[0], True, None)
    built = serialize(message_from_packet(packet).copy(), destination, 41, NOW)
    assert serialize(message, destination, 41, NOW) == built


def test_a_packet_that_its_new_destination_makes_too_large_is_refused() -> None:
    packet = packet_of_application({}, bytes(4 * 1024 * 1024 - 250))
    destination = destination_to(rf"DIRECT=OS:{'x' * 100}\private$\orders", True, None)
    with pytest.raises(MessageTooLargeError):
        serialize(message_from_packet(packet), destination, 1, NOW)
    assert address_packets([packet], shapes_of([packet]), destination, [1], NOW) is None


def test_a_session_header_is_left_out() -> None:
    message = UserMessage.parse(packet_of_application({"label": "order 7"}))
    header = SessionHeader(ack_sequence_number=0, user_msg_sequence_number=0)
    packet = message.replace(session_header=header).write()
    destination = destination_to(NAMES[0], True, None)
    sent = UserMessage.parse(serialize(message_from_packet(packet), destination, 41, NOW)[PREFIX_SIZE:])
    assert sent.session_header is None
    assert sent.message_properties_header == message.message_properties_header


@pytest.mark.parametrize(("field", "value"), [("privacy_level", 2), ("message_class", 0x1F00)])
def test_numbers_that_receivers_refuse_are_refused_in_packets_as_well(field: str, value: int) -> None:
    message = UserMessage.parse(packet_of_application({}))
    properties = message.message_properties_header.put(**{field: value})
    packet = message.put(message_properties_header=properties).write()
    with pytest.raises(MessageQueuingError, match=field):
        serialize(message_from_packet(packet), destination_to(NAMES[0], True, None), 41, NOW)


def test_bits_that_receivers_refuse_are_left_out() -> None:
    message = UserMessage.parse(packet_of_application({}))
    base, user = message.base_header, message.user_header
    packet = message.put(
        base_header=base.put(flags=BaseFlags.TR.put(base.flags, 1)),
        user_header=user.put(flags=UserFlags.DM.put(user.flags, 2)),
    ).write()
    value = serialize(message_from_packet(packet), destination_to(NAMES[0], True, None), 41, NOW)
    sent = UserMessage.parse(value[PREFIX_SIZE:])
    assert not BaseFlags.TR.get(sent.base_header.flags)
    assert UserFlags.DM.get(sent.user_header.flags) == 0
