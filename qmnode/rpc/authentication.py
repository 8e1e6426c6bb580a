"""NTLM and Kerberos through pyspnego, with packet privacy or integrity: MS-RPCE 3.3.1.5.2.

pyspnego takes the file of NTLM users and the keytab from the environment; it is set around each step, which runs in one
go in the event loop's thread.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from qmnode.errors import MessageQueuingError
from qmnode.rpc import kerberos
from qmnode.rpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType
from qmnode.security.errors import KeyStoreError
from qmnode.security.key_store import KeyStoreUnavailableError
from qmnode.security.private_files import read_private
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from qmnode.rpc.protection import SecurityContext
    from qmnode.rpc_settings import RemoteReadSettings

_PROTOCOLS: Final = {
    AuthenticationType.NTLM: "ntlm",
    AuthenticationType.KERBEROS: "kerberos",
    AuthenticationType.NEGOTIATE: "negotiate",
}
_NTLM_SIGNATURE: Final = 16
_KERBEROS_MIC: Final = 28
"""Bytes of a MIC token with AES (RFC 4121 4.2.6.1)."""
_ONLY_NTLM_VERSION_2: Final = {"LM_COMPAT_LEVEL": "5"}
_CONTEXT_ID: Final = 1


class SpnegoContext:
    """A security context of pyspnego."""

    def __init__(
        self,
        make: Callable[[], Any],
        auth_type: AuthenticationType,
        level: AuthenticationLevel,
        context_id: int,
        environment: Mapping[str, str],
    ) -> None:
        self.auth_type = auth_type
        self.level = level
        self.context_id = context_id
        self.header_signing = False
        self._environment = {**_ONLY_NTLM_VERSION_2, **environment}
        self._iov, self._failures = _pyspnego()
        with self._reported(), _environment(self._environment):
            self._context = make()
        self._token_size = 0

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            raise AuthenticationError(f"{type(error).__name__}: {error}") from error

    @property
    def complete(self) -> bool:
        """Whether both sides know who the other one is."""
        return bool(self._context.complete)

    @property
    def principal(self) -> str:
        """The initiator, ``DOMAIN\\user`` or ``user@REALM``."""
        return str(self._context.client_principal or "") if self.complete else ""

    @property
    def token_size(self) -> int:
        """Bytes of the token of a protected PDU."""
        if not self._token_size:
            if self._is_ntlm:
                self._token_size = _NTLM_SIGNATURE
            elif self.level is AuthenticationLevel.PRIVACY:
                self._token_size = int(self._context.query_message_sizes().header)
            else:
                self._token_size = _KERBEROS_MIC
        return self._token_size

    @property
    def _is_ntlm(self) -> bool:
        return bool(self._context.negotiated_protocol == "ntlm")

    def step(self, token: bytes) -> bytes:
        """Take a token of the other side; the token to send, perhaps none."""
        with self._reported(), _environment(self._environment):
            answer: bytes | None = self._context.step(token or None)
        if self.complete:
            self._check_strength()
        return answer or b""

    def _check_strength(self) -> None:
        from spnego import ContextReq

        wanted = ContextReq.integrity
        if self.level is AuthenticationLevel.PRIVACY:
            wanted |= ContextReq.confidentiality
        if self._context.context_attr & wanted != wanted:
            raise AuthenticationError("the other side did not negotiate the protection that it asked for")

    def _signed(self, head: bytes, body: bytes, trailer: bytes) -> bytes:
        return head + body + trailer if self.header_signing or self._is_ntlm else body

    def _buffers(self, head: bytes, body: bytes, trailer: bytes, token: bytes | None) -> list[Any]:
        kinds = self._iov
        buffers = [(kinds.data, body), kinds.header if token is None else (kinds.header, token)]
        if self.header_signing or self._is_ntlm:  # NTLM always signs the headers, whatever was negotiated
            return [(kinds.sign_only, head), buffers[0], (kinds.sign_only, trailer), buffers[1]]
        return buffers

    def protect(self, head: bytes, body: bytes, trailer: bytes) -> tuple[bytes, bytes]:
        """The body as it is sent, and its token."""
        with self._reported():
            if self.level is AuthenticationLevel.PRIVACY:
                wrapped = self._context.wrap_iov(self._buffers(head, body, trailer, None)).buffers
                found = {buffer.type: buffer.data for buffer in wrapped if buffer.type != self._iov.sign_only}
                sealed, token = found[self._iov.data], found[self._iov.header]
            else:
                sealed, token = body, self._context.sign(self._signed(head, body, trailer))
        if len(token) != self.token_size:
            raise AuthenticationError(f"a token of {len(token)} bytes, where {self.token_size} were announced")
        return sealed, token

    def unprotect(self, head: bytes, body: bytes, trailer: bytes, token: bytes) -> bytes:
        """The body as it was. AuthenticationError when anything is not as it was sent."""
        with self._reported():
            if self.level is not AuthenticationLevel.PRIVACY:
                self._context.verify(self._signed(head, body, trailer), token)
                return body
            opened = self._context.unwrap_iov(self._buffers(head, body, trailer, token)).buffers
            data: bytes = next(buffer.data for buffer in opened if buffer.type == self._iov.data)
            return data


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _pyspnego() -> tuple[Any, tuple[type[Exception], ...]]:
    """Kinds of buffers, and what can go wrong in pyspnego with what peers send. Clear words when it is missing."""
    try:
        from spnego.exceptions import SpnegoError
        from spnego.iov import BufferType
    except ImportError as error:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
            "authentication of remote readers needs pyspnego: pip install 'qmnode[rpc]'",
        ) from error
    return BufferType, (SpnegoError, ValueError, IndexError, KeyError, TypeError, OSError, ImportError)


def _flags() -> Any:
    from spnego import ContextReq

    return (
        ContextReq.mutual_auth | ContextReq.replay_detect | ContextReq.sequence_detect
        | ContextReq.confidentiality | ContextReq.integrity | ContextReq.dce_style
    )  # fmt: skip


def private_file(path: Path) -> bytes:
    """A file with secrets. MQ_ERROR_SERVICE_NOT_AVAILABLE when others can read it, or it is not there."""
    try:
        content = read_private(path)
    except (KeyStoreError, KeyStoreUnavailableError) as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, str(error)) from None
    if content is None:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, f"{path} is not there")
    return content


class AcceptorAuthentication:
    """Makes the acceptor's side of security contexts, with the users and the keytab of the settings."""

    def __init__(self, settings: RemoteReadSettings) -> None:
        self._settings = settings
        self._environment: dict[str, str] = {}
        _pyspnego()
        if settings.users is not None:
            private_file(settings.users)
            self._environment["NTLM_USER_FILE"] = str(settings.users.absolute())
        if settings.keytab is not None:
            kerberos.check_installed()
            private_file(settings.keytab)
            self._environment["KRB5_KTNAME"] = f"FILE:{settings.keytab.absolute()}"

    def __call__(self, auth_type: AuthenticationType, level: AuthenticationLevel, context_id: int) -> SecurityContext:
        """A new context. AuthenticationError for what is not set up."""
        protocol = _PROTOCOLS.get(auth_type)
        if protocol is None:
            raise AuthenticationError(f"authentication type {auth_type} is not supported")
        needed = {AuthenticationType.NTLM: self._settings.users, AuthenticationType.KERBEROS: self._settings.keytab}
        if needed.get(auth_type, True) is None:
            raise AuthenticationError(f"{protocol} is not set up here")
        if auth_type is AuthenticationType.KERBEROS and self._settings.keytab is not None:
            return kerberos.acceptor_context(self._settings.keytab, level, context_id)
        return SpnegoContext(
            lambda: _server(protocol, self._settings.service), auth_type, level, context_id, self._environment
        )


