"""The application's side of the socket: calls out, answers in, several calls under way at a time."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

from qmnode.errors import MessageQueuingError
from qmnode.local import values
from qmnode.local.asking import unreachable
from qmnode.local.frames import (
    GREETING,
    HEAD_SIZE,
    MAXIMUM_FRAME,
    Frame,
    FrameError,
    FrameReader,
    Kind,
    frame_parts,
)
from qmnode.structures.error_codes import ErrorCode

_UNREACHABLE: Final = ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE


def again(error: MessageQueuingError) -> MessageQueuingError:
    """The same error for another caller: one object raised many times would collect the tracebacks of all."""
    return MessageQueuingError(error.code, error.sentence)


def failure(answer: Frame) -> MessageQueuingError:
    """The error that the node answered with."""
    return values.decode_error(values.decode(answer.body))


class Answer(asyncio.Future[Frame]):
    """The answer of a call that is under way.

    A caller that is cancelled cancels the call at the node, and learns of it with the answer: a message that was
    already on its way is not lost. A second cancellation ends the wait at once.
    """

    def __init__(self, connection: "Connection", number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._connection: Connection | None = connection
        self._number = number

    def cancel(self, msg: object = None) -> bool:
        if self._connection is None or self.done():
            return super().cancel(msg)
        connection, self._connection = self._connection, None
        connection.cancel_call(self._number)
        return False


class Connection(asyncio.Protocol):
    """A connection to a node. Every call that is under way when it breaks fails with MQ_ERROR_SERVICE_NOT_AVAILABLE."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._waiting: dict[int, Answer] = {}
        self._last_number = 0
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._lost: MessageQueuingError | None = None
        self._writable = True
        self._closed = asyncio.Event()

    @classmethod
    async def open(cls, path: Path) -> tuple["Connection", dict[str, Any]]:
        """Connect and greet; the node says who it is."""
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_unix_connection(lambda: cls(path), str(path))
        except OSError as error:
            raise unreachable(path, error) from error
        try:
            return connection, values.decode((await connection.call(Kind.HELLO, values.encode(GREETING))).body)
        except BaseException:
            await connection.close()
            raise

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; called when the connection is made."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take answers of the node, whole or in pieces."""
        try:
            for answer in self._reader.feed(data):
                future = self._waiting.pop(answer.number, None)
                if future is None:
                    if answer.kind == Kind.FAILED and answer.number == 0:
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
        self._fail(
            MessageQueuingError(_UNREACHABLE, f"the connection to the node on {self.path} is closed: connect again")
        )
        self._closed.set()

    def _fail(self, error: MessageQueuingError) -> None:
        self._lost = self._lost or error
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(again(self._lost))
                future.exception()

    async def close(self) -> None:
        """Close; the node runs down what was open."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
            await self._closed.wait()

    # Calls

    def start(self, kind: Kind, *parts: bytes) -> Answer:
        """Make a call. Calls that are made in one pass of the event loop leave together, in their order."""
        if self._lost is not None:
            raise again(self._lost)
        if (size := HEAD_SIZE + sum(map(len, parts))) > MAXIMUM_FRAME:
            # The node would end the connection over it, and with it all that is open.
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"one call with {size} bytes: at most {MAXIMUM_FRAME} travel at once, so send fewer messages at a time",
            )
        number = self._last_number = self._last_number % 0xFFFFFFFF + 1
        answer = self._waiting[number] = Answer(self, number, self._loop)
        self._send(*frame_parts(kind, number, *parts))
        return answer

    def cancel_call(self, number: int) -> None:
        """Tell the node that a call's answer is no longer of use; the answer comes all the same."""
        if self._lost is None:
            self._send(*frame_parts(Kind.CANCEL, number))

    async def call(self, kind: Kind, *parts: bytes) -> Frame:
        """Make a call and wait for its answer. Raises the node's error.

        When the caller is cancelled, the call is cancelled at the node and its answer awaited: a message that was
        already on its way is returned and not lost.
        """
        started = self.start(kind, *parts)
        try:
            answer = await started
        except asyncio.CancelledError:
            if started.cancelled() or started.exception() or (answer := started.result()).kind != Kind.MESSAGES:
                raise
        if answer.kind == Kind.FAILED:
            raise failure(answer)
        return answer

    async def method(
        self, what: str, handle: int, name: str, arguments: Iterable[object] = (), **keywords: object
    ) -> Any:
        """Call a method of the manager, a queue, a cursor or a transaction; its result, or a frame of messages."""
        answer = await self.call(Kind.CALL, values.encode([what, handle, name, list(arguments), keywords]))
        return answer if answer.kind == Kind.MESSAGES else values.decode(answer.body)

    def _send(self, *parts: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._pass_over)
        self._out += parts

    def _pass_over(self) -> None:
        if self._writable:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))
