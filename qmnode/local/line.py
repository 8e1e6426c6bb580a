"""A program's line to the node: one connection after the other, and which call is under way on which.

A call that a lost connection has left without an answer is made again on the next one, if that does no harm: because it
changes nothing, or because it has a *slot*. Of a call with a slot the node has a mark, if it was done
(:mod:`qmnode.storage.marks`), and answers it without doing it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from qmnode.errors import MessageQueuingError
from qmnode.local.connection import Connection, LostError, again, unknown
from qmnode.local.frames import MOST_SLOTS, PROGRAM
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import new_guid

T = TypeVar("T")

_UNREACHABLE: Final = ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
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
