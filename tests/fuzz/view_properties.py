"""Packets that are accepted, read and addressed in place, without the parser: it must accept them with the same values.

An input is two packets, behind two bytes with the size of the first, which the second may resemble.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qmnode.model.serialization import Destination, TransactionFields, serialize
from qmnode.model.stored_message import PREFIX, PREFIX_SIZE, message_from_packet, packed
from qmnode.protocol.received import MessageReader
from qmnode.protocol.wire import RemoteProtocolError
from qmnode.structures.conformance import violation
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.packet_view import (
    ADDRESS,
    SOURCE,
    Shapes,
    base_flags_of,
    label_length,
    message_class_of,
    places_of,
    security_parts,
    sent_time_of,
    times_to_live,
    user_flags_of,
)
from qmnode.structures.user_message import UserMessage

_HERE = Guid(b"\x33" * 16)
_SENT = 1_700_000_000
_TO = r"DIRECT=OS:elsewhere\private$\queue"


def _packets(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:2], "little")
    return data[2 : 2 + size], data[2 + size :]


def check_shapes(data: bytes) -> None:
    """The view accepts a packet only as the parser does, and refuses it with the same sentence."""
    shapes = Shapes()
    for packet in _packets(data):
        try:
            shape = shapes.validate(packet)
        except PacketError as error:
            _refused_alike(packet, error)
            continue
        message = UserMessage.parse(packet)
        _same_values(packet, message)
        if shape is None:
            continue
        assert shape.places == places_of(packet)
        # All that a shape says of a packet that fits it, it says of the packet that it was made from.
        fresh = Shapes().validate(packet)
        assert fresh is not None and fresh.places == shape.places


def _refused_alike(packet: bytes, error: PacketError) -> None:
    try:
        UserMessage.parse(packet)
    except PacketError as other:
        assert str(other) == str(error)
    else:
        raise AssertionError("the parser accepts what its shape does not")


def _same_values(packet: bytes, message: UserMessage) -> None:
    """What the view reads of a sound packet is what the parser reads."""
    base, user, properties = message.base_header, message.user_header, message.message_properties_header
    transaction, security = message.transaction_header, message.security_header
    assert user_flags_of(packet) == user.flags
    assert base_flags_of(packet) == base.flags
    assert sent_time_of(packet) == user.sent_time
    assert times_to_live(packet) == (base.time_to_reach_queue, user.time_to_be_received)
    assert (packet[SOURCE], packet[ADDRESS]) == (user.source_queue_manager, user.queue_manager_address)
    places = places_of(packet)
    transaction_at = base.size + user.size
    security_at = transaction_at + (0 if transaction is None else transaction.size)
    properties_at = security_at + (0 if security is None else security.size)
    assert places[-3:] == (transaction_at, security_at, properties_at)
    assert label_length(packet, places.properties) == properties.label_length
    assert message_class_of(packet, places.properties) == properties.message_class
    if security is not None:
        assert security_parts(packet, places.security_header)[-1] == places.properties


def check_arrivals(data: bytes) -> None:
    """A session reads a packet behind another as it reads it alone, and as the parser and the rules do."""
    reader = MessageReader()
    for packet in _packets(data):
        alone = MessageReader()
        try:
            received = reader.read(packet)
        except RemoteProtocolError as error:
            try:
                alone.read(packet)
            except RemoteProtocolError as other:
                assert str(other) == str(error)
                continue
            raise AssertionError("refused only behind another packet") from error
        other = alone.read(packet)
        ordinals = {"ordinal": other.ordinal, "recoverable_ordinal": other.recoverable_ordinal}
        assert _values(received._replace(**ordinals)) == _values(other)
        message = UserMessage.parse(packet)
        user, transaction = message.user_header, message.transaction_header
        assert violation(message) is None
        assert (received.sent_time, received.message_id) == (user.sent_time, user.message_id)
        assert received.headers.user_flags == user.flags
        if transaction is not None:
            place = received.tx_sequence_number, received.previous_tx_sequence_number
            assert place == (transaction.tx_sequence_number, transaction.previous_tx_sequence_number)


def _values(received: tuple[object, ...]) -> list[str]:
    return list(map(repr, received))


def check_addressing(data: bytes) -> None:
    """A packet that gets a destination in place is the one that its parsed message gives, but for its own headers."""
    destination = Destination(_HERE, parse_single_format_name(_TO), transit=True)
    for packet in _packets(data):
        try:
            message = message_from_packet(packet)
        except PacketError as error:
            _refused_alike(packet, error)
            continue
        for transaction in (None, TransactionFields(5, 6, 7, 3)):
            addressing = destination.addressing_of(message, transaction is not None)
            if addressing is None:
                continue
            value = serialize(message, destination, 9, _SENT, transaction, first=True)
            MessageReader().read(value[PREFIX_SIZE:])  # or the message would block the queue behind it
            before, after = UserMessage.parse(packed(message)), UserMessage.parse(value[PREFIX_SIZE:])
            assert PREFIX.unpack_from(value)[4] == places_of(value, PREFIX_SIZE).properties
            assert _kept(after) == _kept(before)
            user, header = after.user_header, after.transaction_header
            assert (user.source_queue_manager, user.message_id, user.sent_time) == (_HERE, 9, _SENT)
            if transaction is not None:
                assert header is not None
                place = header.tx_sequence_id, header.tx_sequence_number, header.previous_tx_sequence_number
                assert place == (transaction.sequence, transaction.number, transaction.previous)


def _kept(message: UserMessage) -> tuple[object, ...]:
    """The fields that a message keeps when it is sent to somewhere."""
    user, properties = message.user_header, message.message_properties_header
    return (
        message.base_header.time_to_reach_queue, user.time_to_be_received, user.admin_queue, user.response_queue,
        user.connector_type, properties.flags, properties.message_class, properties.correlation_id,
        properties.body_type, properties.application_tag, properties.privacy_level, properties.label,
        bytes(properties.extension_data), bytes(properties.message_body),
    )  # fmt: skip


VIEW_TARGETS: dict[str, Callable[[bytes], None]] = {
    "shapes": check_shapes,
    "arrivals": check_arrivals,
    "addressing": check_addressing,
}


def view_seeds(messages: list[UserMessage]) -> Iterator[tuple[str, bytes]]:
    """Each message twice, and before the same one with a label, an extension and a body of other sizes."""
    for message in messages:
        properties = message.message_properties_header
        other = properties.replace(label="other label", extension_data=b"ext", message_body=b"other")
        whole = message.write()
        for second in (whole, message.replace(message_properties_header=other).write()):
            for target in VIEW_TARGETS:
                yield target, len(whole).to_bytes(2, "little") + whole + second
