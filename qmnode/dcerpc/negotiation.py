"""SPNEGO: RFC 4178 with the changes of MS-SPNG. Both sides agree on Kerberos or NTLM, and protect the agreement.

The initiator lists its mechanisms in the order of its preference, with a first token of the first one; the acceptor
uses the first offered mechanism that it supports. If that is not the preferred one, or if NTLM's own messages have an
integrity code, both sides prove with another code (mechListMIC) that the list was not changed on its way. The tokens
themselves, and later the PDUs, are handled by the mechanism.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from spnego._spnego import NegState, NegTokenInit, NegTokenResp, pack_mech_type_list, unpack_token

from qmnode.dcerpc.ntlm import reported
from qmnode.dcerpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType, SecurityContext

KERBEROS: Final = ("1.2.840.48018.1.2.2", "1.2.840.113554.1.2.2")
"""The two names of Kerberos: Windows prefers its own, which began as a mistake (MS-SPNG 1.9)."""
NTLM: Final = ("1.3.6.1.4.1.311.2.2.10",)
_MOST_OFFERED: Final = 32
_BARE_NTLM: Final = b"NTLMSSP\0"
_ADVICE: Final = "set remote_read.users for NTLM or remote_read.keytab for Kerberos"
_BARE_KERBEROS: Final = (b"\x60", b"\x6e")
"""GSS-API's first token, or Kerberos' AP-REQ itself."""


class Mechanism(SecurityContext, Protocol):
    """A mechanism that two sides agree on."""

    @property
    def signs_agreement(self) -> bool:
        """Whether the agreement must be proved even for the preferred mechanism."""

    def sign(self, data: bytes) -> bytes:
        """The integrity code of the agreement."""

    def verify(self, data: bytes, code: bytes) -> None:
        """Verify the other side's integrity code. Raises AuthenticationError if it differs."""


class _Negotiation:
    """The part that both sides share."""

    auth_type = AuthenticationType.NEGOTIATE

    def __init__(self, level: AuthenticationLevel, context_id: int) -> None:
        self.level = level
        self.context_id = context_id
        self.header_signing = False
        self.complete = False
        self._chosen: Mechanism | None = None
        self._offered: list[str] = []
        self._proof_wanted = False
        self._proof_sent = False
        self._proof_heard = False

    @property
    def mechanism(self) -> Mechanism:
        """The agreed mechanism. Raises AuthenticationError if there is none yet."""
        if self._chosen is None:
            raise AuthenticationError("the two sides have not agreed on how to authenticate")
        return self._chosen

    @property
    def principal(self) -> str:
        """The name of the initiator, once complete."""
        return self.mechanism.principal if self.complete else ""

    @property
    def token_size(self) -> int:
        """Bytes of the token of a protected PDU."""
        return self.mechanism.token_size

    def protect(self, head: bytes, body: bytes, trailer: bytes) -> tuple[bytes, bytes]:
        """The body as it is sent, with its token."""
        self.mechanism.header_signing = self.header_signing
        return self.mechanism.protect(head, body, trailer)

    def unprotect(self, head: bytes, body: bytes, trailer: bytes, token: bytes) -> bytes:
        """The original body. Raises AuthenticationError if anything was changed."""
        self.mechanism.header_signing = self.header_signing
        return self.mechanism.unprotect(head, body, trailer, token)

    def _advance(self, answer: NegTokenResp) -> bytes:
        """Give the mechanism its token and check the accompanying proof; return the mechanism's token to send."""
        if answer.neg_state == NegState.reject:
            raise AuthenticationError("the other side refused every offered mechanism, or this account")
        mechanism, token, proof = self.mechanism, answer.response_token, answer.mech_list_mic
        out = mechanism.step(token) if token and not mechanism.complete else b""
        if proof and proof != token:  # Windows 2000 repeats the token there
            if not mechanism.complete or self._proof_heard:
                raise AuthenticationError("a proof of the agreement before it is made, or a second one")
            mechanism.verify(pack_mech_type_list(self._offered), proof)
            self._proof_heard = self._proof_wanted = True
        return out

    def _proof(self) -> bytes | None:
        """The proof to send, returned once."""
        mechanism = self.mechanism
        self._proof_wanted |= mechanism.signs_agreement
        if not (mechanism.complete and self._proof_wanted) or self._proof_sent:
            return None
        self._proof_sent = True
        return mechanism.sign(pack_mech_type_list(self._offered))


