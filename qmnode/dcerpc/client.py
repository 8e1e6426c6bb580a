"""DCE/RPC over TCP, the client's side: concurrent calls, whose answers are matched by number."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Final, Self, cast

from qmnode.dcerpc.errors import RpcError, RpcFault
from qmnode.dcerpc.initiator import Bound, Faulted, Initiator, Returned
from qmnode.dcerpc.interface import Interface, Method
from qmnode.dcerpc.ndr import Parameters, Representation
from qmnode.dcerpc.protection import AuthenticationError, SecurityContext

CONNECT_TIMEOUT: Final = 15.0
"""Seconds for a connection and its bind."""
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class ConnectionLostError(RpcError):
    """The connection ended: the outcome of the calls under way is unknown."""


class RpcClient(asyncio.Protocol):
    """One connection to a server, bound to interfaces. ``RpcClient.connect`` makes one."""

    def __init__(self, initiator: Initiator) -> None:
        self._initiator = initiator
        self._loop = asyncio.get_running_loop()
        self._bound: asyncio.Future[None] = self._loop.create_future()
        self._pending: dict[int, tuple[asyncio.Future[Any], Method, Representation]] = {}
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
                    if pending is not None and not pending[0].done():
                        pending[0].set_exception(RpcFault(event.status))
                case Bound():
                    if not self._bound.done():
                        self._bound.set_result(None)
        self._flush()

    def _returned(self, event: Returned) -> None:
        pending = self._pending.pop(event.call_id, None)
        if pending is None or pending[0].done():
            return
        future, method, representation = pending
        try:
            future.set_result(method.response.decode(event.stub, representation))
        except RpcError as error:
            future.set_exception(error)

    def _end(self, error: Exception) -> None:
        self.lost = self.lost or error
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the calls under way: the connection is lost."""
        self.lost = self.lost or exc or ConnectionLostError("the server closed the connection")
        pending, self._pending = self._pending, {}
        for future, *_ in pending.values():
            if not future.done():
                future.set_exception(ConnectionLostError(f"the connection was lost: {self.lost}"))
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
            future.set_exception(ConnectionLostError(f"the connection was lost: {self.lost}"))
            return future
        representation = self._initiator.contexts[interface][1]
        call_id = self._initiator.request(interface, method.opnum, request.encode(representation))
        self._pending[call_id] = future, method, representation
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        return future

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
            self._transport.writelines(out)
