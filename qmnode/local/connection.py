"""The application's side of the socket: calls out, answers in, several under way at a time.

A program's line to the node is one connection after the other.

A call that a lost connection has left without an answer is made again on the next one, if that does no harm: because it
changes nothing, or because it has a *slot*. Of a call with a slot the node has a mark, if it was done
(:mod:`qmnode.local.program_calls`), and answers it without doing it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from qmnode.errors import MessageQueuingError
from qmnode.event_loop import write_together
from qmnode.local import values
from qmnode.local.asking import unreachable
from qmnode.local.frames import (
    GREETING,
    HEAD,
    HEAD_SIZE,
    MAXIMUM_FRAME,
    MOST_SLOTS,
    PROGRAM,
    SIZE_FIELD,
    Frame,
    FrameError,
    FrameKind,
    FrameReader,
    enlarge_send_buffer,
    frame_parts,
    join_small,
)
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import new_guid
from qmnode.structures.packet_view import Packet

_UNREACHABLE: Final = ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE


class LostError(MessageQueuingError):
    """The connection to the node is lost, and with it what was open."""

    sent = False
    """Whether the call was sent, so that the node may have done it."""


def again(error: MessageQueuingError, *, sent: bool = False) -> MessageQueuingError:
    """The same error for another caller: one object raised many times would collect the tracebacks of all."""
    if not isinstance(error, LostError):
        return MessageQueuingError(error.code, error.sentence)
    lost = LostError(error.code, error.sentence)
    lost.sent = sent
    return lost


def failure(answer: Frame) -> MessageQueuingError:
    """The error that the node answered with."""
    return values.decode_error(values.decode(answer.body))


class Answer(asyncio.Future[Frame]):
    """The answer of a call that is under way.

    A caller that is cancelled cancels the call at the node, and learns of it with the answer: a message that was
    already on its way is not lost. A second cancellation ends the wait at once.
    """

    __slots__ = ("_connection", "number")

    def __init__(self, connection: Connection, number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._connection: Connection | None = connection
        self.number = number

    def cancel(self, msg: object = None) -> bool:
        if self._connection is None or self.done():
            return super().cancel(msg)
        connection, self._connection = self._connection, None
        connection.cancel_call(self.number)
        return False

    @property
    def is_cancelled_at_node(self) -> bool:
        """Whether the node has been asked to cancel the call."""
        return self._connection is None


class Connection(asyncio.BufferedProtocol):
    """A connection to a node. Every call that is under way when it breaks fails with MQ_ERROR_SERVICE_NOT_AVAILABLE."""

    def __init__(self, path: Path, last_number: int = 0) -> None:
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._waiting: dict[int, Answer] = {}
        self.last_number = last_number
        """The number of the newest call. Those of the next connection go on from it."""
        self._out: list[Packet] = []
        self._transport: asyncio.Transport | None = None
        self._lost: MessageQueuingError | None = None
        self._writable = True
        self._closed = asyncio.Event()

    @classmethod
    async def open(
        cls, path: Path, program: bytes = b"", last_number: int = 0, limit: float | None = None
    ) -> tuple[Connection, dict[str, Any]]:
        """Connect and greet; the node says who it is, within ``limit`` seconds if there is one."""
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_unix_connection(lambda: cls(path, last_number), str(path))
        except OSError as error:
            raise unreachable(path, error) from error
        silence = None if limit is None else loop.call_later(limit, connection.abort)
        greeting = GREETING | ({PROGRAM: program} if program else {})
        try:
            return connection, values.decode((await connection.call(FrameKind.HELLO, values.encode(greeting))).body)
        except BaseException:
            await connection.close()
            raise
        finally:
            if silence is not None:
                silence.cancel()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; called when the connection is made."""
        self._transport = cast("asyncio.Transport", transport)
        enlarge_send_buffer(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes belong."""
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        """Take answers of the node, whole or in pieces."""
        try:
            for answer in self._reader.filled(count):
                future = self._waiting.pop(answer.number, None)
                if future is None:
                    if answer.kind == FrameKind.FAILED and answer.number == 0:
                        self._fail(values.decode_error(values.decode(answer.body)))
                elif not future.done():
                    future.set_result(answer)
        except FrameError as error:
            self._fail(MessageQueuingError(_UNREACHABLE, f"what answers on {self.path} is no node: {error}"))
            if self._transport is not None:
                self._transport.abort()

    def pause_writing(self) -> None:
        """The node does not keep up: calls wait here."""
        self._writable = False

    def resume_writing(self) -> None:
        """Send the calls that waited."""
        self._writable = True
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The node went away, or this side closed."""
        self._reader = FrameReader()
        self._fail(LostError(_UNREACHABLE, f"the connection to the node on {self.path} is closed: connect again"))
        self._closed.set()

    def _fail(self, error: MessageQueuingError) -> None:
        self._lost = self._lost or error
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(again(self._lost, sent=True))
                future.exception()

    async def close(self) -> None:
        """Close; the node runs down what was open."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
            await self._closed.wait()

    # Calls

    @property
    def is_lost(self) -> bool:
        """Whether it has ended."""
        return self._lost is not None

    def take_number(self) -> int:
        """A number for a call."""
        self.last_number = self.last_number % 0xFFFFFFFF + 1
        return self.last_number

    def start(self, kind: FrameKind, *parts: bytes, number: int = 0) -> Answer:
        """Make a call. Calls that are made in one pass of the event loop leave together, in their order.

        ``number``: one that was taken, perhaps for the same call on a connection before.
        """
        if self._lost is not None:
            raise again(self._lost)
        size = HEAD_SIZE + sum(map(len, parts))
        if size > MAXIMUM_FRAME:
            # The node would end the connection over it, and with it all that is open.
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"one call with {size} bytes: at most {MAXIMUM_FRAME} travel at once, so send fewer messages at a time",
            )
        number = number or self.take_number()
        answer = self._waiting[number] = Answer(self, number, self._loop)
        self._send(HEAD.pack(size - SIZE_FIELD, kind, number), *parts)
        return answer

    def cancel_call(self, number: int) -> None:
        """Tell the node that a call's answer is no longer of use; the answer comes all the same."""
        if self._lost is None:
            self._send(*frame_parts(FrameKind.CANCEL, number))

    async def call(self, kind: FrameKind, *parts: bytes) -> Frame:
        """Make a call and wait for its answer. Raises the node's error.

        When the caller is cancelled, the call is cancelled at the node and its answer awaited: a message that was
        already on its way is returned and not lost.
        """
        return await self.answer(self.start(kind, *parts))

    @staticmethod
    async def answer(started: Answer, *, failed: bool = False) -> Frame:
        """Wait for the answer of a call, as :meth:`call`. ``failed``: an error of the node is an answer too."""
        try:
            answer = await started
        except asyncio.CancelledError:
            if started.cancelled() or started.exception() or (answer := started.result()).kind != FrameKind.MESSAGES:
                raise
        if answer.kind == FrameKind.FAILED and not failed:
            raise failure(answer)
        return answer

    async def method(
        self, what: str, handle: int, name: str, arguments: Iterable[object] = (), **keywords: object
    ) -> Any:
        """Call a method of the manager, a queue, a cursor or a transaction; its result, or a frame of messages."""
        answer = await self.call(FrameKind.CALL, values.encode([what, handle, name, list(arguments), keywords]))
        return answer if answer.kind == FrameKind.MESSAGES else values.decode(answer.body)

    def _send(self, *parts: Packet) -> None:
        if not self._out:
            self._loop.call_soon(self._pass_over)
        self._out += parts

    def _pass_over(self) -> None:
        if self._writable:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            write_together(self._transport, join_small(out))


def unknown(what: str) -> MessageQueuingError:
    """The error of a call that may have been done, or not."""
    return MessageQueuingError(
        _UNREACHABLE,
        f"the connection to the node was lost during {what!r}, and whether it was done is not known: look before you "
        "call it again",
    )


T = TypeVar("T")

_SOON: Final = 1.0
"""Seconds after which the next address is tried, if there is one."""
_PAUSE: Final = 0.1
"""Seconds between two attempts to connect again."""
LONGEST: Final = 300.0
"""The most seconds for which a connection is made again: the node forgets a program in twice that time."""
RECONNECT: Final = 60.0
"""Seconds in which a lost connection is made again, by default."""


class Line:
    """Connections to one of several addresses of a node."""

    def __init__(self, paths: Sequence[Path], patience: float) -> None:
        """``patience``: seconds in which a lost connection is made again; 0 leaves that to the program."""
        self._paths = paths
        self._patience = patience
        self._program = bytes(new_guid()) if patience else b""
        self.connection: Connection
        self.hello: dict[str, Any]
        self._free: list[int] = []
        self._last_slot = 0
        self._closed = False
        self._renewing: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Connect for the first time. MQ_ERROR_SERVICE_NOT_AVAILABLE if nobody answers."""
        self.connection, self.hello = await self._connected(0)

    async def _connected(self, last_number: int) -> tuple[Connection, dict[str, Any]]:
        errors = []
        limit = _SOON if len(self._paths) > 1 else None
        for path in self._paths:
            try:
                return await Connection.open(path, self._program, last_number, limit)
            except MessageQueuingError as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        raise MessageQueuingError(_UNREACHABLE, "; ".join(error.sentence for error in errors))

    @property
    def renews(self) -> bool:
        """Whether a lost connection is made again."""
        return self._patience > 0

    # Calls

    def take_slot(self) -> int:
        """A slot for a call, to be given back with ``free_slot``, or 0 if there is none."""
        if PROGRAM not in self.hello:
            return 0
        if self._free:
            return self._free.pop()
        if self._last_slot == MOST_SLOTS:
            return 0
        self._last_slot += 1
        return self._last_slot

    def free_slot(self, slot: int) -> None:
        """Let another call have the slot: the outcome of this one is known."""
        if slot:
            self._free.append(slot)

    async def repeat(self, attempt: Callable[[Connection], Awaitable[T]]) -> T:
        """Make a call that may be made twice."""
        while True:
            connection = self.connection
            try:
                return await attempt(connection)
            except LostError as error:
                await self.renewed(connection, error)

    async def once(self, what: str, attempt: Callable[[Connection], Awaitable[T]]) -> T:
        """Make a call again only if it was not sent. Raises MessageQueuingError if its outcome is not known."""
        while True:
            connection = self.connection
            try:
                return await attempt(connection)
            except LostError as error:
                if error.sent:
                    raise unknown(what) from error
                await self.renewed(connection, error)

    # The next connection

    async def renewed(self, lost: Connection, error: LostError) -> None:
        """Wait for another connection than this one. Raises its error if there is none in time."""
        if self.connection is not lost:
            return
        if self._closed or not self._patience:
            raise again(error)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.ensure_future(self._renew(lost, error))
            self._renewing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._renewing)

    async def _renew(self, lost: Connection, error: LostError) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while True:
            try:
                connection, hello = await self._connected(lost.last_number)
                if hello["identifier"] == self.hello["identifier"] and not self._closed:
                    self.connection, self.hello = connection, hello
                    return
                await connection.close()
                reason = f"{hello['computer_name']}, another queue manager, answers now"
            except MessageQueuingError as failed:
                reason = failed.sentence
            if self._closed:
                raise again(error)
            if loop.time() >= deadline:
                raise MessageQueuingError(
                    _UNREACHABLE,
                    f"the connection to the node is lost, and there was no other for {self._patience:g} s: {reason}",
                )
            await asyncio.sleep(_PAUSE)

    async def close(self) -> None:
        """Close; the node runs down what was open."""
        self._closed = True
        await self.connection.close()
