"""SPNEGO: RFC 4178 as MS-SPNG has it. Both sides agree on Kerberos or NTLM, and protect the agreement.

The initiator names what it can do, in the order of its preference, with a first token of the first; the acceptor takes
the first of these that is set up here. When that is another, or NTLM's own messages have an integrity code, both sides
prove with another one (mechListMIC) that nobody changed the list on its way. The tokens themselves, and later the PDUs,
are the business of the mechanism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from spnego._spnego import NegState, NegTokenInit, NegTokenResp, pack_mech_type_list, unpack_token

from qmnode.dcerpc.ntlm import reported
from qmnode.dcerpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType, SecurityContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KERBEROS: Final = ("1.2.840.48018.1.2.2", "1.2.840.113554.1.2.2")
"""Kerberos has two names: Windows prefers its own, a slip of the first that had it (MS-SPNG 1.9)."""
NTLM: Final = ("1.3.6.1.4.1.311.2.2.10",)
_MOST_OFFERED: Final = 32
_BARE_NTLM: Final = b"NTLMSSP\0"
_BARE_KERBEROS: Final = (b"\x60", b"\x6e")
"""GSS-API's first token, or Kerberos' AP-REQ itself."""


class Mechanism(SecurityContext, Protocol):
    """What two sides agree on."""

    @property
    def signs_agreement(self) -> bool:
        """Whether the agreement has to be proved whatever was preferred."""

    def sign(self, data: bytes) -> bytes:
        """The integrity code of the agreement."""

    def verify(self, data: bytes, code: bytes) -> None:
        """Check the other side's. AuthenticationError when it is another."""


class _Negotiation:
    """What both sides do."""

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
        """What was agreed on. AuthenticationError when nothing is yet."""
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
        """The body as it is sent, and its token."""
        self.mechanism.header_signing = self.header_signing
        return self.mechanism.protect(head, body, trailer)

    def unprotect(self, head: bytes, body: bytes, trailer: bytes, token: bytes) -> bytes:
        """The body as it was. AuthenticationError when anything is not as it was sent."""
        self.mechanism.header_signing = self.header_signing
        return self.mechanism.unprotect(head, body, trailer, token)

    def _advance(self, answer: NegTokenResp) -> bytes:
        """Give the mechanism its token, and check the proof that came with it; the mechanism's token to send."""
        if answer.neg_state == NegState.reject:
            raise AuthenticationError("the other side takes none of the ways to authenticate, or not this account")
        mechanism, token, proof = self.mechanism, answer.response_token, answer.mech_list_mic
        out = mechanism.step(token) if token and not mechanism.complete else b""
        if proof and proof != token:  # Windows 2000 repeats the token there
            if not mechanism.complete or self._proof_heard:
                raise AuthenticationError("a proof of the agreement before it is made, or a second one")
            mechanism.verify(pack_mech_type_list(self._offered), proof)
            self._proof_heard = self._proof_wanted = True
        return out

    def _proof(self) -> bytes | None:
        """The proof to send, once."""
        mechanism = self.mechanism
        self._proof_wanted |= mechanism.signs_agreement
        if not (mechanism.complete and self._proof_wanted) or self._proof_sent:
            return None
        self._proof_sent = True
        return mechanism.sign(pack_mech_type_list(self._offered))


class NegotiationAcceptor(_Negotiation):
    """The acceptor's side. A client that sends a token of a mechanism bare is taken, too."""

    def __init__(self, make: Callable[[str], Mechanism | None], level: AuthenticationLevel, context_id: int) -> None:
        """``make`` gives the mechanism with an object identifier; None when it is not set up here."""
        super().__init__(level, context_id)
        self._make = make
        self._bare = False

    def step(self, token: bytes) -> bytes:
        """Take a token of the initiator; the token to send, perhaps none."""
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
                raise AuthenticationError("what the client authenticates with is not set up here")
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
        raise AuthenticationError("none of what the client can authenticate with is set up here")

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
    """The mechanism whose token this is, without SPNEGO around it; empty when it is around it."""
    if token.startswith(_BARE_NTLM):
        return NTLM[0]
    if token.startswith(_BARE_KERBEROS[1]) or (
        token.startswith(_BARE_KERBEROS[0]) and isinstance(unpack_token(token), bytes)
    ):
        return KERBEROS[1]
    return ""


class NegotiationInitiator(_Negotiation):
    """The initiator's side."""

    def __init__(
        self, mechanisms: Sequence[tuple[Sequence[str], Mechanism]], level: AuthenticationLevel, context_id: int
    ) -> None:
        """``mechanisms``: object identifiers and what they stand for, what is preferred first."""
        super().__init__(level, context_id)
        self._mechanisms = {identifier: one for identifiers, one in mechanisms for identifier in identifiers}
        self._offered = list(self._mechanisms)
        self._chosen = mechanisms[0][1]

    def step(self, token: bytes) -> bytes:
        """Take a token of the acceptor; the token to send, perhaps none."""
        with reported():
            if not token:
                return NegTokenInit(self._offered, mech_token=self.mechanism.step(b"")).pack()
            answer = unpack_token(token)
            if not isinstance(answer, NegTokenResp):
                raise AuthenticationError("the server does not negotiate")
            begun = self._choose(answer)
            return self._respond(begun or self._advance(answer), answer.neg_state)

    def _choose(self, answer: NegTokenResp) -> bytes:
        """Take what the acceptor chose; the first token of it when that is not what was preferred."""
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
                raise AuthenticationError("the server did not prove what the two sides agreed on")
            self.complete = True
        if not out and proof is None:
            return b""
        return NegTokenResp(
            neg_state=NegState.accept_incomplete, response_token=out or None, mech_list_mic=proof
        ).pack()
