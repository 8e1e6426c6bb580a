"""NTLM through pyspnego: MS-NLMP, and its protection of PDUs in DCE/RPC (MS-RPCE 3.3.1.5.2).

pyspnego takes the file of users from the environment, which is set around each step; a step never waits.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import struct
import threading
from typing import TYPE_CHECKING, Any, Final

from spnego import CredentialCache
from spnego._ntlm import NTLMProxy, _NTLMCredential
from spnego._ntlm_raw.crypto import hmac_md5, ntowfv2, rc4k
from spnego._ntlm_raw.messages import Authenticate, AvFlags, AvId, NegotiateFlags, NTClientChallengeV2
from spnego.channel_bindings import GssChannelBindings
from spnego.exceptions import InvalidTokenError

from qmnode.dcerpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType
from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


_SIGNATURE: Final = 16
_one_at_a_time: Final = threading.Lock()
"""All threads share the environment."""
_ONLY_VERSION_2: Final = {"LM_COMPAT_LEVEL": "5"}
_MALFORMED: Final = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, OSError, ImportError, struct.error,
)  # fmt: skip
"""Exceptions of pyspnego's parsers for invalid tokens, besides its own errors."""


class NtlmContext:
    """A security context of pyspnego's NTLM."""

    auth_type = AuthenticationType.NTLM
    token_size = _SIGNATURE

    def __init__(
        self, make: Callable[[], Any], level: AuthenticationLevel, context_id: int, environment: Mapping[str, str]
    ) -> None:
        self.level = level
        self.context_id = context_id
        self.header_signing = False  # NTLM always signs the headers, whatever was negotiated
        self._environment = {**_ONLY_VERSION_2, **environment}
        self._kinds = buffer_kinds()
        with reported(), _environment(self._environment):
            self._context = make()

    @property
    def complete(self) -> bool:
        """Whether both sides have authenticated each other."""
        return bool(self._context.complete)

    @property
    def principal(self) -> str:
        r"""The initiator's name as ``DOMAIN\user``."""
        return str(self._context.client_principal or "") if self.complete else ""

    def step(self, token: bytes) -> bytes:
        """Process a token of the other side and return the token to send, if any."""
        with reported(), _environment(self._environment):
            answer: bytes | None = self._context.step(token or None)
        if self.complete:
            self._check_strength()
        return answer or b""

    def _check_strength(self) -> None:
        from spnego import ContextReq
        from spnego._ntlm_raw.messages import NegotiateFlags

        # Without these the keys have 40 or 56 bits, or both directions share one (MS-NLMP 3.4.4, 3.4.5).
        strong = NegotiateFlags.key_128 | NegotiateFlags.extended_session_security
        if self._context._context_attr & strong != strong:
            raise AuthenticationError("the other side negotiated NTLM with weak keys: allow it keys of 128 bits")
        wanted = ContextReq.integrity
        if self.level is AuthenticationLevel.PRIVACY:
            wanted |= ContextReq.confidentiality
        if self._context.context_attr & wanted != wanted:
            raise AuthenticationError("the other side did not negotiate the protection that it asked for")

    # SPNEGO's agreement on NTLM

    @property
    def signs_agreement(self) -> bool:
        """Whether the messages had an integrity code: then the agreement on NTLM has one too (MS-SPNG 3.3.5.1)."""
        return self.complete and bool(self._context._requires_mech_list_mic)

    def sign(self, data: bytes) -> bytes:
        """The integrity code of the agreement. Later messages are sealed as if it had not been made."""
        with reported():
            code: bytes = self._context.sign(data)
            self._context._reset_ntlm_crypto_state(outgoing=True)
            return code

    def verify(self, data: bytes, code: bytes) -> None:
        """Verify the other side's integrity code. Raises AuthenticationError if it differs."""
        with reported():
            self._context.verify(data, code)
            self._context._reset_ntlm_crypto_state(outgoing=False)

    # PDUs

    def _buffers(self, head: bytes, body: bytes, trailer: bytes, token: bytes | None) -> list[Any]:
        kinds = self._kinds
        signature = kinds.header if token is None else (kinds.header, token)
        return [(kinds.sign_only, head), (kinds.data, body), (kinds.sign_only, trailer), signature]

    def protect(self, head: bytes, body: bytes, trailer: bytes) -> tuple[bytes, bytes]:
        """The body as it is sent, with its token."""
        with reported():
            if self.level is not AuthenticationLevel.PRIVACY:
                return body, self._context.sign(head + body + trailer)
            wrapped = self._context.wrap_iov(self._buffers(head, body, trailer, None)).buffers
            found = {buffer.type: buffer.data for buffer in wrapped if buffer.type != self._kinds.sign_only}
            return found[self._kinds.data], found[self._kinds.header]

    def unprotect(self, head: bytes, body: bytes, trailer: bytes, token: bytes) -> bytes:
        """The original body. Raises AuthenticationError if anything was changed."""
        with reported():
            if self.level is not AuthenticationLevel.PRIVACY:
                self._context.verify(head + body + trailer, token)
                return body
            opened = self._context.unwrap_iov(self._buffers(head, body, trailer, token)).buffers
            data: bytes = next(buffer.data for buffer in opened if buffer.type == self._kinds.data)
            return data


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Convert errors of pyspnego about a peer's data to AuthenticationError."""
    from spnego.exceptions import SpnegoError

    try:
        yield
    except (SpnegoError, *_MALFORMED) as error:
        raise AuthenticationError(f"{type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    with _one_at_a_time:
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


def buffer_kinds() -> Any:
    """The buffer types of pyspnego. Raises MQ_ERROR_SERVICE_NOT_AVAILABLE with an explanation if it is missing."""
    try:
        from spnego.iov import BufferType
    except ImportError as error:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
            "authentication of remote readers needs pyspnego: pip install 'qmnode[rpc]'",
        ) from error
    return BufferType


