"""The server's side of a connection, without I/O: bytes in, calls out; answers in, bytes out.

Everything that a connection may do, and when, is here. ``receive`` takes what came and returns events; ``respond`` and
``fault`` end calls; ``data_to_send`` gives what is to be written. ``closed`` says that nothing more is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qmnode.rpc.errors import FaultStatus, PduError, RpcError
from qmnode.rpc.interface import (
    KEEP_CONNECTION_ON_ORPHAN,
    REPRESENTATIONS,
    Interface,
    SyntaxId,
    offered_features,
)
from qmnode.rpc.pdu import (
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
    body_of,
    read_pdu,
    syntax_of,
    to_syntax,
    write_pdu,
)
from qmnode.rpc.protection import (
    AuthenticationError,
    AuthenticationLevel,
    AuthenticationType,
    SecurityContext,
    opened_body,
    protected_pdu,
    token_pdu,
)
from qmnode.rpc.reassembly import Reassembly, fragments
from qmnode.structures.errors import PacketError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from qmnode.rpc.contexts import Association, Associations
    from qmnode.rpc.ndr import Representation


@dataclass(frozen=True, slots=True)
class Called:
    """A request has come, whole."""

    call_id: int
    context_id: int
    interface: Interface
    representation: Representation
    opnum: int
    stub: bytes


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client no longer wants the call; it still wants an answer."""

    call_id: int


@dataclass(frozen=True, slots=True)
class Orphaned:
    """The client no longer wants the call nor an answer."""

    call_id: int


Event = Called | Cancelled | Orphaned


@dataclass(frozen=True, slots=True)
class AcceptorLimits:
    """What a connection may take."""

    fragment: int = 5840
    """Bytes of a PDU, either way."""
    request: int = 64 * 1024
    """Bytes of a request, and of all that have begun together."""
    contexts: int = 32
    """Presentation contexts."""


