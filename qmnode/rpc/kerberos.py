"""Kerberos with the system's GSSAPI, in the style of DCE: MS-RPCE 3.3.1.5.2, RFC 4121.

pyspnego's own Kerberos needs a second binding of the same library; gssapi, of the extra ``kerberos``, is enough here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from qmnode.errors import MessageQueuingError
from qmnode.rpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

try:
    import gssapi
    from gssapi.raw import IOV, IOVBuffer, IOVBufferType, unwrap_iov, wrap_iov, wrap_iov_length
    from gssapi.raw.misc import GSSError
except ImportError:
    _INSTALLED = False
else:
    _INSTALLED = True

_MIC: Final = 28
"""Bytes of a MIC token with AES (RFC 4121 4.2.6.1)."""


class KerberosContext:
    """A security context of the system's Kerberos."""

    auth_type = AuthenticationType.KERBEROS

    def __init__(self, context: Any, level: AuthenticationLevel, context_id: int) -> None:
        self.level = level
        self.context_id = context_id
        self.header_signing = False
        self._context = context
        self._token_size = 0

    @property
    def complete(self) -> bool:
        """Whether both sides know who the other one is."""
        return bool(self._context.complete)

    @property
    def principal(self) -> str:
        """The initiator, ``user@REALM``."""
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
                self._token_size = _MIC
        return self._token_size

    def step(self, token: bytes) -> bytes:
        """Take a token of the other side; the token to send, perhaps none."""
        try:
            answer: bytes | None = self._context.step(token or None)
        except GSSError as error:
            raise AuthenticationError(f"Kerberos: {error}") from error
        if self.complete:
            self._check_strength()
        return answer or b""

    def _check_strength(self) -> None:
        wanted = int(gssapi.RequirementFlag.integrity)
        if self.level is AuthenticationLevel.PRIVACY:
            wanted |= int(gssapi.RequirementFlag.confidentiality)
        if int(self._context.actual_flags) & wanted != wanted:
            raise AuthenticationError("the other side did not negotiate the protection that it asked for")

    def _message(self, head: bytes, body: bytes, trailer: bytes, token: bytes | None) -> Any:
        first = IOVBuffer(IOVBufferType.header, token is None, token)
        data = IOVBuffer(IOVBufferType.data, False, body)
        if not self.header_signing:
            return IOV(data, first, std_layout=False)
        signed = [IOVBuffer(IOVBufferType.sign_only, False, part) for part in (head, trailer)]
        return IOV(signed[0], data, signed[1], first, std_layout=False)

    def protect(self, head: bytes, body: bytes, trailer: bytes) -> tuple[bytes, bytes]:
        """The body as it is sent, and its token."""
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
        """The body as it was. AuthenticationError when anything is not as it was sent."""
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


def check_installed() -> None:
    """Raise MQ_ERROR_SERVICE_NOT_AVAILABLE when the extra is missing."""
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


def acceptor_context(keytab: Path, level: AuthenticationLevel, context_id: int) -> KerberosContext:
    """The acceptor's side, with the keys in a keytab, whatever principal they are for."""
    try:
        credentials = gssapi.Credentials(usage="accept", store={"keytab": f"FILE:{keytab.absolute()}"})
        context = gssapi.SecurityContext(creds=credentials, usage="accept")
    except GSSError as error:
        raise AuthenticationError(f"Kerberos: {error}") from error
    return KerberosContext(context, level, context_id)


def initiator_context(service: str, host: str, account: str, level: AuthenticationLevel) -> KerberosContext:
    """The initiator's side, with the tickets that the process has (KRB5CCNAME, or a client keytab)."""
    try:
        target = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
        name = gssapi.Name(account, gssapi.NameType.user) if "@" in account else None
        credentials = gssapi.Credentials(name=name, usage="initiate")
        context = gssapi.SecurityContext(
            name=target, creds=credentials, usage="initiate", flags=_flags(), mech=gssapi.MechType.kerberos
        )
    except GSSError as error:
        raise AuthenticationError(f"Kerberos: {error}; tickets: {os.environ.get('KRB5CCNAME', 'default')}") from error
    return KerberosContext(context, level, 1)
