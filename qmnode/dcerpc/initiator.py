"""The client's side of a connection, without I/O: calls in, bytes out; bytes in, results of calls out."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from qmnode.dcerpc.errors import FaultStatus, PduError, RpcError
from qmnode.dcerpc.interface import (
    KEEP_CONNECTION_ON_ORPHAN,
    NDR64_SYNTAX,
    NDR_SYNTAX,
    REPRESENTATIONS,
    Interface,
    SyntaxId,
    features_syntax,
)
from qmnode.dcerpc.ndr import Representation
from qmnode.dcerpc.pdu import (
    CALL_SIZE,
    CONCURRENT_MULTIPLEXING,
    SUPPORT_HEADER_SIGN,
    WHOLE,
    Bind,
    BindAck,
    BindNak,
    ContextElement,
    FaultBody,
    Pdu,
    PduReader,
    PduType,
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
    SecurityContext,
    opened_body,
    protected_pdu,
    token_pdu,
    trailer_of,
)
from qmnode.dcerpc.reassembly import Reassembly, fragments
from qmnode.structures.errors import PacketError

FRAGMENT: Final = 65_535
"""The largest PDU in bytes that a client accepts here."""
RESPONSE_LIMIT: Final = 8 * 1024 * 1024
"""The largest response in bytes: twice the largest message."""
_BIND_CALL: Final = 1
_NOT_BELIEVED: Final = (RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED, RejectReason.INVALID_CHECKSUM)


class BindRefusedError(RpcError):
    """The server accepts no calls on an interface, or none from this client."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The association exists: calls may be made."""


class Returned(NamedTuple):
    """A call has been answered."""

    call_id: int
    stub: bytes


@dataclass(frozen=True, slots=True)
class Faulted:
    """A call has ended with a fault."""

    call_id: int
    status: int


Event = Bound | Returned | Faulted


