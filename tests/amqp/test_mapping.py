"""The table of docs/reference/amqp-messages.md, line by line, and the values that it does not show."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode import Message
from qmnode.amqp.codec import CodecError, Decoder, Described, Symbol, Timestamp, ULong, encode
from qmnode.amqp.mapping import EXTENSION, MappingContext, from_amqp, identifier_of, identifier_text, to_amqp
from qmnode.amqp.sections import DATA, SEQUENCE, VALUE, AmqpMessage, parse, write
from qmnode.bodies.choice import write_headers
from qmnode.errors import MessageQueuingError
from qmnode.model.message import MessageProperties
from qmnode.model.serialization import Destination, serialize
from qmnode.model.stored_message import received_message
from qmnode.structures.guid import ZERO_GUID
from qmnode.structures.names import parse_single_format_name
from tests.lab.cases import cases

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "amqp-messages.md"
NOW = 1_000_000.0
PLACE = MappingContext(lambda name: name.upper().startswith("DIRECT=OS:.\\"), lambda: NOW)
KINDS = {"data": DATA, "sequence": SEQUENCE, "value": VALUE}
_CODE = re.compile(r"`(.*?)`(?= \|)")


def lines() -> list[tuple[str, str, str, str]]:
    found = []
    table = PAGE.read_text("utf-8").partition("| AMQP 1.0 | sent as |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        cells = [cell.strip().strip("`") for cell in re.split(r" \| ?", line.strip().removeprefix("| "))][:4]
        found.append((cells[0], cells[1], cells[2], cells[3]))
    return found


def value_of(text: str) -> Any:
    return eval(text, {"__builtins__": {"bytes": bytes}})  # the page is ours


def test_the_page_has_the_table() -> None:
    assert len(lines()) > 40


@cases("line", [one for one in lines() if one[1] != "-"], ids=str)
def test_sent(line: tuple[str, str, str, str]) -> None:
    field, sent, prop, _ = line
    message = AmqpMessage()
    if field in KINDS:
        message.body_kind, message.body = KINDS[field], value_of(sent)
    else:
        put(message, field, value_of(sent))
    assert_property(from_amqp(parse(write(message)), PLACE), prop)


def test_a_field_that_is_not_set_has_the_default() -> None:
    message = from_amqp(parse(write(AmqpMessage())), PLACE)
    assert (message.recoverable, message.priority, message.time_to_be_received) == (False, 3, 0xFFFFFFFF)


@cases("line", lines(), ids=str)
def test_received(line: tuple[str, str, str, str]) -> None:
    field, sent, prop, received = line
    name, _, text = prop.partition(" = ")
    if field in KINDS or name.startswith("headers"):
        message = AmqpMessage()
        if field in KINDS:
            message.body_kind, message.body = KINDS[field], value_of(sent)
        else:
            put(message, field, value_of(sent))
        stored = kept(from_amqp(parse(write(message)), PLACE))
    else:
        given_to_a_sender = name in MessageProperties.__annotations__
        stored = kept(Message(b"", **({name: value_of(text)} if given_to_a_sender else {})))
        assert stored.sent_time == int(NOW)
        if not given_to_a_sender:
            stored.__dict__[name] = value_of(text)
    out = parse(write(to_amqp(stored, "orders", PLACE)))
    found = out.body if field in KINDS else get(out, field)
    assert found == (None if received == "-" else value_of(received))
    assert field not in KINDS or out.body_kind == KINDS[field]


def put(message: AmqpMessage, field: str, value: Any) -> None:
    section, name = split(field)
    getattr(message, section)[Symbol(name) if section == "annotations" else name] = value


def get(message: AmqpMessage, field: str) -> Any:
    section, name = split(field)
    return getattr(message, section).get(name)


def split(field: str) -> tuple[str, str]:
    section, _, name = field.replace("['", ".").replace("']", "").partition(".")
    return section, name


def assert_property(message: Message, prop: str) -> None:
    name, _, text = prop.partition(" = ")
    found = message.headers.get(split(name)[1] if "['" in name else "") if "[" in name else getattr(message, name)
    assert found == value_of(text)


def kept(message: Message) -> Message:
    """The message as it comes out of a queue."""
    name = parse_single_format_name(r"DIRECT=OS:.\private$\orders")
    value = serialize(message, Destination(ZERO_GUID, name, transit=False), 7, NOW)
    return received_message(1, value)


# Beside the table

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
    | st.binary(max_size=20)
    | st.uuids()
)
NESTED = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3)
)


@given(NESTED)
def test_every_value_comes_back(value: Any) -> None:
    decoder = Decoder(encode(value))
    assert decoder.value() == value
    assert decoder.at_end


@given(NESTED, st.dictionaries(st.text("abc", min_size=1, max_size=5), PLAIN, max_size=3))
def test_every_body_and_property_comes_back_through_a_queue(body: Any, properties: dict[str, Any]) -> None:
    sent = AmqpMessage(body_kind=VALUE, body=body, application_properties=properties)
    received = parse(write(to_amqp(kept(from_amqp(parse(write(sent)), PLACE)), "orders", PLACE)))
    assert received.body == body
    assert received.application_properties == properties


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    with contextlib.suppress(CodecError, MessageQueuingError):
        from_amqp(parse(data), PLACE)


@cases(
    "data",
    [
        b"\x00\x53\x77" + b"\xc0\x03\x01" * 40,  # lists within lists
        b"\x00" * 5000,  # descriptors of descriptors
        b"\x00\x53\x77\xf0\x00\x00\x00\x09\x7f\xff\xff\xff\x40",  # an array of two thousand million nulls
        b"\x00\x53\x77\xd0\x7f\xff\xff\xff\x00\x00\x00\x01\x40",  # a list of two gigabytes
        b"\x00\x53\x77\xb0\xff\xff\xff\xff",
        b"\x00\x53\x77\xc1\x05\x02\x45\x40",  # a list as a key
        b"\x00\x53\x75\xa1\x01a",  # data that is text
        b"\x00\x53\x73\x53\x01",  # properties that are a number
        b"\x00\x53\x70\xc0\x04\x01\xa1\x01x",  # durable is text
        b"\x00\x53\x77\x41\x00\x53\x77\x41",  # two values
        b"\x00\x53\x74\xc1\x0b\x04\xa1\x01a\xa1\x01b\xa1\x01a\x41",  # an application property that is there twice
        b"\x00\x53\x72\xc1\x09\x04\xa3\x01a\x41\xa3\x01a\x42",  # an annotation that is
        b"\x00\x53\x77\xc1\x07\x04\x54\x01\x41\x54\x01\x42",  # a key of the body that is
        b"\x41",
        b"\x00\x53\x99\x41",
        b"\x00\x53\x74\xc1\x04\x02\x41\x41",  # an application property whose name is no text
    ],
)
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(CodecError):
        parse(data)


@pytest.mark.parametrize("value", [[1], {"a": 1}, Described(ULong(1), 2), True])
def test_an_identifier_is_a_simple_value(value: Any) -> None:
    message = AmqpMessage(properties={"message_id": value})
    with pytest.raises(CodecError):
        from_amqp(parse(write(message)), PLACE)


def test_application_properties_are_simple_values() -> None:
    with pytest.raises(CodecError, match="simple"):
        from_amqp(parse(write(AmqpMessage(application_properties={"a": [1]}))), PLACE)


def test_headers_of_nservicebus_are_written_and_read_as_it_has_them() -> None:
    sent = AmqpMessage(application_properties={"NServiceBus.MessageId": "1", "own": "x"})
    message = from_amqp(parse(write(sent)), PLACE)
    assert message.extension.startswith(b"<?xml")
    out = parse(write(to_amqp(kept(message), "orders", PLACE)))
    assert out.application_properties == {"NServiceBus.MessageId": "1", "own": "x"}


def test_a_header_without_a_value_is_null_to_receivers() -> None:
    message = Message(b"x", extension=b'{"rbs2-msg-id":"1","tenant":null,"region":"","AMQP.x":null}')
    out = to_amqp(message, "a", PLACE)
    assert out.application_properties == {"rbs2-msg-id": "1", "tenant": None, "region": ""}
    assert EXTENSION not in out.annotations


def test_damaged_headers_travel_whole_as_the_extension() -> None:
    extension = b'{"rbs2-msg-id":"1","rbs2-retries":5}'
    out = parse(write(to_amqp(kept(Message(b"x", extension=extension)), "orders", PLACE)))
    assert (out.application_properties, out.annotations["x-opt-msmq-extension"]) == ({}, extension)


OPAQUE = [b"\1\2", b'{"rbs2-msg-id":"1","rbs2-retries":5}', "héader".encode("utf-16-le")]


@cases("extension", OPAQUE)
@cases(
    "properties",
    [{}, {"message_id": "m"}, {"message_id": UUID(int=7), "content_type": "text/plain"}, {"group_id": "g"}],
)
def test_an_extension_is_kept_beside_other_properties(extension: bytes, properties: dict[str, Any]) -> None:
    sent = AmqpMessage(annotations={EXTENSION: extension}, properties=properties, body=b"x")
    assert from_amqp(parse(write(sent)), PLACE).extension == extension


@pytest.mark.parametrize("extension", OPAQUE)
@pytest.mark.parametrize(
    "given",
    [
        {"application_properties": {"tenant": "blue"}},
        {"body_kind": VALUE, "body": {"a": 1}},
        {"body_kind": VALUE, "body": Symbol("a")},
    ],
)
def test_what_has_no_room_beside_an_extension_is_refused(extension: bytes, given: dict[str, Any]) -> None:
    sent = AmqpMessage(annotations={EXTENSION: extension}, **given)
    with pytest.raises(CodecError, match="leave out one"):
        from_amqp(parse(write(sent)), PLACE)


@pytest.mark.parametrize("extension", ["text", Symbol("s"), [1]])
def test_an_extension_that_is_not_binary_is_refused(extension: Any) -> None:
    with pytest.raises(CodecError, match="it is binary"):
        from_amqp(parse(write(AmqpMessage(annotations={EXTENSION: extension}, body=b"x"))), PLACE)


@pytest.mark.parametrize(
    "headers", [{"NServiceBus.MessageId": "1", "own": "x"}, {"rbs2-msg-id": "1"}, {"rbs2-msg-id": "1", "tenant": "red"}]
)
def test_headers_in_an_extension_are_kept_with_the_properties_of_the_application(headers: dict[str, str]) -> None:
    form = "nservicebus" if "own" in headers else "rebus"
    annotations = {EXTENSION: write_headers(headers, form)}
    sent = AmqpMessage(annotations=annotations, application_properties={"tenant": "blue"}, properties={"group_id": "g"})
    out = parse(write(to_amqp(kept(from_amqp(parse(write(sent)), PLACE)), "orders", PLACE)))
    assert out.application_properties == headers | {"tenant": "blue"}
    assert out.properties["group_id"] == "g"


def test_several_data_sections_are_one_body() -> None:
    section = encode(Described(ULong(DATA), b"ab"))
    assert from_amqp(parse(section + section), PLACE).body == b"abab"


def test_a_body_of_a_kind_that_amqp_does_not_know_has_its_type_beside_it_both_ways() -> None:
    out = parse(write(to_amqp(kept(Message(b"\1\2", body_type=768)), "orders", PLACE)))
    assert (out.body_kind, out.body, out.annotations["x-opt-msmq-body-type"]) == (DATA, b"\1\2", 768)
    back = from_amqp(out, PLACE)
    assert (back.body, back.body_type) == (b"\1\2", 768)


def test_a_long_subject_is_a_label_and_a_header() -> None:
    message = from_amqp(parse(write(AmqpMessage(properties={"subject": "x" * 300}))), PLACE)
    assert message.label == "x" * 249
    assert to_amqp(kept(message), "orders", PLACE).properties["subject"] == "x" * 300


@given(st.binary(min_size=20, max_size=20))
def test_an_identifier_is_a_text_and_back(identifier: bytes) -> None:
    assert identifier_of(identifier_text(identifier)) == identifier


@pytest.mark.parametrize("text", ["", "x", "\\", "x\\1", "00000000-0000-0000-0000-000000000000\\4294967296", 7, "\\٣"])
def test_other_texts_are_no_identifiers(text: Any) -> None:
    assert identifier_of(text) is None


def test_types_keep_their_kind_and_numbers_their_size() -> None:
    values = {"a": ULong(5), "b": Timestamp(7), "c": Symbol("s"), "d": UUID(int=1), "e": b"\0", "f": None}
    message = from_amqp(parse(write(AmqpMessage(application_properties=values))), PLACE)
    out = to_amqp(kept(message), "orders", PLACE).application_properties
    assert {name: type(value) for name, value in out.items()} == {name: type(value) for name, value in values.items()}
    assert out == values
