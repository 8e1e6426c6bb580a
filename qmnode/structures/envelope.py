"""The fields of a UserMessage packet that sending reads, and the few that the protocol changes.

Outgoing packets were built or checked here before, so only the fields that sending needs are read; their offsets come
from the declarations of the structures. Received packets are read by the room of the protocol.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from qmnode.structures.base_header import BaseFlags, BaseHeader
from qmnode.structures.internal_packets import SessionAck
from qmnode.structures.packet_view import FLAGS_AT, SENT_TIME_AT, base_flags_of, with_base_flags
from qmnode.structures.packets import SESSION_HEADER_SIZE
from qmnode.structures.places import codes_of, offset_of
from qmnode.structures.session_header import SessionHeader
from qmnode.structures.transaction_header import TransactionHeader

Packet = bytes | bytearray | memoryview
"""The bytes of a packet; they are not changed."""
LARGE: Final = 64 * 1024
"""The size from which on a packet is not copied where a view of it does."""


_WORD: Final = 0xFFFF
_BASE_FLAGS_AT: Final = offset_of(BaseHeader, "flags")
_BASE_FLAGS_END: Final = offset_of(BaseHeader, "signature")
_LIFETIME_AT: Final = offset_of(BaseHeader, "time_to_reach_queue")
_SEQUENCE_AT: Final = offset_of(TransactionHeader, "tx_sequence_id")
_SEQUENCE: Final = Struct("<" + codes_of(TransactionHeader)[1:])

read_sending_fields: Final[Callable[[Packet], tuple[int, int, int, int]]] = Struct(
    f"<{_LIFETIME_AT}xI{SENT_TIME_AT - _LIFETIME_AT - 4}xIII"
).unpack_from
"""TimeToReachQueue, SentTime, MessageID and UserHeader.Flags of a packet, in one step."""
read_own_fields: Final[Callable[[Packet], tuple[int, int]]] = Struct(f"<{SENT_TIME_AT}xII").unpack_from
"""SentTime and MessageID, which differ in all packets of one application."""
read_base_header: Final = Struct("<" + codes_of(BaseHeader)).unpack_from
"""VersionNumber, Reserved, Flags, Signature, PacketSize and TimeToReachQueue at an offset of a buffer."""
read_transaction_header: Final = Struct("<" + codes_of(TransactionHeader)).unpack_from
"""Flags, TxSequenceID, TxSequenceNumber and PreviousTxSequenceNumber of the TransactionHeader at an offset."""
read_sequence_fields: Final[Callable[[Packet, int], tuple[int, int, int]]] = Struct(
    f"<{_SEQUENCE_AT}x{codes_of(TransactionHeader)[1:]}"
).unpack_from
"""The same without the flags."""

_SESSION: Final = BaseFlags.SH.mask

_HEADER_FIELDS: Final = Struct("<" + codes_of(SessionHeader))
_EMPTY_HEADER: Final = SessionHeader(ack_sequence_number=0, user_msg_sequence_number=0)
_ACK_PREFIX: Final = SessionAck(session_header=_EMPTY_HEADER).write()[:-SESSION_HEADER_SIZE]


def session_header(count: int, base: int, flags: int, sent: int, recoverable_sent: int, window: int) -> bytes:
    """A SessionHeader, packed in one step: there is one for every few messages, and building a structure is slow."""
    return _HEADER_FIELDS.pack(count, base, flags, sent & _WORD, recoverable_sent & _WORD, window, 0)


def session_ack(header: bytes) -> bytes:
    """The SessionAck packet with this SessionHeader."""
    return _ACK_PREFIX + header


def without_session_header(packet: bytes) -> bytes:
    """The packet without its SessionHeader."""
    return with_base_flags(packet, base_flags_of(packet) & ~_SESSION)[:-SESSION_HEADER_SIZE]


def with_session_header(packet: Packet, header: bytes) -> list[Packet]:
    """Buffers of the packet with a SessionHeader (3.1.7.11); its body is not copied. PacketSize stays as it is."""
    head = with_base_flags(bytes(packet[:_BASE_FLAGS_END]), base_flags_of(packet) | _SESSION)
    return [head, memoryview(packet)[_BASE_FLAGS_END:], header]


def with_user_flags(packet: bytes, flags: int) -> bytes:
    """The packet with other UserHeader.Flags, such as one more hop (3.1.5.8.2)."""
    return packet[:FLAGS_AT] + _FLAGS.pack(flags) + packet[FLAGS_AT + _FLAGS.size :]


def with_sequence_fields(packet: Packet, header_at: int, identifier: int, number: int, previous: int) -> bytes:
    """The packet, or stored value, with these fields in the TransactionHeader at an offset (3.1.7.1.3)."""
    place = header_at + _SEQUENCE_AT
    fields = _SEQUENCE.pack(identifier, number, previous)
    return b"".join((packet[:place], fields, packet[place + len(fields) :]))


_FLAGS: Final = Struct("<I")
