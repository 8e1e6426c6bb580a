"""The specification's own frames (MS-MQQB 4.1) parse, mean what their bytes say, and write back byte for byte."""

from __future__ import annotations

import pytest

from qmnode.structures.guid import guid_from_text, guid_to_text
from qmnode.structures.packets import (
    RESPONSE_PADDING,
    ConnectionParameters,
    EstablishConnection,
    OperatingSystemFlags,
    Ping,
    PingFlags,
    SessionAck,
    packet_size,
    read_packet,
)
from qmnode.structures.user_message import (
    BaseFlags,
    BaseHeader,
    DirectQueueFormatName,
    MessagePropertiesHeader,
    SecurityFlags,
    UserFlags,
    UserMessage,
)
from tests.conformance.frames import FRAME_7_PRINTED_SIZE, FRAMES, Frame

# The texts print the 16 bytes of a GUID last to first: {C626EA11-E6B6-9749-9595-9150557358D1} is
# 557358d1-9150-9595-4997-b6e611ea26c6 in the order that MS-DTYP 2.3.4.3 defines.
CLIENT = guid_from_text("{557358d1-9150-9595-4997-b6e611ea26c6}")
SERVER = guid_from_text("{43cd8907-394c-8f11-4445-9078909ea0fc}")


def frame(number: int) -> bytes:
    return FRAMES[number - 1].data


@pytest.mark.parametrize("case", [case for case in FRAMES if case.transport == "udp"], ids=lambda case: case.title)
def test_pings_are_written_back_byte_for_byte(case: Frame) -> None:
    assert Ping.parse(case.data).write() == case.data


@pytest.mark.parametrize("case", [case for case in FRAMES if case.transport == "tcp"], ids=lambda case: case.title)
def test_session_packets_are_written_back_byte_for_byte(case: Frame) -> None:
    assert packet_size(case.data) == len(case.data)
    assert read_packet(case.data).write() == case.data


@pytest.mark.parametrize(("number", "guid"), [(1, CLIENT), (2, SERVER)])
def test_frames_1_and_2_are_pings_of_the_same_cookie(number: int, guid: bytes) -> None:
    ping = Ping.parse(frame(number))
    assert (ping.cookie, ping.qm_guid) == (4, guid)
    assert PingFlags.RC.get(ping.flags) == 1
    assert PingFlags.RF.get(ping.flags) == 0


def test_texts_print_the_bytes_of_guids_last_to_first() -> None:
    printed = "C626EA11-E6B6-9749-9595-9150557358D1"
    assert bytes.fromhex(printed.replace("-", ""))[::-1] == CLIENT
    assert guid_to_text(CLIENT) != printed.lower()


def test_frame_3_asks_for_a_session() -> None:
    packet = read_packet(frame(3))
    assert isinstance(packet, EstablishConnection)
    header = packet.establish_connection_header
    assert (header.client_guid, header.server_guid) == (CLIENT, SERVER)
    assert header.time_stamp == 501140046
    assert packet.base_header.packet_size == 572
    # The text has Reserved 784 (0x310) before an OperatingSystem of 0, with a session that is not new and an initiator
    # that is no server. The layout of 2.2.3.1 has them the other way round: OperatingSystem is 0x0310, Reserved is 0.
    assert header.operating_system == 0x310
    assert OperatingSystemFlags.of(RE=0x10, SE=1, OS=1) == 0x310
    assert header.reserved == 0


def test_frame_4_answers_with_other_guids_than_its_text() -> None:
    packet = read_packet(frame(4))
    assert isinstance(packet, EstablishConnection)
    header = packet.establish_connection_header
    assert header.padding == RESPONSE_PADDING
    assert header.time_stamp == 501140046
    # The text repeats the GUIDs of frame 3; the bytes are of some other session, though 2.2.3.1 has them sent back.
    assert guid_to_text(header.client_guid) == "1f742305-be5e-4177-bc77-c4dd7719e474"
    assert guid_to_text(header.server_guid) == "3c3a6aeb-f567-4143-87d3-85cf4d68ceb4"


