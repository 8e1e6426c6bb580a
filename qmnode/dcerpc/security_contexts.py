"""The security contexts of a connection, the server's side: the one that its bind begins, and later ones.

A client may begin another one with any alter_context (MS-RPCE 3.3.1.5.4), and names in each PDU the one that protects
it.
"""

from collections.abc import Callable
from typing import Final

from qmnode.dcerpc.errors import PduError
from qmnode.dcerpc.pdu import SUPPORT_HEADER_SIGN, Pdu, PduType
from qmnode.dcerpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType, SecurityContext

_LEVELS: Final = (AuthenticationLevel.INTEGRITY, AuthenticationLevel.PRIVACY)


class SecurityContexts:
    """The security contexts of one connection."""

    def __init__(
        self, make: Callable[[AuthenticationType, AuthenticationLevel, int], SecurityContext] | None, limit: int
    ) -> None:
        """``make`` returns the acceptor's side of a context; without it no caller can authenticate."""
        self._make = make
        self._limit = limit
        self._contexts: dict[int, SecurityContext] = {}
        self._header_signing = False
        self.default: SecurityContext | None = None
        """The context that the bind began; None for an anonymous client."""
        self.failure = ""
        """Why a handshake failed, until the client is notified."""

    @property
    def are_none(self) -> bool:
        """Whether the client is anonymous, and no PDU of it has a verifier."""
        return not self._contexts and not self.failure

    @property
    def complete(self) -> bool:
        """Whether no handshake is in progress."""
        return not self.failure and all(one.complete for one in self._contexts.values())

    def begin(self, pdu: Pdu) -> bytes:
        """Begin the handshake of a bind and return the token to answer with. Raises AuthenticationError."""
        if pdu.verifier is None:
            return b""
        self._header_signing = bool(pdu.flags & SUPPORT_HEADER_SIGN)
        token = self._add(pdu)
        self.default = self._contexts[pdu.verifier.trailer.context_id]
        return token

    def proceed(self, pdu: Pdu) -> bytes:
        """Continue a handshake, or begin another one: return the token to answer with."""
        if pdu.verifier is None:
            return b""
        security = self._contexts.get(pdu.verifier.trailer.context_id)
        if security is None:
            if pdu.pdu_type == PduType.AUTH3:
                raise PduError("an auth3 of a handshake that has not begun")
            return self._add(pdu)
        if security.complete:
            raise PduError("the handshake is complete")
        return security.step(pdu.verifier.token)

    def _add(self, pdu: Pdu) -> bytes:
        assert pdu.verifier is not None
        trailer = pdu.verifier.trailer
        if self._make is None:
            raise AuthenticationError("no authentication is set up")
        if len(self._contexts) >= self._limit:
            raise AuthenticationError(f"the connection has {self._limit} security contexts")
        if trailer.auth_level not in _LEVELS:
            raise AuthenticationError(f"authentication level {trailer.auth_level}: integrity or privacy is needed")
        try:
            auth_type = AuthenticationType(trailer.auth_type)
        except ValueError:
            raise AuthenticationError(f"authentication type {trailer.auth_type} is not known") from None
        security = self._make(auth_type, AuthenticationLevel(trailer.auth_level), trailer.context_id)
        security.header_signing = self._header_signing
        token = security.step(pdu.verifier.token)
        self._contexts[trailer.context_id] = security
        return token

    def finish(self, pdu: Pdu) -> None:
        """Process an auth3: the last token, which has no answer. A failure is reported with the client's next call."""
        if pdu.verifier is None:
            raise PduError("an auth3 without a token")
        try:
            self.proceed(pdu)
            if not self._contexts[pdu.verifier.trailer.context_id].complete:
                raise AuthenticationError("the handshake needs more than an auth3")
        except AuthenticationError as error:
            self.failure = str(error)

    def of(self, pdu: Pdu) -> SecurityContext | None:
        """The context that protects a PDU of a call. Raises AuthenticationError if its handshake is incomplete."""
        if self.failure:
            raise AuthenticationError(self.failure)
        if pdu.verifier is None:
            security = self.default
        else:
            security = self._contexts.get(pdu.verifier.trailer.context_id)
            if security is None and self._contexts:
                raise AuthenticationError("a verifier of another security context than the connection has")
        if security is not None and not security.complete:
            raise AuthenticationError("a call before the handshake is complete")
        return security
