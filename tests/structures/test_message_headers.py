"""The flat reader says what the structures say, and refuses what they refuse."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode.structures.errors import PacketError
from qmnode.structures.message_headers import MessageHeaders
from qmnode.structures.user_message import UserMessage
from tests.structures.strategies import values_of
from tests.structures.test_hostile_packets import PACKET

QUEUES = ("destination_queue", "admin_queue", "response_queue")


def at(message: UserMessage, path: str) -> Any:
    return reduce(lambda value, word: None if value is None else getattr(value, word), path.split("."), message)


@given(values_of(UserMessage))
def test_every_attribute_is_the_field_at_its_path(message: UserMessage) -> None:
    headers = MessageHeaders.parse(message.write())
    for attribute, path in MessageHeaders.PATHS.items():
        expected = at(message, path)
        if attribute.removesuffix("_bytes") in QUEUES:
            expected = b"" if expected is None else expected.write()
        assert getattr(headers, attribute) == expected, attribute
    assert headers.destination_queue == message.user_header.destination_queue
    assert headers.admin_queue == message.user_header.admin_queue
    assert headers.response_queue in (message.user_header.response_queue, message.user_header.admin_queue)


def outcome(parse: Any, packet: bytes) -> object:
    try:
        parse(packet)
    except PacketError as error:
        return str(error)
    return "accepted"


@given(st.data())
def test_a_mutated_packet_is_refused_with_the_same_sentence(data: st.DataObject) -> None:
    packet = bytearray(data.draw(st.sampled_from([PACKET, PACKET[: len(PACKET) // 2]])))
    for _ in range(data.draw(st.integers(1, 4))):
        packet[data.draw(st.integers(0, len(packet) - 1))] = data.draw(st.integers(0, 255))
    written = bytes(packet)
    assert outcome(MessageHeaders.parse, written) == outcome(UserMessage.parse, written)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_value_or_a_packet_error(packet: bytes) -> None:
    assert outcome(MessageHeaders.parse, packet) == outcome(UserMessage.parse, packet)


@pytest.mark.parametrize("size", range(0, len(PACKET), 7))
def test_a_packet_that_ends_early_is_refused(size: int) -> None:
    with pytest.raises(PacketError):
        MessageHeaders.parse(PACKET[:size])


def test_the_body_is_not_copied() -> None:
    body = MessageHeaders.parse(PACKET).message_body
    assert isinstance(body, memoryview)
    assert body.obj is PACKET