_RESPONSE: Final = ResponseBody(context_id=0, stub=b"")
_LEVELS: Final = (AuthenticationLevel.INTEGRITY, AuthenticationLevel.PRIVACY)


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
        """``security`` makes the acceptor's side of a security context; without it nobody can authenticate."""
        self._interfaces = interfaces
        self._associations = associations
        self._peer = peer
        self._port = port
        self._limits = limits or AcceptorLimits()
        self._make_security = security
        self._reader = PduReader(self._limits.fragment)
        self._reassembly = Reassembly(self._limits.request)
        self._contexts: dict[int, tuple[Interface, Representation]] = {}
        self._max_transmit = self._limits.fragment
        self._out: list[bytes] = []
        self.security: SecurityContext | None = None
        self.association: Association | None = None
        self.calls: dict[int, int] = {}
        """Calls that have not ended: their presentation contexts."""
        self.pdus = 0
        """How many PDUs have come, whole."""
        self.closed = False
        self.reason = ""
        """Why it was closed."""

    # Bytes

    def data_to_send(self) -> list[bytes]:
        """What is to be written, once."""
        out, self._out = self._out, []
        return out

    @property
    def is_partial(self) -> bool:
        """Whether a PDU has begun that is not complete."""
        return self._reader.is_partial

    @property
    def principal(self) -> str:
        """Who the client is; empty for nobody in particular."""
        return self.security.principal if self.security is not None else ""

    def receive(self, received: bytes) -> list[Event]:
        """What came of these bytes. After an error of the client's the connection is closed."""
        events: list[Event] = []
        try:
            for whole in self._reader.feed(received):
                self.pdus += 1
                event = self._take(read_pdu(whole))
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
                opened_body(self.security, pdu)
                return Cancelled(pdu.call_id) if pdu.call_id in self.calls else None
            case PduType.ORPHANED:
                opened_body(self.security, pdu)
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
        body = body_of(pdu, Bind)
        try:
            token, flags = self._begin_security(pdu)
        except AuthenticationError as error:
            self._reject(pdu.call_id, RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED, str(error))
            return
        self.association = self._associations.join(body.group_id, self._peer)
        if self.association is None:
            self._reject(pdu.call_id, RejectReason.NOT_SPECIFIED, "no such association group")
            return
        self._max_transmit = min(self._limits.fragment, body.max_receive)
        self._answer(PduType.BIND_ACK, pdu, self._results(body.contexts), token, flags)

    def _begin_security(self, pdu: Pdu) -> tuple[bytes, int]:
        flags = WHOLE | pdu.flags & CONCURRENT_MULTIPLEXING
        if pdu.verifier is None:
            return b"", flags
        trailer = pdu.verifier.trailer
        if self._make_security is None:
            raise AuthenticationError("no authentication is set up")
        if trailer.auth_level not in _LEVELS:
            raise AuthenticationError(f"authentication level {trailer.auth_level}: integrity or privacy is needed")
        try:
            auth_type = AuthenticationType(trailer.auth_type)
        except ValueError:
            raise AuthenticationError(f"authentication type {trailer.auth_type} is not known") from None
        self.security = self._make_security(auth_type, AuthenticationLevel(trailer.auth_level), trailer.context_id)
        self.security.header_signing = bool(pdu.flags & SUPPORT_HEADER_SIGN)
        return self.security.step(pdu.verifier.token), flags | pdu.flags & SUPPORT_HEADER_SIGN

    def _reject(self, call_id: int, reason: RejectReason, sentence: str) -> None:
        self._out.append(write_pdu(PduType.BIND_NAK, call_id, BindNak(reason=reason).write()))
        self._close(sentence)

    def _alter_context(self, pdu: Pdu) -> None:
        if self.association is None:
            raise PduError("alter_context before a bind")
        token = b""
        if pdu.verifier is not None:
            if self.security is None:
                raise PduError("a security context cannot be added to a connection: bind another one")
            token = self._continue_security(pdu)
        self._answer(PduType.ALTER_CONTEXT_RESP, pdu, self._results(body_of(pdu, Bind).contexts), token, WHOLE)

    def _auth3(self, pdu: Pdu) -> None:
        if self.security is None or self.security.complete:
            raise PduError("an auth3 that nothing asked for")
        self._continue_security(pdu)
        if not self.security.complete:
            raise AuthenticationError("the handshake needs more than an auth3")

    def _continue_security(self, pdu: Pdu) -> bytes:
        security = self.security
        if security is None or pdu.verifier is None:
            raise PduError("a PDU of the handshake without a token")
        if security.complete:
            raise PduError("the handshake is complete")
        if pdu.verifier.trailer.context_id != security.context_id:
            raise PduError("a token of another security context")
        return security.step(pdu.verifier.token)

    def _answer(self, pdu_type: PduType, pdu: Pdu, results: Sequence[ContextResult], token: bytes, flags: int) -> None:
        assert self.association is not None
        body = BindAck(
            max_transmit=self._max_transmit,
            max_receive=self._limits.fragment,
            group_id=self.association.group_id,
            secondary_address=f"{self._port}\0".encode() if pdu_type is PduType.BIND_ACK else b"",
            results=tuple(results),
        ).write()
        if pdu.verifier is None or self.security is None:
            self._out.append(write_pdu(pdu_type, pdu.call_id, body, flags))
        else:
            self._out.append(token_pdu(self.security, pdu_type, pdu.call_id, body, token, flags))

    def _results(self, proposed: Sequence[ContextElement]) -> list[ContextResult]:
        return [self._result(element) for element in proposed]

    def _result(self, element: ContextElement) -> ContextResult:
        offered = [syntax_of(one) for one in element.transfer_syntaxes]
        for one in offered:
            features = offered_features(one)
            if features is not None:
                return ContextResult(result=Result.NEGOTIATE_ACK, reason=features & KEEP_CONNECTION_ON_ORPHAN)
        interface = self._interfaces.get(syntax_of(element.abstract_syntax))
        if interface is None:
            return _rejected(Reason.ABSTRACT_SYNTAX_NOT_SUPPORTED)
        chosen = next((one for one in offered if one in REPRESENTATIONS), None)
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
        if self.security is not None and not self.security.complete:
            raise AuthenticationError("a request before the handshake is complete")
        try:
            request = RequestBody.parse(opened_body(self.security, pdu))
        except AuthenticationError as error:
            self.fault(pdu.call_id, FaultStatus.ACCESS_DENIED)
            self._close(str(error))
            return None
        stub = request.stub
        if pdu.flags & OBJECT_UUID:
            if len(stub) < 16:
                raise PduError("a request that ends within its object's identifier")
            stub = stub[16:]
        if pdu.call_id in self.calls:
            raise PduError(f"call {pdu.call_id} begins again before it is answered")
        whole = self._reassembly.add(pdu.call_id, pdu.is_first, pdu.is_last, request.context_id, request.opnum, stub)
        if whole is None:
            return None
        context = self._contexts.get(request.context_id)
        if context is None:
            self.fault(pdu.call_id, FaultStatus.UNKNOWN_INTERFACE, request.context_id)
            return None
        self.calls[pdu.call_id] = request.context_id
        return Called(pdu.call_id, request.context_id, *context, request.opnum, whole)

    def respond(self, call_id: int, stub: bytes) -> None:
        """End a call with a response, unless the client has given it up."""
        context_id = self.calls.pop(call_id, None)
        if context_id is None or self.closed:
            return
        security = self.security
        token_size = security.token_size if security is not None else 0
        for flags, piece, hint in fragments(stub, self._max_transmit, token_size):
            head = _RESPONSE.put(alloc_hint=hint, context_id=context_id).write()
            self._out.append(protected_pdu(security, PduType.RESPONSE, call_id, head, piece, flags))

    def fault(self, call_id: int, status: int, context_id: int = 0, *, executed: bool = False) -> None:
        """End a call with a fault."""
        context_id = self.calls.pop(call_id, context_id)
        flags = WHOLE if executed else WHOLE | DID_NOT_EXECUTE
        body = FaultBody(context_id=context_id, status=status).write()
        self._out.append(write_pdu(PduType.FAULT, call_id, body, flags))

    def lost(self) -> None:
        """The connection is gone, and its calls have ended: leave the association."""
        self.closed = True
        association, self.association = self.association, None
        if association is not None:
            self._associations.leave(association)


def _rejected(reason: Reason) -> ContextResult:
    return ContextResult(result=Result.PROVIDER_REJECTION, reason=reason)
