"""Kerberos with the system's GSSAPI, in the style of DCE: three tokens, the last one the initiator's (MS-KILE 3.4.5.1).

pyspnego's own Kerberos needs a second binding of the same library; gssapi, of the extra ``kerberos``, is enough here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from qmnode.dcerpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType
from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

CONTEXT_ID: Final = 1
"""The only security context of a connection that this side opens."""

try:
    import gssapi
    from gssapi.raw import IOV, IOVBuffer, IOVBufferType, get_mic_iov_length, unwrap_iov, wrap_iov, wrap_iov_length
    from gssapi.raw.misc import GSSError
except ImportError:
    _INSTALLED = False
else:
    _INSTALLED = True

_FRAME: Final = 0x60
_OBJECT_IDENTIFIER: Final = b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02"
_AP_REQ: Final = b"\x01\x00"


class KerberosContext:
    """A security context of the system's Kerberos."""

    auth_type = AuthenticationType.KERBEROS
    signs_agreement = False
    """Kerberos proves SPNEGO's agreement only on request."""

    def __init__(
        self,
        context: Any,
        level: AuthenticationLevel,
        context_id: int,
        first: bytes = b"",
        realms: Collection[str] | None = None,
    ) -> None:
        """``first``: the initiator's first token, if there is one. ``realms``: those whose users are accepted."""
        self._realms = realms
        self.level = level
        self.context_id = context_id
        self.header_signing = False
        self._context = context
        self._context.__DEFER_STEP_ERRORS__ = False
        self._first = first
        self._begun = bool(first)
        self._token_size = 0

    @property
    def complete(self) -> bool:
        """Whether both sides have authenticated each other."""
        return bool(self._context.complete)

    @property
    def principal(self) -> str:
        """The initiator's name as ``user@REALM``."""
        return str(self._context.initiator_name) if self.complete else ""

    @property
    def token_size(self) -> int:
        """Bytes of the token of a protected PDU."""
        if not self._token_size:
            if self.level is AuthenticationLevel.PRIVACY:
                message = IOV(IOVBufferType.header, b"", std_layout=False)
                wrap_iov_length(self._context, message)
                self._token_size = len(message[0].value or b"")
            else:
                message = IOV(IOVBufferType.data, IOVBufferType.mic_token, std_layout=False)
                get_mic_iov_length(self._context, message)
                self._token_size = len(message[1].value or b"")
        return self._token_size

    def step(self, token: bytes) -> bytes:
        """Process a token of the other side and return the token to send, if any."""
        if self._first:
            first, self._first = self._first, b""
            return first
        if not self._begun:
            self._begun, token = True, without_frame(token)
        try:
            answer: bytes | None = self._context.step(token or None)
        except GSSError as error:
            raise AuthenticationError(f"Kerberos: {error}") from error
        if self.complete:
            self._check_strength()
            self._check_realm()
        return answer or b""

    def _check_strength(self) -> None:
        wanted = int(gssapi.RequirementFlag.integrity)
        if self.level is AuthenticationLevel.PRIVACY:
            wanted |= int(gssapi.RequirementFlag.confidentiality)
        if int(self._context.actual_flags) & wanted != wanted:
            raise AuthenticationError("the other side did not negotiate the protection that it asked for")

    def _check_realm(self) -> None:
        if self._realms is None:
            return
        allowed = self._realms or (realm_of(str(self._context.target_name)),)
        if realm_of(self.principal) not in allowed or not realm_of(self.principal):
            raise AuthenticationError(
                f"{self.principal} is of no realm whose users are taken here ({', '.join(allowed)}): remote_read.realms"
            )

    def sign(self, data: bytes) -> bytes:
        """The integrity code of SPNEGO's agreement."""
        try:
            return bytes(self._context.get_signature(data))
        except GSSError as error:
            raise AuthenticationError(f"Kerberos: {error}") from error

    def verify(self, data: bytes, code: bytes) -> None:
        """Verify the other side's integrity code. Raises AuthenticationError if it differs."""
        try:
            self._context.verify_signature(data, code)
        except GSSError as error:
            raise AuthenticationError(f"Kerberos: {error}") from error

    def _message(self, head: bytes, body: bytes, trailer: bytes, token: bytes | None) -> Any:
        first = IOVBuffer(IOVBufferType.header, token is None, token)
        data = IOVBuffer(IOVBufferType.data, False, body)
        if not self.header_signing:
            return IOV(data, first, std_layout=False)
        signed = [IOVBuffer(IOVBufferType.sign_only, False, part) for part in (head, trailer)]
        return IOV(signed[0], data, signed[1], first, std_layout=False)

    def protect(self, head: bytes, body: bytes, trailer: bytes) -> tuple[bytes, bytes]:
        """The body as it is sent, with its token."""
        try:
            if self.level is not AuthenticationLevel.PRIVACY:
                sealed, token = body, self._context.get_signature(self._signed(head, body, trailer))
            else:
                message = self._message(head, body, trailer, None)
                wrap_iov(self._context, message, confidential=True)
                sealed, token = _part(message, IOVBufferType.data), _part(message, IOVBufferType.header)
        except GSSError as error:
            raise AuthenticationError(f"Kerberos: {error}") from error
        if len(token) != self.token_size:
            raise AuthenticationError(f"a token of {len(token)} bytes, where {self.token_size} were announced")
        return sealed, token

    def unprotect(self, head: bytes, body: bytes, trailer: bytes, token: bytes) -> bytes:
        """The original body. Raises AuthenticationError if anything was changed."""
        try:
            if self.level is not AuthenticationLevel.PRIVACY:
                self._context.verify_signature(self._signed(head, body, trailer), token)
                return body
            message = self._message(head, body, trailer, token)
            result = unwrap_iov(self._context, message)
        except GSSError as error:
            raise AuthenticationError(f"Kerberos: {error}") from error
        if not result[0]:
            raise AuthenticationError("a PDU that is not encrypted")
        return _part(message, IOVBufferType.data)

    def _signed(self, head: bytes, body: bytes, trailer: bytes) -> bytes:
        return head + body + trailer if self.header_signing else body


