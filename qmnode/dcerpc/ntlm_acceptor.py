"""The acceptor's side of NTLM version 2: MS-NLMP 3.3.2.

pyspnego computes the expected proof over its own form of the client's blob, and so refuses clients that write the blob
otherwise; the same holds for the integrity code over the messages. Here both are computed over the received bytes.
Version 1 is not accepted.
"""

import hmac
import struct
from typing import Any, Final

from spnego import CredentialCache
from spnego._ntlm import NTLMProxy, _NTLMCredential
from spnego._ntlm_raw.crypto import hmac_md5, ntowfv2, rc4k
from spnego._ntlm_raw.messages import Authenticate, AvFlags, AvId, NegotiateFlags, NTClientChallengeV2
from spnego.channel_bindings import GssChannelBindings
from spnego.exceptions import InvalidTokenError

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
