"""A TCP connection that carries a session: bytes in and out, timers, turns, and back-pressure both ways.

One account has the bytes that all sessions hold in memory: incomplete packets, and messages that wait to be stored.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Self, TypeVar, cast

import structlog

from qmnode.allocator import SPARED, return_freed_memory
from qmnode.event_loop import loop_name, write_together
from qmnode.protocol.commands import Closed, Command
from qmnode.protocol.reception import Neighbour
from qmnode.protocol.session import Session
from qmnode.security.tls import queue_manager_of
from qmnode.shares import STEP, STEP_OF_PEER, Account, Kind, Party, Peer, Turns, stranger
from qmnode.structures.enumerations import ConnectionStatus
from qmnode.structures.error_codes import hresult_of_error
from qmnode.structures.guid import Guid
from qmnode.structures.packet_view import Packet

log = structlog.get_logger(__name__)

SMALL: Final = 16 * 1024
"""Bytes that a connection holds free of charge: it has its buffers anyway."""
OF_EACH: Final = 512
"""Bytes that the node needs for a received message beside its packet."""
_SILENCE: Final = 1.0
"""Seconds after which an incomplete packet that does not grow makes room for others."""
_PATIENCE: Final = 3.0
"""Seconds for which an incomplete packet of a stranger waits that holds more than its share."""
_PEAK: Final = 16
"""Part of the total above which a peak begins: the memory that it freed is returned to the system after it."""
_AFTER_PEAK: Final = 3.0
"""Seconds from the end of a peak to the return of its memory, unless a new one has begun."""
_NEWCOMER: Final = stranger("")


class HeldBytes:
    """Charges the bytes of each connection to the party of its peer.

    The connections of a party that holds more than its share are not read until some of their messages are stored. Only
    one of those with an incomplete packet is read on: the one that has held bytes for longest. It is closed if nothing
    comes from it while others wait.
    """

    def __init__(self, account: Account, party: Callable[[Connection], Party]) -> None:
        self._account = account
        self._party = party
        self._holders: dict[Party, dict[Connection, None]] = {}
        """The connections that are charged, the oldest charge first."""
        self._preferred: Party | None = None
        self._check: asyncio.TimerHandle | None = None
        self._check_of_ends: asyncio.TimerHandle | None = None
        self._is_peak = False
        self.are_scarce = False
        """Whether a stranger that holds nothing could hold hardly anything. Strangers are then read in small pieces,
        because all of them could be read at the same time.
        """

    def hold(self, connection: Connection, count: int) -> None:
        """Charge the bytes that a connection holds now."""
        account, payer = self._account, connection.payer
        before, after = connection.charged, count if count > SMALL else 0
        if payer is None:
            payer = connection.payer = self._party(connection)
        if after > before:
            account.charge(payer, after - before)
            if not before:
                self._holders.setdefault(payer, {})[connection] = None
                if payer.kind is Kind.STRANGER and self._check_of_ends is None:
                    self._check_ends_later()
        elif after < before:
            account.give_back(payer, before - after)
        connection.charged = after
        if before and not after:
            self._release(connection, payer)
        little = account.total / 64
        self.are_scarce = account.room(_NEWCOMER) < little
        if connection.neighbour.payer is not None:
            connection.neighbour.payer.has_little_room = account.room(payer) < little
        if after > before:
            self._is_peak = self._is_peak or sum(account.used.values()) > account.total / _PEAK
        elif self._is_peak and not self._holders:
            self._is_peak = False
            asyncio.get_running_loop().call_later(_AFTER_PEAK, self._return_memory)

    def is_oldest(self, connection: Connection) -> bool:
        """Whether a connection has held bytes for longer than others of its party."""
        payer = connection.payer
        return payer is not None and next(iter(self._holders[payer])) is connection

    def is_to_wait(self, connection: Connection) -> bool:
        """Whether a connection that holds bytes is not to be read now."""
        payer = connection.payer
        if payer is None or self._account.room(payer) > 0 or self._is_next(connection, payer):
            return False
        self._account.refused[payer.kind] += 1
        if self._check is None:
            self._check = asyncio.get_running_loop().call_later(_SILENCE, self._look)
        return True

    def _is_next(self, connection: Connection, payer: Party) -> bool:
        """Whether an incomplete packet is to become complete before others of its party, and of all strangers if these
        hold everything that they may.
        """
        if connection.session.unsettled() or not self.is_oldest(connection):
            return False
        if not self.are_scarce or payer.kind is not Kind.STRANGER:
            return True
        if self._preferred not in self._holders:
            self._prefer()
        return payer == self._preferred

    def _prefer(self) -> None:
        """Let the stranger that holds the most complete its packets, or lose them, before others."""
        strangers = [one for one in self._holders if one.kind is Kind.STRANGER]
        self._preferred = max(strangers, key=self._account.held, default=None)

    def _release(self, connection: Connection, payer: Party) -> None:
        """The peer may have proven more when it pays next. Others of its party may be read now."""
        connection.payer = None
        holders = self._holders[payer]
        del holders[connection]
        if not holders:
            del self._holders[payer]
        for one in list(holders):
            if self._account.room(payer) <= 0 and not self._is_next(one, payer):
                break
            one.read_again()

    def _return_memory(self) -> None:
        if not self._is_peak:
            asyncio.get_running_loop().run_in_executor(None, return_freed_memory)

    def _check_ends_later(self) -> None:
        self._check_of_ends = asyncio.get_running_loop().call_later(_SILENCE, self._check_ends)

    def _check_ends(self) -> None:
        """Close the connections of strangers that are gone: those that wait for their turns would notice it last."""
        self._check_of_ends = None
        now = asyncio.get_running_loop().time()
        strangers = [
            one for payer, all_of_it in self._holders.items() if payer.kind is Kind.STRANGER for one in all_of_it
        ]
        for one in strangers:
            if now - one.fed > _SILENCE and one.has_ended():
                one.abort()
        if strangers:
            self._check_ends_later()

    def _look(self) -> None:
        """Close the connections whose incomplete packets keep others waiting, and let the next ones be read. Those of a
        stranger that have waited for long end too, and those whose peer is gone: that would show only when all is read
        that came.
        """
        loop = asyncio.get_running_loop()
        self._check = None
        self._prefer()
        now = loop.time()
        for payer, holders in list(self._holders.items()):
            if self._account.room(payer) > 0:
                waiting = list(holders)
            else:
                first = next(iter(holders))
                waiting = [first]
                if first.is_begun and now - first.fed > _SILENCE and self._is_next(first, payer):
                    log.warning("a packet that does not come to its end is given up", address=first.address,
                                bytes=first.charged)  # fmt: skip
                    first.close()
                elif (len(holders) > 1 or self.are_scarce) and self._check is None:
                    self._check = loop.call_later(_SILENCE, self._look)
                for one in [*holders]:
                    is_late = payer.kind is Kind.STRANGER and one.is_begun and now - one.fed > _PATIENCE
                    if (is_late and not self._is_next(one, payer)) or one.has_ended():
                        one.abort()
            for one in waiting:
                one.read_again()


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
READ_AHEAD: Final = 64 * 1024
"""Bytes that TLS keeps before it reads no more: more than two of its records, and one read above."""
_ESTABLISHED: Final = 1
"""The state of a connection that neither end has ended, in TCP_INFO."""
_LOOK_AGAIN: Final = 1.0
"""Seconds for which it is known whether the peer of an open session is declared."""
_BEGIN: Final = SMALL + 1024
"""Bytes that are read behind a large packet: they tell whether another one follows, which is then read to its place."""
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
    pauses. ``turns`` and ``held`` are shared with all other connections; the input of each ``party``
    waits for its turns. ``identify`` returns the queue manager that the certificate of a TLS peer names.
    """

    __slots__ = (
        "_alarm", "_deferred", "_follows_large", "_handler", "_held", "_holds", "_identify", "_is_judged",
        "_looks_again", "_loop", "_own_buffer", "_party", "_peer", "_processing", "_read_paused", "_reads_ahead",
        "_transport", "_turns", "_unsettled_limit", "address", "charged", "encrypted", "established", "fed",
        "heard", "initiator", "local_address", "local_port", "lost_by", "neighbour", "on_lost", "on_writable", "payer",
        "port", "received_bytes", "sent_bytes", "session", "unsettled_bytes", "writable",
    )  # fmt: skip

    def __init__(
        self,
        session: Session,
        handler: Handler,
        *,
        initiator: bool,
        unsettled_limit: int,
        turns: Turns,
        held: HeldBytes,
        party: Callable[[Connection], Party],
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
        self.lost_by: Exception | None = None
        """The error of the transport with which the connection ended."""
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
        self._turns = turns
        self._held = held
        self._party = party
        self._peer: Peer | None = None
        """The peer, if it was declared when it was last looked at."""
        self._looks_again = 0.0
        """The moment from which that is looked at again."""
        self._identify = identify
        self._holds = False
        """Whether an incomplete packet is large."""
        self._reads_ahead = False
        """Whether the transport reads half a megabyte while it is paused, unless its limits are lowered: TLS does."""
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
        self._deferred: tuple[memoryview | bytes, int] | None = None
        """Bytes that wait for their turn, and their number; without bytes they are in the buffer of the session."""
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
            self.encrypted = self._reads_ahead = True
            self._read_ahead(pauses=False)
            self.session.certified = self._identify(tls)
        self.fed = self._loop.time()
        if self.session.closed:  # closed while it was being opened
            self._transport.abort()
            return
        if self.initiator:
            self.session.connected(self._loop.time())
        self.process()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        held, peer = self._held, self._peer
        view = self.session.buffer(SPARED if peer is None else 0) if self._holds else None
        self._own_buffer = view
        if view is not None:
            is_scarce = held.are_scarce if peer is None else peer.has_little_room and not held.is_oldest(self)
            return view[:_BEGIN] if is_scarce else view
        if peer is None:
            is_scarce = held.are_scarce or self._turns.are_scarce
        else:
            is_scarce = peer.has_little_room or bool(peer.waiting)
        return _SHARED.begin if self._follows_large or is_scarce else _SHARED.view

    def buffer_updated(self, count: int) -> None:
        """Feed received bytes to the session: those of a stranger when it is its turn."""
        self.received_bytes += count
        if self._deferred is not None:  # The transport had read on before it paused.
            self._take_turn(BUFFER_SIZE)
        now = self._loop.time()
        if now >= self._looks_again or not self.established:
            party = self._party(self)
            self._peer = self.neighbour.payer = None if party.kind is Kind.STRANGER else self._turns.peer(party)
            self._looks_again = now + _LOOK_AGAIN
        data = _SHARED.view[:count] if self._own_buffer is None else b""
        self._deferred = data, count
        if self._peer is not None:
            waits = self._turns.take_of(self._peer, self._take_turn, now)
        else:
            is_new = not self.session.received_count
            waits = self._turns.take(self.address, len(data), self._take_turn, is_urgent=is_new)
        if waits and self._deferred is not None:
            data, count = self._deferred
            self._deferred = bytes(data), count  # the buffer belongs to all
            self.process()

    def _take_turn(self, most: int = 0) -> bool:
        """Feed some of the deferred bytes to the session; return whether there are more."""
        if self._deferred is None or self._transport is None:
            return False
        data, count = self._deferred
        if not most:
            most = STEP_OF_PEER if self._peer is not None else STEP if self._turns.are_scarce else BUFFER_SIZE
        some = data[:most]
        left = data[len(some) :]
        self._deferred = (left, len(left)) if left else None
        size = len(some) if left else count
        if self._peer is None:
            self._turns.carry(size)
        try:
            self._feed(some, size, self._loop.time())
        except Exception:
            log.exception("the input of a connection cannot be handled", address=self.address)
            self._deferred = None
            self.abort()
        return self._deferred is not None

    def _feed(self, data: memoryview | bytes, count: int, now: float) -> None:
        session = self.session
        self.unsettled_bytes = count + (self.unsettled_bytes if session.unsettled() else session.incomplete())
        before = session.received_count
        self.fed = now
        self._follows_large = self._own_buffer is not None or (self._follows_large and count < _BEGIN)
        if self._own_buffer is None:
            session.receive_data(data, now)
        else:
            self._own_buffer = None
            session.receive_filled(count, now)
        if session.received_count != before:
            self.heard = now
        self._holds = session.incomplete() > SMALL
        self.process()

    def connection_lost(self, error: Exception | None) -> None:
        """Report to the session that the transport connection broke or was closed."""
        self._transport = self._own_buffer = self._deferred = None
        self.lost_by = error
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

    def has_ended(self) -> bool:
        """Whether the peer has ended the connection: it sends again what was not acknowledged."""
        if self._transport is None or self._transport.is_closing():
            return False
        connected = self._transport.get_extra_info("socket")
        return bool(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED)

    @property
    def is_begun(self) -> bool:
        """Whether all that it holds is the beginning of a packet."""
        return self._deferred is None and not self.session.unsettled()

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

    def follow(self, work: Callable[[], object]) -> None:
        """Do what follows from the peer's input: the peer pays for it."""
        self._turns.follow(self._peer or self.address, work)

    def steps(self, work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """The same for work in several steps."""
        return self._turns.steps(self._peer or self.address, work)

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
                write_together(transport, out)
            if ended or session.closed:
                self._alarm.stop()
                if self._reads_ahead and self._read_paused and not transport.is_closing():
                    self._read_ahead(pauses=False)  # the end of the other side is to be read
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
        behind = unsettled >= self._unsettled_limit or self._deferred is not None
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
            if self._reads_ahead and not transport.is_closing():
                self._read_ahead(pauses=behind)
            if behind:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _read_ahead(self, *, pauses: bool) -> None:
        """Let TLS keep little that it has not decrypted, and read nothing while reading pauses."""
        cast("Any", self._transport).set_read_buffer_limits(*((0, 0) if pauses else (READ_AHEAD, READ_AHEAD // 2)))


_LINGER: Final = 5.0


def _close(transport: asyncio.Transport) -> None:
    """Close after written data has left; a peer that does not read gets a few seconds."""
    unsent = transport.get_write_buffer_size()  # TLS loses it on closing
    transport.close()
    if unsent:
        asyncio.get_running_loop().call_later(_LINGER, transport.abort)


# ----------------------------------------------------------------------------------------------------------------------
# Outgoing TCP connections, from this node's own address (MS-MQQB 3.1.5.2.3).

CONNECT_TIMEOUT: Final = 15.0
"""Seconds for a TCP connection."""
_HANDSHAKE_TIMEOUT: Final = 5.0
"""Seconds for a TLS handshake on it. A peer that does not know TLS may wait for the rest of a packet."""

AnyProtocol = TypeVar("AnyProtocol", bound=asyncio.BaseProtocol)


class DialingError(Exception):
    """A transport connection could not be opened. Holds the status for the connection history, and the reason."""

    def __init__(self, status: ConnectionStatus, sentence: str, error: int = 0) -> None:
        super().__init__(sentence)
        self.status = status
        self.error = error
        """HRESULT; 0 if the status says enough."""
        self.in_handshake = False
        """Whether there was a connection, and TLS failed on it."""

    @classmethod
    def certificate(cls, sentence: str, error: int = 0) -> Self:
        """TLS failed on a connection."""
        made = cls(ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE, sentence, error)
        made.in_handshake = True
        return made


class _Probe(asyncio.Protocol):
    """A protocol that only shows that a connection was opened."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection: the address accepts connections."""
        transport.close()


async def is_reachable(
    address: str, port: int, own_address: str, *, tls: ssl.SSLContext | None = None, host_name: str = ""
) -> bool:
    """Whether somebody takes connections there now, over TLS if it is given."""
    try:
        await dial(_Probe, address, port, own_address, tls=tls, host_name=host_name)
    except DialingError:
        return False
    return True


async def dial(
    protocol: Callable[[], AnyProtocol],
    address: str,
    port: int,
    own_address: str,
    *,
    tls: ssl.SSLContext | None = None,
    host_name: str = "",
) -> AnyProtocol:
    """Open a connection to an address, from ``own_address`` if it is of the same family. Raises DialingError.

    Order acknowledgments for direct names go to the address that a connection comes from, so this must be one on which
    the node listens.
    """
    connected = await _connect(address, port, own_address)
    loop = asyncio.get_running_loop()
    try:
        transport, made = await loop.create_connection(
            protocol,
            sock=connected,
            ssl=tls,
            server_hostname=(host_name or address) if tls is not None else None,
            ssl_handshake_timeout=_HANDSHAKE_TIMEOUT if tls is not None else None,
        )
    except BaseException as error:
        connected.close()
        if not isinstance(error, OSError):
            raise
        raise DialingError.certificate(str(error) or type(error).__name__, hresult_of_error(error)) from error
    if transport.is_closing() and loop_name() == "uvloop":
        connected.detach()  # uvloop closes the descriptor, and this would close it again: another's, by then
    return made


def _words(error: OSError) -> str:
    """The system's own words: event loops have others for some errors."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)


async def _connect(address: str, port: int, own_address: str) -> socket.socket:
    """A socket that is connected. DialingError."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    except OSError as error:
        raise DialingError(
            ConnectionStatus.SOCKET_CONNECT_FAILURE, error.strerror or str(error), hresult_of_error(error)
        ) from error
    status = ConnectionStatus.SOCKET_BIND_FAILURE
    try:
        if own_address and (":" in own_address) is (family == socket.AF_INET6):
            made.bind((own_address, 0))
        status = ConnectionStatus.SOCKET_CONNECT_FAILURE
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await loop.sock_connect(made, (address, port))
    except TimeoutError:
        made.close()
        raise DialingError(status, f"no answer from {address} in {CONNECT_TIMEOUT:.0f} seconds") from None
    except OSError as error:
        made.close()
        raise DialingError(status, _words(error), hresult_of_error(error)) from error
    except BaseException:
        made.close()
        raise
    return made