def _part(message: Any, kind: Any) -> bytes:
    return next(bytes(buffer.value or b"") for buffer in message if buffer.type == kind)


def without_frame(token: bytes) -> bytes:
    """The AP-REQ of a first token.

    In the style of DCE it comes without GSS-API's frame (RFC 2743 3.1); Windows also accepts it with the frame, and
    some clients rely on that.
    """
    if len(token) < 2 or token[0] != _FRAME:
        return token
    start = 2 + (token[1] & 0x7F if token[1] & 0x80 else 0)
    head = _OBJECT_IDENTIFIER + _AP_REQ
    return token[start + len(head) :] if token[start : start + len(head)] == head else token


def realm_of(principal: str) -> str:
    """The realm of a principal in Kerberos' text form; empty for a name with quoted characters, which no user has."""
    return "" if "\\" in principal else principal.rpartition("@")[2] if "@" in principal else ""


def is_installed() -> bool:
    return _INSTALLED


def check_installed() -> None:
    """Raise MQ_ERROR_SERVICE_NOT_AVAILABLE if the extra is missing."""
    if not _INSTALLED:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, "Kerberos needs the extra: pip install 'qmnode[rpc,kerberos]'"
        )


def _flags() -> Any:
    flag = gssapi.RequirementFlag
    return (
        flag.mutual_authentication | flag.replay_detection | flag.out_of_sequence_detection | flag.confidentiality
        | flag.integrity | flag.dce_style
    )  # fmt: skip


def acceptor_context(
    keytab: Path, level: AuthenticationLevel, context_id: int, realms: Collection[str] = ()
) -> KerberosContext:
    """The acceptor's side for users of these realms, with all keys of a keytab, whatever their principal."""
    try:
        credentials = gssapi.Credentials(usage="accept", store={"keytab": f"FILE:{keytab.absolute()}"})
        context = gssapi.SecurityContext(creds=credentials, usage="accept")
    except GSSError as error:
        raise AuthenticationError(f"Kerberos: {error}") from error
    return KerberosContext(context, level, context_id, realms=realms)


def initiator_context(service: str, host: str, account: str, level: AuthenticationLevel) -> KerberosContext:
    """The initiator's side, with the tickets of the process (KRB5CCNAME, or a client keytab).

    The ticket for the service is requested here, which takes as long as the domain controller needs to answer.
    """
    try:
        target = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
        name = gssapi.Name(account, gssapi.NameType.user) if "@" in account else None
        credentials = gssapi.Credentials(name=name, usage="initiate")
        context = gssapi.SecurityContext(
            name=target, creds=credentials, usage="initiate", flags=_flags(), mech=gssapi.MechType.kerberos
        )
        first = bytes(context.step() or b"")
    except GSSError as error:
        raise AuthenticationError(f"Kerberos: {error}; tickets: {os.environ.get('KRB5CCNAME', 'default')}") from error
    return KerberosContext(context, level, CONTEXT_ID, first)
