"""Stored messages: the quick way of packing agrees with the declared structures (MS-MQMQ 2.2.20)."""

from pathlib import Path
from typing import Any

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.model.serialization import Destination, TransactionFields, serialize, serialize_plain
from qmnode.model.stored_message import (
    FLAGS,
    NEVER,
    PREFIX_SIZE,
    RecordFlag,
    expiry,
    mark_last_in_transaction,
    received_message,
    transaction_offset,
    value_of_packet,
    with_class,
)
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_to_text, new_guid
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.packet_view import with_sequence_fields
from qmnode.structures.user_message import BaseFlags, DebugHeader, SecurityFlags, SoapHeader, UserMessage
from tests.lab.cases import cases

SID = bytes.fromhex("010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000")

HERE, THERE = new_guid(), new_guid()
NOW = 1_800_000_000.25
DIRECT = parse_single_format_name(r"DIRECT=OS:beta\private$\orders")


def stored(message: Message, name=DIRECT, **more) -> bytes:
    return serialize(message, Destination(HERE, name, **more), 77, NOW)


def parsed(value: bytes) -> UserMessage:
    return UserMessage.parse(value[PREFIX_SIZE:])


MESSAGES = {
    "plain": Message(b"body"),
    "empty": Message(),
    "odd sizes": Message(b"12345", label="abc", extension=b"x" * 7),
    "recoverable": Message(b"body", recoverable=True, priority=7),
    "all": Message(
        b"body" * 100,
        label="étiquette",
        app_specific=9,
        body_type=31,
        correlation_identifier=bytes(range(20)),
        extension=b"extension",
        acknowledgements_requested=0x0F,
        administration_queue_format_name=r"DIRECT=OS:gamma\private$\acks",
        response_queue_format_name=r"DIRECT=TCP:10.0.0.1\private$\answers",
        connector_type_identifier=THERE,
        positive_journaling_requested=True,
        negative_journaling_requested=True,
        time_to_reach_queue=60,
        time_to_be_received=120,
        message_class=0x0001,
    ),
    "private": Message(
        b"body",
        administration_queue_format_name=r"PRIVATE=6a7e3c1e-91a5-4b44-8a5d-7a9f3d2b1c00\0000000a",
        response_queue_format_name=rf"PRIVATE={guid_to_text(HERE)}\0000000b",
    ),
    "secured": Message(
        b"body",
        sender_certificate=b"certificate",
        signature=b"signature",
        authentication_provider_name="Provider",
        authentication_provider_type=1,
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_declared_structures_read_what_was_packed(name):
    message = MESSAGES[name]
    packet = parsed(stored(message))
    properties = packet.message_properties_header
    assert bytes(properties.message_body) == message.body
    assert properties.label == message.label
    assert bytes(properties.extension_data) == message.extension
    assert properties.application_tag == message.app_specific
    assert properties.flags == message.acknowledgements_requested
    assert packet.user_header.message_id == 77
    assert packet.user_header.sent_time == int(NOW)
    assert packet.user_header.time_to_be_received == message.time_to_be_received
    assert packet.base_header.time_to_reach_queue == message.time_to_reach_queue
    assert packet.base_header.flags & 7 == message.priority
    assert packet.user_header.connector_type == (message.__dict__.get("connector_type_identifier"))
    assert packet.write() == stored(message)[PREFIX_SIZE:]


@pytest.mark.parametrize("name", MESSAGES)
def test_every_property_comes_back(name):
    message = MESSAGES[name]
    again = received_message(5, stored(message))
    for attribute, value in message.__dict__.items():
        assert getattr(again, attribute) == value, attribute
    assert again.identifier == HERE + (77).to_bytes(4, "little")
    assert again.arrival_time == NOW


@pytest.mark.parametrize(
    ("flags", "proved"),
    [
        (SecurityFlags.of(AU=1, AS=3, ST=1), True),
        (SecurityFlags.of(AU=1, AS=3, ST=2), True),
        (SecurityFlags.of(AU=1, AS=3), False),
        (SecurityFlags.of(AS=3, ST=1), False),
        (SecurityFlags.of(ST=1), False),
    ],
)
def test_a_sender_that_nobody_proved_is_only_a_claim(flags, proved):
    claiming = Message(b"body", sender_identifier_type=1, sender_identifier=SID)
    packet = parsed(stored(claiming))
    packet = packet.replace(security_header=packet.security_header.replace(flags=flags))
    message = received_message(5, stored(claiming)[:PREFIX_SIZE] + packet.write())
    if proved:
        assert (message.authentication_level, message.sender_identifier, message.claimed_sender) == (3, SID, b"")
        assert message.sender_identifier_type == flags & 0xF
    else:
        assert (message.authentication_level, message.sender_identifier, message.claimed_sender) == (0, b"", SID)
        assert message.sender_identifier_type == 0


def test_several_administration_and_response_queues_are_listed():
    """MS-MQMQ 2.2.20.1; the first of each is in the UserHeader, and the one destination in the list of destinations."""
    names = (r"DIRECT=OS:gamma\private$\a", "PUBLIC=6a7e3c1e-91a5-4b44-8a5d-7a9f3d2b1c00")
    message = Message(
        b"x",
        administration_multi_queue_format_name=",".join(names),
        response_multi_queue_format_name=",".join(reversed(names)),
    )
    value = stored(message)
    again = received_message(5, value)
    assert again.administration_multi_queue_format_name == ",".join(names)
    assert again.response_multi_queue_format_name == ",".join(reversed(names))
    assert (again.administration_queue_format_name, again.response_queue_format_name) == names
    assert again.destination_multi_queue_format_name == again.destination_queue_format_name
    assert again.body == b"x"
    assert parsed(value).write() == value[PREFIX_SIZE:]
    assert "administration_multi_queue_format_name" in again.copy().__dict__


def test_names_that_are_none_in_a_list_leave_the_message_readable():
    message = Message(b"x", administration_multi_queue_format_name=r"DIRECT=OS:a\private$\p,DIRECT=OS:b\private$\q")
    value = stored(message).replace("OS:b".encode("utf-16-le"), "??:b".encode("utf-16-le"))
    again = received_message(5, value)
    assert (again.body, again.administration_multi_queue_format_name) == (b"x", "")


@pytest.mark.parametrize("name", MESSAGES)
def test_a_packet_from_elsewhere_is_stored_as_one_from_here(name):
    value = stored(MESSAGES[name])
    assert value_of_packet(value[PREFIX_SIZE:], NOW) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (r"PRIVATE=6a7e3c1e-91a5-4b44-8a5d-7a9f3d2b1c00\0000000a", 6),
        ("PUBLIC=6a7e3c1e-91a5-4b44-8a5d-7a9f3d2b1c00", 5),
        (r"DIRECT=OS:gamma\private$\answers", 7),
    ],
)
def test_every_kind_of_queue_name_goes_there_and_back(text, kind):
    value = stored(Message(b"x", response_queue_format_name=text, administration_queue_format_name=text))
    assert parsed(value).user_header.flags >> 16 & 7 == kind
    assert received_message(1, value).response_queue_format_name == text
    assert received_message(1, value).administration_queue_format_name == text


