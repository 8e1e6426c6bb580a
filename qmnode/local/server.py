"""The node's side of the socket: what a connection opened and began ends with it, at the latest.

:mod:`qmnode.local.program_calls` has what applications call. Receives outside of transactions are here: they need no
task, and lose no message when they end early. Such a receive waits for a message, then for the disk, then until its
answer is handed to the socket. When the application cancels it or goes away before that, its messages are put
back in their old places. While many answers wait until the application reads them, its receives leave the next messages
to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, cast

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.event_loop import write_together
from qmnode.local import values
from qmnode.local.audited_calls import Auditor
from qmnode.local.frames import (
    ADDED_FIELDS,
    GREETING,
    HEAD_SIZE,
    PROGRAM,
    PROTOCOL_VERSION,
    RECEIVED_SIZE,
    TOGETHER_FIELD,
    Frame,
    FrameError,
    FrameKind,
    FrameReader,
    enlarge_send_buffer,
    frame_parts,
    join_small,
    received_parts,
)
from qmnode.local.program_calls import MOST_KEPT, MOST_OF_GROUP, PROGRAM_SIZE, WORK, LocalNode, MarkGroup, Methods
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.ports import Arrived, Entry
from qmnode.model.positions import RECEIVED_AT_ONCE, Claim, WaitingRead
from qmnode.model.queue_manager import QueueManager
from qmnode.model.reading import Lock, ReadOutcome
from qmnode.model.stored_message import Room
from qmnode.security.principals import Principals
from qmnode.settings.node import LocalSettings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.packet_view import Packet
from qmnode.unix_sockets import bind_unix_socket, peer_credentials, peer_groups

if TYPE_CHECKING:
    pass


_LOCK: Final = Lock()


class Taken:
    """The messages of one receive, gone from their queue."""

    __slots__ = ("entries", "group", "limit", "most", "number", "queue", "size", "slot")

    def __init__(
        self,
        number: int,
        queue: OpenQueueDescriptor,
        limit: int,
        entries: Sequence[Arrived],
        slot: int = 0,
        most: int = 0,
    ) -> None:
        self.number = number
        self.queue = queue
        self.limit = limit
        self.entries = entries
        self.slot = slot
        self.most = most
        self.group: MarkGroup | None = None
        """With its mark, if it has been written."""
        self.size = sum([len(value) for _, value in entries])
        if most and self.size > most:
            self._shorten()

    def add(self, more: Sequence[Arrived]) -> None:
        """Take some more messages."""
        self.entries = [*self.entries, *more]
        self.size += sum([len(value) for _, value in more])
        if self.most and self.size > self.most:
            self._shorten()

    def _shorten(self) -> None:
        """Put messages back until the others can be kept in the mark, or one is left."""
        kept = len(self.entries)
        while self.size > self.most and kept > 1:
            kept -= 1
            self.size -= len(self.entries[kept][1])
        too_many, self.entries = self.entries[kept:], self.entries[:kept]
        self.queue.put_back(too_many)  # together: others may wait, and get them in the queue's order


class WaitingReceive(WaitingRead):
    """A receive that waits for a message."""

    __slots__ = ("_receives", "limit", "most", "number", "queue", "room", "until")
    only_takes = True
    until: float | None
    """The time of the event loop at which it ends in vain."""
    room: Room | None
    most: int

    def __init__(self, receives: Receives, number: int, queue: OpenQueueDescriptor, limit: int, claim: Claim) -> None:
        super().__init__(queue, claim)
        self._receives = receives
        self.number = number
        self.queue = queue
        self.limit = limit

    def found(self, entry: Entry) -> None:
        """Take the message, and at the end of the pass those that came with it."""
        self._receives.found(self, [entry])

    def satisfied_by(self, entries: Sequence[Arrived]) -> None:
        """Take several messages, which came together and were never in the queue."""
        self.leave()
        self._receives.found(self, entries)

    def failed(self, error: MessageQueuingError) -> None:
        """Report that there will be no message."""
        self._receives.failed(self.number, error)


class WaitingFitting(WaitingReceive):
    """The same, of a receiver with little room: the message is locked until it is seen to fit."""

    __slots__ = ()
    only_takes = False

    def found(self, entry: Entry) -> None:
        """Take the message, or leave it to others if it is too large."""
        assert self.room is not None
        self.queue.begun.add(entry[0])
        try:
            self.room.check(entry[1])
        except MessageQueuingError as error:
            asyncio.get_running_loop().call_soon(self.queue.give_back, entry[0])
            self.failed(error)
        else:
            self.queue.end_read(entry[0], ReadOutcome.TAKEN)
            super().found(entry)


class Receives:
    """The receives of one connection, by the numbers of their calls."""

    def __init__(
        self,
        answer: Callable[[list[Taken]], None],
        fail: Callable[[int, Exception], None],
        has_room: Callable[[], bool],
    ) -> None:
        """``answer`` is called with receives whose messages are gone from the disk, and ``fail`` with the number and
        the error of one that failed. The messages count as received after ``sent``. None begins or waits unless it
        ``has_room`` for its answer.
        """
        self.methods: Methods
        """Write the marks of those with a slot, in the batch that removes their messages or brings them back."""
        self._unmarked: list[Taken] = []
        """Receives whose marks go into the current batch."""
        self._slots: dict[int, int] = {}
        """Of receives that have one and have taken nothing, by number."""
        self._answer = answer
        self._fail = fail
        self._has_room = has_room
        self.held = 0
        """Bytes of the messages that are gone from their queues and have not been handed to the socket."""
        self._asked: dict[int, tuple[OpenQueueDescriptor, int, float | None, Room | None, int]] = {}
        """Receives that have not begun: from where, how many messages, until when they may wait, by the loop, the room
        that they have, unless for any message, and how many bytes they take at most, unless one message has more."""
        self._waiting: dict[int, WaitingReceive] = {}
        self._found: list[Taken] = []
        """Receives that waited until this pass of the event loop."""
        self._taken: dict[int, Taken] = {}
        """Receives whose messages are still on the disk."""
        self._by_write: dict[asyncio.Future[None], list[Taken]] = {}
        self._unsent: list[Taken] = []
        """Receives whose answers have not been handed to the socket."""

    def __len__(self) -> int:
        """The number of receives that have not been answered."""
        return len(self._asked) + len(self._waiting) + len(self._taken)

    def __contains__(self, number: int) -> bool:
        return number in self._waiting or number in self._taken or number in self._asked

    @property
    def are_asked(self) -> bool:
        """Whether some have not begun."""
        return bool(self._asked)

    def start(
        self,
        number: int,
        queue: OpenQueueDescriptor,
        limit: int,
        timeout: float | None,
        room: Room | None = None,
        slot: int = 0,
        most: int = 0,
    ) -> None:
        """Receive up to ``limit`` messages, as ``receive_many``, or one that fits. It begins with ``begin``. ``most``:
        bytes that several messages have together at most, or 0.
        """
        if slot:
            self._slots[number] = slot
        until = timeout
        if timeout is not None and not timeout <= 0:
            until = round(asyncio.get_running_loop().time() + timeout, 3)  # those that come together end together
        self._asked[number] = queue, limit if room is None else 1, until, room, most

    def begin(self) -> None:
        """Begin the receives that came together, alike ones with one look into their queue."""
        if not self._asked or not self._has_room():
            return
        asked, self._asked = self._asked, {}
        for how, alike in groupby(asked, asked.__getitem__):
            numbers = list(alike)
            try:
                self._begin(numbers, *how)
            except Exception as error:
                for number in numbers:
                    if number not in self:
                        self._slots.pop(number, None)
                        self._fail(number, error)

    def _begin(
        self,
        numbers: list[int],
        queue: OpenQueueDescriptor,
        limit: int,
        until: float | None,
        room: Room | None,
        most: int,
    ) -> None:
        claim, left = queue.claim(None), deque(numbers)
        while left and self._has_room():
            if room is None:
                enough = RECEIVED_AT_ONCE - most if most and limit > 1 else 0
                entries = queue.take_available(limit if limit > 1 else len(left), claim, enough)
            else:
                entries = queue.take_fitting(len(left), room, claim)
            if not entries:
                for number in left:
                    self._wait(number, queue, limit, claim, until, room, most)
                return
            parts = [entries] if limit > 1 else zip(entries, strict=True)
            taken = [
                Taken(number := left.popleft(), queue, limit, part, self._slots.pop(number, 0), most) for part in parts
            ]
            for one in taken:
                self._hold(one)
            self._remove(taken)
        self._asked |= dict.fromkeys(left, (queue, limit, until, room, most))

    def _hold(self, taken: Taken) -> None:
        if taken.slot:
            self._mark_later(taken)
        self._taken[taken.number] = taken
        self.held += taken.size

    def _mark_later(self, taken: Taken) -> None:
        if not self._unmarked:
            self.methods.mark_later(self._mark)
        self._unmarked.append(taken)

    def _mark(self) -> None:
        unmarked, self._unmarked = self._unmarked, []
        if left := [one for one in unmarked if self._taken.get(one.number) is one]:  # the others were cancelled
            self._mark_received(left)

    def _mark_received(self, received: Sequence[Taken]) -> None:
        """Write the marks of receives in the current batch, with their answers unless those are large."""
        begin = size = 0
        for at, taken in enumerate(received):
            size += taken.size
            if at > begin and size > MOST_OF_GROUP:
                self._mark_group(received[begin:at])
                begin, size = at, taken.size
        self._mark_group(received[begin:] if begin else received)

    def _mark_group(self, received: Sequence[Taken]) -> None:
        marks = self.methods.marks
        assert marks is not None
        parts: list[Packet] = []
        calls = []
        for taken in received:
            is_kept = taken.size <= MOST_KEPT
            if is_kept:
                parts += received_parts(taken.number, taken.entries)
            size = HEAD_SIZE + RECEIVED_SIZE * len(taken.entries) + taken.size if is_kept else 0
            calls.append((taken.slot, taken.number, size))
        group = marks.put_received(self.methods.program, calls, parts)
        for taken in received:
            taken.group = group

    def _wait(
        self,
        number: int,
        queue: OpenQueueDescriptor,
        limit: int,
        claim: Claim,
        until: float | None,
        room: Room | None,
        most: int,
    ) -> None:
        if room is None:
            waiting = WaitingReceive(self, number, queue, limit, claim)
        else:
            waiting = WaitingFitting(self, number, queue, limit, _LOCK)
        waiting.until, waiting.room, waiting.most = until, room, most
        waiting.begin(None if until is None else max(until - asyncio.get_running_loop().time(), 0.0))
        self._waiting[number] = waiting

    def _wait_later(self) -> None:
        """Leave what comes now to others: the application has much to read before."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.leave()
        # They came before those that have not begun.
        again = {number: (one.queue, one.limit, one.until, one.room, one.most) for number, one in waiting.items()}
        self._asked = again | self._asked

    def found(self, waiting: WaitingReceive, entries: Sequence[Arrived]) -> None:
        """Note that messages have come, which are gone from their queue."""
        del self._waiting[waiting.number]
        slot = self._slots.pop(waiting.number, 0)
        self._hold(taken := Taken(waiting.number, waiting.queue, waiting.limit, entries, slot, waiting.most))
        if not self._found:
            asyncio.get_running_loop().call_soon(self._take_more)
        self._found.append(taken)
        if self._waiting and not self._has_room():
            self._wait_later()

    def failed(self, number: int, error: MessageQueuingError) -> None:
        """End a receive that waited in vain."""
        del self._waiting[number]
        self._slots.pop(number, None)
        self._fail(number, error)

    def _take_more(self) -> None:
        """Take the messages that came together with those of receives that waited."""
        found, self._found = self._found, []
        for taken in found:
            if self._taken.get(taken.number) is not taken:
                continue  # it was cancelled meanwhile
            left = taken.limit - len(taken.entries)
            if left and self._has_room():
                with contextlib.suppress(MessageQueuingError):  # the queue was closed or deleted: one has been received
                    size = taken.size + (RECEIVED_AT_ONCE - taken.most if taken.most else 0)
                    if more := taken.queue.take_available(left, taken.queue.claim(None), size):
                        self.held -= taken.size
                        taken.add(more)
                        self.held += taken.size
                        if taken.group is not None:  # written meanwhile, without these
                            self._mark_later(taken)
            self._remove([taken])

    def _remove(self, received: list[Taken]) -> None:
        """Wait for the write that removes the messages from the disk."""
        written = received[0].queue.context.store.durable()
        shared = self._by_write.get(written)
        if shared is None:
            self._by_write[written] = received
            written.add_done_callback(self._removed)
        else:
            shared += received

    def _removed(self, written: asyncio.Future[None]) -> None:
        error = cast("MessageQueuingError | None", written.exception())
        left = [one for one in self._by_write.pop(written) if self._taken.get(one.number) is one]
        for taken in left:  # the others were cancelled meanwhile
            del self._taken[taken.number]
            if error is not None:
                self.held -= taken.size
                self._fail(taken.number, error)
        if error is None:
            self._unsent += left
            self._answer(left)

    def hand_over(self, queue: OpenQueueDescriptor, entries: list[Entry]) -> None:
        """Keep messages that are gone from the disk until ``sent``, or put them back."""
        self._unsent.append(taken := Taken(0, queue, len(entries), entries))
        self.held += taken.size

    def sent(self) -> None:
        """Note that all answers have been handed to the socket."""
        for taken in self._unsent:
            self.held -= taken.size
            if taken.group is not None:
                taken.group.value = b""
        self._unsent.clear()

    def cancel(self, number: int) -> bool:
        """End a receive without its messages. False if it has been answered, or was never started."""
        self.begin()
        self._slots.pop(number, None)
        if self._asked.pop(number, None) is not None:
            return True
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.leave()
            return True
        taken = self._taken.pop(number, None)
        if taken is None:
            return False
        self.held -= taken.size
        self._withdraw([taken])
        taken.queue.put_back(taken.entries)
        return True

    def _withdraw(self, received: list[Taken]) -> None:
        """Their marks are void: the messages are put back."""
        slots: dict[MarkGroup, list[int]] = {}
        for taken in received:
            if taken.group is not None:
                slots.setdefault(taken.group, []).append(taken.slot)
        for group, some in slots.items():
            self.methods.withdraw(group, some)

    def abandon(self) -> None:
        """End all receives: the application went away, and gets no answer any more."""
        for waiting in self._waiting.values():
            waiting.leave()
        self._waiting.clear()
        left = [*self._unsent, *self._taken.values()]
        self._asked.clear()
        self._slots.clear()
        self._unsent.clear()
        self._taken.clear()
        self._withdraw(left)
        self.held = 0
        # Other receivers may wait for them: they get them in the queue's order.
        entries = [(entry, one.queue) for one in left for entry in one.entries]
        for entry, queue in sorted(entries, key=lambda one: one[0][0]):
            queue.put_back([entry])


