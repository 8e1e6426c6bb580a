"""Security contexts of a connection, and the protection of PDUs with them (MS-RPCE 3.3.1.5.2)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

from qmnode.dcerpc.errors import PduError
from qmnode.dcerpc.pdu import HEADER_SIZE, OBJECT_UUID, Pdu, PduType, SecTrailer, write_pdu, write_pdu_to_protect

if TYPE_CHECKING:
    pass

BODY_HEAD: Final = 8
"""Bytes of a request's or a response's body before its stub data: signed, not encrypted."""
_OBJECT_SIZE: Final = 16
_WITHOUT_BODY: Final = (PduType.CO_CANCEL, PduType.ORPHANED)
"""Windows sends these without a verifier, C706 requires one: both are accepted."""


class AuthenticationType(IntEnum):
    """Security providers: MS-RPCE 2.2.1.1.7."""

    NONE = 0
    NEGOTIATE = 9
    NTLM = 10
    KERBEROS = 16


class AuthenticationLevel(IntEnum):
    """The level of protection: MS-RPCE 2.2.1.1.8."""

    NONE = 1
    CONNECT = 2
    CALL = 3
    PACKET = 4
    INTEGRITY = 5
    PRIVACY = 6


class AuthenticationError(Exception):
    """The other side could not be authenticated, or bytes are not from it."""


class SecurityContext(Protocol):
    """One side of a security context, without I/O."""

    level: AuthenticationLevel
    auth_type: AuthenticationType
    context_id: int
    header_signing: bool
    """Whether both sides also sign the headers (MS-RPCE 2.2.2.3)."""

    @property
    def complete(self) -> bool:
        """Whether both sides have authenticated each other."""

    @property
    def principal(self) -> str:
        """The name of the initiator, once complete."""

    @property
    def token_size(self) -> int:
        """Bytes of the token of a protected PDU."""

    def step(self, token: bytes) -> bytes:
        """Process a token of the other side and return the token to send, if any. Raises AuthenticationError."""

    def protect(self, head: bytes, body: bytes, trailer: bytes) -> tuple[bytes, bytes]:
        """The body as it is sent, with its token."""

    def unprotect(self, head: bytes, body: bytes, trailer: bytes, token: bytes) -> bytes:
        """The original body. Raises AuthenticationError if anything was changed."""


def protected_pdu(
    security: SecurityContext | None, pdu_type: int, call_id: int, head: bytes, stub: bytes, flags: int
) -> bytes:
    """A PDU of a call, protected if there is a security context."""
    if security is None:
        return write_pdu(pdu_type, call_id, head + stub, flags)
    trailer = trailer_of(security)
    header, body, written = write_pdu_to_protect(pdu_type, call_id, head + stub, flags, trailer, security.token_size)
    sealed, token = security.protect(header + head, body[len(head) :], written)
    return b"".join((header, head, sealed, written, token))


def trailer_of(security: SecurityContext) -> SecTrailer:
    """The trailer that precedes the tokens of a security context."""
    return SecTrailer(auth_type=security.auth_type, auth_level=security.level, context_id=security.context_id)


def token_pdu(trailer: SecTrailer, pdu_type: int, call_id: int, body: bytes, token: bytes, flags: int) -> bytes:
    """A bind, its answer or an auth3 with a token of the handshake."""
    header, padded, written = write_pdu_to_protect(pdu_type, call_id, body, flags, trailer, len(token), 4)
    return b"".join((header, padded, written, token))


def opened_body(security: SecurityContext | None, pdu: Pdu) -> bytes:
    """The body of a request or response, verified, decrypted, unpadded. Raises AuthenticationError, PduError."""
    if security is None:
        if pdu.verifier is not None:
            raise PduError("a verifier on a connection that has no security context")
        return pdu.body
    if pdu.verifier is None and pdu.pdu_type in _WITHOUT_BODY:
        return b""
    if pdu.verifier is None:
        raise AuthenticationError("a call without a verifier on an authenticated connection")
    trailer, token = pdu.verifier
    if (trailer.auth_type, trailer.auth_level, trailer.context_id) != (
        security.auth_type, security.level, security.context_id,
    ):  # fmt: skip
        raise AuthenticationError("a verifier of another security context than the connection has")
    head = HEADER_SIZE + (0 if pdu.pdu_type in _WITHOUT_BODY else BODY_HEAD)
    if pdu.pdu_type == PduType.REQUEST and pdu.flags & OBJECT_UUID:
        head += _OBJECT_SIZE
    end = HEADER_SIZE + len(pdu.body)
    if end < head:
        raise PduError("a body that ends before its stub data")
    whole = pdu.whole
    opened = security.unprotect(whole[:head], whole[head:end], whole[end : len(whole) - len(token)], token)
    if trailer.pad_length > len(opened):
        raise PduError(f"{trailer.pad_length} bytes of padding in a stub of {len(opened)}")
    stub = opened[: len(opened) - trailer.pad_length] if trailer.pad_length else opened
    return whole[HEADER_SIZE:head] + stub
