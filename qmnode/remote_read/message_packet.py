"""The message packet that RemoteRead transfers (MS-MQRR 2.2.5), and its sections (2.2.6, 3.1.4.7).

It is the stored UserMessage whose TimeToReachQueue is an absolute time, followed by headers of the queue manager.
"""

import struct
from functools import lru_cache
from typing import Final

from qmnode.model.message import Message
from qmnode.model.packet import stored_value, value_of_any_packet, whole_value
from qmnode.model.packet_parts import HEAD, PROPERTIES, PROPERTIES_OFFSET
from qmnode.model.record import PREFIX, PREFIX_SIZE, with_prefix
from qmnode.remote_read.remoteread import SectionBuffer, SectionType
from qmnode.structures.base_header import INFINITE, BaseHeader
from qmnode.structures.errors import PacketError
from qmnode.structures.packet_view import times_to_live
from qmnode.structures.places import offset_of, size_of
from qmnode.structures.stored_headers import (
    ExtendedAddressHeader,
    ExtensionFlags,
    ExtensionHeader,
    SubqueueHeader,
    subqueue_name,
)

_NUMBER: Final = struct.Struct("<I")
_REACH_AT: Final = offset_of(BaseHeader, "time_to_reach_queue")
_PACKET_SIZE_AT: Final = offset_of(BaseHeader, "packet_size")
_FIXED: Final = HEAD.size - PREFIX_SIZE
_COUNTED: Final = size_of(ExtensionHeader) + size_of(SubqueueHeader)
_NO_ADDRESS: Final = ExtendedAddressHeader().write()
_REACH_FIELD: Final = 12
_SENT_FIELD: Final = 16
_ABORTS: Final = 2
_MOVES: Final = 3


def sections_of(message: Message, subqueue: str, largest_body: int) -> list[SectionBuffer]:
    """The packet in one section, or in two if its body is larger than ``largest_body`` bytes.

    The second section begins right behind the body, with its padding, so that the sections make the whole packet
    if the client leaves room for the rest of the body.
    """
    value = stored_value(message)
    packet = value[PREFIX_SIZE:]
    if _size_of(packet) != len(packet):  # damaged: nothing behind it could be found
        return [SectionBuffer(size_alloc=len(packet), section=packet)]
    prefix = PREFIX.unpack_from(value)
    dead_letter_header = whole_value(message)[len(value) :]
    packet = _absolute(value) + _headers_behind(prefix[_ABORTS], prefix[_MOVES], subqueue, dead_letter_header)
    begin, size = _body_of(value)
    if size <= largest_body:
        return [SectionBuffer(size_alloc=len(packet), section=packet)]
    first, trailers = packet[: begin + largest_body], packet[begin + size :]
    sections = [SectionBuffer(section_type=SectionType.ST_BINARY_FIRST_SECTION, size_alloc=begin + size, section=first)]
    if trailers:
        second = SectionType.ST_BINARY_SECOND_SECTION
        sections.append(SectionBuffer(section_type=second, size_alloc=len(trailers), section=trailers))
    return sections


def arrival_of(message: Message) -> int:
    """The second in which the message arrived in its queue: pdwArriveTime."""
    return int(PREFIX.unpack_from(stored_value(message))[-1] // 1_000_000 & 0xFFFFFFFF)


def value_of_message_packet(packet: bytes, arrival: int) -> bytes:
    """The stored value of a whole message packet, with its counts of aborted receives and moves."""
    size = _size_of(packet)
    if not _FIXED <= size <= len(packet):
        return value_of_any_packet(packet, arrival)
    value, behind = value_of_any_packet(_relative(packet[:size]), arrival), packet[size:]
    aborts, moves = _counts_in(behind[:_COUNTED])
    return with_prefix(value, aborts=aborts, moves=moves) if aborts or moves else value


@lru_cache(maxsize=256)
def _counts_in(behind: bytes) -> tuple[int, int]:
    """Aborted receives and moves in the headers behind a packet. Most messages have the same headers there."""
    try:
        extension = ExtensionHeader.parse(behind[: size_of(ExtensionHeader)])
        if not extension.flags & ExtensionFlags.SQ.mask:
            return 0, 0
        header = SubqueueHeader.parse(behind[size_of(ExtensionHeader) :])
    except PacketError:  # the first servers send none (note 5)
        return 0, 0
    return header.abort_counter, header.move_counter


def _size_of(packet: bytes) -> int:
    """PacketSize; more than there is if even that is missing."""
    return int(_NUMBER.unpack_from(packet, _PACKET_SIZE_AT)[0]) if len(packet) >= _FIXED else _FIXED


def _absolute(value: bytes) -> bytes:
    """The packet with the time by which it had to reach its queue, in seconds since 1970."""
    packet = value[PREFIX_SIZE:]
    fields = HEAD.unpack_from(value)
    reach, sent = fields[_REACH_FIELD], fields[_SENT_FIELD]
    if reach == INFINITE:
        return packet
    return _with_reach(packet, min(sent + reach, INFINITE - 1))


def _relative(packet: bytes) -> bytes:
    """The packet with the seconds that it had to reach its queue."""
    reach = times_to_live(packet)[0]
    sent = HEAD.unpack_from(bytes(PREFIX_SIZE) + packet)[_SENT_FIELD]
    return packet if reach == INFINITE else _with_reach(packet, max(reach - sent, 0))


def _with_reach(packet: bytes, seconds: int) -> bytes:
    return packet[:_REACH_AT] + _NUMBER.pack(seconds) + packet[_REACH_AT + _NUMBER.size :]


@lru_cache(maxsize=256)
def _headers_behind(aborts: int, moves: int, subqueue: str, dead_letter_header: bytes) -> bytes:
    header = SubqueueHeader(abort_counter=aborts, move_counter=moves, subqueue_name=subqueue_name(subqueue))
    behind = header.write() + dead_letter_header + _NO_ADDRESS
    flags = ExtensionFlags.of(SQ=1, EA=1, DL=int(bool(dead_letter_header)))
    return ExtensionHeader(remaining_headers_size=len(behind), flags=flags).write() + behind


def _body_of(value: bytes) -> tuple[int, int]:
    """Offset in the packet, and size, of the body. A packet that cannot be read has none, and is sent whole."""
    start = PROPERTIES_OFFSET.unpack_from(value, 4)[0]
    if start + PROPERTIES.size > len(value):
        return 0, 0
    fields = PROPERTIES.unpack_from(value, start)
    label_length, body_size, extension_size = fields[1], fields[6], fields[-1]
    begin = start + PROPERTIES.size + 2 * label_length + extension_size - PREFIX_SIZE
    return (begin, body_size) if begin + body_size <= len(value) - PREFIX_SIZE else (0, 0)