@pytest.mark.parametrize("number", [5, 6])
def test_frames_5_and_6_agree_on_a_window_of_64(number: int) -> None:
    packet = read_packet(frame(number))
    assert isinstance(packet, ConnectionParameters)
    header = packet.connection_parameters_header
    assert (header.recoverable_ack_timeout, header.ack_timeout) == (1496, 120000)
    # The text of frame 6 says 32 (0x20); its bytes are those of frame 5, 40 00.
    assert header.window_size == 64


def test_frame_7_is_an_express_message_to_a_direct_name() -> None:
    message = read_packet(frame(7))
    assert isinstance(message, UserMessage)
    assert message.base_header == BaseHeader(
        flags=BaseFlags.of(PR=3), packet_size=2224, time_to_reach_queue=345600
    )  # fmt: skip
    user = message.user_header
    assert user.source_queue_manager == CLIENT
    assert user.queue_manager_address == bytes(16)
    assert user.message_id == 2286
    assert user.flags == UserFlags.of(DQ=7, SH=1, MP=1) == 0x281C00
    assert user.destination_queue == DirectQueueFormatName(direct_format_name="OS:a04bm02\\q")
    # The text says SentTime 1141966310 (0x441105E6); the bytes are 4C 49 4F 52, the letters of the packet's signature.
    assert user.sent_time == 0x524F494C


def test_frame_7_has_a_security_id_without_saying_so() -> None:
    message = read_packet(frame(7))
    assert isinstance(message, UserMessage)
    security = message.security_header
    assert security is not None
    assert security.flags == SecurityFlags.of(ST=1)
    # AI is clear ("SecurityData not present"), yet 28 bytes of SecurityID are there. DE is clear too, which the text
    # calls the default provider; 2.2.20.6 says so of a set DE.
    assert SecurityFlags.AI.get(security.flags) == 0
    assert security.sender_id_size == 28
    assert security.security_id.hex() == "010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000"


def test_frame_7_asks_for_all_acknowledgments_and_carries_2000_bytes() -> None:
    message = read_packet(frame(7))
    assert isinstance(message, UserMessage)
    properties = message.message_properties_header
    assert properties.replace(message_body=b"") == MessagePropertiesHeader(
        # The text explains every bit of Flags as "None"; the byte is 0F: all four are set.
        flags=0x0F,
        label="mqsender label",
        body_type=8,
        hash_algorithm=0x8004,
        # The text says 26113 (0x6601) and calls it RC4; the bytes are 0x6801, which is RC4 in 2.2.19.3.
        encryption_algorithm=0x6801,
        # The text says 20 (0x14); the bytes are D0 07, as large as the body.
        allocation_body_size=2000,
    )
    assert properties.label_length == 15
    # The text says a body of 20 bytes and 1 byte of padding; MessageSize is 2000, and 2 bytes complete the 2,224.
    assert properties.message_size == 2000
    assert bytes(properties.message_body) == b"a\0" * 1000
    assert len(properties.padding) == 2


def test_the_printed_part_of_frame_7_alone_is_rejected() -> None:
    assert FRAME_7_PRINTED_SIZE == 1650
    with pytest.raises(ValueError, match="packet_size"):
        read_packet(frame(7)[:FRAME_7_PRINTED_SIZE])


def test_frame_8_acknowledges_the_message() -> None:
    packet = read_packet(frame(8))
    assert isinstance(packet, SessionAck)
    header = packet.session_header
    assert (header.ack_sequence_number, header.window_size) == (1, 64)
    # MS-MQMQ 2.2.19.1 says that PacketSize leaves out a SessionHeader; in this packet it counts it.
    assert packet.base_header.packet_size == len(frame(8)) == 36