def _server(protocol: str, service: str) -> Any:
    if protocol == "ntlm":
        from qmnode.rpc.ntlm_acceptor import NtlmAcceptor

        return NtlmAcceptor(usage="accept", context_req=_flags())
    import spnego

    return spnego.server(protocol=protocol, service=service, context_req=_flags())


def acceptor_authentication(settings: RemoteReadSettings) -> AcceptorAuthentication | None:
    """How callers may authenticate; None when nothing is set up."""
    if settings.users is None and settings.keytab is None:
        return None
    return AcceptorAuthentication(settings)


def initiator_authentication(settings: RemoteReadSettings) -> Callable[[str], SecurityContext] | None:
    """As whom this node reads elsewhere; None for nobody in particular."""
    if not settings.account:
        return None
    account = settings.account
    path = settings.password_file
    mechanism = AuthenticationType[settings.mechanism.upper()]

    if mechanism is AuthenticationType.KERBEROS:
        kerberos.check_installed()
        return lambda host: kerberos.initiator_context(
            settings.service, settings.service_host or host, account, AuthenticationLevel.PRIVACY
        )

    def make(host: str) -> SecurityContext:
        import spnego

        password = None
        if path is not None:
            password = private_file(path).decode().partition("\n")[0].rstrip("\r")
        return SpnegoContext(
            lambda: spnego.client(
                account,
                password,
                hostname=host,
                service=settings.service,
                protocol=_PROTOCOLS[mechanism],
                context_req=_flags(),
            ),
            mechanism,
            AuthenticationLevel.PRIVACY,
            _CONTEXT_ID,
            {},
        )

    _pyspnego()
    return make
