"""The server's side of a connection, without I/O: bytes in, calls out; answers in, bytes out.

All rules about the state of a connection are here. ``receive`` takes received bytes and returns events; ``respond`` and
``fault`` end calls; ``data_to_send`` returns bytes to write. Once ``closed`` is set, nothing more is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from qmnode.dcerpc import byte_order
from qmnode.dcerpc.errors import FaultStatus, PduError, RpcError
from qmnode.dcerpc.interface import (
    KEEP_CONNECTION_ON_ORPHAN,
    NDR64_SYNTAX,
    REPRESENTATIONS,
    SECURITY_CONTEXT_MULTIPLEXING,
    Interface,
    SyntaxId,
    offered_features,
)
from qmnode.dcerpc.ndr import big_endian_of
from qmnode.dcerpc.pdu import (
    CALL_SIZE,
    CONCURRENT_MULTIPLEXING,
    DID_NOT_EXECUTE,
    OBJECT_UUID,
    SUPPORT_HEADER_SIGN,
    WHOLE,
    Bind,
    BindAck,
    BindNak,
    ContextElement,
    ContextResult,
    FaultBody,
    Pdu,
    PduReader,
    PduType,
    Reason,
    RejectReason,
    RequestBody,
    ResponseBody,
    Result,
    WholeCall,
    body_of,
    read_pdu,
    read_whole_call,
    syntax_of,
    to_syntax,
    write_pdu,
    write_whole_call,
)
from qmnode.dcerpc.protection import (
    AuthenticationError,
    AuthenticationLevel,
    AuthenticationType,
    SecurityContext,
    opened_body,
    protected_pdu,
    token_pdu,
)
from qmnode.dcerpc.reassembly import Reassembly, fragments
from qmnode.structures.errors import PacketError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from qmnode.dcerpc.context_handles import Association, Associations
    from qmnode.dcerpc.ndr import Representation
    from qmnode.dcerpc.protection import AuthenticationLevel, AuthenticationType, SecurityContext


# ----------------------------------------------------------------------------------------------------------------------
# The security contexts of a connection, the server's side: the one that its bind begins, and later ones.
#
# A client may begin another one with any alter_context (MS-RPCE 3.3.1.5.4), and names in each PDU the one that protects
# it.

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


class Called(NamedTuple):
    """A complete request has arrived."""

    call_id: int
    context_id: int
    interface: Interface
    representation: Representation
    """The representation for the answer."""
    written: Representation
    """The representation of the request: the same, except for the byte order."""
    opnum: int
    stub: bytes
    principal: str
    """The caller's name; empty for an anonymous caller."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client no longer wants the call; it still wants an answer."""

    call_id: int


@dataclass(frozen=True, slots=True)
class Orphaned:
    """The client wants neither the call nor an answer any longer."""

    call_id: int


Event = Called | Cancelled | Orphaned


@dataclass(frozen=True, slots=True)
class AcceptorLimits:
    """The limits of a connection."""

    fragment: int = 5840
    """Bytes of a PDU, in both directions."""
    request: int = 64 * 1024
    """Bytes of a request, and of all incomplete requests together."""
    contexts: int = 32
    """The most presentation contexts."""
    security_contexts: int = 16
    """The most security contexts: a client with several interfaces on a connection may have one for each."""


_FEATURES: Final = SECURITY_CONTEXT_MULTIPLEXING | KEEP_CONNECTION_ON_ORPHAN
_HANDSHAKE_FRAGMENT: Final = 0xFFFF
"""The limit in bytes of a PDU with a token, which is as large as a ticket (MS-RPCE 2.2.2.11)."""