def test_the_headers_for_tracing_and_soap_are_read():
    plain = parsed(stored(Message(b"x")))
    packet = plain.replace(
        base_header=plain.base_header.replace(flags=plain.base_header.flags | BaseFlags.of(TR=1)),
        debug_header=DebugHeader(queue_identifier=THERE),
        soap_header=SoapHeader(header="h", body="b"),
    )
    message = received_message(1, value_of_packet(packet.write(), NOW))
    assert message.tracing_requested
    assert message.tracing_queue_identifier == THERE
    assert (message.soap_header, message.soap_body) == ("h", "b")
    assert message.body == b"x"


def test_private_queues_here_and_at_the_destination_are_named_by_number():
    own = str(parse_single_format_name(f"PRIVATE={guid_to_text(HERE)}\\00000005"))
    theirs = str(parse_single_format_name(f"PRIVATE={guid_to_text(THERE)}\\00000006"))
    name = parse_single_format_name(f"PRIVATE={guid_to_text(THERE)}\\00000001")
    value = stored(Message(b"x", response_queue_format_name=own, administration_queue_format_name=theirs), name)
    assert parsed(value).user_header.flags >> 10 & 0x1FF == 3 | 3 << 3 | 2 << 6
    again = received_message(1, value)
    assert again.destination_queue_format_name == str(name)
    assert (again.response_queue_format_name, again.administration_queue_format_name) == (own, theirs)


