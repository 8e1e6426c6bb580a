"""What public exploits of MSMQ parsers send is refused: sizes that lie, in each place where a packet has one."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from qmnode.structures.errors import PacketError
from qmnode.structures.generate import text_end
from qmnode.structures.guid import ZERO_GUID
from qmnode.structures.packets import packet_size, read_packet
from qmnode.structures.user_message import (
    MAX_ELEMENTS,
    DirectQueueFormatName,
    MessagePropertiesHeader,
    MQFAddressHeader,
    MQFDirectQueueFormatName,
    MQFFormatNameElement,
    MQFSignatureHeader,
    MultiQueueFormatHeader,
    SecurityHeader,
    SoapHeader,
    UserHeader,
    UserMessage,
)
from tests.lab.cases import cases

NAME = MQFFormatNameElement(format_name=MQFDirectQueueFormatName(direct_format_name="OS:b\\q"))
MESSAGE = UserMessage(
    user_header=UserHeader(
        source_queue_manager=ZERO_GUID, message_id=1,
        destination_queue=DirectQueueFormatName(direct_format_name="OS:a\\q"),
    ),
    security_header=SecurityHeader(security_id=bytes(28), signature=bytes(64), sender_cert=bytes(100)),
    message_properties_header=MessagePropertiesHeader(label="label", message_body=b"body", extension_data=b"ext"),
    soap_header=SoapHeader(header="header", body="body"),
    multi_queue_format_header=MultiQueueFormatHeader(
        destination=MQFAddressHeader(format_name_list=[NAME, NAME]), signature=MQFSignatureHeader(signature=bytes(64))
    ),
)  # fmt: skip
PACKET = MESSAGE.write()
LENGTHS = {
    line.structure + "." + line.name: (line.offset, line.width)
    for line in UserMessage.annotate(PACKET).walk()
    if line.name.endswith(("Size", "Length", "Count")) and line.name not in ("AllocationBodySize", "PacketSize")
}


def with_number(packet: bytes, offset: int, width: int, number: int) -> bytes:
    changed = bytearray(packet)
    changed[offset : offset + width] = struct.pack("<Q", number)[:width]
    return bytes(changed)


def test_the_example_has_every_kind_of_length() -> None:
    assert read_packet(PACKET) == MESSAGE
    assert {"MessagePropertiesHeader.LabelLength", "SoapHeader.HeaderDataLength", "SoapHeader.BodyDataLength",
            "MQFAddressHeader.HeaderSize", "MQFAddressHeader.ElementCount", "MQFSignatureHeader.Size",
            "SecurityHeader.SenderCertSize", "DirectQueueFormatName.Count"} <= set(LENGTHS)  # fmt: skip


@cases("name", LENGTHS)
@cases("number", [1 << 30, 0x80000001, 0xFFFFFFFF, 0x7FFFFFFF, 0xFFFFFFFE])
def test_a_length_beyond_the_packet_is_refused_without_taking_memory(name: str, number: int) -> None:
    offset, width = LENGTHS[name]
    number &= (1 << 8 * width) - 1
    if number in (0, 1):
        pytest.fail("choose a number whose low bytes are large too") if width == 4 else None
        number = (1 << 8 * width) - 1
    packet = with_number(PACKET, offset, width, number)
    tracemalloc.start()
    with pytest.raises(PacketError):
        read_packet(packet)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * len(packet) + 65536


@pytest.mark.parametrize("change", [-4, -1, 1, 4, 1 << 20])
def test_a_packet_size_other_than_the_bytes_is_refused(change: int) -> None:
    with pytest.raises(PacketError):
        read_packet(with_number(PACKET, 8, 4, len(PACKET) + change))


@pytest.mark.parametrize("size", [0, 15, 0x00400001, 0xFFFFFFFF])
def test_a_stream_is_refused_when_the_size_of_its_next_packet_is_out_of_range(size: int) -> None:
    with pytest.raises(PacketError, match="PacketSize"):
        packet_size(with_number(PACKET, 8, 4, size)[:16])


def test_a_stream_waits_for_a_base_header_unless_it_cannot_become_one() -> None:
    assert packet_size(PACKET[:15]) is None
    assert packet_size(b"") is None
    with pytest.raises(PacketError, match="VersionNumber"):
        packet_size(b"GET ")
    with pytest.raises(PacketError, match="Signature"):
        packet_size(PACKET[:4] + b"LX")


def test_a_list_of_more_names_than_its_header_holds_is_refused() -> None:
    offset, width = LENGTHS["MQFAddressHeader.ElementCount"]
    with pytest.raises(PacketError):
        read_packet(with_number(PACKET, offset, width, 3))


def with_names(number: int) -> bytes:
    """PACKET with as many names in the last list of its MultiQueueFormatHeader, each of 4 bytes."""
    empty = bytes.fromhex("03000000")
    offset, _ = LENGTHS["MQFAddressHeader.ElementCount"]
    begin, size = offset - 8, int.from_bytes(PACKET[offset - 8 : offset - 4], "little")
    header = struct.pack("<I", 12 + 4 * number) + PACKET[begin + 4 : offset] + struct.pack("<I", number)
    packet = PACKET[:begin] + header + empty * number + PACKET[begin + size :]
    return with_number(packet, 8, 4, len(packet))


def test_a_list_of_as_many_names_as_a_format_name_may_have_is_accepted() -> None:
    header = read_packet(with_names(MAX_ELEMENTS)).multi_queue_format_header  # type: ignore[union-attr]
    assert header is not None
    assert header.response.element_count == MAX_ELEMENTS


def test_a_packet_full_of_names_is_refused_before_they_are_taken() -> None:
    packet = with_names(1 << 19)
    tracemalloc.start()
    with pytest.raises(PacketError, match=r"MQFAddressHeader\.ElementCount"):
        UserMessage.parse(packet)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 65536


def test_texts_of_a_view_are_found_without_copying_what_follows_them() -> None:
    texts = memoryview(b"a\0\0\0" + bytes([1]) * (1 << 20))
    tracemalloc.start()
    assert text_end(texts, 0, len(texts)) == 4
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4096


@cases("size", [0, 1, 2, 62, 63, 64, 65, 66, 300, 5000])
@cases("offset", [0, 1, 2])
def test_the_end_of_a_text_is_the_same_in_bytes_and_in_a_view(size: int, offset: int) -> None:
    text = "\u0100" * size  # the zero bytes of two neighbours touch, and end no text
    data = bytes([1] * offset) + text.encode("utf-16-le") + b"\0\0" + b"\1\0\0\0"
    end = offset + 2 * size + 2
    assert text_end(data, offset, len(data)) == text_end(memoryview(data), offset, len(data)) == end
    assert text_end(data, offset, end - 1) == text_end(memoryview(data), offset, end - 1) == -1
