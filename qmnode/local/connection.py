"""The application's side of the socket: calls out, answers in, several calls under way at a time."""

import asyncio
import contextlib
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
    frame,
)
from qmnode.structures.error_codes import ErrorCode

_UNREACHABLE: Final = ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE


def again(error: MessageQueuingError) -> MessageQueuingError:
    """The same error for another caller: one object raised many times would collect the tracebacks of all."""
    return MessageQueuingError(error.code, error.sentence)


class Connection(asyncio.Protocol):
    """A connection to a node. Every call that is under way when it breaks fails with MQ_ERROR_SERVICE_NOT_AVAILABLE."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = FrameReader()
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._last_number = 0
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._lost: MessageQueuingError | None = None
        self._writable = asyncio.Event()
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
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Answers came."""
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
        """The node does not keep up."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The node went away, or this side closed."""
        self._fail(
            MessageQueuingError(_UNREACHABLE, f"the connection to the node on {self.path} is closed: connect again")
        )
        self._writable.set()
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

    async def call(self, kind: Kind, *parts: bytes) -> Frame:
        """Make a call and wait for its answer. Raises the node's error.

        When the caller is cancelled the node is told, and its answer is waited for: a message that was already on its
        way is returned instead of getting lost.
        """
        if not self._writable.is_set():
            await self._writable.wait()
        if self._lost is not None:
            raise again(self._lost)
        if (size := HEAD_SIZE + sum(map(len, parts))) > MAXIMUM_FRAME:
            # The node would end the connection over it, and with it all that is open.
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"one call with {size} bytes: at most {MAXIMUM_FRAME} travel at once, so send fewer messages at a time",
            )
        number = self._last_number = self._last_number % 0xFFFFFFFF + 1
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send(frame(kind, number, *parts))
        try:
            answer: Frame = await asyncio.shield(future)
        except asyncio.CancelledError:
            if self._lost is None:
                self._send(frame(Kind.CANCEL, number))
            with contextlib.suppress(MessageQueuingError):
                answer = await future
                if answer.kind == Kind.MESSAGES:
                    return answer
            raise
        if answer.kind == Kind.FAILED:
            raise values.decode_error(values.decode(answer.body))
        return answer

    async def method(
        self, what: str, handle: int, name: str, arguments: Iterable[object] = (), **keywords: object
    ) -> Any:
        """Call a method of the manager, a queue, a cursor or a transaction; its result, or a frame of messages."""
        answer = await self.call(Kind.CALL, values.encode([what, handle, name, list(arguments), keywords]))
        return answer if answer.kind == Kind.MESSAGES else values.decode(answer.body)

    def _send(self, data: bytes) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))
