"""Every structure: parse(write(v)) == v, write(parse(b)) == b, and any bytes give a value or PacketError."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qmnode.structures.errors import PacketError
from qmnode.structures.layout import Structure
from qmnode.structures.packets import packet_size, read_packet
from qmnode.structures.user_message import UserMessage
from tests.conformance.frames import FRAMES
from tests.structures.strategies import all_structures, values_of

STRUCTURES = all_structures()
each_structure = pytest.mark.parametrize("kind", STRUCTURES, ids=lambda kind: kind.__name__)
quickly = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


def parse_or_refuse(kind: type[Structure], content: bytes) -> None:
    """Parse; what parses is written back byte for byte; nothing but PacketError is raised."""
    try:
        value = kind.parse(content)
    except PacketError as error:
        assert error.structure
        assert error.field
        assert error.sentence
        assert str(error).count("\n") == 0
        return
    assert value.write() == content
    assert kind.parse(memoryview(bytearray(content))) == value
    assert kind.annotate(content).width == len(content)


@each_structure
@quickly
@given(data=st.data())
def test_what_is_written_parses_to_the_same_value(kind: type[Structure], data: st.DataObject) -> None:
    value = data.draw(values_of(kind))
    written = value.write()
    assert kind.parse(written) == value
    assert value.size == len(written)
    assert value.replace() == value


@each_structure
@quickly
@given(content=st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_packet_error(kind: type[Structure], content: bytes) -> None:
    parse_or_refuse(kind, content)


@each_structure
@quickly
@given(data=st.data())
def test_bytes_like_those_of_a_value_give_a_value_or_a_packet_error(kind: type[Structure], data: st.DataObject) -> None:
    content = bytearray(data.draw(values_of(kind)).write())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, max(len(content) - 1, 0)))
        content[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    parse_or_refuse(kind, bytes(content))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_packets_with_some_bytes_changed_are_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from([frame.data for frame in FRAMES])))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, min(len(content), 240) - 1))] = data.draw(st.integers(0, 255))
    try:
        packet_size(content)
        packet = read_packet(bytes(content))
    except PacketError:
        return
    assert packet.write() == content


@settings(max_examples=100, deadline=None)
@given(value=values_of(UserMessage))
def test_a_user_message_is_framed_with_its_session_header(value: UserMessage) -> None:
    assert packet_size(value.write()) == value.size
