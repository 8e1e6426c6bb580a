"""PDUs of connection-oriented RPC: C706 12.6, with the extensions of MS-RPCE 2.2.2.

Every PDU is a header, a body of its kind, and possibly an authentication verifier: padding, sec_trailer and a token.
The layouts are declared here; ``read_pdu`` and ``write_pdu`` combine the three. All output is little-endian; servers
read big-endian PDUs too. Characters are ASCII and floating-point numbers IEEE's, though there are none here.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from qmnode.dcerpc import byte_order
from qmnode.dcerpc.errors import PduError
from qmnode.dcerpc.interface import SyntaxId
from qmnode.structures.errors import PacketError
from qmnode.structures.fields import array, data, guid, length8, length16, nested, padding, raw, rest, u8, u16, u32
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.layout import Structure

HEADER_SIZE: Final = 16
LITTLE_ENDIAN: Final = b"\x10\0\0\0"
BIG_ENDIAN: Final = b"\0\0\0\0"
_ORDER: Final = 2
"""The significant octets of a data representation: integer order with character set, and floating point."""


class PduType(IntEnum):
    """PTYPE, C706 12.6.4.1, of the connection-oriented protocol; AUTH3 is MS-RPCE 2.2.2.10."""

    REQUEST = 0
    RESPONSE = 2
    FAULT = 3
    BIND = 11
    BIND_ACK = 12
    BIND_NAK = 13
    ALTER_CONTEXT = 14
    ALTER_CONTEXT_RESP = 15
    AUTH3 = 16
    SHUTDOWN = 17
    CO_CANCEL = 18
    ORPHANED = 19


FIRST_FRAGMENT: Final = 0x01
LAST_FRAGMENT: Final = 0x02
SUPPORT_HEADER_SIGN: Final = 0x04
"""In binds and their answers (MS-RPCE 2.2.2.3); in other PDUs the same bit means that a cancel is pending."""
CONCURRENT_MULTIPLEXING: Final = 0x10
DID_NOT_EXECUTE: Final = 0x20
OBJECT_UUID: Final = 0x80
WHOLE: Final = FIRST_FRAGMENT | LAST_FRAGMENT


class Result(IntEnum):
    """The result for a context: p_cont_def_result_t, C706 12.6.3.1 and MS-RPCE 2.2.2.4."""

    ACCEPTANCE = 0
    USER_REJECTION = 1
    PROVIDER_REJECTION = 2
    NEGOTIATE_ACK = 3


class Reason(IntEnum):
    """p_provider_reason_t: the reason why a presentation context is not accepted."""

    NOT_SPECIFIED = 0
    ABSTRACT_SYNTAX_NOT_SUPPORTED = 1
    TRANSFER_SYNTAXES_NOT_SUPPORTED = 2
    LOCAL_LIMIT_EXCEEDED = 3


class RejectReason(IntEnum):
    """The reason why a bind is refused: C706 12.6.3.1, MS-RPCE 2.2.2.5."""

    NOT_SPECIFIED = 0
    LOCAL_LIMIT_EXCEEDED = 2
    PROTOCOL_VERSION_NOT_SUPPORTED = 4
    AUTHENTICATION_TYPE_NOT_RECOGNIZED = 8
    INVALID_CHECKSUM = 9


# fmt: off


class SecTrailer(Structure, section="MS-RPCE 2.2.2.11"):
    """The header of an authentication token."""

    auth_type: int    = u8(0, "auth_type", "The security provider")
    auth_level: int   = u8(1, "auth_level", "What is protected, and how")
    pad_length: int   = u8(2, "auth_pad_length", "Octets of padding before this structure", default=0)
    reserved: int     = u8(3, "auth_reserved", "Ignored", default=0)
    context_id: int   = u32(4, "auth_context_id", "Which security context of the connection")


class Syntax(Structure, section="MS-RPCE 2.2.2.7", title="p_syntax_id_t"):
    """An interface or a transfer syntax."""

    uuid: Guid    = guid(0, "if_uuid", "What it is", default=ZERO_GUID)
    version: int  = u32(16, "if_version", "Major version in the low half, minor in the high half", default=0)


class ContextElement(Structure, section="C706 12.6.3.1", title="p_cont_elem_t"):
    """A presentation context that a client proposes."""

    context_id: int                       = u16(0, "p_cont_id", "Its number on the connection")
    transfer_syntax_count: int            = length8(2, "n_transfer_syn", "How many", of="transfer_syntaxes")
    reserved: int                         = u8(3, "reserved", "Ignored", default=0)
    abstract_syntax: Syntax               = nested(4, Syntax, "The interface")
    transfer_syntaxes: tuple[Syntax, ...] = array(24, Syntax, "transfer_syntaxes", "The client can use any of these")


class Bind(Structure, section="C706 12.6.4.3"):
    """bind and alter_context: the contexts that a client proposes."""

    max_transmit: int                   = u16(0, "max_xmit_frag", "Bytes of the fragments that it sends")
    max_receive: int                    = u16(2, "max_recv_frag", "Bytes of the fragments that it takes")
    group_id: int                       = u32(4, "assoc_group_id", "The association to join, 0: a new one", default=0)
    context_count: int                  = length8(8, "n_context_elem", "How many", of="contexts")
    reserved: bytes                     = raw(9, 3, "reserved", "Ignored", default=bytes(3))
    contexts: tuple[ContextElement, ...] = array(12, ContextElement, "p_cont_elem", "Proposed contexts")


class ContextResult(Structure, section="C706 12.6.3.1", title="p_result_t"):
    """The result for a proposed context."""

    result: int              = u16(0, "result", "A Result")
    reason: int              = u16(2, "reason", "A Reason; the features when that is what was negotiated", default=0)
    transfer_syntax: Syntax  = nested(4, Syntax, "The one that was chosen, or zeros", default=Syntax())


class BindAck(Structure, section="C706 12.6.4.4"):
    """bind_ack and alter_context_resp: the results for the proposed contexts."""

    max_transmit: int       = u16(0, "max_xmit_frag", "Bytes of the fragments that the server sends")
    max_receive: int        = u16(2, "max_recv_frag", "Bytes of the fragments that it takes")
    group_id: int           = u32(4, "assoc_group_id", "The association")
    address_length: int     = length16(8, "sec_addr.length", "With its null", of="secondary_address")
    secondary_address: bytes = data(10, "sec_addr", "Port of the server, as text with a null", default=b"")
    pad: bytes              = padding("pad2", "Up to a multiple of four")
    result_count: int       = length8(None, "n_results", "How many", of="results")
    reserved: bytes         = raw(None, 3, "reserved", "Ignored", default=bytes(3))
    results: tuple[ContextResult, ...] = array(None, ContextResult, "p_results", "One for each proposed context")


class BindNak(Structure, section="MS-RPCE 2.2.2.9"):
    """bind_nak: the association was refused."""

    reason: int    = u16(0, "provider_reject_reason", "A RejectReason")
    versions: bytes = rest(2, "versions", "Versions of the protocol that the server has", default=b"\1\5\0")


class RequestBody(Structure, section="C706 12.6.4.9"):
    """A fragment of a request."""

    alloc_hint: int = u32(0, "alloc_hint", "Bytes of stub data in this and later fragments, 0: not said", default=0)
    context_id: int = u16(4, "p_cont_id", "The presentation context")
    opnum: int      = u16(6, "opnum", "Which method")
    stub: bytes     = rest(8, "stub_data", "Parameters, after the object's identifier if there is one")


class ResponseBody(Structure, section="C706 12.6.4.10"):
    """A fragment of a response."""

    alloc_hint: int   = u32(0, "alloc_hint", "Bytes of stub data in this and later fragments, 0: not said", default=0)
    context_id: int   = u16(4, "p_cont_id", "The presentation context")
    cancel_count: int = u8(6, "cancel_count", "Cancels that came for the call", default=0)
    reserved: int     = u8(7, "reserved", "Ignored", default=0)
    stub: bytes       = rest(8, "stub_data", "Parameters")


class FaultBody(Structure, section="C706 12.6.4.7"):
    """The end of a call that failed."""

    alloc_hint: int   = u32(0, "alloc_hint", "Ignored", default=32)
    context_id: int   = u16(4, "p_cont_id", "The presentation context", default=0)
    cancel_count: int = u8(6, "cancel_count", "Cancels that came for the call", default=0)
    reserved: int     = u8(7, "reserved", "Ignored", default=0)
    status: int       = u32(8, "status", "A FaultStatus, or an HRESULT")
    more: bytes       = rest(12, "reserved2", "Ignored", default=bytes(4))
# fmt: on


class Verifier(NamedTuple):
    """An authentication verifier: its trailer and token."""

    trailer: SecTrailer
    token: bytes


class Pdu(NamedTuple):
    """A PDU, parsed as far as its kind does not matter."""

    pdu_type: int
    flags: int
    call_id: int
    body: bytes
    """The body without the verifier and its padding; encrypted if the connection is."""
    verifier: Verifier | None
    whole: bytes
    """The whole PDU, which is what was signed."""
    big_endian: bool = False
    """Whether the body and the stub data are big-endian."""

    @property
    def is_first(self) -> bool:
        return bool(self.flags & FIRST_FRAGMENT)

    @property
    def is_last(self) -> bool:
        return bool(self.flags & LAST_FRAGMENT)


_HEADER: Final = struct.Struct("<4B4sHHI")
_BIG_HEADER: Final = struct.Struct(">4B4sHHI")
_TRAILER_SIZE: Final = 8
AnyBody = TypeVar("AnyBody", bound=Structure)


def read_pdu(whole: bytes) -> Pdu:
    """Parse a PDU that a PduReader has found. Raises PduError if its parts do not fit in it."""
    big_endian = whole[4] == BIG_ENDIAN[0]
    form = _BIG_HEADER if big_endian else _HEADER
    _, _, pdu_type, flags, _, length, auth_length, call_id = form.unpack_from(whole)
    if not auth_length:
        return Pdu(pdu_type, flags, call_id, whole[HEADER_SIZE:], None, whole, big_endian)
    start = length - auth_length - _TRAILER_SIZE
    if start < HEADER_SIZE:
        raise PduError(f"an authentication token of {auth_length} bytes in a PDU of {length}")
    end = start + _TRAILER_SIZE
    octets = whole[start:end]
    trailer = SecTrailer.parse(byte_order.trailer(octets) if big_endian else octets)
    if trailer.pad_length > start - HEADER_SIZE:
        raise PduError(f"{trailer.pad_length} bytes of padding in a body of {start - HEADER_SIZE}")
    return Pdu(pdu_type, flags, call_id, whole[HEADER_SIZE:start], Verifier(trailer, whole[end:]), whole, big_endian)


def body_of(pdu: Pdu, kind: type[AnyBody]) -> AnyBody:
    """The body of a PDU that is not encrypted; data after it are ignored. Raises PduError if it is missing."""
    try:
        return kind.parse_from(pdu.body)[0]
    except PacketError as error:
        raise PduError(str(error)) from None


def write_pdu(pdu_type: int, call_id: int, body: bytes, flags: int = WHOLE) -> bytes:
    """A PDU without a verifier."""
    return _HEADER.pack(5, 0, pdu_type, flags, LITTLE_ENDIAN, HEADER_SIZE + len(body), 0, call_id) + body


_CALL: Final = struct.Struct(_HEADER.format + "IHH")
"""The header of a request or a response, and its body before the stub data."""
_CALL_READ: Final = struct.Struct("<10xHI4xHH")
"""Of that: the size of the token, call, presentation context, and operation or count of cancels."""


class WholeCall(NamedTuple):
    """A request or a response that is one PDU without a verifier, as most are."""

    call_id: int
    context_id: int
    opnum: int
    """Of a request. Of a response the count of cancels."""
    stub: bytes


def read_whole_call(whole: bytes, pdu_type: int) -> WholeCall | None:
    """Such a request or response; None for any other PDU, which ``read_pdu`` parses."""
    if whole[2:8] != _WHOLE_CALLS.get(pdu_type) or len(whole) < _CALL.size:
        return None
    auth_length, call_id, context_id, opnum = _CALL_READ.unpack_from(whole)
    return None if auth_length else WholeCall(call_id, context_id, opnum, whole[_CALL.size :])


def write_whole_call(pdu_type: int, call_id: int, context_id: int, opnum: int, stub: bytes) -> bytes:
    """A request or a response in one PDU."""
    size = len(stub)
    length = _CALL.size + size
    return _CALL.pack(5, 0, pdu_type, WHOLE, LITTLE_ENDIAN, length, 0, call_id, size, context_id, opnum) + stub


_WHOLE_CALLS: Final = {int(one): bytes((one, WHOLE)) + LITTLE_ENDIAN for one in (PduType.REQUEST, PduType.RESPONSE)}
"""Type, flags and data representation of such PDUs."""
CALL_SIZE: Final = _CALL.size
"""Bytes before the stub data of a request or a response."""


def write_pdu_to_protect(
    pdu_type: int, call_id: int, body: bytes, flags: int, trailer: SecTrailer, token_size: int, align: int = 16
) -> tuple[bytes, bytes, bytes]:
    """A PDU with a verifier, up to its token: header, body with padding, sec_trailer.

    MS-RPCE 2.2.2.11: the trailer is aligned to 16 bytes in the body. In a handshake Windows aligns it to 4, and clients
    rely on that.
    """
    pad = -len(body) % align
    body += bytes(pad)
    length = HEADER_SIZE + len(body) + _TRAILER_SIZE + token_size
    header = _HEADER.pack(5, 0, pdu_type, flags, LITTLE_ENDIAN, length, token_size, call_id)
    return header, body, trailer.put(pad_length=pad).write()


def syntax_of(value: Syntax) -> SyntaxId:
    """A syntax as a key."""
    return SyntaxId(value.uuid, value.version)


def to_syntax(value: SyntaxId) -> Syntax:
    """A syntax in its wire form."""
    return Syntax(uuid=value.uuid, version=value.version)


class PduReader:
    """Finds the PDUs in a stream of bytes. Holds less than one PDU of the largest size."""

    def __init__(self, largest: int, largest_handshake: int = 0, *, big_endian: bool = False) -> None:
        """``largest_handshake``: of binds and the like, never fragmented. ``big_endian``: whether such are accepted."""
        self.largest = largest
        self._big_endian = big_endian
        self._largest_of = dict.fromkeys(_HANDSHAKE, max(largest, largest_handshake))
        self._buffer = bytearray()

    @property
    def is_partial(self) -> bool:
        """Whether an incomplete PDU has been received."""
        return bool(self._buffer)

    def feed(self, received: bytes) -> list[bytes]:
        """Add received bytes and return the PDUs now complete. Raises PduError for bytes that cannot begin one."""
        buffer = self._buffer
        buffer += received
        found = []
        position = 0
        while len(buffer) - position >= HEADER_SIZE:
            length = self._length(buffer, position)
            if len(buffer) - position < length:
                break
            found.append(bytes(buffer[position : position + length]))
            position += length
        if position:
            del buffer[:position]
        return found

    def _length(self, buffer: bytearray, position: int) -> int:
        version, minor, pdu_type, _, representation, length, _, _ = _HEADER.unpack_from(buffer, position)
        if version != 5 or minor > 1 or pdu_type not in _TYPES:
            raise PduError(f"version {version}.{minor}, type {pdu_type} is no PDU")
        if representation[:_ORDER] != LITTLE_ENDIAN[:_ORDER]:
            if representation[:_ORDER] != BIG_ENDIAN[:_ORDER] or not self._big_endian:
                raise PduError(f"data representation {representation.hex()} is not supported")
            length = int.from_bytes(length.to_bytes(2, "little"), "big")
        largest = self._largest_of.get(pdu_type, self.largest)
        if not HEADER_SIZE <= length <= largest:
            raise PduError(f"a PDU of {length} bytes: at least {HEADER_SIZE}, at most {largest}")
        return int(length)


_HANDSHAKE: Final = (int(PduType.BIND), int(PduType.ALTER_CONTEXT), int(PduType.AUTH3))
_TYPES: Final = frozenset(map(int, PduType))
