"""The TCP listener: port 1801, limits before anything is read, TLS recognised by the first byte."""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog

from qmnode.shares.blocks import block_of
from qmnode.transport.slots import Slot, Slots

log = structlog.get_logger(__name__)

_BACKLOG: Final = 256
_AT_ONCE: Final = 32
"""Connections accepted in one pass of the event loop, so that a flood of them delays nothing else."""
_PEEK_TIMEOUT: Final = 10.0
_HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds for a TLS handshake, which costs the peer less than the node."""
_TLS_RECORD: Final = 0x16
_SHORTAGE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SHORTAGE_PAUSE: Final = 1.0


def listening_sockets(address: str, port: int, kind: socket.SocketKind) -> list[socket.socket]:
    """Sockets bound to an address, or to all IPv4 and IPv6 addresses without one. Raises OSError on failure."""
    wanted = [address] if address else ["0.0.0.0", "::"]  # noqa: S104  # a server for its network
    found: list[socket.socket] = []
    try:
        for one in wanted:
            family = socket.AF_INET6 if ":" in one else socket.AF_INET
            try:
                made = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT and not address:
                    continue
                raise
            found.append(made)
            if kind is socket.SOCK_STREAM:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                made.bind((one, port))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL and not address:
                    found.pop().close()  # this machine has no IPv6
                    continue
                raise
            if kind is socket.SOCK_STREAM:
                made.listen(_BACKLOG)
    except BaseException:
        for one_socket in found:
            one_socket.close()
        raise
    return found


class Listener:
    """Accepts connections within limits, and makes a protocol for each one."""

    def __init__(
        self,
        protocol: Callable[[Slot], asyncio.BaseProtocol],
        slots: Slots,
    ) -> None:
        """``protocol`` makes the protocol for a slot; the protocol releases the slot when the connection is lost."""
        self._protocol = protocol
        self._slots = slots
        self._tls: ssl.SSLContext | None = None
        self._requires_tls: Callable[[str], bool] = lambda address: False
        self._sockets: list[socket.socket] = []
        self._begun: set[asyncio.Task[None]] = set()
        self.refused = 0
        """Connections closed at once because there were too many."""

    @property
    def sessions(self) -> int:
        """The number of open incoming connections."""
        return len(self._slots)

    def start(self, address: str, port: int) -> None:
        """Start to listen. Raises OSError if the address is in use or not of this machine."""
        self._sockets = listening_sockets(address, port, socket.SOCK_STREAM)
        self._resume()

    def use_tls(self, context: ssl.SSLContext | None, is_required: Callable[[str], bool]) -> None:
        """Accept TLS connections too, and only TLS from addresses for which ``is_required`` returns True."""
        self._tls, self._requires_tls = context, is_required

    def _resume(self) -> None:
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.add_reader(one, self._accept, one)

    def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            loop.remove_reader(one)

    async def stop(self) -> None:
        """Accept no more connections. Open ones continue."""
        self._pause()
        for one in self._sockets:
            one.close()
        self._sockets = []
        for task in list(self._begun):
            task.cancel()
        await asyncio.gather(*self._begun, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORTAGE:
                    raise
                log.error("no connection can be accepted", reason=str(error), again_in=_SHORTAGE_PAUSE)
                self._pause()
                asyncio.get_running_loop().call_later(_SHORTAGE_PAUSE, self._resume)
                return
            address = str(peer[0]).partition("%")[0]
            slot = self._slots.take(block_of(address), asyncio.get_running_loop().time())
            if slot is None:
                self.refused += 1
                accepted.close()
                continue
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = asyncio.get_running_loop().create_task(self._begin(accepted, address, slot))
            slot.cancel = task.cancel
            self._begun.add(task)
            task.add_done_callback(self._begun.discard)

    async def _begin(self, accepted: socket.socket, address: str, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        try:
            context = None
            if self._tls is not None and await _first_byte(accepted) == _TLS_RECORD:
                context = self._tls
            if context is None and self._requires_tls(address):
                raise ConnectionRefusedError(f"{address} has to speak TLS")
            timeout = None if context is None else _HANDSHAKE_TIMEOUT
            await loop.connect_accepted_socket(
                lambda: self._protocol(slot), accepted, ssl=context, ssl_handshake_timeout=timeout
            )
        except (OSError, TimeoutError, asyncio.CancelledError, ssl.SSLError) as error:
            log.info("a connection was not begun", address=address, reason=str(error) or type(error).__name__)
            accepted.close()
            if slot.connection is not None:  # made before a handshake that failed, and not notified of that
                slot.connection.abort()
            slot.release()
            if isinstance(error, asyncio.CancelledError):
                raise


async def _first_byte(accepted: socket.socket) -> int | None:
    """Peek at the first byte that the peer sends; None if it sends none."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def is_readable() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(accepted, is_readable)
    try:
        async with asyncio.timeout(_PEEK_TIMEOUT):
            await readable
    finally:
        loop.remove_reader(accepted)
    with contextlib.suppress(BlockingIOError):
        return next(iter(accepted.recv(1, socket.MSG_PEEK)), None)
    return None
