"""DCE/RPC over TCP, the client's side: concurrent calls, whose answers are matched by number."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Self, cast

from qmnode.dcerpc.errors import RpcError, RpcFault
from qmnode.dcerpc.initiator import Bound, Faulted, Initiator, Returned
from qmnode.dcerpc.interface import Interface, Method
from qmnode.dcerpc.ndr import Parameters, Representation
from qmnode.dcerpc.protection import AuthenticationError, SecurityContext
from qmnode.event_loop import write_together

CONNECT_TIMEOUT: Final = 15.0
"""Seconds for a connection and its bind."""
_AT_ONCE: Final = 64
"""Calls after which the server begins with a long series, while the rest is written."""
Reader = Callable[[bytes, Representation], Any]
"""Decodes the stub data of a response. Raises RpcError."""
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class ConnectionLostError(RpcError):
    """The connection ended: the outcome of the calls under way is unknown."""


class Calls:
    """Calls that are waited for together: many futures cost more than the calls."""

    __slots__ = ("_left", "answers", "done")

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.answers: dict[int, Any] = {}
        """The response of each call, or the RpcError that it has instead, in the order of the calls; None before."""
        self.done = done
        """Done when all are answered."""
        self._left = 0

    def expect(self, call_id: int) -> None:
        """Wait for the answer of one call more."""
        self.answers[call_id] = None
        self._left += 1

    def answer(self, call_id: int, answer: Any) -> None:
        """Note the answer of a call, which has one."""
        self.answers[call_id] = answer
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)


class RpcClient(asyncio.Protocol):
    """One connection to a server, bound to interfaces. ``RpcClient.connect`` makes one."""

    def __init__(self, initiator: Initiator) -> None:
        self._initiator = initiator
        self._loop = asyncio.get_running_loop()
        self._bound: asyncio.Future[None] = self._loop.create_future()
        self._pending: dict[int, tuple[asyncio.Future[Any] | Calls, Reader, Representation]] = {}
        self._transport: asyncio.Transport
        self._flushing = False
        self.lost: Exception | None = None
        """Why the connection ended, once it has."""

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        interfaces: Sequence[Interface],
        *,
        representations: Sequence[Representation] = (),
        security: SecurityContext | None = None,
        group_id: int = 0,
        own_address: str = "",
    ) -> Self:
        """Connect and bind. Raises RpcError, AuthenticationError, OSError; TimeoutError after ``CONNECT_TIMEOUT``."""
        initiator = Initiator(interfaces, group_id=group_id, representations=representations, security=security)
        local = (own_address, 0) if own_address else None
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, client = await asyncio.get_running_loop().create_connection(
                lambda: cls(initiator), host, port, local_addr=local
            )
            try:
                await client._bound
            except BaseException:
                client.abort()
                raise
        return client

    @property
    def group_id(self) -> int:
        """The association group, for further connections of the same association."""
        return self._initiator.group_id

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to bind: the connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
        try:
            self._initiator.bind()
        except AuthenticationError as error:
            self._end(error)
            return
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Resolve the futures of answered calls."""
        try:
            events = self._initiator.receive(data)
        except (RpcError, AuthenticationError) as error:
            self._end(error)
            return
        for event in events:
            match event:
                case Returned():
                    self._returned(event)
                case Faulted():
                    pending = self._pending.pop(event.call_id, None)
                    if pending is not None:
                        _settle(pending[0], event.call_id, RpcFault(event.status))
                case Bound():
                    if not self._bound.done():
                        self._bound.set_result(None)
        self._flush()

    def _returned(self, event: Returned) -> None:
        pending = self._pending.pop(event.call_id, None)
        if pending is None:
            return
        waiter, read, representation = pending
        try:
            answer = read(event.stub, representation)
        except RpcError as error:
            answer = error
        _settle(waiter, event.call_id, answer)

    def _end(self, error: Exception) -> None:
        self.lost = self.lost or error
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the calls under way: the connection is lost."""
        self.lost = self.lost or exc or ConnectionLostError("the server closed the connection")
        pending, self._pending = self._pending, {}
        for call_id, (waiter, *_) in pending.items():
            _settle(waiter, call_id, self._lost_error())
        if not self._bound.done():
            self._bound.set_exception(self.lost)

    def abort(self) -> None:
        """End the connection at once: the server runs down its open handles."""
        self._transport.abort()

    # Calls

    def begin(self, interface: Interface, method: Method, request: Parameters) -> asyncio.Future[Any]:
        """Begin a call and return the future of its response, which may raise RpcFault or ConnectionLostError."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.lost is not None:
            future.set_exception(self._lost_error())
            return future
        stub = request.encode(self.representation(interface))
        self._request(interface, method, stub, method.response.decode, future)
        return future

    def representation(self, interface: Interface) -> Representation:
        """The representation that calls of an interface have on this connection."""
        return self._initiator.contexts[interface][1]

    def begin_all(self, interface: Interface, method: Method, stubs: Sequence[bytes], read: Reader) -> Calls:
        """Begin calls of one method, with encoded parameters, that are waited for together; ``read`` their answers."""
        together = Calls(self._loop.create_future())
        for number, stub in enumerate(stubs):
            if self.lost is None:
                together.expect(self._request(interface, method, stub, read, together))
                if number % _AT_ONCE == _AT_ONCE - 1:
                    self._flush()
            else:
                together.answers[number] = self._lost_error()
        if self.lost is not None or not stubs:
            together.done.set_result(None)
        return together

    def _request(
        self, interface: Interface, method: Method, stub: bytes, read: Reader, waiter: asyncio.Future[Any] | Calls
    ) -> int:
        call_id = self._initiator.request(interface, method.opnum, stub)
        self._pending[call_id] = waiter, read, self._initiator.contexts[interface][1]
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        return call_id

    def _lost_error(self) -> ConnectionLostError:
        return ConnectionLostError(f"the connection was lost: {self.lost}")

    async def call(self, interface: Interface, method: Method, request: Parameters) -> Any:
        """Call, and wait for the response. If the caller stops waiting, the call continues."""
        return await self.begin(interface, method, request)

    def cancel(self, future: asyncio.Future[Any]) -> None:
        """Ask the server to cancel a call (C706 12.6.4.8)."""
        for call_id, (pending, *_) in self._pending.items():
            if pending is future:
                self._initiator.cancel(call_id)
                self._flush()
                return

    def _flush(self) -> None:
        self._flushing = False
        out = self._initiator.data_to_send()
        if out and not self._transport.is_closing():
            write_together(self._transport, out)


def _settle(waiter: asyncio.Future[Any] | Calls, call_id: int, answer: Any) -> None:
    if isinstance(waiter, Calls):
        waiter.answer(call_id, answer)
    elif waiter.done():
        return
    elif isinstance(answer, RpcError):
        waiter.set_exception(answer)
    else:
        waiter.set_result(answer)
