"""One connection of AMQP 1.0 over the engine of Qpid Proton, without I/O: bytes in, bytes out, events in between.

The engine does the framing, the sessions' windows and the links' credit. The links do the rest:
:mod:`qmnode.amqp.incoming`, :mod:`qmnode.amqp.outgoing`, and the link to the coordinator of transactions (AMQP 1.0,
part 4.2), whose messages declare and discharge.

The sizes are counted of the frames with which a peer opens its connection and attaches links. The engine keeps their
names, addresses and properties until both sides have detached, however a link ends. So they are counted before the
engine sees them.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import structlog
from proton import (
    Collector,
    Connection,
    Delivery,
    Endpoint,
    Event,
    ProtonException,
    Receiver,
    Terminus,
    Transport,
    symbol,
)

from qmnode.amqp.addresses import ends_with_link, opened_name
from qmnode.amqp.codec import CodecError, Described, UInt
from qmnode.amqp.end_to_end import ARRIVAL, arrival_limit
from qmnode.amqp.error_conditions import (
    DECODE,
    INTERNAL,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT,
    TRANSFER_LIMIT,
    RefusedError,
    of_endpoint,
)
from qmnode.amqp.incoming import ANONYMOUS_RELAY, Body, IncomingLink, RelayLink
from qmnode.amqp.links import DoorLink, Host, is_gone, refuse, reject
from qmnode.amqp.mapping import DELAYED_DELIVERY
from qmnode.amqp.outgoing import OutgoingLink
from qmnode.amqp.proton_engine import (
    ATTACH,
    FLOW,
    decoded,
    discard,
    frame,
    frames,
    key_of,
    link_key,
    next_event,
    remote_properties,
)
from qmnode.amqp.sections import parse
from qmnode.amqp.selectors import selector_of
from qmnode.amqp.transactions import DECLARED, Declare, read_request
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueApi
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.structures.names import MultipleElementFormatName
from qmnode.version import program_version

_HEAD: Final = struct.Struct(">IB")
_SHORTEST: Final = 8
_SEEN: Final = 16
"""Bytes of a frame that show its performative."""
_KEPT_NOWHERE: Final = frozenset(
    b"\x00\x53" + bytes((number,)) for number in (0x11, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18)
)
"""The beginnings of the frames that nothing keeps: begin, flow, transfer, disposition, detach, end, close."""
_END: Final = b"\x00\x53\x17"


class Attaches:
    """Follows the frames of a peer behind its protocol header."""

    def __init__(self) -> None:
        self._ahead = 8
        """Bytes until the next frame begins."""
        self._start = b""
        self.ends: list[int] = []
        """The places where sessions end in the bytes that were looked at last."""

    def sizes(self, data: bytes) -> list[int]:
        """The sizes of those that begin in the next bytes of the peer."""
        found: list[int] = []
        self.ends, before = [], len(self._start)
        if self._start:
            data, self._start = self._start + data, b""
        at, end = self._ahead, len(data)
        while at < end:
            left = end - at
            if left < _SEEN and (left < _SHORTEST or left < _HEAD.unpack_from(data, at)[0]):
                self._start = data[at:]
                at = end
                break
            size, offset = _HEAD.unpack_from(data, at)
            kind = data[at + 4 * offset : at + 4 * offset + 3]
            if size > _SHORTEST and kind not in _KEPT_NOWHERE:
                found.append(size)
            elif kind == _END and at > before:
                self.ends.append(at - before)
            at += max(size, _SHORTEST)
        self._ahead = at - end
        return found


_CREDIT: Final = 100
_LONGEST: Final = 4096
"""Bytes of a request."""


class CoordinatorLink:
    """Requests from a program to the coordinator. When it ends, the transactions that it declared are rolled back."""

    def __init__(self, host: Host, link: Receiver, number: int) -> None:
        self.number = number
        self._host = host
        self._link = link
        self._body = Body(host, link, _LONGEST)
        self._declared: dict[bytes, asyncio.TimerHandle] = {}
        self._closed = False
        link.flow(_CREDIT)

    def flow(self) -> None:
        """Nothing waits for it."""

    def delivery(self, delivery: Delivery) -> None:
        """A request has come."""
        if self._closed or not delivery.readable:
            return
        try:
            data = self._body.read(delivery)
        except RefusedError as error:
            refuse(self._link, error)
            return
        if data is not None:
            self._host.spawn(self._answer(delivery, data))

    def pass_ended(self) -> None:
        """Give back the credit that was used."""
        if not self._closed and self._link.credit < _CREDIT // 2:
            self._link.flow(_CREDIT - self._link.credit)

    async def close(self) -> None:
        """The link has ended."""
        self._closed = True
        self._body.drop()
        for identifier, timer in self._declared.items():
            timer.cancel()
            await self._host.transactions.abort(identifier)

    async def _answer(self, delivery: Delivery, data: bytes) -> None:
        try:
            declared = await self._do(data)
        except CodecError as error:
            refused = RefusedError(DECODE, str(error))
        except RefusedError as error:
            refused = error
        else:
            if self._closed or self._host.closed:
                return
            if declared is None:
                delivery.update(Delivery.ACCEPTED)
            else:
                delivery.local.data = [declared]
                delivery.update(DECLARED)
            delivery.settle()
            return
        if not self._closed and not self._host.closed:
            reject(delivery, refused)
            delivery.settle()

    async def _do(self, data: bytes) -> bytes | None:
        """The number of a transaction that has begun; None when one has ended."""
        request = read_request(parse(data))
        transactions = self._host.transactions
        if isinstance(request, Declare):
            identifier = transactions.declare()
            limit = self._host.settings.transaction_timeout
            self._declared[identifier] = self._host.later(limit, lambda: self._expire(identifier))
            return identifier
        if (timer := self._declared.pop(request.identifier, None)) is not None:
            timer.cancel()
        await asyncio.shield(transactions.discharge(request))
        return None

    def _expire(self, identifier: bytes) -> None:
        if self._declared.pop(identifier, None) is not None:
            self._host.spawn(self._host.transactions.abort(identifier))


log = structlog.get_logger(__name__)

_SESSIONS: Final = 64
"""The most sessions of a connection."""
_LINKS: Final = 2
"""Links of a session for whose messages its window has room. The window counts frames, however small they are."""
_SHORTEST_IDLE: Final = 0.1
"""Seconds of the shortest idle time-out of a peer: the node sends it two empty frames in each."""
MALFORMED: Final = (UnicodeDecodeError, CodecError, ProtonException, RecursionError)
"""The engine's errors for values of a peer that it takes and cannot give out, such as text that is not UTF-8."""
_TOPICS: Final = frozenset(("topic", "temporary-topic"))
"""Capabilities of a source or target that is no queue."""
_TOPIC_PREFIXES: Final = ("topic://", "/topic/", "/topics/")
TRANSACTIONAL: Final = "qmnode:transactional"
"""Property of a link that sends to a transactional queue of another machine, which nobody here can see."""


