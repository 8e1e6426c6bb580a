"""The headers that follow a UserMessage when a remote reader receives it: MS-MQRR 2.2.5. No sender transmits them."""

from typing import Final

from qmnode.structures.fields import Flags, bits, const32, raw, u8, u16, u32
from qmnode.structures.layout import Structure, size_of

_NAME_SIZE: Final = 64


# fmt: off
class ExtensionFlags(Flags, width=8):
    """Headers behind the ExtensionHeader. X bits are unused and ignored."""

    DL = bits(0, 1, "A DeadLetterHeader is present")
    SQ = bits(1, 1, "A SubqueueHeader is present: always")
    X2 = bits(2, 1, "Unused")
    DI = bits(3, 1, "The dead-letter queue of the DeadLetterHeader is invalid")
    EA = bits(4, 1, "An ExtendedAddressHeader is present: always")
    X5 = bits(5, 1, "Unused")
    X6 = bits(6, 1, "Unused")
    X7 = bits(7, 1, "Unused")


class SubqueueFlags(Flags, width=32):
    """The bits before the counters of a SubqueueHeader."""

    TM = bits(0, 1, "Must be 0")
    AC = bits(1, 16, "AcknowledgementClass")
    RE = bits(17, 15, "Reserved")


class ExtensionHeader(Structure, section="MS-MQRR 2.2.5.2"):
    """Presence and size of the headers that follow it."""

    header_size: int            = const32(0, "HeaderSize", 12, "Bytes of this header")
    remaining_headers_size: int = u32(4, "RemainingHeadersSize", "Bytes of the headers that follow")
    flags: int                  = u8(8, "Flags", "Headers that follow", bits=ExtensionFlags)
    reserved: bytes             = raw(9, 3, "Reserved", "Any value, ignored", default=bytes(3))


class SubqueueHeader(Structure, section="MS-MQRR 2.2.5.3"):
    """The history of a message in its queue: failed receives, moves, and its subqueue."""

    header_size: int            = const32(0, "HeaderSize", 148, "Bytes of this header")
    flags: int                  = u32(4, "Flags", "TM and AcknowledgementClass", bits=SubqueueFlags, default=0)
    abort_counter: int          = u32(8, "AbortCounter", "Receives and moves that failed")
    move_counter: int           = u32(12, "MoveCounter", "Moves of the message")
    last_move_time: int         = u32(16, "LastMoveTime", "Time of the last move, 0 if there was none", default=0)
    subqueue_name: bytes        = raw(20, _NAME_SIZE, "SubqueueName", "UTF-16, padded with nulls")
    target_subqueue_name: bytes = raw(84, _NAME_SIZE, "TargetSubqueueName", "Target of a transacted move",
                                      default=bytes(_NAME_SIZE))


class ExtendedAddressHeader(Structure, section="MS-MQRR 2.2.5.5"):
    """The address of the host from which the message was received; ignored if AddressType is 0."""

    header_size: int    = const32(0, "HeaderSize", 28, "Bytes of this header")
    address_length: int = u16(4, "AddressLength", "Bytes of the address", default=0)
    address_type: int   = u16(6, "AddressType", "1 for IPv4, 6 for IPv6", default=0,
                              values={0: "no address", 1: "IP_ADDRESS_TYPE", 6: "IPV6_ADDRESS_TYPE"})
    address_scope: int  = u32(8, "AddressScope", "Scope of an IPv6 address", default=0)
    address: bytes      = raw(12, 16, "Address", "The address", default=bytes(16))
# fmt: on


def subqueue_name(name: str) -> bytes:
    """A subqueue's name in the form of SubqueueName, empty for a message of the queue itself."""
    return name.encode("utf-16-le")[: _NAME_SIZE - 2].ljust(_NAME_SIZE, b"\0")


EXTENSION_SIZE: Final = size_of(ExtensionHeader)
SUBQUEUE_SIZE: Final = size_of(SubqueueHeader)