class Acceptor:
    """One connection that a client opened."""

    def __init__(
        self,
        interfaces: Mapping[SyntaxId, Interface],
        associations: Associations,
        peer: str,
        port: int,
        *,
        limits: AcceptorLimits | None = None,
        security: Callable[[AuthenticationType, AuthenticationLevel, int], SecurityContext] | None = None,
    ) -> None:
        """``security`` makes the acceptor's side of a security context; without it no caller can authenticate."""
        self._interfaces = interfaces
        self._associations = associations
        self._peer = peer
        self._port = port
        self._limits = limits or AcceptorLimits()
        handshake = _HANDSHAKE_FRAGMENT if security is not None else self._limits.fragment
        self._reader = PduReader(self._limits.fragment, handshake, big_endian=True)
        self._reassembly = Reassembly(self._limits.request)
        self._contexts: dict[int, tuple[Interface, Representation]] = {}
        self._max_transmit = self._limits.fragment
        self._out: list[bytes] = []
        self.security = SecurityContexts(security, self._limits.security_contexts)
        self.association: Association | None = None
        self.calls: dict[int, tuple[int, SecurityContext | None]] = {}
        """Unfinished calls: their presentation contexts, and the security contexts that protect them."""
        self.pdus = 0
        """The number of complete PDUs received."""
        self.closed = False
        self.reason = ""
        """Why the connection was closed."""

    # Bytes

    def data_to_send(self) -> list[bytes]:
        """Take the bytes to write; each is returned once."""
        out, self._out = self._out, []
        return out

    @property
    def is_partial(self) -> bool:
        """Whether an incomplete PDU has been received."""
        return self._reader.is_partial

    @property
    def is_bound(self) -> bool:
        """Whether the association exists and no handshake is in progress."""
        return self.association is not None and self.security.complete

    def receive(self, received: bytes) -> list[Event]:
        """Process received bytes and return the events. A client's error closes the connection."""
        events: list[Event] = []
        try:
            for whole in self._reader.feed(received):
                self.pdus += 1
                request = read_whole_call(whole, PduType.REQUEST) if self.security.are_none else None
                event = self._take(read_pdu(whole)) if request is None else self._requested(request)
                if event is not None:
                    events.append(event)
                if self.closed:
                    break
        except (RpcError, AuthenticationError, PacketError) as error:
            self._close(str(error))
        return events

    def _close(self, reason: str) -> None:
        self.closed = True
        self.reason = self.reason or reason

    def _take(self, pdu: Pdu) -> Event | None:
        match pdu.pdu_type:
            case PduType.REQUEST:
                return self._request(pdu)
            case PduType.BIND:
                self._bind(pdu)
            case PduType.ALTER_CONTEXT:
                self._alter_context(pdu)
            case PduType.AUTH3:
                self._auth3(pdu)
            case PduType.CO_CANCEL:
                opened_body(self.security.of(pdu), pdu)
                return Cancelled(pdu.call_id) if pdu.call_id in self.calls else None
            case PduType.ORPHANED:
                opened_body(self.security.of(pdu), pdu)
                self._reassembly.forget(pdu.call_id)
                if self.calls.pop(pdu.call_id, None) is not None:
                    return Orphaned(pdu.call_id)
            case _:
                raise PduError(f"a client sends no {PduType(pdu.pdu_type).name}")
        return None

    # Association

    def _bind(self, pdu: Pdu) -> None:
        if self.association is not None:
            raise PduError("a second bind: alter_context is for that")
        body = _proposal(pdu)
        try:
            token = self.security.begin(pdu)
        except AuthenticationError as error:
            self._reject(pdu.call_id, RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED, str(error))
            return
        self.association = self._associations.join(body.group_id, self._peer)
        if self.association is None:
            self._reject(pdu.call_id, RejectReason.NOT_SPECIFIED, "no such association group")
            return
        self._max_transmit = min(self._limits.fragment, body.max_receive)
        agreed = CONCURRENT_MULTIPLEXING | (SUPPORT_HEADER_SIGN if pdu.verifier is not None else 0)
        self._answer(PduType.BIND_ACK, pdu, self._results(body.contexts), token, WHOLE | pdu.flags & agreed)

    def _reject(self, call_id: int, reason: RejectReason, sentence: str) -> None:
        self._out.append(write_pdu(PduType.BIND_NAK, call_id, BindNak(reason=reason).write()))
        self._close(sentence)

    def _alter_context(self, pdu: Pdu) -> None:
        if self.association is None:
            raise PduError("alter_context before a bind")
        try:
            token = self.security.proceed(pdu)
        except AuthenticationError:
            self.fault(pdu.call_id, FaultStatus.ACCESS_DENIED)
            raise
        self._answer(PduType.ALTER_CONTEXT_RESP, pdu, self._results(_proposal(pdu).contexts), token, WHOLE)

    def _auth3(self, pdu: Pdu) -> None:
        if self.association is None:
            raise PduError("an auth3 before a bind")
        self.security.finish(pdu)

    def _answer(self, pdu_type: PduType, pdu: Pdu, results: Sequence[ContextResult], token: bytes, flags: int) -> None:
        assert self.association is not None
        body = BindAck(
            max_transmit=self._max_transmit,
            max_receive=self._limits.fragment,
            group_id=self.association.group_id,
            secondary_address=f"{self._port}\0".encode() if pdu_type is PduType.BIND_ACK else b"",
            results=tuple(results),
        ).write()
        if pdu.verifier is None:
            self._out.append(write_pdu(pdu_type, pdu.call_id, body, flags))
        else:
            self._out.append(token_pdu(pdu.verifier.trailer, pdu_type, pdu.call_id, body, token, flags))

    def _results(self, proposed: Sequence[ContextElement]) -> list[ContextResult]:
        """The answers to proposed contexts. An interface has one representation on a connection (MS-RPCE 3.3.1.5.6):
        a client that offers NDR and NDR64 in contexts of their own gets NDR64 alone, as from Windows."""
        wide = {
            syntax_of(element.abstract_syntax)
            for element in proposed
            if NDR64_SYNTAX in map(syntax_of, element.transfer_syntaxes)
            and (known := self._interfaces.get(syntax_of(element.abstract_syntax))) is not None
            and NDR64_SYNTAX in known.transfer_syntaxes
        }
        return [self._result(element, wide) for element in proposed]

    def _allowed(self, element: ContextElement, wide: Collection[SyntaxId]) -> Collection[SyntaxId]:
        """The representations that a context may have beside the other contexts of its interface."""
        abstract = syntax_of(element.abstract_syntax)
        for context_id, (interface, representation) in self._contexts.items():
            if context_id != element.context_id and interface is self._interfaces.get(abstract):
                return [one for one, known in REPRESENTATIONS.items() if known is representation]
        return [NDR64_SYNTAX] if abstract in wide else self._interfaces[abstract].transfer_syntaxes

    def _result(self, element: ContextElement, wide: Collection[SyntaxId]) -> ContextResult:
        offered = [syntax_of(one) for one in element.transfer_syntaxes]
        for one in offered:
            features = offered_features(one)
            if features is not None:
                return ContextResult(result=Result.NEGOTIATE_ACK, reason=features & _FEATURES)
        interface = self._interfaces.get(syntax_of(element.abstract_syntax))
        if interface is None:
            return _rejected(Reason.ABSTRACT_SYNTAX_NOT_SUPPORTED)
        allowed = self._allowed(element, wide)
        chosen = next((one for one in offered if one in allowed), None)
        if chosen is None:
            return _rejected(Reason.TRANSFER_SYNTAXES_NOT_SUPPORTED)
        if element.context_id not in self._contexts and len(self._contexts) >= self._limits.contexts:
            return _rejected(Reason.LOCAL_LIMIT_EXCEEDED)
        self._contexts[element.context_id] = interface, REPRESENTATIONS[chosen]
        return ContextResult(result=Result.ACCEPTANCE, transfer_syntax=to_syntax(chosen))

    # Calls

    def _request(self, pdu: Pdu) -> Event | None:
        if self.association is None:
            raise PduError("a request before a bind")
        try:
            security = self.security.of(pdu)
            opened = opened_body(security, pdu)
            request = RequestBody.parse(byte_order.request_body(opened) if pdu.big_endian else opened)
        except AuthenticationError as error:
            self.fault(pdu.call_id, FaultStatus.ACCESS_DENIED)
            self._close(str(error))
            return None
        stub = request.stub
        if pdu.flags & OBJECT_UUID:
            if len(stub) < 16:
                raise PduError("a request that ends within its object's identifier")
            stub = stub[16:]
        kind = request.context_id, request.opnum, security, pdu.big_endian
        return self._part(pdu.call_id, pdu.is_first, pdu.is_last, stub, kind)

    def _requested(self, request: WholeCall) -> Event | None:
        """Process a whole request of an anonymous client."""
        if self.association is None:
            raise PduError("a request before a bind")
        call_id, context_id, opnum, stub = request
        return self._part(call_id, True, True, stub, (context_id, opnum, None, False))

    def _part(
        self,
        call_id: int,
        is_first: bool,
        is_last: bool,
        stub: bytes,
        kind: tuple[int, int, SecurityContext | None, bool],
    ) -> Event | None:
        """Process a fragment of a request."""
        if call_id in self.calls:
            raise PduError(f"call {call_id} begins again before it is answered")
        whole = self._reassembly.add(call_id, is_first, is_last, kind, stub)
        if whole is None:
            return None
        context_id, opnum, security, big_endian = kind
        context = self._contexts.get(context_id)
        if context is None:
            self.fault(call_id, FaultStatus.UNKNOWN_INTERFACE, context_id)
            return None
        self.calls[call_id] = context_id, security
        principal = security.principal if security is not None else ""
        interface, representation = context
        written = big_endian_of(representation) if big_endian else representation
        return Called(call_id, context_id, interface, representation, written, opnum, whole, principal)

    def respond(self, call_id: int, stub: bytes) -> None:
        """End a call with a response, unless the client has abandoned it."""
        call = self.calls.pop(call_id, None)
        if call is None or self.closed:
            return
        context_id, security = call
        if security is None and len(stub) + CALL_SIZE <= self._max_transmit:
            self._out.append(write_whole_call(PduType.RESPONSE, call_id, context_id, 0, stub))
            return
        token_size = security.token_size if security is not None else 0
        for flags, piece, hint in fragments(stub, self._max_transmit, token_size):
            head = _response_head(hint, context_id)
            self._out.append(protected_pdu(security, PduType.RESPONSE, call_id, head, piece, flags))

    def fault(self, call_id: int, status: int, context_id: int = 0, *, executed: bool = False) -> None:
        """End a call with a fault."""
        context_id, _ = self.calls.pop(call_id, (context_id, None))
        flags = WHOLE if executed else WHOLE | DID_NOT_EXECUTE
        body = FaultBody(context_id=context_id, status=status).write()
        self._out.append(write_pdu(PduType.FAULT, call_id, body, flags))

    def lost(self) -> None:
        """Leave the association: the connection is lost, and its calls have ended."""
        self.closed = True
        association, self.association = self.association, None
        if association is not None:
            self._associations.leave(association)


def _proposal(pdu: Pdu) -> Bind:
    """The presentation contexts that a bind or an alter_context proposes."""
    return body_of(pdu._replace(body=byte_order.bind_body(pdu.body)) if pdu.big_endian else pdu, Bind)


@lru_cache(maxsize=1024)
def _response_head(hint: int, context_id: int) -> bytes:
    """A response before its stub data, whose size is that of most others."""
    return ResponseBody(alloc_hint=hint, context_id=context_id, stub=b"").write()


def _rejected(reason: Reason) -> ContextResult:
    return ContextResult(result=Result.PROVIDER_REJECTION, reason=reason)
