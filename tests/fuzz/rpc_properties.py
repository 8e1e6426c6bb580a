"""What must hold of remote procedure calls for any bytes: stub data, towers, and both sides of a connection."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from qmnode.dcerpc import byte_order
from qmnode.dcerpc.acceptor import Acceptor, Called
from qmnode.dcerpc.authentication import AcceptorAuthentication
from qmnode.dcerpc.context_handles import Associations
from qmnode.dcerpc.endpoint_mapper import ENDPOINT_MAPPER, Tower, floors_of
from qmnode.dcerpc.errors import NdrError, RpcError
from qmnode.dcerpc.initiator import Initiator
from qmnode.dcerpc.interface import NDR64_SYNTAX, NDR_SYNTAX
from qmnode.dcerpc.ndr import NDR, NDR64, big_endian_of
from qmnode.dcerpc.negotiation import NTLM, NegotiationInitiator
from qmnode.dcerpc.ntlm import initiator_context
from qmnode.dcerpc.pdu import (
    BIG_ENDIAN,
    Bind,
    BindAck,
    ContextElement,
    ContextResult,
    PduReader,
    PduType,
    RequestBody,
    ResponseBody,
    read_pdu,
    to_syntax,
    write_pdu,
)
from qmnode.dcerpc.protection import AuthenticationError, AuthenticationLevel, AuthenticationType
from qmnode.remote_read.qm2qm import QM2QM
from qmnode.remote_read.qmcomm import QMCOMM
from qmnode.settings.remote_read import RemoteReadSettings
from tests.remote_read.stubs import STUBS

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmnode.dcerpc.ndr import Parameters, Representation

INTERFACES = {one.syntax: one for one in (QMCOMM, QM2QM, ENDPOINT_MAPPER)}
KINDS: tuple[type[Parameters], ...] = tuple(
    dict.fromkeys(
        kind
        for interface in INTERFACES.values()
        for method in interface.methods.values()
        for kind in (method.request, method.response)
    )
)
"""What travels, either way: the first byte of an input chooses."""


def check_stub(representation: Representation, data: bytes) -> None:
    """Bytes give parameters or NdrError; parameters are written as bytes that give them again."""
    if not data:
        return
    kind = KINDS[data[0] % len(KINDS)]
    try:
        value = kind.decode(data[1:], representation)
    except NdrError:
        return
    assert kind.decode(value.encode(representation), representation) == value


def check_tower(data: bytes) -> None:
    """Octets are floors or NdrError."""
    try:
        floors = floors_of(Tower(octets=data))
    except NdrError:
        return
    assert len(floors) <= 16


def check_acceptor(data: bytes) -> None:
    """A server's connection takes any bytes, and answers with nothing but PDUs."""
    for bound in (False, True):
        associations = Associations(8)
        acceptor = Acceptor(INTERFACES, associations, "peer", 135)
        if bound:
            acceptor.receive(bind())
        half = len(data) // 2
        for part in (data[:half], data[half:]):
            if acceptor.closed:
                break
            for event in acceptor.receive(part):
                if isinstance(event, Called):
                    acceptor.respond(event.call_id, event.stub)
        for whole in PduReader(65_535).feed(b"".join(acceptor.data_to_send())):
            read_pdu(whole)
        acceptor.lost()
        assert not associations


def check_initiator(data: bytes) -> None:
    """A client's connection takes any bytes, or RpcError says that they are no answer."""
    for bound in (False, True):
        initiator = Initiator([QMCOMM, QM2QM])
        initiator.bind()
        try:
            if bound:
                initiator.receive(bind_ack())
                initiator.request(QM2QM, 8, b"")
            initiator.receive(data)
        except (RpcError, AuthenticationError):
            continue


def bind() -> bytes:
    """A bind to every interface, with both transfer syntaxes."""
    contexts = tuple(
        ContextElement(context_id=number, abstract_syntax=to_syntax(one), transfer_syntaxes=(to_syntax(transfer),))
        for number, (one, transfer) in enumerate(
            (one, transfer) for one in INTERFACES for transfer in (NDR_SYNTAX, NDR64_SYNTAX)
        )
    )
    return write_pdu(PduType.BIND, 1, Bind(max_transmit=5840, max_receive=5840, contexts=contexts).write())