def test_a_transactional_message_says_its_place():
    value = serialize(Message(b"x", priority=5), Destination(HERE, DIRECT), 1, NOW, TransactionFields(9), first=True)
    assert value[FLAGS] & RecordFlag.TRANSACTIONAL
    value = with_sequence_fields(mark_last_in_transaction(value), transaction_offset(value), 7 << 32 | 1, 12, 11)
    header = parsed(value).transaction_header
    assert header is not None
    assert (header.tx_sequence_id, header.tx_sequence_number, header.previous_tx_sequence_number) == (
        7 << 32 | 1,
        12,
        11,
    )
    assert header.flags == 0b1100 | 9 << 4
    message = received_message(1, value)
    assert message.first_in_transaction
    assert message.last_in_transaction
    assert message.priority == 0
    assert message.transaction_sequence_number == 12
    assert value_of_packet(value[PREFIX_SIZE:], NOW) == value


def test_the_class_of_a_dead_letter_is_changed_and_nothing_else():
    for message in MESSAGES.values():
        value = with_class(stored(message), 0xC002)
        assert received_message(1, value).message_class == 0xC002
        assert with_class(value, message.message_class) == stored(message)


def test_messages_expire_by_the_earlier_of_their_times_while_on_their_way():
    message = Message(b"x", time_to_reach_queue=10, time_to_be_received=20)
    assert expiry(stored(message)) == int(NOW) + 20
    assert expiry(stored(message, transit=True)) == int(NOW) + 10
    assert expiry(stored(Message(b"x"))) == NEVER
    assert expiry(stored(Message(b"x"), transit=True)) == int(NOW) + 345_600


@pytest.mark.parametrize(
    "message", [Message(priority=8), Message(priority=-1), Message(label="x" * 250)], ids=["high", "low", "label"]
)
def test_what_cannot_be_is_refused(message):
    with pytest.raises(MessageQueuingError) as error:
        stored(message)
    assert error.value.code is ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def test_a_received_message_can_be_sent_on():
    again = received_message(5, stored(MESSAGES["all"]))
    copy = again.copy()
    assert copy.lookup_identifier == 0
    assert stored(copy) == stored(MESSAGES["all"])
    assert stored(received_message(5, stored(MESSAGES["all"]))) == stored(MESSAGES["all"])


def test_half_a_surrogate_pair_from_elsewhere_leaves_a_message_readable():
    message = Message(b"body", label="abc", response_queue_format_name=r"DIRECT=OS:gamma\private$\answers")
    packet = stored(message)[PREFIX_SIZE:]
    for text in ("abc", "answers"):
        assert packet.count(text.encode("utf-16-le")) == 1
        packet = packet.replace(text.encode("utf-16-le"), b"\x00\xd8" + text[1:].encode("utf-16-le"))
    received = received_message(7, value_of_packet(packet, NOW))
    assert (received.body, received.label) == (b"body", "\ufffdbc")
    assert received.response_queue_format_name == "DIRECT=OS:gamma\\private$\\\ufffdnswers"


def test_a_label_that_is_no_text_is_refused():
    with pytest.raises(MessageQueuingError) as refused:
        stored(Message(label="\ud800"))
    assert refused.value.code == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def test_an_unknown_property_is_an_attribute_error():
    with pytest.raises(AttributeError, match="colour"):
        Message().colour  # noqa: B018
    with pytest.raises(AttributeError):
        received_message(1, stored(Message())).colour  # noqa: B018


