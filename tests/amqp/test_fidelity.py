"""What a program sends is what another one receives, in type and in full; and MSMQ reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Delivery, symbol, ulong

from qmnode.amqp.codec import Described, UInt, ULong, decimal_from_text, decimal_to_text, encode
from qmnode.amqp.mapping import from_amqp, to_amqp
from qmnode.amqp.sections import AmqpMessage, parse, write
from qmnode.bodies.activex import Vt
from tests.amqp.conftest import amqp_message, connected, in_thread
from tests.amqp.raw import BEGIN, frame, opened, performative, read_frames, read_until, values
from tests.amqp.test_mapping import PLACE, kept
from tests.lab.cases import cases

if TYPE_CHECKING:
    from tests.amqp.conftest import Door

VALUES = {
    "boolean": "41",
    "byte": "51 80",
    "ubyte": "50 ff",
    "short": "61 8000",
    "ushort": "60 ffff",
    "int": "71 80000000",
    "uint": "70 ffffffff",
    "long": "81 0000000000000007",
    "ulong": "80 ffffffffffffffff",
    "float": "72 3dcccccd",
    "double": "82 3fb999999999999a",
    "decimal32": "74 32800001",
    "decimal32 of seven digits": "74 6cb8967f",
    "decimal32 infinity": "74 78000000",
    "decimal64": "84 b1c0000000000f00",
    "decimal128": "94 30400000000000000000000000000001",
    "char": "73 0001f600",
    "timestamp": "83 0000019000000001",
    "timestamp before Christ": "83 8000000000000000",
    "uuid": "98 00112233445566778899aabbccddeeff",
    "binary": "a0 03 010203",
    "string": "a1 04 74657874",
    "symbol": "a3 04 74657874",
}
"""The value of each type as AMQP encodes it."""
READ = {
    "byte": (Vt.VT_I1, -128),
    "ubyte": (Vt.VT_UI1, 255),
    "short": (Vt.VT_I2, -0x8000),
    "ushort": (Vt.VT_UI2, 0xFFFF),
    "int": (Vt.VT_I4, -0x80000000),
    "uint": (Vt.VT_UI4, 0xFFFFFFFF),
    "long": (Vt.VT_I8, 7),
    "ulong": (Vt.VT_UI8, 0xFFFFFFFFFFFFFFFF),
    "float": (Vt.VT_R4, 0.10000000149011612),
    "double": (Vt.VT_R8, 0.1),
    "decimal32": (Vt.VT_LPWSTR, "1"),
    "decimal32 of seven digits": (Vt.VT_LPWSTR, "9999999"),
    "decimal64": (Vt.VT_LPWSTR, "-3840"),
    "char": (Vt.VT_LPWSTR, "\U0001f600"),
    "symbol": (Vt.VT_LPWSTR, "text"),
}
"""What a program on MSMQ finds: the body type and the value."""


def through_a_queue(data: bytes) -> bytes:
    return write(to_amqp(kept(from_amqp(parse(data), PLACE)), "orders", PLACE))


@pytest.mark.public_report("amqp/rhea#24")
@cases("name", VALUES)
def test_each_type_of_a_body_comes_back(name: str) -> None:
    sent = b"\x00\x53\x77" + bytes.fromhex(VALUES[name])
    assert through_a_queue(sent).endswith(sent)


@cases("name", READ)
def test_each_type_of_a_body_is_read_by_msmq(name: str) -> None:
    message = kept(from_amqp(parse(b"\x00\x53\x77" + bytes.fromhex(VALUES[name])), PLACE))
    assert (message.body_type, message.decoded().value) == READ[name]


@cases("name", VALUES)
def test_each_type_of_a_property_comes_back(name: str) -> None:
    entry = bytes.fromhex("a1 01 61" + VALUES[name])
    sent = b"\x00\x53\x74\xc1" + bytes((len(entry) + 1, 2)) + entry
    assert sent in through_a_queue(sent)


@given(st.sampled_from([4, 8, 16]).flatmap(lambda size: st.binary(min_size=size, max_size=size)))
def test_every_decimal_comes_back_as_text(encoded: bytes) -> None:
    assert decimal_from_text(decimal_to_text(encoded), len(encoded)) == encoded


@pytest.mark.parametrize("text", ["1e9999", "12345678", "x", "0x00", "NaN", "Infinity", ""])
def test_text_that_is_no_decimal_is_not_read(text: str) -> None:
    with pytest.raises((ValueError, ArithmeticError)):
        decimal_from_text(text, 4)


def test_a_message_without_a_body_comes_back_without_one() -> None:
    sent = AmqpMessage(properties={"message_id": "mine"}, body_kind=0)
    received = parse(through_a_queue(write(sent)))
    assert received.body_kind == 0
    assert parse(through_a_queue(b"\x00\x53\x77\x40")).body is None


def test_annotations_come_back_with_their_types() -> None:
    sent = {"x-opt-jms-reply-to": ("51", "01"), "x-opt-mine": ("81", "0000000000003039")}
    entries = b"".join(
        encode(name).replace(b"\xa1", b"\xa3", 1) + bytes.fromhex("".join(v)) for name, v in sent.items()
    )
    section = b"\x00\x53\x72\xc1" + bytes((len(entries) + 1, 2 * len(sent))) + entries
    assert section in through_a_queue(section + encode(Described(ULong(0x75), b"x")))


@pytest.mark.parametrize("priority", range(11))
def test_every_priority_comes_back(priority: int) -> None:
    sent = AmqpMessage(header={"priority": priority}, body=b"x")
    assert parse(through_a_queue(write(sent))).header["priority"] == priority


def test_a_subject_beyond_the_plane_fills_the_label_by_its_units() -> None:
    subject = "\U0001f600" * 200
    message = kept(from_amqp(parse(write(AmqpMessage(properties={"subject": subject}, body=b"x"))), PLACE))
    assert message.label == "\U0001f600" * 124
    assert to_amqp(message, "orders", PLACE).properties["subject"] == subject


def test_a_reply_to_a_topic_is_kept_and_is_no_response_queue() -> None:
    entry = b"\xa3\x12x-opt-jms-reply-to\x51\x01"
    section = b"\x00\x53\x72\xc1" + bytes((len(entry) + 1, 2)) + entry
    sent = section + write(AmqpMessage(properties={"reply_to": "news"}, body=b"x"))
    message = kept(from_amqp(parse(sent), PLACE))
    assert message.response_queue_format_name == ""
    assert parse(write(to_amqp(message, "orders", PLACE))).properties["reply_to"] == "news"


async def test_a_long_text_and_many_properties_come_back(door: Door) -> None:
    """Limits on the messages that are shown do not cut those that go on."""
    text, properties = "ä" * 600_000, {f"p{number}": number for number in range(6_000)}

    def work() -> Any:
        with connected(door.url) as client:
            client.create_sender("orders").send(amqp_message(text, properties=properties))
            return client.create_receiver("orders", credit=1).receive(timeout=60)

    received = await in_thread(work)
    assert received.body == text
    assert received.properties == properties


async def test_annotations_of_modified_reach_the_next_receiver(door: Door) -> None:
    def work() -> list[Any]:
        found = []
        with connected(door.url) as client:
            message = amqp_message(b"x")
            message.annotations = {symbol("x-opt-mine"): 5}
            client.create_sender("orders").send(message)
            receiver = client.create_receiver("orders", credit=2)
            for reason in ("offline", "still offline", None):
                found.append(receiver.receive(timeout=60).annotations)
                delivery = receiver.fetcher.unsettled[0]
                if reason is None:
                    receiver.accept()
                    break
                delivery.local.failed = True
                delivery.local.annotations = {symbol("reason"): reason, symbol("x-opt-size"): ulong(7)}
                receiver.settle(Delivery.MODIFIED)
                receiver.flow(1)
        return found

    mine = {symbol("x-opt-mine"): 5}
    assert await in_thread(work) == [
        mine,
        mine | {symbol("reason"): "offline", symbol("x-opt-size"): 7},
        mine | {symbol("reason"): "still offline", symbol("x-opt-size"): 7},
    ]
    assert await door.bodies("orders") == []


async def test_a_transfer_of_no_bytes_is_a_message_without_a_body(door: Door) -> None:
    target = Described(ULong(0x29), ["orders"])
    attach = performative(0x12, ["empty", 0, False, None, None, None, target, None, None, UInt(0)])

    def work() -> list[Any]:
        with opened(door.door.port, BEGIN, frame(attach)) as connection:
            read_until(connection, b"\x00\x53\x13")
            connection.sendall(frame(performative(0x14, [0, 0, b"0", 0, False, False])))
            return values(read_frames(connection, b"\x00\x53\x15"))

    answers = await in_thread(work)
    outcomes = [one.value[4].descriptor for one in answers if one.descriptor == 0x15]
    assert outcomes == [0x24]
    assert [message.body for message in await door.messages("orders")] == [b""]


def test_a_uuid_is_read_by_msmq() -> None:
    message = kept(from_amqp(parse(b"\x00\x53\x77" + bytes.fromhex(VALUES["uuid"])), PLACE))
    assert (message.body_type, message.decoded().value) == (Vt.VT_CLSID, UUID("00112233445566778899aabbccddeeff"))


@pytest.mark.public_report("amqp/rhea#394", "amqp/rhea#60", "amqp/rhea#38")
@pytest.mark.parametrize("kind", ["ulong", "uuid", "binary", "string"])
def test_each_type_of_an_identifier_comes_back(kind: str) -> None:
    identifier = bytes.fromhex(VALUES[kind])
    fields = identifier + b"\x40" * 4 + identifier  # message-id, user-id, to, subject, reply-to, correlation-id
    section = b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, 6)) + fields
    received = parse(through_a_queue(section + encode(Described(ULong(0x75), b"x"))))
    sent = parse(section + encode(Described(ULong(0x75), b"x")))
    for name in ("message_id", "correlation_id"):
        assert received.properties[name] == sent.properties[name]
        assert type(received.properties[name]) is type(sent.properties[name])
