"""The message packet that RemoteRead transfers (MS-MQRR 2.2.5), and its sections (2.2.6, 3.1.4.7).

It is the stored UserMessage whose TimeToReachQueue is an absolute time, followed by headers of the queue manager.
"""

from functools import lru_cache
from typing import Final

from qmnode.model.positions import lookup_identifier_of
from qmnode.model.stored_message import (
    ABORTS,
    MOVES,
    PREFIX_SIZE,
    TransferredMessage,
    read_arrival,
    read_properties_place,
    without_dead_letter_header,
)
from qmnode.remote_read.remoteread import SectionBuffer, SectionType
from qmnode.structures.errors import PacketError
from qmnode.structures.packet_view import (
    NAMES_AT,
    PRIORITY_AT,
    PROPERTIES_SIZE,
    contents_of,
    packet_size_of,
    sent_time_of,
    times_to_live,
    with_time_to_reach,
)
from qmnode.structures.stored_headers import (
    EXTENSION_SIZE,
    SUBQUEUE_SIZE,
    ExtendedAddressHeader,
    ExtensionFlags,
    ExtensionHeader,
    SubqueueHeader,
    subqueue_name,
)
from qmnode.structures.user_message import INFINITE

_COUNTED: Final = EXTENSION_SIZE + SUBQUEUE_SIZE
_NO_ADDRESS: Final = ExtendedAddressHeader().write()


def sections_of(whole: bytes, subqueue: str, largest_body: int) -> list[SectionBuffer]:
    """The packet of a stored value in one section, or in two if its body is larger than ``largest_body`` bytes.

    The second section begins right behind the body, with its padding, so that the sections make the whole packet
    if the client leaves room for the rest of the body.
    """
    packet = message_packet(whole, subqueue)
    begin, size = _body_of(whole) if len(packet) > largest_body else (0, 0)
    if size <= largest_body:
        return [SectionBuffer(size_alloc=len(packet), section=packet)]
    first, trailers = packet[: begin + largest_body], packet[begin + size :]
    sections = [SectionBuffer(section_type=SectionType.ST_BINARY_FIRST_SECTION, size_alloc=begin + size, section=first)]
    if trailers:
        second = SectionType.ST_BINARY_SECOND_SECTION
        sections.append(SectionBuffer(section_type=second, size_alloc=len(trailers), section=trailers))
    return sections


def message_packet(whole: bytes, subqueue: str) -> bytes:
    """The message packet of a stored value; of a damaged one only what is there of its UserMessage packet."""
    value = without_dead_letter_header(whole)
    size = len(value) - PREFIX_SIZE
    if size < NAMES_AT or packet_size_of(value, PREFIX_SIZE) != size:  # nothing behind it could be found
        return value[PREFIX_SIZE:]
    behind = _headers_behind(value[ABORTS], value[MOVES], subqueue, whole[len(value) :])
    packet = value[PREFIX_SIZE:]
    reach = times_to_live(packet)[0]
    if reach == INFINITE:
        return packet + behind
    # The time by which it had to reach its queue, in seconds since 1970.
    return with_time_to_reach(packet, min(sent_time_of(packet) + reach, INFINITE - 1)) + behind


def arrival_of(value: bytes) -> int:
    """The second in which a message arrived in its queue, from its stored value: pdwArriveTime."""
    return int(read_arrival(value)[0] // 1_000_000 & 0xFFFFFFFF)


def transferred_message(packet: bytes, sequential_id: int, arrival: int) -> TransferredMessage:
    """The message of a whole message packet."""
    size = _size_of(packet)
    if not NAMES_AT <= size <= len(packet):
        return TransferredMessage(lookup_identifier(packet, sequential_id), arrival, 0, 0, packet)
    aborts, moves = _counts_in(packet[size : size + _COUNTED])
    lookup = lookup_identifier(packet, sequential_id)
    return TransferredMessage(lookup, arrival, aborts, moves, _relative(packet[:size]))


def lookup_identifier(packet: bytes, sequential_id: int) -> int:
    """The lookup identifier of a packet. Servers leave out its first byte (MS-MQDMPR 3.1.7.1.9)."""
    return lookup_identifier_of(packet[PRIORITY_AT] if len(packet) > PRIORITY_AT else 0, sequential_id)


@lru_cache(maxsize=256)
def _counts_in(behind: bytes) -> tuple[int, int]:
    """Aborted receives and moves in the headers behind a packet. Most messages have the same headers there."""
    try:
        extension = ExtensionHeader.parse(behind[:EXTENSION_SIZE])
        if not extension.flags & ExtensionFlags.SQ.mask:
            return 0, 0
        header = SubqueueHeader.parse(behind[EXTENSION_SIZE:])
    except PacketError:  # the first servers send none (note 5)
        return 0, 0
    return header.abort_counter, header.move_counter


def _size_of(packet: bytes) -> int:
    """PacketSize; more than there is if even that is missing."""
    return packet_size_of(packet) if len(packet) >= NAMES_AT else NAMES_AT


def _relative(packet: bytes) -> bytes:
    """The packet with the seconds that it had to reach its queue."""
    reach = times_to_live(packet)[0]
    return packet if reach == INFINITE else with_time_to_reach(packet, max(reach - sent_time_of(packet), 0))


@lru_cache(maxsize=256)
def _headers_behind(aborts: int, moves: int, subqueue: str, dead_letter_header: bytes) -> bytes:
    header = SubqueueHeader(abort_counter=aborts, move_counter=moves, subqueue_name=subqueue_name(subqueue))
    behind = header.write() + dead_letter_header + _NO_ADDRESS
    flags = ExtensionFlags.of(SQ=1, EA=1, DL=int(bool(dead_letter_header)))
    return ExtensionHeader(remaining_headers_size=len(behind), flags=flags).write() + behind


def _body_of(value: bytes) -> tuple[int, int]:
    """Offset in the packet, and size, of the body. A packet that cannot be read has none, and is sent whole."""
    start = read_properties_place(value)[0]
    if start + PROPERTIES_SIZE > len(value):
        return 0, 0
    _, begin, end = contents_of(value, start)
    return (begin - PREFIX_SIZE, end - begin) if end <= len(value) else (0, 0)
