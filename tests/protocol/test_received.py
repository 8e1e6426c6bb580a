"""Reading received packets, and the places where the protocol writes into packets."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmnode.protocol.received import DestinationName, MessageReader, ReceivedMessage, destination_of
from qmnode.protocol.wire import RemoteProtocolError
from qmnode.structures.conformance import violation
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.packet_view import (
    places_of,
    read_sequence_fields,
    with_sequence_fields,
    with_session_header,
    with_user_flags,
    without_session_header,
)
from qmnode.structures.packets import ORDER_QUEUE
from qmnode.structures.user_message import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    ProviderInfo,
    PublicQueueFormatName,
    SecurityFlags,
    SecurityHeader,
    SessionHeader,
    TransactionHeader,
    UserFlags,
    UserMessage,
)
from tests.lab.cases import cases
from tests.protocol.machines import ALICE, BOB, message, transactional

QUEUES: list[Any] = [
    DirectQueueFormatName(direct_format_name=r"OS:host\private$\orders"),
    PrivateQueueFormatNameId(private_queue_identifier=7),
    PublicQueueFormatName(public_queue_identifier=BOB),
]
OTHERS: list[Any] = [None, *QUEUES, PrivateQueueFormatName(source_queue_manager=BOB, private_queue_identifier=3)]


def read(packet: bytes) -> ReceivedMessage:
    return MessageReader().read(packet)


@pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: type(queue).__name__)
@pytest.mark.parametrize("recoverable", [True, False])
def test_messages_are_read_as_far_as_the_protocol_needs(queue: Any, recoverable: bool) -> None:
    packet = message(5, queue=queue, recoverable=recoverable, body=b"x" * 101)
    received = read(packet)
    assert received.packet == packet
    assert (received.headers.source_queue_manager, received.message_id) == (ALICE, 5)
    assert (received.recoverable, received.ordinal, received.recoverable_ordinal) == (recoverable, 1, int(recoverable))
    assert received.message == UserMessage.parse(packet)


def test_transactional_messages_bring_their_place_in_the_sequence() -> None:
    received = read(transactional(5, 0x1_0000_0007, 3, 2))
    place = received.headers.tx_sequence_id, received.tx_sequence_number, received.previous_tx_sequence_number
    assert place == (0x1_0000_0007, 3, 2)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, len(QUEUES) - 1),
    st.booleans(),
    st.binary(max_size=20),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=3),
    st.integers(-3, 3),
)
def test_what_is_taken_is_what_the_structures_take(
    queue: int, is_transactional: bool, body: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    """Good packets with some bytes changed, cut or grown: whatever is taken can be parsed whole later."""
    make = transactional(1, 9, 1, 0, queue=QUEUES[queue], body=body) if is_transactional else None
    packet = bytearray(make or message(1, queue=QUEUES[queue], body=body))
    for place, value in changes:
        packet[place % len(packet)] = value
    data = bytes(packet[:cut]) if cut < 0 else bytes(packet) + bytes(cut)
    try:
        received = read(data)
    except RemoteProtocolError:
        return
    assert received.message.user_header.message_id == received.message_id


def test_what_pads_a_direct_name_is_no_part_of_it() -> None:
    packet = bytearray(message(1, queue=DirectQueueFormatName(direct_format_name="OS:a\\bc")))
    clean = read(bytes(packet)).destination
    packet[64 + 2 + 2 * 8] = 0x55  # the first byte after the null
    assert read(bytes(packet)).destination == clean
    assert clean.name == "OS:a\\bc\0".encode("utf-16-le")


@given(st.binary(max_size=300))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read(data)


def test_a_message_neither_express_nor_recoverable_is_refused() -> None:
    packet = message(1, flags=UserFlags.of(DM=2))
    with pytest.raises(RemoteProtocolError):
        MessageReader().read(packet)


def test_an_express_message_with_a_transaction_header_is_refused() -> None:
    packet = bytearray(transactional(1, 7, 1, 0))
    packet[60] &= ~UserFlags.DM.mask & 0xFF
    with pytest.raises(RemoteProtocolError):
        MessageReader().read(bytes(packet))


@cases("queue", QUEUES)
@cases("admin", OTHERS)
def test_the_transaction_header_is_found_behind_any_names(queue: Any, admin: Any) -> None:
    header = TransactionHeader(tx_sequence_id=77, tx_sequence_number=8, previous_tx_sequence_number=7)
    flags = UserFlags.of(AQ=2) if isinstance(admin, PrivateQueueFormatNameId) else 0
    packet = message(1, queue=queue, admin_queue=admin, transaction=header, flags=flags)
    at = places_of(packet).transaction_header
    assert read_sequence_fields(packet, at) == (77, 8, 7)
    changed = UserMessage.parse(with_sequence_fields(packet, at, 78, 1, 0)).transaction_header
    assert changed == header.replace(tx_sequence_id=78, tx_sequence_number=1, previous_tx_sequence_number=0)


def test_a_session_header_is_put_on_and_taken_off_without_a_trace() -> None:
    packet = message(1)
    header = SessionHeader(ack_sequence_number=3, user_msg_sequence_number=1)
    on = b"".join(bytes(part) for part in with_session_header(packet, header.write()))
    assert UserMessage.parse(on).session_header == header
    assert without_session_header(on) == packet


def test_other_user_flags_change_nothing_else() -> None:
    packet = message(1)
    flags = UserMessage.parse(packet).user_header.flags
    changed = with_user_flags(packet, flags + 1)
    assert UserMessage.parse(changed).user_header.flags == flags + 1
    assert with_user_flags(changed, flags) == packet


def test_messages_to_one_destination_share_its_name() -> None:
    reader = MessageReader()
    first, second = (reader.read(message(number)) for number in (1, 2))
    assert first.destination is second.destination
    other = reader.read(message(3, queue=ORDER_QUEUE, address=BOB))
    assert other.destination == (BOB, 3, b"\4\0\0\0")


def fresh(packet: bytes) -> ReceivedMessage | None:
    try:
        return read(packet)
    except RemoteProtocolError:
        return None


@settings(max_examples=250, deadline=None)
@given(
    st.integers(0, len(QUEUES) - 1),
    st.sampled_from(["express", "recoverable", "transactional"]),
    st.lists(st.tuples(st.sampled_from(["", "label", "longer label"]), st.integers(0, 40)), min_size=2, max_size=2),
    st.sampled_from([MessageClass.MQMSG_CLASS_NORMAL, MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE]),
    st.lists(st.tuples(st.one_of(st.integers(0, 170), st.integers(0, 400)), st.integers(0, 255)), max_size=3),
    st.integers(-3, 3),
)
def test_a_packet_that_resembles_the_one_before_it_is_read_as_if_it_were_the_first(
    queue: int,
    kind: str,
    contents: list[tuple[str, int]],
    message_class: MessageClass,
    changes: list[tuple[int, int]],
    cut: int,
) -> None:
    def packet(number: int, label: str, size: int) -> bytes:
        fields: dict[str, Any] = {
            "queue": QUEUES[queue],
            "body": bytes(size),
            "label": label,
            "message_class": message_class,
        }
        if kind == "transactional":
            return transactional(number, 9, number, number - 1, **fields)
        return message(number, recoverable=kind == "recoverable", **fields)

    one, two = (packet(number, *content) for number, content in enumerate(contents, 1))
    changed = bytearray(two)
    for place, value in changes:
        changed[place % len(changed)] = value
    data = bytes(changed[:cut]) if cut < 0 else bytes(changed) + bytes(cut)
    reader = MessageReader()
    first = reader.read(one)
    expected = fresh(data)
    if expected is None:
        with pytest.raises(RemoteProtocolError):
            reader.read(data)
        return
    received = reader.read(data)
    alike = contents[0] == contents[1] or message_class == MessageClass.MQMSG_CLASS_NORMAL
    assert data != two or not alike or received.headers is first.headers
    assert violation(received.message) is None
    assert received.ordinal == 2
    assert repr((received.packet, received[3:])) == repr((expected.packet, expected[3:]))


def test_messages_that_are_alike_share_their_headers() -> None:
    reader = MessageReader()
    first, second = (reader.read(message(number)) for number in (1, 2))
    assert first.headers is second.headers
    assert (first.message_id, second.message_id) == (1, 2)
    first, second = (reader.read(transactional(number, 9, number, number - 1)) for number in (3, 4))
    assert first.headers is second.headers
    assert (second.tx_sequence_number, second.previous_tx_sequence_number) == (4, 3)


@pytest.mark.parametrize("named", [False, True])
def test_messages_share_their_headers_whatever_the_sizes_of_their_labels_and_bodies(named: bool) -> None:
    sender = bytes.fromhex("010100000000000512000000")
    security = SecurityHeader(flags=SecurityFlags.of(ST=1, AI=1), security_id=sender) if named else None
    reader = MessageReader()
    first = reader.read(message(1, label="order", body=b"x" * 10, security_header=security))
    for label, size in (("", 0), ("a longer label", 1001), ("x" * 249, 3)):
        packet = message(2, label=label, body=bytes(size), security_header=security)
        received = reader.read(packet)
        assert received.headers is first.headers
        assert received.packet == packet


SMALL, LARGE = message(1, label="label"), message(1, label="a longer label", body=b"y" * 50)


@cases("place", range(300))
@cases("before", [[SMALL], [LARGE], [SMALL, LARGE, LARGE]], ids=["other", "alike", "lately alike"])
def test_no_byte_of_a_packet_is_read_as_that_of_those_before_it(before: list[bytes], place: int) -> None:
    packet = message(2, label="a longer label", body=b"x" * 50)
    for bit in (1 << n for n in range(8)):
        changed = bytearray(packet)
        changed[place % len(packet)] ^= bit
        warm = MessageReader()
        for earlier in before:
            warm.read(earlier)
        expected = fresh(bytes(changed))
        if expected is None:
            with pytest.raises(RemoteProtocolError):
                warm.read(bytes(changed))
        else:
            assert repr(warm.read(bytes(changed)).headers) == repr(expected.headers)


def test_no_byte_of_a_secured_packet_is_read_as_the_one_before_it() -> None:
    """The provider's name is long: what lies behind it must be compared as well."""
    provider = ProviderInfo(provider_type=24, provider_name="Microsoft Enhanced RSA and AES Cryptographic Provider")
    security = SecurityHeader(
        flags=SecurityFlags.of(ST=1, AI=1),
        security_id=bytes.fromhex("010100000000000512000000"),
        signature=bytes(64),
        sender_cert=bytes(40),
        provider_info=provider.write(),
    )
    header = UserMessage.parse(message(1))
    first = header.replace(security_header=security).write()
    for place in range(len(first)):
        for bit in (0x01, 0x80):
            changed = first[:place] + bytes((first[place] ^ bit,)) + first[place + 1 :]
            warm, fresh = MessageReader(), MessageReader()
            warm.read(first)
            try:
                expected = fresh.read(changed)
            except RemoteProtocolError:
                with pytest.raises(RemoteProtocolError):
                    warm.read(changed)
                continue
            assert repr(warm.read(changed).headers) == repr(expected.headers), place