def bind_ack() -> bytes:
    """The answer to what an initiator proposes."""
    accepted = ContextResult(result=0, transfer_syntax=to_syntax(NDR64_SYNTAX))
    plain = ContextResult(result=0, transfer_syntax=to_syntax(NDR_SYNTAX))
    results = (accepted, plain, accepted, plain, ContextResult(result=3))
    body = BindAck(max_transmit=5840, max_receive=5840, group_id=1, secondary_address=b"135\0", results=results)
    return write_pdu(PduType.BIND_ACK, 1, body.write())


@cache
def users() -> Path:
    """A file with one user."""
    path = Path(tempfile.mkdtemp(prefix="qmfuzz")) / "users"
    path.touch(0o600)
    path.write_text("CONTOSO:alice:Secret-1\n")
    return path


def begun_initiator() -> tuple[NegotiationInitiator, bytes]:
    """A client that has sent its first token."""
    ntlm = initiator_context("host", "there", "CONTOSO\\alice", "Secret-1", AuthenticationLevel.PRIVACY, 1)
    initiator = NegotiationInitiator([(NTLM, ntlm)], AuthenticationLevel.PRIVACY, 1)
    return initiator, initiator.step(b"")


def check_negotiation(data: bytes) -> None:
    """Tokens of a handshake that come first or second, at either side, are taken or AuthenticationError.

    Nobody proves to a server who he is without the password. A client of NTLM has nothing to wait for.
    """
    acceptor = AcceptorAuthentication(RemoteReadSettings(users=users()))
    initiator, first = begun_initiator()
    begun = acceptor(AuthenticationType.NEGOTIATE, AuthenticationLevel.PRIVACY, 1)
    begun.step(first)
    bare = acceptor(AuthenticationType.NTLM, AuthenticationLevel.PRIVACY, 1)
    fresh = acceptor(AuthenticationType.NEGOTIATE, AuthenticationLevel.PRIVACY, 1)
    for side in (fresh, begun, bare, initiator):
        try:
            side.step(data)
        except AuthenticationError:
            continue
        assert side is initiator or not side.complete


RPC_TARGETS: dict[str, Callable[[bytes], None]] = {
    "stub.NDR": partial(check_stub, NDR),
    "stub.NDR64": partial(check_stub, NDR64),
    "stub.big-endian": partial(check_stub, big_endian_of(NDR)),
    "tower": check_tower,
    "acceptor": check_acceptor,
    "initiator": check_initiator,
    "negotiation": check_negotiation,
}


def rpc_seeds() -> Iterator[tuple[str, bytes]]:
    """Targets with inputs for them."""
    for stub in STUBS:
        place = KINDS.index(type(stub.ours))
        for representation in (NDR, NDR64):
            yield f"stub.{representation.name}", bytes((place,)) + stub.ours.encode(representation)
        yield "stub.big-endian", bytes((place,)) + stub.ours.encode(big_endian_of(NDR))
        request = RequestBody(context_id=2, opnum=stub.direction, stub=stub.ours.encode(NDR)).write()
        response = ResponseBody(context_id=2, stub=stub.ours.encode(NDR64)).write()
        yield "acceptor", write_pdu(PduType.REQUEST, 2, request)
        yield "initiator", write_pdu(PduType.RESPONSE, 2, response)
    yield "acceptor", bind()
    turned = bind()
    head = struct.pack(">4B4sHHI", *struct.unpack("<4B4sHHI", turned[:4] + BIG_ENDIAN + turned[8:16]))
    yield "acceptor", head + byte_order.bind_body(turned[16:])
    yield "initiator", bind_ack()
    _, first = begun_initiator()
    acceptor = AcceptorAuthentication(RemoteReadSettings(users=users()))
    yield "negotiation", first
    yield (
        "negotiation",
        acceptor(AuthenticationType.NEGOTIATE, AuthenticationLevel.PRIVACY, 1).step(first),
    )
    yield "tower", b"\1\0" + b"\2\0ab\2\0cd"