class Initiator:
    """One connection that this side opened."""

    def __init__(
        self,
        interfaces: Sequence[Interface],
        *,
        group_id: int = 0,
        representations: Sequence[Representation] = (),
        security: SecurityContext | None = None,
    ) -> None:
        """``representations`` to offer; none means all, NDR64 first."""
        self._interfaces = list(interfaces)
        self._syntaxes = [
            one for one in (NDR64_SYNTAX, NDR_SYNTAX) if not representations or REPRESENTATIONS[one] in representations
        ]
        self._reader = PduReader(FRAGMENT)
        self._reassembly = Reassembly(RESPONSE_LIMIT)
        self._security = security
        self._max_transmit = FRAGMENT
        self._out: list[bytes] = []
        self._calls: dict[int, int] = {}
        self._proposed: list[tuple[Interface, Representation] | None] = []
        self._last_call = _BIND_CALL
        self.group_id = group_id
        self.contexts: dict[Interface, tuple[int, Representation]] = {}
        """The presentation context of each interface, once bound."""
        self.bound = False
        self.closed = False

    def data_to_send(self) -> list[bytes]:
        """Take the bytes to write; each is returned once."""
        out, self._out = self._out, []
        return out

    # Association

    def bind(self) -> None:
        """Propose a context for each interface and transfer syntax, and last the features (MS-RPCE 3.3.1.5.3)."""
        elements: list[ContextElement] = []
        for interface in self._interfaces:
            for one in self._syntaxes:
                elements.append(_element(len(elements), interface, one))
                self._proposed.append((interface, REPRESENTATIONS[one]))
        elements.append(_element(len(elements), self._interfaces[-1], features_syntax(KEEP_CONNECTION_ON_ORPHAN)))
        self._proposed.append(None)
        body = Bind(
            max_transmit=FRAGMENT, max_receive=FRAGMENT, group_id=self.group_id, contexts=tuple(elements)
        ).write()
        flags = WHOLE | CONCURRENT_MULTIPLEXING
        if self._security is None:
            self._out.append(write_pdu(PduType.BIND, _BIND_CALL, body, flags))
        else:
            self._security.header_signing = True
            token = self._security.step(b"")
            flags |= SUPPORT_HEADER_SIGN
            self._out.append(token_pdu(trailer_of(self._security), PduType.BIND, _BIND_CALL, body, token, flags))

    def _bind_ack(self, pdu: Pdu) -> Event | None:
        ack = body_of(pdu, BindAck)
        if self._security is not None:
            if pdu.pdu_type == PduType.BIND_ACK:
                self._security.header_signing = bool(pdu.flags & SUPPORT_HEADER_SIGN)
            if pdu.verifier is None:
                raise AuthenticationError("the server does not authenticate")
            self._answer_token(pdu.verifier.token)
        if pdu.pdu_type == PduType.BIND_ACK:
            self._accept(ack)
        if self.bound or (self._security is not None and not self._security.complete):
            return None
        self.bound = True
        return Bound()

    def _accept(self, ack: BindAck) -> None:
        if len(ack.results) != len(self._proposed):
            raise PduError(f"{len(ack.results)} results for {len(self._proposed)} contexts")
        self.group_id = ack.group_id
        self._max_transmit = min(FRAGMENT, ack.max_receive)
        for context_id, (result, proposed) in enumerate(zip(ack.results, self._proposed, strict=True)):
            if proposed is None or result.result != Result.ACCEPTANCE or proposed[0] in self.contexts:
                continue
            if REPRESENTATIONS.get(syntax_of(result.transfer_syntax)) is not proposed[1]:
                raise PduError("a context was accepted with a transfer syntax that was not proposed")
            self.contexts[proposed[0]] = context_id, proposed[1]
        missing = [one.name for one in self._interfaces if one not in self.contexts]
        if missing:
            raise BindRefusedError(f"the server does not have the interface {', '.join(missing)}")

    def _answer_token(self, received: bytes) -> None:
        security = self._security
        assert security is not None
        if security.complete:
            return
        token = security.step(received)
        if not token:
            return
        if security.complete:
            self._out.append(token_pdu(trailer_of(security), PduType.AUTH3, _BIND_CALL, bytes(4), token, WHOLE))
            return
        again = _element(0, self._interfaces[0], self._syntaxes[0])
        body = Bind(max_transmit=FRAGMENT, max_receive=FRAGMENT, group_id=self.group_id, contexts=(again,)).write()
        self._out.append(token_pdu(trailer_of(security), PduType.ALTER_CONTEXT, _BIND_CALL, body, token, WHOLE))

    # Calls

    def request(self, interface: Interface, opnum: int, stub: bytes) -> int:
        """Begin a call and return its number."""
        self._last_call = call_id = (self._last_call & 0x7FFFFFFF) + 1
        context_id = self.contexts[interface][0]
        self._calls[call_id] = context_id
        security = self._security
        if security is None and len(stub) + CALL_SIZE <= self._max_transmit:
            self._out.append(write_whole_call(PduType.REQUEST, call_id, context_id, opnum, stub))
            return call_id
        for flags, piece, hint in fragments(stub, self._max_transmit, security.token_size if security else 0):
            head = _request_head(hint, context_id, opnum)
            self._out.append(protected_pdu(security, PduType.REQUEST, call_id, head, piece, flags))
        return call_id

    def cancel(self, call_id: int) -> None:
        """Ask the server to end a call."""
        if call_id in self._calls:
            self._out.append(protected_pdu(self._security, PduType.CO_CANCEL, call_id, b"", b"", WHOLE))

    def receive(self, received: bytes) -> list[Event]:
        """Process received bytes and return the results of calls. RpcError, AuthenticationError: it cannot go on."""
        events: list[Event] = []
        try:
            is_plain = self._security is None and self.bound
            for whole in self._reader.feed(received):
                answer = read_whole_call(whole, PduType.RESPONSE) if is_plain else None
                event = self._take(read_pdu(whole)) if answer is None else self._answered(answer)
                if event is not None:
                    events.append(event)
        except PacketError as error:
            raise PduError(str(error)) from None
        return events

    def _take(self, pdu: Pdu) -> Event | None:
        match pdu.pdu_type:
            case PduType.RESPONSE:
                return self._response(pdu)
            case PduType.FAULT:
                return self._fault(pdu)
            case PduType.BIND_ACK | PduType.ALTER_CONTEXT_RESP if not self.bound:
                return self._bind_ack(pdu)
            case PduType.BIND_NAK:
                reason = body_of(pdu, BindNak).reason
                if self._security is not None and reason in _NOT_BELIEVED:
                    raise AuthenticationError(
                        f"the server refused authentication by {self._security.auth_type.name}: "
                        "check remote_read.account"
                    )
                raise BindRefusedError(f"the server refused the bind with reason {reason}")
            case PduType.SHUTDOWN:
                return None  # a hint to make no more calls (C706 12.6.4.11)
            case _:
                raise PduError(f"a server sends no {PduType(pdu.pdu_type).name} now")

    def _response(self, pdu: Pdu) -> Event | None:
        if not self.bound:
            raise PduError("a response before the bind is answered")
        response = ResponseBody.parse(opened_body(self._security, pdu))
        return self._part(pdu.call_id, pdu.is_first, pdu.is_last, response.stub)

    def _answered(self, answer: WholeCall) -> Event | None:
        return self._part(answer.call_id, True, True, answer.stub)

    def _part(self, call_id: int, is_first: bool, is_last: bool, stub: bytes) -> Event | None:
        if call_id not in self._calls:
            return None  # abandoned
        whole = self._reassembly.add(call_id, is_first, is_last, None, stub)
        if whole is None:
            return None
        del self._calls[call_id]
        return Returned(call_id, whole)

    def _fault(self, pdu: Pdu) -> Event | None:
        status = body_of(pdu, FaultBody).status
        if not self.bound:
            if status == FaultStatus.ACCESS_DENIED:
                raise AuthenticationError("the server could not authenticate this account: check remote_read.account")
            raise BindRefusedError(f"the server answered the bind with fault {status:#010x}")
        self._reassembly.forget(pdu.call_id)
        if self._calls.pop(pdu.call_id, None) is None:
            return None
        return Faulted(pdu.call_id, status)


@lru_cache(maxsize=1024)
def _request_head(hint: int, context_id: int, opnum: int) -> bytes:
    """A request before its stub data, whose size is that of most others."""
    return RequestBody(alloc_hint=hint, context_id=context_id, opnum=opnum, stub=b"").write()


def _element(context_id: int, interface: Interface, transfer: SyntaxId) -> ContextElement:
    return ContextElement(
        context_id=context_id,
        abstract_syntax=to_syntax(interface.syntax),
        transfer_syntaxes=(to_syntax(transfer),),
    )