def _flags() -> Any:
    from spnego import ContextReq

    return (
        ContextReq.mutual_auth | ContextReq.replay_detect | ContextReq.sequence_detect
        | ContextReq.confidentiality | ContextReq.integrity | ContextReq.dce_style
    )  # fmt: skip


def acceptor_context(users: Path, level: AuthenticationLevel, context_id: int) -> NtlmContext:
    """The acceptor's side, with the users of a file."""
    buffer_kinds()

    environment = {"NTLM_USER_FILE": str(users.absolute())}
    return NtlmContext(lambda: NtlmAcceptor(usage="accept", context_req=_flags()), level, context_id, environment)


def initiator_context(
    service: str, host: str, account: str, password: str, level: AuthenticationLevel, context_id: int
) -> NtlmContext:
    """The initiator's side, with a password."""
    buffer_kinds()
    import spnego

    return NtlmContext(
        lambda: spnego.client(
            account, password, hostname=host, service=service, protocol="ntlm", context_req=_flags()
        ),
        level, context_id, {},
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------------
# The acceptor's side of NTLM version 2: MS-NLMP 3.3.2.
#
# pyspnego computes the expected proof over its own form of the client's blob: other clients are refused.
# The same holds for the integrity code over the messages. Here both are computed over the received bytes. Version 1 is
# not accepted.

_PROOF: Final = 16
_SESSION_KEY: Final = 16
_VERSION_1: Final = 24
"""Bytes of a response of version 1; those of version 2 are longer."""
_MIC: Final = slice(72, 88)
"""The place of the integrity code in an AUTHENTICATE_MESSAGE (MS-NLMP 2.2.1.3), with Version before it."""
_TARGET_NAME_OFFSET, _FLAGS_OFFSET, _TARGET_INFO_OFFSET, _VERSION_OFFSET = 16, 20, 44, 48
"""Places in a CHALLENGE_MESSAGE (MS-NLMP 2.2.1.2)."""
_VERSION_SIZE: Final = 8
_NUMBER: Final = struct.Struct("<I")


class NtlmAcceptor(NTLMProxy):
    """Verifies the identity of the initiator."""

    _messages: bytes = b""
    """NEGOTIATE_MESSAGE and CHALLENGE_MESSAGE as transmitted."""
    _has_integrity_code: bool = False

    @property
    def _requires_mech_list_mic(self) -> bool:
        """Whether the messages have an integrity code; SPNEGO's agreement then has one too."""
        return self._has_integrity_code

    def _step_accept_negotiate(self, token: bytes) -> bytes:
        challenge = _with_version(super()._step_accept_negotiate(token))
        self._messages = token + challenge
        return challenge

    def _step_accept_authenticate(self, token: bytes, channel_bindings: GssChannelBindings | None) -> None:
        authenticate = Authenticate.unpack(token)
        response = authenticate.nt_challenge_response or b""
        challenge: Any = self._temp_challenge
        if not authenticate.user_name or len(response) <= _VERSION_1:
            raise InvalidTokenError(context_msg="NTLM without a user, or older than version 2")
        user, domain = authenticate.user_name, authenticate.domain_name
        credential = _NTLMCredential(CredentialCache(username=f"{domain}\\{user}" if domain else user))
        key = ntowfv2(user, credential.nt_hash, domain)
        proof = hmac_md5(key, challenge.server_challenge + response[_PROOF:])
        if not hmac.compare_digest(proof, response[:_PROOF]):
            raise InvalidTokenError(context_msg=f"a wrong password for {user}")
        session_key = hmac_md5(key, proof)
        if authenticate.flags & NegotiateFlags.key_exch:
            encrypted = authenticate.encrypted_random_session_key or b""
            if len(encrypted) != _SESSION_KEY:
                # An empty key would be known to everybody, also to an attacker who relays the proof of a user.
                raise InvalidTokenError(context_msg=f"an NTLM session key of {len(encrypted)} bytes")
            session_key = rc4k(session_key, encrypted)
        information = NTClientChallengeV2.unpack(response[_PROOF:]).av_pairs
        if information.get(AvId.flags, 0) & AvFlags.mic:
            unsigned = token[: _MIC.start] + bytes(_MIC.stop - _MIC.start) + token[_MIC.stop :]
            code = hmac_md5(session_key, self._messages + unsigned)
            if not hmac.compare_digest(code, token[_MIC]):
                raise InvalidTokenError(context_msg="the NTLM messages were changed on their way")
            self._has_integrity_code = True
        self._session_key = session_key
        self._credential = credential
        self._context_attr = authenticate.flags
        self._complete = True


def _with_version(challenge: bytes) -> bytes:
    """The challenge with its Version, zero unless it was negotiated. pyspnego then leaves the field out, and clients
    that look for the target name behind it refuse the message.
    """
    if _NUMBER.unpack_from(challenge, _FLAGS_OFFSET)[0] & NegotiateFlags.version:
        return challenge
    whole = bytearray(challenge)
    for place in (_TARGET_NAME_OFFSET, _TARGET_INFO_OFFSET):
        offset = _NUMBER.unpack_from(whole, place)[0]
        _NUMBER.pack_into(whole, place, offset + _VERSION_SIZE)
    whole[_VERSION_OFFSET:_VERSION_OFFSET] = bytes(_VERSION_SIZE)
    return bytes(whole)
