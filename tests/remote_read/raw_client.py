"""A client that writes what it likes, byte by byte: for hostile and odd clients."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from qmnode.dcerpc.interface import NDR_SYNTAX, Interface, SyntaxId
from qmnode.dcerpc.pdu import (
    FIRST_FRAGMENT,
    LAST_FRAGMENT,
    WHOLE,
    Bind,
    BindAck,
    ContextElement,
    FaultBody,
    Pdu,
    PduReader,
    PduType,
    RequestBody,
    ResponseBody,
    body_of,
    read_pdu,
    to_syntax,
    write_pdu,
)

if TYPE_CHECKING:
    from types import TracebackType


class RawClient:
    """A connection, used as ``async with``."""

    def __init__(self, address: str, port: int, *, own: str = "") -> None:
        """``own`` is the address to connect from, if any will not do."""
        self.address, self.port, self._own = address, port, (own, 0) if own else None
        self._found: list[bytes] = []
        self._pdus = PduReader(65_535)
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> RawClient:
        self.reader, self.writer = await asyncio.open_connection(self.address, self.port, local_addr=self._own)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self) -> Pdu | None:
        """The next PDU; None when the server has closed the connection."""
        while not self._found:
            try:
                received = await asyncio.wait_for(self.reader.read(65_536), 30)
            except ConnectionError:
                return None
            if not received:
                return None
            self._found += self._pdus.feed(received)
        return read_pdu(self._found.pop(0))

    async def closes(self) -> bool:
        """Whether the server closes the connection, whatever it says before."""
        while await self.receive() is not None:
            pass
        return True

    async def bind(self, *interfaces: Interface, receive: int = 5840, group: int = 0) -> Pdu:
        await self.send(bind_pdu(*(one.syntax for one in interfaces), receive=receive, group=group))
        answer = await self.receive()
        assert answer is not None
        return answer

    async def call(self, opnum: int, stub: bytes, call_id: int = 2, context: int = 0) -> bytes | int:
        """The stub of the response, or the status of the fault."""
        await self.send(request_pdu(opnum, stub, call_id, context=context))
        return await self.answer()

    async def answer(self) -> bytes | int:
        whole = b""
        while True:
            pdu = await self.receive()
            assert pdu is not None, "the server closed the connection"
            if pdu.pdu_type == PduType.FAULT:
                return body_of(pdu, FaultBody).status
            whole += body_of(pdu, ResponseBody).stub
            if pdu.is_last:
                return whole


def bind_pdu(*interfaces: SyntaxId, receive: int = 5840, group: int = 0, kind: int = PduType.BIND) -> bytes:
    """A bind with a context for each interface."""
    contexts = tuple(
        ContextElement(context_id=number, abstract_syntax=to_syntax(one), transfer_syntaxes=(to_syntax(NDR_SYNTAX),))
        for number, one in enumerate(interfaces)
    )
    body = Bind(max_transmit=5840, max_receive=receive, group_id=group, contexts=contexts).write()
    return write_pdu(kind, 1, body)


def request_pdu(opnum: int, stub: bytes, call_id: int = 2, *, context: int = 0, flags: int = WHOLE) -> bytes:
    """A request, or a fragment of one."""
    body = RequestBody(context_id=context, opnum=opnum, stub=stub).write()
    return write_pdu(PduType.REQUEST, call_id, body, flags)


def fragment_pdus(opnum: int, stub: bytes, size: int, call_id: int = 2) -> list[bytes]:
    """A request in fragments of so many bytes of stub data."""
    pieces = [stub[start : start + size] for start in range(0, len(stub), size)]
    return [
        request_pdu(
            opnum, piece, call_id,
            flags=(FIRST_FRAGMENT if place == 0 else 0) | (LAST_FRAGMENT if place == len(pieces) - 1 else 0),
        )
        for place, piece in enumerate(pieces)
    ]  # fmt: skip


def group_of(pdu: Pdu) -> int:
    """The association group that a bind_ack names."""
    return body_of(pdu, BindAck).group_id
