"""The TCP listener: port 1801, limits before anything is read, TLS recognised by the first byte."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from typing import Final

import structlog

from qmnode.shares import Rates, block_of
from qmnode.transport.connection import Connection

# ----------------------------------------------------------------------------------------------------------------------
# The limited slots for incoming connections, and the choice of which one to free when all are taken.
#
# Slots are shared by address block (:mod:`qmnode.shares`). Silent connections go first, then idle ones of the block
# that holds the most; a block over its share gives up its least used connection. An active peer that the node knows
# never makes room for a stranger.

GRACE: Final = 3.0
"""Seconds that a connection has to send its first message before others are preferred to it."""
IDLE: Final = 5.0
"""Seconds without a message after which a connection is idle; closing it costs its peer only a reconnection."""
_CONNECTIONS_PER_SECOND: Final = 200
"""New connections per second and block, on average."""
_SLOW_AT_ONCE: Final = 16
"""Silent connections closed at a time, so that not every newcomer costs a search."""
_AGAIN: Final = 0.1
"""Seconds between two searches when no connection could be closed, so that a flood does not cost a search for each."""


class Slot:
    """One incoming connection, from acceptance to end."""

    __slots__ = ("_slots", "block", "cancel", "connection", "since")

    def __init__(self, slots: Slots, block: str, since: float) -> None:
        self._slots = slots
        self.block = block
        self.since = since
        self.connection: Connection | None = None
        """The connection, once its first byte (and the TLS handshake, if any) has been processed."""
        self.cancel: Callable[[], object] = lambda: None
        """Ends the connection before ``connection`` is set."""

    def release(self) -> None:
        """Free the slot after the connection has ended. May be called again."""
        self._slots.remove(self)

    def close(self) -> None:
        """End the connection and free its slot."""
        self.release()
        if self.connection is not None:
            self.connection.abort()
        self.cancel()

    @property
    def silent(self) -> bool:
        """Whether the connection has sent no message yet."""
        return self.connection is None or not self.connection.session.received_count

    @property
    def heard(self) -> float:
        """When the connection last sent a message, or else was accepted."""
        return self.since if self.connection is None else max(self.since, self.connection.heard)

    def is_idle(self, now: float) -> bool:
        """Whether no message has come for a while and none waits for the disk."""
        return now - self.heard > IDLE and (self.connection is None or not self.connection.session.unsettled())


class Slots:
    """``limit`` slots in all, ``per_block`` for each address block."""

    def __init__(
        self, limit: int, per_block: int, is_declared: Callable[[Connection], bool], is_known: Callable[[str], bool]
    ) -> None:
        """``is_declared`` returns whether the node knows the peer of a connection; ``is_known`` whether a known peer
        has an address in this block.
        """
        self._limit = limit
        self._per_block = per_block
        self._is_declared = is_declared
        self._is_known = is_known
        self._blocks: dict[str, dict[Slot, None]] = {}
        self._count = 0
        self._rates = Rates(_CONNECTIONS_PER_SECOND)
        self._fruitless = float("-inf")

    def __len__(self) -> int:
        return self._count

    def take(self, block: str, now: float) -> Slot | None:
        """Return a slot for a new connection, closing another if necessary; None if no slot can be freed."""
        held = len(self._blocks.get(block, ()))
        if held >= self._per_block or self._too_fast(block, now):
            return None
        if self._count >= self._limit and not self._make_room(block, held, now):
            return None
        slot = Slot(self, block, now)
        self._blocks.setdefault(block, {})[slot] = None
        self._count += 1
        return slot

    def _too_fast(self, block: str, now: float) -> bool:
        """Whether a block opens more connections per second than allowed: each costs something, a TLS handshake a lot.
        Refused connections do not count.
        """
        rate = self._rates.of(block, now)
        if rate.take(0, now) > 0.0:
            return True
        rate.take(1, now)
        return False

    def remove(self, slot: Slot) -> None:
        """Remove a slot whose connection has ended."""
        held = self._blocks.get(slot.block)
        if held is not None and slot in held:
            del held[slot]
            self._count -= 1
            if not held:
                del self._blocks[slot.block]

    def _make_room(self, block: str, held: int, now: float) -> bool:
        known = self._is_known(block)
        if not known and now - self._fruitless < _AGAIN:
            return False
        victims = self._slow(now) or self._victim(held, known, now)
        if not victims:
            self._fruitless = now
            return False
        for victim in victims:
            victim.close()
        return True

    def _victim(self, held: int, known: bool, now: float) -> list[Slot]:
        """The slots to free for a newcomer whose block holds ``held`` slots, and which is ``known`` or a stranger."""
        as_full = sorted((one for one in self._blocks.values() if len(one) >= held), key=len, reverse=True)
        fuller = [one for one in as_full if len(one) > held]
        stranger = self._is_stranger
        found = (
            _least_heard(fuller, lambda one: one.is_idle(now) and stranger(one))
            or _least_heard(as_full, lambda one: one.silent and stranger(one))
            or _least_heard(self._over_share(fuller, held), stranger)
            or (_least_heard([self._all()], stranger) if known else None)
            or _least_heard(fuller, lambda one: one.is_idle(now))
        )
        return [] if found is None else [found]

    def _all(self) -> Iterator[Slot]:
        for slots in self._blocks.values():
            yield from slots

    def _is_stranger(self, slot: Slot) -> bool:
        return slot.connection is None or not self._is_declared(slot.connection)

    def _slow(self, now: float) -> list[Slot]:
        """Strangers that have been silent for longest and whose grace has expired."""
        slow = [one for one in self._all() if now - one.since > GRACE and one.silent and self._is_stranger(one)]
        return nsmallest(_SLOW_AT_ONCE, slow, key=lambda one: one.since)

    def _over_share(self, fuller: list[dict[Slot, None]], held: int) -> list[dict[Slot, None]]:
        """Blocks that hold more than an equal share, counting the newcomer's block."""
        share = self._limit / (len(self._blocks) + (not held))
        return [slots for slots in fuller if len(slots) > max(held + 1, share)]


def _least_heard(blocks: Iterable[Iterable[Slot]], fits: Callable[[Slot], bool]) -> Slot | None:
    """The least recently heard slot that fits, of the first block that has one."""
    for slots in blocks:
        found = min((one for one in slots if fits(one)), key=lambda one: one.heard, default=None)
        if found is not None:
            return found
    return None


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