class Peer:
    """The engine of one connection, and its links."""

    def __init__(self, host: Host) -> None:
        settings = host.settings
        self._host = host
        self._transport = Transport(Transport.SERVER)
        self._transport.max_frame_size = settings.frame_size
        self._transport.channel_max = _SESSIONS - 1
        self._transport.idle_timeout = settings.idle_timeout
        self._connection = Connection()
        self._collector = Collector()
        self._connection.collect(self._collector)
        self._transport.bind(self._connection)
        self._links: dict[int, DoorLink] = {}
        self._by_key: dict[Any, DoorLink] = {}
        self._closing: set[asyncio.Task[None]] = set()
        """Links that store what they brought before they end."""
        self._ending: dict[Any, asyncio.Task[None]] = {}
        """By their keys, the links that the peer has ended and the engine still has."""
        self._last_number = 0
        self._sizes = Attaches()
        self._attach_sizes: deque[int] = deque()
        """Of frames that the engine has not turned into links yet, the opening of the connection first."""
        self._is_full = False
        """Whether a frame was refused, and with it all that follow."""
        self._attached = 0
        """Links that the engine has, those that were refused included."""
        self._handlers: dict[Any, Callable[[Any], None]] = {
            Event.CONNECTION_REMOTE_OPEN: self._connection_opened,
            Event.CONNECTION_REMOTE_CLOSE: self._connection_closed,
            Event.SESSION_REMOTE_OPEN: self._session_opened,
            Event.SESSION_REMOTE_CLOSE: self._session_closed,
            Event.LINK_REMOTE_OPEN: self._link_opened,
            Event.LINK_REMOTE_CLOSE: self._link_closed,
            Event.LINK_REMOTE_DETACH: self._link_closed,
            Event.LINK_FLOW: self._flow,
            Event.DELIVERY: self._delivery,
            Event.TRANSPORT_ERROR: self._transport_failed,
        }
        self._temporary: dict[str, int] = {}
        """Path names of this connection's temporary queues, and the numbers of the links that they end with, or 0."""
        self._taken = bytearray()
        """Bytes for the peer that are taken from the engine."""
        self.is_open = False
        """Whether the peer has opened the connection."""

    # Bytes

    def receive(self, data: bytes) -> None:
        """Pass received bytes to the engine, and handle its events."""
        if self._is_full:
            return
        for size in self._sizes.sizes(data):
            if size > self._host.settings.frame_size:
                break  # the engine refuses it
            self._attach_sizes.append(size)
            if not self._host.take_attached(size):
                self._is_full = True
                self.refuse(
                    RefusedError(RESOURCE_LIMIT, "too much is named in links: detach some, or use shorter names")
                )
                return
        view, at = memoryview(data), 0
        for end in self._sizes.ends:
            self._push(view[at:end])
            self._take()  # the engine answers the begin of a session only while it does not know of its end
            at = end
        self._push(view[at:])
        self._end_pass()

    def _push(self, view: memoryview) -> None:
        while len(view):
            capacity = self._transport.capacity()
            if capacity <= 0:
                break
            self._transport.push(bytes(view[:capacity]))
            view = view[capacity:]
            self._handle_events()

    def take_output(self) -> bytes:
        """Return the bytes that are to be sent now."""
        if self._taken:
            data, self._taken = bytes(self._taken), bytearray()
            return data
        return self._engine_output()

    def _take(self) -> bytes:
        """Take all that the engine has for the peer now, so that its next frames are known. The bytes taken."""
        start = len(self._taken)
        while data := self._engine_output():
            self._taken += data
        return bytes(self._taken[start:])

    def _engine_output(self) -> bytes:
        pending = self._transport.pending()
        if pending <= 0:
            return b""
        data = self._transport.peek(pending) or b""
        self._transport.pop(len(data))
        return bytes(data)

    @property
    def finished(self) -> bool:
        """Whether nothing is to be sent any more."""
        return not self._taken and bool(self._transport.pending() < 0)

    def tick(self, now: float) -> float:
        """Let the time pass; when to do that again, 0 for never."""
        deadline = float(self._transport.tick(now))
        self.dispatch()
        return deadline

    def refuse(self, error: RefusedError) -> None:
        """Close the connection for a reason."""
        refuse(self._connection, error)

    def stop(self) -> None:
        """The connection is lost: its receivers take no more messages."""
        for link in self._links.values():
            if isinstance(link, OutgoingLink):
                link.stop()

    async def close(self) -> None:
        """The connection is lost: what its links brought is stored, and everything that they hold is returned."""
        await self._close_links()
        self._transport.unbind()
        self._connection.free()
        self._collector = None
        self._handlers = {}

    # Events

    def dispatch(self) -> None:
        """Do what the events of the engine ask for."""
        self._handle_events()
        self._end_pass()

    def _handle_events(self) -> None:
        collector, handlers = self._collector, self._handlers
        while collector is not None and (event := next_event(collector, handlers)) is not None:
            kind, found = event
            handler = handlers.get(kind)
            if handler is not None:
                try:
                    handler(found)
                except RefusedError as error:
                    self.refuse(error)
                except MALFORMED as error:
                    self.refuse(RefusedError(DECODE, f"a frame with a value that cannot be read: {error}"))
                except Exception:
                    log.exception("an AMQP connection fails", principal=self._host.principal.name)
                    self.refuse(RefusedError(INTERNAL, "the node could not do this: its log says why"))
            collector.pop()

    def _end_pass(self) -> None:
        for link in list(self._links.values()):
            link.pass_ended()

    def _connection_opened(self, event: Any) -> None:
        connection = event.connection
        self.is_open = True
        if self._attach_sizes:
            self._attach_sizes.popleft()  # counts until the connection ends
        if 0 < (wanted := self._transport.remote_idle_timeout) < _SHORTEST_IDLE:
            raise RefusedError(
                NOT_ALLOWED, f"an idle time-out of {wanted * 1000:.0f} ms: the least is {_SHORTEST_IDLE * 1000:.0f} ms"
            )
        connection.container = self._host.manager.computer_name
        connection.offered_capabilities = [symbol(one) for one in (ANONYMOUS_RELAY, DELAYED_DELIVERY)]
        connection.properties = {symbol("product"): "qmnode", symbol("version"): program_version()}
        connection.open()

    def _session_opened(self, event: Any) -> None:
        settings = self._host.settings
        event.session.incoming_capacity = _LINKS * settings.credit * settings.frame_size
        event.session.open()

    def _session_closed(self, event: Any) -> None:
        session = event.session
        link = session.connection.link_head(0)
        ended = []
        while link is not None:
            if link.session == session:
                ended.append(link)
            link = link.next(0)
        self._host.spawn(self._end_session(session, [self._end(one) for one in ended]))

    async def _end_session(self, session: Any, links: list[asyncio.Task[None]]) -> None:
        if links:
            await asyncio.wait(links)
        if not self._host.closed:
            session.close()
            session.free()

    def _connection_closed(self, event: Any) -> None:
        self._host.spawn(self._end_connection(event.connection))

    async def _end_connection(self, connection: Any) -> None:
        await self._close_links()
        if not self._host.closed:
            connection.close()

    def _transport_failed(self, event: Any) -> None:
        condition = event.transport.condition
        log.info(
            "an AMQP connection ends", principal=self._host.principal.name,
            reason=str(condition.description or condition.name)[:200] if condition is not None else "unknown",
        )  # fmt: skip

    # Links

    def _link_opened(self, event: Any) -> None:
        link = event.link
        self._attached += 1
        link.size = self._attach_sizes.popleft() if self._attach_sizes else 0
        limit = self._host.settings.links
        if self._attached > 2 * limit:
            raise RefusedError(RESOURCE_LIMIT, f"a connection has at most {limit} links")
        if len(self._links) >= limit:
            refuse(link, RefusedError(RESOURCE_LIMIT, f"this connection has {limit} links: close some"))
            return
        self._last_number += 1
        link.number = self._last_number
        self._host.spawn(self._attach(link, self._last_number))

    async def _attach(self, link: Any, number: int) -> None:
        try:
            self._host.principal.check()
            opened = await (
                self._attach_sender(link, number) if link.is_sender else self._attach_receiver(link, number)
            )
        except (RefusedError, MessageQueuingError, *MALFORMED) as error:
            await self._end_temporary(number)
            if isinstance(error, MessageQueuingError):
                error = of_endpoint(error)
            elif not isinstance(error, RefusedError):
                error = RefusedError(DECODE, f"an address or a name that cannot be read: {error}")
            self._refuse_link(link, error)
        else:
            if self._host.closed or is_gone(link):
                await opened.close()
                await self._end_temporary(number)
                return
            self._links[number] = self._by_key[key_of(link)] = opened
            self._host.counts.links += 1
            opened.flow()
            self.dispatch()

    def _refuse_link(self, link: Any, error: RefusedError) -> None:
        if not self._host.closed and not is_gone(link):
            log.info("an AMQP link is refused", principal=self._host.principal.name, reason=error.description)
            refuse(link, error)

    async def _attach_receiver(self, link: Any, number: int) -> DoorLink:
        """A link on which the peer sends."""
        target = link.remote_target
        if target.type == Terminus.COORDINATOR:
            self._open(link)
            return CoordinatorLink(self._host, link, number)
        _check_terminus(target)
        properties = remote_properties(link)  # before the queue is open: these may be no text
        transactional = properties.get(TRANSACTIONAL) is True
        link.max_message_size = self._host.settings.message_size
        if target.address is None and not target.dynamic:
            if ARRIVAL in properties:
                raise RefusedError(NOT_IMPLEMENTED, f"{ARRIVAL} is for one queue: use a link for each queue")
            self._open(link)
            return RelayLink(self._host, link, number, transactional=transactional)
        address = await self._address(target, number)
        queue = await self._open_queue(address, Access.SEND, link)
        if isinstance(queue, OpenQueueDescriptor):
            transactional |= queue.queue.transactional
        try:
            arrival = arrival_limit(properties.get(ARRIVAL), queue)
            if arrival is not None:
                await self._host.arrivals.start()
        except (RefusedError, MessageQueuingError):
            await queue.close()
            raise
        await self._open_with(link, queue)
        return IncomingLink(self._host, link, number, queue, transactional=transactional, arrival=arrival)

    async def _attach_sender(self, link: Any, number: int) -> DoorLink:
        """A link on which the peer receives."""
        source = link.remote_source
        _check_terminus(source)
        if source.expiry_policy == Terminus.EXPIRE_NEVER:
            raise RefusedError(NOT_IMPLEMENTED, "there are no durable subscriptions: receive from a queue")
        selector = selector_of(decoded(source.filter))
        browses = source.distribution_mode == Terminus.DIST_MODE_COPY
        address = await self._address(source, number)
        queue = await self._open_queue(address, Access.PEEK if browses else Access.RECEIVE, link)
        if not isinstance(queue, OpenQueueDescriptor):
            await queue.close()
            raise RefusedError(NOT_IMPLEMENTED, "queues of other machines are only sent to: connect to that machine")
        self._take()
        await self._open_with(link, queue)
        handle = next((found.value[1] for _, found in frames(self._take()) if found.descriptor == ATTACH), None)
        return OutgoingLink(
            self._host, link, number, queue, address, browses=browses,
            tell_drained=lambda count: self._tell_drained(link, handle, count), selector=selector,
        )  # fmt: skip

    def _tell_drained(self, link: Any, handle: Any, count: int) -> None:
        """Tell a receiver that it has no credit left after ``count`` messages.

        The engine does so only when it gives up credit. It does tell the state of a session whose capacity is set, and
        the flow of a link is that with the state of the link.
        """
        self._take()
        session = link.session
        session.incoming_capacity = session.incoming_capacity
        for channel, found in frames(self._take()):
            if found.descriptor == FLOW and handle is not None:
                flow = [*found.value[:4], handle, UInt(count), UInt(0), None, True]
                self._taken += frame(channel, Described(found.descriptor, flow))
                return

    async def _address(self, terminus: Any, number: int) -> str:
        """The address of a terminus; that of a new queue if it is dynamic."""
        if not terminus.dynamic:
            return str(terminus.address or "")
        pathname = await self._host.temporary.create(self._host.party)
        self._temporary[pathname] = number if ends_with_link(terminus) else 0
        terminus.address = self._host.temporary.address(pathname)
        return str(terminus.address)

    async def _end_temporary(self, number: int | None = None) -> None:
        """Delete the temporary queues that end with a link; with the connection, all. Some are made only after that."""
        ended = [one for one, link in self._temporary.items() if number in (None, link) or self._host.closed]
        for pathname in ended:
            del self._temporary[pathname]
        for pathname in ended:
            await self._host.temporary.delete(pathname, self._host.party)

    def _is_own_temporary(self, name: str) -> bool:
        names = self._host.manager.names
        found = names.parse(name)
        queue = None if isinstance(found, MultipleElementFormatName) else names.local(found)
        return queue is not None and queue.pathname in self._temporary

    async def _open_queue(self, address: str, access: Access, link: Any) -> QueueApi:
        host, name = self._host, opened_name(address)
        caller: object = await host.principal.caller()
        if access is not Access.SEND and self._temporary and self._is_own_temporary(name):
            caller = None  # no access list lets clients receive from it: only the connection that has it does
        queue = await host.manager.open_queue(name, access, caller=caller)
        if host.closed or is_gone(link):
            await queue.close()
            raise RefusedError(NOT_ALLOWED, "the link was closed while its queue was opened")
        return queue

    async def _open_with(self, link: Any, queue: QueueApi) -> None:
        """Open a link whose queue is open, which closes again where the engine cannot do so."""
        try:
            self._open(link)
        except BaseException:
            await queue.close()
            raise

    @staticmethod
    def _open(link: Any) -> None:
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.source.durability = link.target.durability = Terminus.NONDURABLE  # no link outlasts its detach
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        link.open()

    def _link_closed(self, event: Any) -> None:
        self._end(event.link)

    def _end(self, link: Any) -> asyncio.Task[None]:
        """Store what a link brought, and then end it."""
        key = key_of(link)
        task = self._ending.get(key)
        if task is None:
            opened = self._links.pop(getattr(link, "number", 0), None)
            self._by_key.pop(key, None)
            closing = None if opened is None else self._close_link(opened)
            task = self._ending[key] = self._host.spawn(self._end_after(link, closing))
        return task

    async def _end_after(self, link: Any, closing: asyncio.Task[None] | None) -> None:
        if closing is not None:
            await closing
        if number := getattr(link, "number", 0):
            await self._end_temporary(number)
        if self._host.closed:
            return
        del self._ending[key_of(link)]
        self._attached -= 1
        self._host.take_attached(-getattr(link, "size", 0))
        if not link.state & Endpoint.LOCAL_CLOSED:
            link.close()
        link.free()

    def _close_link(self, opened: DoorLink) -> asyncio.Task[None]:
        self._host.counts.links -= 1
        task = self._host.spawn(opened.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _close_links(self) -> None:
        """Close all links, and wait for those that close already."""
        links, self._links = list(self._links.values()), {}
        self._by_key = {}
        for link in links:
            self._close_link(link)
        if self._closing:
            await asyncio.wait(self._closing)
        await self._end_temporary()

    def _of(self, link: Any) -> DoorLink | None:
        return self._links.get(getattr(link, "number", 0))

    def _flow(self, event: Any) -> None:
        if (link := self._of(event.link)) is not None:
            link.flow()

    def _delivery(self, delivery: Any) -> None:
        if (link := self._by_key.get(link_key(delivery))) is not None:
            link.delivery(delivery)
        elif (attached := delivery.link).is_receiver:
            if attached.state & Endpoint.LOCAL_UNINIT:
                raise RefusedError(TRANSFER_LIMIT, "a message on a link that has no credit yet: wait for credit")
            discard(attached, delivery)


def _check_terminus(terminus: Any) -> None:
    """Refuse a terminus that is no queue."""
    if (terminus.address or "").startswith(_TOPIC_PREFIXES) or not _TOPICS.isdisjoint(_symbols(terminus.capabilities)):
        raise RefusedError(NOT_IMPLEMENTED, "there are no topics: give the name of a queue")


def _symbols(data: Any) -> set[str]:
    """The symbols in a field that has one, or an array of them."""
    data.rewind()
    if data.next() is None:
        return set()
    found = data.get_object()
    listed = getattr(found, "elements", found) if not isinstance(found, str) else [found]
    return {one for one in listed if isinstance(one, str)} if isinstance(listed, list | tuple) else set()