FORGOTTEN: Final = 600.0
"""Seconds after which a program that has not connected again gets no answers of its old calls any more."""
MOST_GONE: Final = 256
"""Programs that are gone and whose answers are kept; of more the oldest is forgotten at once."""
_WRITE_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of answers that wait for a slow application before its calls are no longer read."""
_MOST_BEHIND: Final = 32 * 1024 * 1024
"""Bytes of messages for a slow application, before its receives leave the next ones in their queues."""
_CANCEL: Final = int(FrameKind.CANCEL)
_RECEIVE: Final = int(FrameKind.RECEIVE)
_PEEK: Final = int(FrameKind.PEEK)
MAXIMUM_CALLS: Final = 8192
"""Calls of one connection under way before its next ones are no longer read."""
log = structlog.get_logger(__name__)


class LocalServer(LocalNode):
    """Listens on a Unix socket for applications of this machine."""

    def __init__(
        self,
        manager: QueueManager,
        settings: LocalSettings,
        audit: Auditor | None = None,
        complete: bool = True,
        principals: Principals | None = None,
    ) -> None:
        super().__init__(manager, settings, audit, complete, principals)
        self.path = settings.socket
        self.connections: set[LocalConnection] = set()
        self._programs: dict[bytes, LocalConnection] = {}
        """The connections of programs that connect again, by what they are called."""
        self._forgetting: dict[bytes, asyncio.TimerHandle] = {}
        self._server: asyncio.Server | None = None
        self.stopping = False

    async def start(self) -> None:
        """Listen for applications. The socket of a killed node is replaced; one that answers is not."""
        listener = bind_unix_socket(self.path, self.settings.mode)
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: LocalConnection(self), sock=listener)
        log.info("listening for applications", socket=str(self.path))
        for program in self.marks.programs() if self.marks is not None else ():
            self._forget_later(program)

    def greet(self, program: bytes, connection: LocalConnection) -> LocalConnection | None:
        """Note the connection of a program, and return the one before if it has not ended."""
        if (forgetting := self._forgetting.pop(program, None)) is not None:
            forgetting.cancel()
        if self.marks is not None:
            self.marks.belong(program, connection.methods.user_id)
        before = self._programs.get(program)
        self._programs[program] = connection
        return before

    def leave(self, program: bytes, connection: LocalConnection) -> None:
        """Note that the connection of a program has ended."""
        if self._programs.get(program) is connection:
            del self._programs[program]
            if not self.stopping:
                self._forget_later(program)

    def _forget_later(self, program: bytes) -> None:
        later = asyncio.get_running_loop().call_later
        self._forgetting[program] = later(FORGOTTEN, self._forget, program)
        if len(self._forgetting) > MOST_GONE:
            oldest = next(iter(self._forgetting))
            self._forgetting[oldest].cancel()
            self._forget(oldest)

    def _forget(self, program: bytes) -> None:
        del self._forgetting[program]
        if self.marks is not None:
            self.marks.forget(program)

    async def stop(self) -> None:
        """Stop listening and end the connections; what each had open is run down."""
        if self._server is None:
            return
        self.stopping = True
        for forgetting in self._forgetting.values():
            forgetting.cancel()
        self._forgetting.clear()
        for listener in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(3):  # a connection that was just accepted is made in the next passes; then it can be ended
            await asyncio.sleep(0)
        self._server.close()
        for connection in list(self.connections):
            connection.end()
        while self.connections:
            await asyncio.gather(*(connection.gone.wait() for connection in list(self.connections)))
        await self._server.wait_closed()
        self._server = None
        self.path.unlink(missing_ok=True)


class LocalConnection(asyncio.BufferedProtocol):
    """The connection of one application: its handles, cursors and transactions."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self._turns = server.manager.context.shares.turns
        self.gone = asyncio.Event()
        self.refused = False
        """Whether there was no place for it: it takes none until it has ended."""
        self.methods: Methods
        self._transport: asyncio.Transport
        self._greeting_deadline: asyncio.TimerHandle | None = None
        self._reader = FrameReader()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._receives = Receives(self._received, self._failed, self._has_room)
        self._unstarted = 0
        """Tasks of calls that have not taken their first step."""
        self._answers: list[Packet] = []
        self._unsent = 0
        """Bytes of answers that have not been handed to the transport."""
        self._room = asyncio.Event()
        self._greeted = False
        self._paused = False
        self._writable = True

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the kernel for the user at the other end; called when an application connects."""
        self._transport = cast("asyncio.Transport", transport)
        peer: socket.socket = transport.get_extra_info("socket")
        enlarge_send_buffer(transport)
        _, user_id = peer_credentials(peer)
        self.methods = self._receives.methods = Methods(self.server, user_id, peer_groups(peer), self._receives)
        if self.server.stopping:  # it was accepted just before, and nobody would ever end it
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_WRITE_LIMIT)
        self.server.connections.add(self)
        settings, loop = self.server.settings, asyncio.get_running_loop()
        self._greeting_deadline = loop.call_later(settings.greeting_time, self._end_if_silent)
        self.refused = self._is_one_too_many()
        if self.refused:
            limit = settings.connections
            log.warning("an application was refused: too many are connected", limit=limit, user_id=self.user_id)
            refusal = MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, f"{limit} applications are connected (local.connections)"
            )
            self._answer(FrameKind.FAILED, 0, values.encode_error(refusal))
            self.end()

    @property
    def user_id(self) -> int:
        """The user at the other end."""
        return self.methods.user_id

    def _is_one_too_many(self) -> bool:
        """Whether all places are taken, or half of them by this user. Root's are counted apart, so that the
        applications of others never keep it out."""
        limit = self.server.settings.connections
        users = [one.user_id for one in self.server.connections if not one.refused]
        own = users.count(self.user_id)
        if not self.user_id:
            return own > limit
        return len(users) - users.count(0) > limit or own > max(limit // 2, 1)

    def _stop_waiting(self) -> None:
        if self._greeting_deadline is not None:
            self._greeting_deadline.cancel()
            self._greeting_deadline = None

    def _end_if_silent(self) -> None:
        if not self._greeted:
            log.info("closing a connection of an application that says nothing", user_id=self.user_id)
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes belong."""
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        """Take calls of the application, whole or in pieces."""
        self._turns.heard_own()
        try:
            for call in self._reader.filled(count):
                self._take(call)
            self._receives.begin()
        except FrameError as error:
            log.warning(
                "closing a connection that does not speak the protocol", reason=str(error), user_id=self.user_id
            )
            self._receives.begin()
            self._answer(FrameKind.FAILED, 0, values.encode([int(ErrorCode.MQ_ERROR_INVALID_PARAMETER), str(error)]))
            self.end()
        self._adjust_reading()

    def pause_writing(self) -> None:
        """The application does not read its answers: read no more of its calls."""
        self._writable = False
        self._adjust_reading()

    def resume_writing(self) -> None:
        """Let answers be written again."""
        self._writable = True
        self._room.set()
        self._adjust_reading()
        self._receives.begin()

    def _has_room(self) -> bool:
        """Whether there is room for more messages: the application reads those that it has got."""
        if self._transport.is_closing():
            return False
        behind = 0 if self._writable else self._transport.get_write_buffer_size()
        return self._receives.held + behind < _MOST_BEHIND

    async def _wait_for_room(self) -> None:
        """Wait while the application does not read: the answers of its calls would all be held in memory."""
        while self._unsent + self._transport.get_write_buffer_size() >= _MOST_BEHIND:
            self._room.clear()
            await self._room.wait()

    def _adjust_reading(self) -> None:
        paused = not self._writable or len(self._tasks) + len(self._receives) >= MAXIMUM_CALLS
        if paused != self._paused and not self._transport.is_closing():
            self._paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def end(self) -> None:
        """Send what was answered and close."""
        self._flush()
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The application went away: run down what it had."""
        self._reader = FrameReader()
        self._stop_waiting()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        self._receives.abandon()
        self._rundown = asyncio.get_running_loop().create_task(self._run_down(tasks))

    async def _run_down(self, tasks: list[asyncio.Task[None]]) -> None:
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.methods.run_down()
        finally:
            self.server.connections.discard(self)
            if self.methods.program:
                self.server.leave(self.methods.program, self)
            self.gone.set()

    # Calls

    def _take(self, call: Frame) -> None:
        if not self._greeted:
            self._greet(call)
            return
        kind, number = call[:2]
        if kind == _CANCEL:
            self._cancel(number)
            return
        if kind not in WORK:
            raise FrameError(f"calls of kind {kind} are not known")
        if number in self._tasks or number in self._receives:
            raise FrameError(f"two calls with the number {number}")
        # Calls that came before and have not begun are done first.
        if kind == _RECEIVE and not self._unstarted:
            try:
                if self.methods.begin_receive(call):
                    return
            except Exception as error:
                self._failed(number, error)
                return
        self._unstarted += 1
        self._tasks[number] = asyncio.get_running_loop().create_task(self._perform(call))

    def _cancel(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is not None:
            # After its first step, when both came together: a task that is cancelled before it never runs.
            asyncio.get_running_loop().call_soon(self._cancel_begun, number, task)
        else:
            self._cancel_receive(number)

    def _cancel_begun(self, number: int, task: asyncio.Task[None]) -> None:
        if not self._cancel_receive(number):  # a receive has ended its task
            task.cancel()

    def _cancel_receive(self, number: int) -> bool:
        if is_cancelled := self._receives.cancel(number):
            self._failed(number, _cancelled())
        return is_cancelled

    def _greet(self, call: Frame) -> None:
        hello = values.decode(call.body) if call.kind == FrameKind.HELLO else None
        if not isinstance(hello, dict):
            raise FrameError("the first frame is a hello")
        if hello.get("version") != PROTOCOL_VERSION:
            raise FrameError(
                f"the application speaks version {hello.get('version')} of the protocol, the node {PROTOCOL_VERSION}: "
                "install the same qmnode on both sides"
            )
        self._greeted = True
        self._stop_waiting()
        if hello.get(ADDED_FIELDS) is True:
            self.methods.encode = values.encode
        manager = self.server.manager
        answer = GREETING | {"computer_name": manager.computer_name, "identifier": bytes(manager.identifier)}
        program, before = hello.get(PROGRAM), None
        if program is not None and self.server.marks is not None:
            if not isinstance(program, bytes) or len(program) != PROGRAM_SIZE:
                raise FrameError(f"the identifier of a program has {PROGRAM_SIZE} bytes")
            self.methods.program = program
            answer[PROGRAM] = answer[TOGETHER_FIELD] = True
            before = self.server.greet(program, self)
        welcome = FrameKind.RESULT, call.number, values.encode(answer)
        if before is None and (program is None or manager.context.store.pending() is None):
            self._answer(*welcome)
        else:
            self._welcome = asyncio.get_running_loop().create_task(self._welcome_after(before, *welcome))

    async def _welcome_after(self, before: LocalConnection | None, kind: FrameKind, number: int, answer: bytes) -> None:
        """Answer the greeting when all that the program's connection before had begun is decided, and written."""
        if before is not None:
            before._transport.abort()
            await before.gone.wait()
        if (written := self.server.manager.context.store.pending()) is not None:
            await asyncio.wait([written])
        self._answer(kind, number, answer)

    def _received(self, received: list[Taken]) -> None:
        parts: list[Packet] = []
        whole = Counter([taken.group for taken in received])
        for taken in received:
            group = taken.group
            if group is None or not group.value or (count := whole[group]) not in (0, len(group.calls)):
                parts += received_parts(taken.number, taken.entries)
            elif count:  # the answers of all, as they are in their mark
                parts.append(memoryview(group.value)[group.start :])
                whole[group] = 0
        self._send(parts)
        if self._paused:
            self._adjust_reading()

    def _failed(self, number: int, error: Exception) -> None:
        self._answer(FrameKind.FAILED, number, values.encode(self.methods.error_value(error)))
        if self._paused:
            self._adjust_reading()

    async def _perform(self, call: Frame) -> None:
        self._unstarted -= 1
        try:
            if not self.server.completed.is_set() and not _asks_for_status(call):
                await self.server.completed.wait()
            if self._unsent >= _WRITE_LIMIT or not self._writable:
                await self._wait_for_room()
            outcome = await self.methods.perform(call)
            if call.kind == _PEEK and not self._writable:  # one message may satisfy thousands of peeks that waited
                await self._wait_for_room()
        except asyncio.CancelledError:
            if self._transport.is_closing():
                raise
            outcome = FrameKind.FAILED, (values.encode_error(_cancelled()),)
        except Exception as error:
            outcome = FrameKind.FAILED, (values.encode(self.methods.error_value(error)),)
        finally:
            del self._tasks[call.number]
            if self._paused:
                self._adjust_reading()
        if outcome is None:  # a receive, which has begun again
            self._receives.begin()
        else:
            self._answer(outcome[0], call.number, *outcome[1])

    def _answer(self, kind: FrameKind, number: int, *parts: Packet) -> None:
        self._send(frame_parts(kind, number, *parts))

    def _send(self, parts: Sequence[Packet]) -> None:
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._flush)
        self._answers += parts
        self._unsent += sum(map(len, parts))

    def _flush(self) -> None:
        answers, self._answers = self._answers, []
        self._unsent = 0
        self._room.set()
        if answers and not self._transport.is_closing():
            write_together(self._transport, join_small(answers))
            self._receives.sent()
            if self._receives.are_asked:
                asyncio.get_running_loop().call_soon(self._receives.begin)


def _asks_for_status(call: Frame) -> bool:
    return call.kind == FrameKind.CALL and values.decode(call.body)[:3] == ["manager", 0, "status"]


def _cancelled() -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_OPERATION_CANCELLED)