def test_a_name_longer_than_any_is_told_apart_by_a_short_key() -> None:
    def key(name: str) -> bytes:
        return DestinationName(ALICE, 7, f"{name}\0".encode("utf-16-le")).key()

    long = "OS:host\\private$\\" + "q" * 20_000
    assert key(long) == key(long.upper()) != key(long + "q")
    assert len(key(long)) == 33
    kept = DestinationName(ALICE, key(long)[0], key(long)[1:])  # as it is read from a record
    assert (kept.key(), kept.format_name(), kept.is_order_queue(ALICE)) == (key(long), None, False)


def test_a_session_keeps_no_large_headers_of_a_message_that_it_has_read() -> None:
    provider = ProviderInfo(provider_type=1, provider_name="p" * 1_900_000).write()
    header = SecurityHeader(provider_info=provider)
    packets = [UserMessage.parse(message(number)).replace(security_header=header).write() for number in (1, 2)]
    reader = MessageReader()
    tracemalloc.start()
    try:
        for ordinal, packet in enumerate(packets, 1):
            assert reader.read(packet).ordinal == ordinal
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_destination_of_a_stored_packet_is_found_whatever_rule_it_breaks() -> None:
    sound = UserMessage.parse(transactional(1, 7, 1, 0))
    properties = sound.message_properties_header.replace(privacy_level=2)
    broken = sound.replace(message_properties_header=properties).write()
    with pytest.raises(RemoteProtocolError):
        MessageReader().read(broken)
    assert destination_of(broken) == MessageReader().read(sound.write()).destination