@cases("name", [name for name in MESSAGES if name != "secured"])
@cases("transaction", [None, TransactionFields(3)], ids=["plain", "transactional"])
@cases("looked", [False, True])
def test_a_message_is_sent_on_as_one_made_of_its_properties(name, transaction, looked):
    message = MESSAGES[name]
    source = Destination(HERE, parse_single_format_name(r"DIRECT=TCP:10.1.2.3\a"))
    target = Destination(HERE, DIRECT, transit=True)
    received = received_message(5, serialize(message, source, 1, NOW - 1000))
    if looked:
        received.label  # noqa: B018
    again = serialize(received, target, 78, NOW, transaction, first=True)
    assert again == serialize(message, target, 78, NOW, transaction, first=True)


def test_what_is_sent_on_is_not_signed_by_who_signed_it_before():
    received = received_message(5, stored(MESSAGES["secured"]))
    again = parsed(serialize(received, Destination(HERE, DIRECT, transit=True), 78, NOW))
    assert again.security_header is None
    assert again.message_properties_header.message_body == b"body"


async def test_the_headers_for_tracing_and_soap_are_written(qm: QueueManager) -> None:
    await qm.create_queue(r".\private$\a")
    queue = await qm.open_queue(r"DIRECT=OS:.\private$\a", Access.SEND)
    await queue.send(
        Message(b"x", tracing_requested=True, tracing_queue_identifier=THERE, soap_header="h", soap_body="b")
    )
    message = await (await qm.open_queue(r"DIRECT=OS:.\private$\a")).receive(timeout=0)
    packet = UserMessage.parse(message.packet)
    assert packet.debug_header is not None
    assert packet.debug_header.queue_identifier == THERE
    assert BaseFlags.TR.get(packet.base_header.flags)
    assert (message.tracing_requested, message.tracing_queue_identifier) == (True, THERE)
    assert (message.soap_header, message.soap_body, message.body) == ("h", "b", b"x")


@pytest.mark.parametrize("seconds", [-1, 1 << 32])
def test_a_time_to_be_received_that_cannot_be_is_refused(seconds):
    with pytest.raises(MessageQueuingError) as refused:
        stored(Message(time_to_be_received=seconds))
    assert refused.value.code == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


async def test_a_text_as_body_is_told_to_be_encoded(qm):
    await qm.create_queue(r".\private$\orders")
    queue = await qm.open_queue(r"DIRECT=OS:.\private$\orders", Access.SEND)
    with pytest.raises(TypeError, match="encode a text first"):
        await queue.send(Message("text"))


@pytest.mark.parametrize("fields", [None, TransactionFields(9)])
@pytest.mark.parametrize("first", [False, True])
def test_plain_messages_are_the_same_one_by_one_and_together(fields, first):
    messages = [Message(b"12345"), Message(b"67890"), Message(b"1", recoverable=True), Message(b"2"), Message()]
    destination = Destination(HERE, DIRECT, transit=True)
    first = first and fields is not None

    together = serialize_plain(messages, destination, lambda count: range(7, 7 + count), NOW, fields, first)

    assert together == [
        (number, serialize(message, destination, number, NOW, fields, first and number == 7))
        for number, message in enumerate(messages, 7)
    ]


@pytest.mark.parametrize("other", [Message(b"x", priority=1), Message(bytearray(b"x")), Message(b"x", label="a")])
def test_messages_that_are_not_plain_are_left_to_others(other):
    taken = []

    assert serialize_plain([Message(b"x"), other], Destination(HERE, DIRECT), taken.append, NOW) is None
    assert not taken


@pytest.mark.parametrize(
    "properties",
    [
        {"message_class": 0xDEAD},
        {"privacy_level": 2},
        {"sender_identifier": b"no SID", "sender_identifier_type": 1},
        {"sender_identifier": b"no GUID", "sender_identifier_type": 2},
        {"sender_identifier": bytes(16), "sender_identifier_type": 3},
    ],
)
async def test_what_every_receiver_refuses_is_not_sent(tmp_path: Path, properties: dict[str, Any]) -> None:
    directory = FileDirectory(tmp_path / "directory.yaml")
    async with QueueManager.open(tmp_path / "store", directory=directory) as qm:
        queue = await qm.open_queue(r"PRIVATE=6a7e3c1e-91a5-4b44-8a5d-7a9f3d2b1c00\0000000a", Access.SEND)
        with pytest.raises(MessageQueuingError) as refused:
            await queue.send(Message(b"", **properties))
    assert refused.value.code == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
