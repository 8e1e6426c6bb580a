"""A TCP connection that carries a session: bytes in and out, timers, rates, and back-pressure both ways."""

import asyncio
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Final, cast

from qmnode.allocator import SPARED
from qmnode.protocol.commands import Closed, Command
from qmnode.protocol.neighbour import Neighbour
from qmnode.protocol.session import Session
from qmnode.shares.blocks import block_of
from qmnode.shares.parties import Party
from qmnode.shares.rates import Rate, Rates
from qmnode.structures.envelope import Packet
from qmnode.structures.guid import Guid
from qmnode.transport.certificate import queue_manager_of
from qmnode.transport.held import OF_EACH, SMALL, HeldBytes


class Alarm:
    """Calls back at a deadline that is set again and again, mostly to a later time.

    A later deadline does not touch the loop's timer: when the timer fires early, the alarm sets it again. So moving a
    deadline with every message costs only a comparison.
    """

    __slots__ = ("_armed", "_callback", "_deadline", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback = callback
        self._deadline: float | None = None
        self._armed = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def set(self, deadline: float | None) -> None:
        """Set the deadline, by the loop's clock; None for never."""
        self._deadline = deadline
        if deadline is None or (self._handle is not None and self._armed <= deadline):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._armed = max(deadline, self._loop.time())
        self._handle = self._loop.call_at(self._armed, self._fire)

    def stop(self) -> None:
        """Cancel the deadline until it is set again."""
        self._deadline = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        deadline = self._deadline
        if deadline is None:
            return
        if deadline > self._loop.time():
            self.set(deadline)
            return
        self._deadline = None
        self._callback()


BUFFER_SIZE: Final = 256 * 1024
_BEGIN: Final = SMALL + 1024
"""Bytes that are read behind a large packet: they tell whether another one follows, which is then read to its place."""
_COSTLY: Final = 1000
"""Units at once that strangers are charged for together, too: ordinary messages never cost so much."""
_LONGEST_DEBT: Final = 60.0
"""Seconds after which the connection of a stranger ends that was not read meanwhile, as its block owes."""
_CHARGED_TOGETHER: Final = 16
"""Messages that the rate counts at once: for each one alone it would cost more than it protects."""
UNSETTLED_BYTES: Final = 16 * 1024 * 1024
"""Bytes that may arrive while messages wait for the disk, or for the directory to identify their senders."""


class _Shared(threading.local):
    """One buffer for all connections of a thread: its loop reads into it and the session consumes the bytes in the
    same step.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(BUFFER_SIZE))
        self.begin = self.view[:_BEGIN]


_SHARED: Final = _Shared()

Handler = Callable[["Connection", Sequence[Command]], None]
"""Executes a session's commands. Called with all commands of one step; ``Closed`` comes exactly once, as the last."""


class Connection(asyncio.BufferedProtocol):
    """Drives one session over one transport connection.

    ``unsettled_limit`` is the number of received messages that may wait for the disk before reading from the socket
    pauses. ``rates`` and ``held`` are shared with all other connections. ``identify`` returns the queue manager
    that the certificate of a TLS peer names.
    """

    __slots__ = (
        "_alarm", "_deferred", "_follows_large", "_handler", "_held", "_holds", "_identify", "_is_judged", "_loop",
        "_own_buffer", "_processing", "_rate", "_rates", "_read_paused", "_transport", "_uncharged", "_unsettled_limit",
        "_waits_for_rate", "address", "charged", "encrypted", "established", "fed", "heard", "initiator",
        "local_address", "local_port", "neighbour", "on_lost", "on_writable", "payer", "port", "received_bytes",
        "sent_bytes", "session", "unsettled_bytes", "writable",
    )  # fmt: skip

    def __init__(
        self,
        session: Session,
        handler: Handler,
        *,
        initiator: bool,
        unsettled_limit: int,
        rates: Rates,
        held: HeldBytes,
        identify: Callable[[ssl.SSLObject], Guid | None] = lambda tls: queue_manager_of(
            tls.getpeercert(), required=False
        ),
    ) -> None:
        self.session = session
        self.initiator = initiator
        self.address = ""
        """RemoteQMAddress: the peer's address, without port."""
        self.port = 0
        self.neighbour = Neighbour("")
        """The peer's identity, as far as it has been verified."""
        self.local_address = ""
        """The local address, without port."""
        self.local_port = 0
        self.encrypted = False
        """Whether the connection uses TLS and the peer presented a trusted certificate."""
        self.writable = True
        """Whether the socket accepts more data. While False, hand no new messages to the session."""
        self.on_writable: Callable[[], object] | None = None
        self.on_lost: Callable[[], object] | None = None
        self.established = 0.0
        """Seconds since 1970 when the session opened; 0 before that."""
        self.heard = 0.0
        """When the last message arrived, by the loop's clock; 0 before the first."""
        self.sent_bytes = 0
        self.received_bytes = 0
        self.unsettled_bytes = 0
        """Bytes received since everything received earlier was settled."""
        self.fed = 0.0
        """When the last bytes arrived, by the loop's clock."""
        self.charged = 0
        """The bytes that ``payer`` is charged for."""
        self.payer: Party | None = None
        self._handler = handler
        self._unsettled_limit = unsettled_limit
        self._rates = rates
        self._rate: Rate | None = None
        self._held = held
        self._identify = identify
        self._holds = False
        """Whether an incomplete packet is large."""
        self._is_judged = False
        """Whether received messages are held until they have been judged, even if the connection is lost before."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._alarm = Alarm(self._loop, self._expired)
        self._own_buffer: memoryview | None = None
        """Where the session lets the rest of a large packet be read to."""
        self._follows_large = False
        """Whether bytes were read there, and little has come behind them."""
        self._read_paused = False
        self._waits_for_rate = False
        self._deferred: tuple[bytes, int] | None = None
        """Bytes that were read when the address block had used too much, and their number; without bytes they are in
        the buffer of the session.
        """
        self._uncharged = 0
        """Messages that the rate has yet to count."""
        self._processing = False

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the session on a new transport connection."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.address, self.port = str(peer[0]).partition("%")[0], int(peer[1])
        self.neighbour = Neighbour(self.address)
        own = transport.get_extra_info("sockname") or ("", 0)
        self.local_address, self.local_port = str(own[0]).partition("%")[0], int(own[1])
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.encrypted = True
            self.session.certified = self._identify(tls)
        self.fed = self._loop.time()
        self._rate = self._rates.of(block_of(self.address), self.fed)
        if self.session.closed:  # closed while it was being opened
            self._transport.abort()
            return
        if self.initiator:
            self.session.connected(self._loop.time())
        self.process()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        held = self._held
        view = self.session.buffer(SPARED if held.is_of_stranger(self) else 0) if self._holds else None
        self._own_buffer = view
        owed = self._rates.strangers.free_at
        is_little = (held.are_scarce or (owed and self._loop.time() < owed)) and held.is_of_stranger(self)
        if view is not None:
            return view[:_BEGIN] if is_little else view
        return _SHARED.begin if is_little or self._follows_large else _SHARED.view

    def buffer_updated(self, count: int) -> None:
        """Feed received bytes to the session."""
        self.received_bytes += count
        now, rate = self._loop.time(), self._rate
        if self._deferred is not None:  # The transport had read on before it paused.
            self._feed_deferred(now)
        elif rate is not None and (now < rate.free_at or now < self._rates.strangers.free_at):
            wait = self._debt(now)
            if wait > 0.0:
                self._defer(count, wait)
                return
        self._feed(_SHARED.view[:count], count, now)

    def _debt(self, now: float) -> float:
        """Return the seconds for which the peer is not read: its block owes, or strangers together owe and it is one
        of them whose block was not idle.
        """
        assert self._rate is not None
        until, together = self._rate.free_at, self._rates.strangers.free_at
        if until < together and now < together and not self._rate.is_rested(now) and self._held.pays_as_stranger(self):
            until = together
        return until - now

    def _defer(self, count: int, wait: float) -> None:
        """Keep bytes until the address block has paid for what it sent: reading them would cost others their turns."""
        self._deferred = (bytes(_SHARED.view[:count]) if self._own_buffer is None else b""), count
        self._wait_for_rate(wait)
        self.process()

    def _feed_deferred(self, now: float) -> None:
        assert self._deferred is not None
        (data, count), self._deferred = self._deferred, None
        self._feed(data, count, now)

    def _feed(self, data: memoryview | bytes, count: int, now: float) -> None:
        session = self.session
        self.unsettled_bytes = count + (self.unsettled_bytes if session.unsettled() else session.incomplete())
        before, cost = session.received_count, session.received_cost
        self.fed = now
        self._follows_large = self._own_buffer is not None or (self._follows_large and count < _BEGIN)
        if self._own_buffer is None:
            session.receive_data(data, now)
        else:
            self._own_buffer = None
            session.receive_filled(count, now)
        if session.received_count != before:
            self.heard = now
            self._uncharged += session.received_cost - cost
            if self._uncharged >= _CHARGED_TOGETHER:
                self._take_rate()
        self._holds = session.incomplete() > SMALL
        self.process()

    def connection_lost(self, error: Exception | None) -> None:
        """Report to the session that the transport connection broke or was closed."""
        if self._rate is not None:
            self._rate.take(self._uncharged, self._loop.time())
        self._transport = self._own_buffer = self._deferred = None
        if self.charged and not self._is_judged:
            self._held.hold(self, 0)
        if self.on_lost is not None:
            self.on_lost()
        self.session.disconnected(self._loop.time())
        self.process()

    def pause_writing(self) -> None:
        """Stop sending: the peer reads more slowly than we write."""
        self.writable = False

    def resume_writing(self) -> None:
        """Send again: the peer has caught up."""
        self.writable = True
        if self.on_writable is not None:
            self.on_writable()
        if self._read_paused:
            self.process()

    # Called by the session's owner

    def room(self) -> int:
        """The number of messages that may be sent now."""
        return self.session.room() if self.writable else 0

    def send(self, tokens: Sequence[object], packets: Sequence[Packet], time: int, *, again: bool = False) -> int:
        """Send messages; return how many were taken (``Session.send_messages``)."""
        taken = self.session.send_messages(tokens, packets, self._loop.time(), time, again=again)
        self.process()
        return taken

    def settled(self, ordinal: int, recoverable_ordinal: int) -> None:
        """Record that received messages up to these ordinals are on disk, so that they are acknowledged in due time."""
        self.session.messages_settled(ordinal, recoverable_ordinal, self._loop.time())
        self.process()

    def judging(self, *, ends: bool) -> None:
        """Record that received messages are being judged from now on, or that none of them is held any longer."""
        self._is_judged = not ends
        if ends and self._transport is None and self.charged:
            self._held.hold(self, 0)

    def read_again(self) -> None:
        """Read on, unless there is a reason not to."""
        if self._read_paused and self._transport is not None:
            self._check_reading(self._transport)

    def close(self) -> None:
        """Close the session from this side."""
        self.session.close(self._loop.time())
        self.process()

    def abort(self) -> None:
        """End the session and the connection at once, without waiting for a peer that does not read."""
        transport = self._transport
        self.close()
        if transport is not None:
            transport.abort()

    def process(self) -> None:
        """Execute the session's commands until there are none left."""
        if self._processing:
            return  # the handler called back: the loop below sees the commands that it left
        self._processing = True
        session = self.session
        ended = False
        try:
            while commands := session.commands():
                ended = ended or isinstance(commands[-1], Closed)
                self._handler(self, commands)
        finally:
            self._processing = False
        transport = self._transport
        if transport is not None:
            out = session.data_to_send()
            if out and not transport.is_closing():  # asyncio logs each write to a connection that has just been lost
                self.sent_bytes += sum(map(len, out))
                transport.writelines(out)
            if ended or session.closed:
                self._alarm.stop()
                self._transport = None
                _close(transport)
                return
            self._check_reading(transport)
        if session.closed:
            self._alarm.stop()
            return
        timer = session.next_timer()
        self._alarm.set(None if timer is None else timer[1])

    def _expired(self) -> None:
        self.session.expire(self._loop.time())
        self.process()

    # Back-pressure

    def _check_reading(self, transport: asyncio.Transport) -> None:
        """Stop reading while the store is behind, so that the peer's window, and then TCP's, slow the peer down."""
        unsettled = self.session.unsettled()
        behind = unsettled >= self._unsettled_limit or self._waits_for_rate
        # A peer that does not read its acknowledgments must not make the node buffer more of them.
        if not self.writable and not self.initiator:
            behind = True
        held = self.unsettled_bytes + OF_EACH * unsettled if unsettled else self.session.incomplete()
        if self._deferred is not None:
            held += len(self._deferred[0])
        if held > SMALL or self.charged:
            if held != self.charged:
                self._held.hold(self, held)
            behind = behind or self._held.is_to_wait(self) or bool(unsettled and held >= UNSETTLED_BYTES)
        if behind is not self._read_paused:
            self._read_paused = behind
            if behind:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _take_rate(self) -> None:
        assert self._rate is not None
        count, self._uncharged = self._uncharged, 0
        now = self._loop.time()
        wait = self._rate.take(count, now)
        if count >= _COSTLY and self._held.pays_as_stranger(self):
            self._rates.strangers.take(count, now)
            wait = self._debt(now)
        if wait > 0.0:
            self._wait_for_rate(wait)

    def _wait_for_rate(self, wait: float) -> None:
        if not self._waits_for_rate:
            self._waits_for_rate = True
            self._loop.call_later(wait, self._rate_recovered)

    def _rate_recovered(self) -> None:
        self._waits_for_rate = False
        now = self._loop.time()
        wait = self._debt(now) if self._transport is not None else 0.0
        if wait > 0.0:  # Another connection of the block was first.
            if now - self.fed > _LONGEST_DEBT and self._held.pays_as_stranger(self):
                self.abort()
            else:
                self._wait_for_rate(wait)
        elif self._deferred is not None and self._transport is not None:
            self._feed_deferred(now)
        else:
            self.process()


_LINGER: Final = 5.0


def _close(transport: asyncio.Transport) -> None:
    """Close after written data has left; a peer that does not read gets a few seconds."""
    unsent = transport.get_write_buffer_size()  # TLS loses it on closing
    transport.close()
    if unsent:
        asyncio.get_running_loop().call_later(_LINGER, transport.abort)