class NegotiationAcceptor(_Negotiation):
    """The acceptor's side. It also accepts a mechanism's token without SPNEGO."""

    def __init__(self, make: Callable[[str], Mechanism | None], level: AuthenticationLevel, context_id: int) -> None:
        """``make`` returns the mechanism with an object identifier; None if it is not configured."""
        super().__init__(level, context_id)
        self._make = make
        self._bare = False

    def step(self, token: bytes) -> bytes:
        """Process a token of the initiator and return the token to send, if any."""
        with reported():
            if self._chosen is None:
                return self._first(token)
            if self._bare:
                return self._bare_step(token)
            answer = unpack_token(token)
            if not isinstance(answer, NegTokenResp):
                raise AuthenticationError("a token that does not go on with the negotiation")
            return self._respond(self._advance(answer))

    def _first(self, token: bytes) -> bytes:
        bare = _bare_mechanism(token)
        if bare:
            self._chosen = self._make(bare)
            self._bare = True
            if self._chosen is None:
                raise AuthenticationError(f"the client's mechanism is not configured here: {_ADVICE}")
            return self._bare_step(token)
        init = unpack_token(token)
        if not isinstance(init, NegTokenInit) or len(init.mech_types) > _MOST_OFFERED:
            raise AuthenticationError("a token that begins no negotiation")
        self._offered = list(init.mech_types)
        for place, identifier in enumerate(self._offered):
            self._chosen = self._make(identifier)
            if self._chosen is not None:
                self._proof_wanted = place > 0
                out = self._chosen.step(init.mech_token) if place == 0 and init.mech_token else b""
                return self._respond(out, identifier)
        raise AuthenticationError(f"no mechanism that the client offers is configured here: {_ADVICE}")

    def _bare_step(self, token: bytes) -> bytes:
        answer = self.mechanism.step(token)
        self.complete = self.mechanism.complete
        return answer

    def _respond(self, out: bytes, identifier: str | None = None) -> bytes:
        proof = self._proof()
        self.complete = self.mechanism.complete and (self._proof_heard or not self._proof_wanted)
        if self.complete:
            state = NegState.accept_complete
        elif identifier is not None and self._proof_wanted:
            state = NegState.request_mic
        else:
            state = NegState.accept_incomplete
        answer = NegTokenResp(
            neg_state=state, supported_mech=identifier, response_token=out or None, mech_list_mic=proof
        )
        return answer.pack()


def _bare_mechanism(token: bytes) -> str:
    """The mechanism of a token without SPNEGO; empty for a token with it."""
    if token.startswith(_BARE_NTLM):
        return NTLM[0]
    if token.startswith(_BARE_KERBEROS[1]) or (
        token.startswith(_BARE_KERBEROS[0]) and isinstance(unpack_token(token), bytes)
    ):
        return KERBEROS[1]
    return ""


class NegotiationInitiator(_Negotiation):
    """The initiator's side of the negotiation."""

    def __init__(
        self, mechanisms: Sequence[tuple[Sequence[str], Mechanism]], level: AuthenticationLevel, context_id: int
    ) -> None:
        """``mechanisms`` are object identifiers with their mechanisms, the preferred ones first."""
        super().__init__(level, context_id)
        self._mechanisms = {identifier: one for identifiers, one in mechanisms for identifier in identifiers}
        self._offered = list(self._mechanisms)
        self._chosen = mechanisms[0][1]

    def step(self, token: bytes) -> bytes:
        """Process a token of the acceptor and return the token to send, if any."""
        with reported():
            if not token:
                return NegTokenInit(self._offered, mech_token=self.mechanism.step(b"")).pack()
            answer = unpack_token(token)
            if not isinstance(answer, NegTokenResp):
                raise AuthenticationError("the server does not negotiate")
            begun = self._choose(answer)
            return self._respond(begun or self._advance(answer), answer.neg_state)

    def _choose(self, answer: NegTokenResp) -> bytes:
        """Adopt the acceptor's choice, and return its first token if it was not the preferred one."""
        self._proof_wanted |= answer.neg_state == NegState.request_mic
        if not answer.supported_mech or answer.neg_state == NegState.reject:
            return b""
        chosen = self._mechanisms.get(answer.supported_mech)
        if chosen is None:
            raise AuthenticationError("the server chose a way to authenticate that was not offered")
        if chosen is self._chosen:
            return b""
        self._chosen = chosen
        self._proof_wanted = True
        return chosen.step(b"")

    def _respond(self, out: bytes, state: NegState | None) -> bytes:
        proof = self._proof()
        if state == NegState.accept_complete and self.mechanism.complete:
            if self._proof_wanted and not self._proof_heard:
                raise AuthenticationError("the server did not prove the agreement on a mechanism")
            self.complete = True
        if not out and proof is None:
            return b""
        return NegTokenResp(
            neg_state=NegState.accept_incomplete, response_token=out or None, mech_list_mic=proof
        ).pack()
