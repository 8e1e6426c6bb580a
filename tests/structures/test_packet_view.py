"""The view of a packet agrees with the parser: about places, and about what it accepts without parsing."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmnode.structures.errors import PacketError
from qmnode.structures.packet_view import (
    ADDRESS,
    LABEL_AT,
    SOURCE,
    Shapes,
    base_flags_of,
    label_length,
    message_class_of,
    places_of,
    security_parts,
    times_to_live,
    user_flags_of,
    with_base_flags,
)
from qmnode.structures.user_message import (
    DirectQueueFormatName,
    MessagePropertiesHeader,
    PublicQueueFormatName,
    UserHeader,
    UserMessage,
)
from tests.structures.strategies import values_of

if TYPE_CHECKING:
    from qmnode.structures.layout import Structure

GUID = bytes(range(16))
FEW = settings(max_examples=40, deadline=None)
"""Examples of any UserMessage take long to make."""


def size(part: Structure | None) -> int:
    return 0 if part is None else part.size


@FEW
@given(values_of(UserMessage), st.sampled_from([0, 20]))
def test_places_are_where_the_parser_finds_the_parts(message: UserMessage, start: int) -> None:
    packet, user = message.write(), message.user_header
    places = places_of(bytes(start) + packet, start)
    admin_queue = start + 64 + size(user.destination_queue)
    response_queue = admin_queue + size(user.admin_queue)
    connector_type = response_queue + size(user.response_queue)
    transaction = start + message.base_header.size + user.size
    security = transaction + size(message.transaction_header)
    properties = security + size(message.security_header)
    assert places == (admin_queue, response_queue, connector_type, transaction, security, properties)


@FEW
@given(values_of(UserMessage))
def test_fields_of_fixed_place_are_read_as_the_parser_reads_them(message: UserMessage) -> None:
    packet, user, base = message.write(), message.user_header, message.base_header
    properties = message.message_properties_header
    assert packet[SOURCE] == user.source_queue_manager
    assert packet[ADDRESS] == user.queue_manager_address
    assert user_flags_of(packet) == user.flags
    assert base_flags_of(packet) == base.flags
    assert times_to_live(packet) == (base.time_to_reach_queue, user.time_to_be_received)
    place = places_of(packet).properties
    assert message_class_of(packet, place) == properties.message_class
    assert label_length(packet, place) == properties.label_length
    assert with_base_flags(packet, base.flags ^ 7) == message.put(base_header=base.put(flags=base.flags ^ 7)).write()


@FEW
@given(values_of(UserMessage))
def test_parts_of_the_security_header_end_where_the_parser_ends_them(message: UserMessage) -> None:
    security = message.security_header
    if security is None:
        return
    packet = message.write()
    place = places_of(packet).security_header
    ends = security_parts(packet, place)
    later = security.encryption_key, security.signature, security.sender_cert, security.provider_info
    for (end, following), part in zip(pairwise(ends), later, strict=True):
        assert packet[end : end + len(part)] == part
        assert following == end + (len(part) + 3 & ~3)


def ordinary(label: str, body: bytes, extension: bytes = b"", answer: bool = False) -> UserMessage:
    return UserMessage(
        user_header=UserHeader(
            source_queue_manager=GUID,
            message_id=7,
            destination_queue=DirectQueueFormatName(direct_format_name=r"OS:host\private$\orders"),
            response_queue=PublicQueueFormatName(public_queue_identifier=GUID) if answer else None,
        ),
        message_properties_header=MessagePropertiesHeader(label=label, message_body=body, extension_data=extension),
    )


LABELS = st.text(max_size=20)


@given(st.lists(st.tuples(LABELS, st.binary(max_size=40), st.binary(max_size=9)), min_size=2, max_size=5))
def test_messages_that_differ_in_sizes_have_one_shape(contents: list[tuple[str, bytes, bytes]]) -> None:
    shapes = Shapes()
    found = {shapes.validate(ordinary(*content).write()) for content in contents}
    assert len(found) == 1
    assert None not in found


CHANGES = st.lists(st.tuples(st.integers(0, 399), st.integers(0, 255)), max_size=4)


@settings(max_examples=200, deadline=None)
@given(
    CHANGES,
    st.one_of(st.just("order"), LABELS),
    st.one_of(st.binary(min_size=9, max_size=9), st.binary(max_size=40)),
    st.one_of(st.just(0), st.integers(-5, 5)),
    st.booleans(),
    st.integers(1, 4),
)
def test_what_fits_a_shape_is_what_the_parser_accepts_with_the_same_places(
    changes: list[tuple[int, int]], label: str, body: bytes, cut: int, answer: bool, before: int
) -> None:
    shapes = Shapes()
    for _ in range(before):  # after a few of one size it is enough to compare the next with them
        shapes.validate(ordinary("order", b"some body", answer=answer).write())
    packet = bytearray(ordinary(label, body, answer=answer).write())
    for place, octet in changes:
        packet[place % len(packet)] = octet
    packet = packet[:cut] if cut < 0 else packet + bytes(cut)
    written = bytes(packet)
    try:
        shape = shapes.validate(written)
    except PacketError as error:
        refused: PacketError | None = error
    else:
        refused = None
    try:
        parsed = UserMessage.parse(written)
    except PacketError as error:
        assert str(refused) == str(error)
        return
    assert refused is None
    if shape is not None:
        assert shape.fits(written)
        assert shape.places == places_of(written)
        properties = shape.places.properties
        assert parsed.message_properties_header.message_class == message_class_of(written, properties)
        assert 2 * label_length(written, properties) == len(
            written[properties + LABEL_AT :][: 2 * parsed.message_properties_header.label_length]
        )


@pytest.mark.parametrize("before", range(4))
def test_the_beginning_of_a_packet_has_no_shape(before: int) -> None:
    shapes = Shapes()
    packet = ordinary("order", b"some body").write()
    shape = None
    for _ in range(before + 1):
        shape = shapes.validate(packet)
    assert shape is not None and shape.fits(packet)
    assert not [size for size in range(len(packet)) if shape.fits(packet[:size])]


def test_many_kinds_of_messages_are_recognised_without_growing() -> None:
    shapes = Shapes()
    packets = [ordinary("", bytes(number), answer=bool(number % 2)).write() for number in range(40)]
    packets = [packet[:12] + number.to_bytes(4, "little") + packet[16:] for number, packet in enumerate(packets)]
    first = [shapes.validate(packet) for packet in packets]
    assert None not in first
    assert shapes.validate(packets[-1]) is first[-1]
    assert shapes.validate(packets[0]) is not first[0]  # long forgotten, and parsed again
