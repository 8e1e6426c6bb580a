"""Reads for remote callers: waiting, cancelling, locking and ending, the same for every interface."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, NamedTuple

from qmnode.errors import MessageQueuingError
from qmnode.model.stored_message import PREFIX_SIZE, whole_value, without_dead_letter_header
from qmnode.remote_read.opened import RemoteQueue, RemoteReadEntry
from qmnode.remote_read.qm2qm import INFINITE, MAXIMUM_BUFFER, Action
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.dcerpc.server import Caller
    from qmnode.model.api import Seek
    from qmnode.model.message import Message
    from qmnode.model.reading import Cursor

MQ_OK: Final = 0
STATUS_NOT_FOUND: Final = 0xC0000225
SEQUENTIAL_ID: Final = (1 << 56) - 1
"""The bytes of a lookup identifier that remote readers learn: the least significant seven."""
LOOKUPS: Final[dict[int, tuple[bool, Seek]]] = {
    # Whether the message is removed, and its position relative to the lookup identifier.
    Action.MQ_LOOKUP_PEEK_CURRENT: (False, "current"),
    Action.MQ_LOOKUP_PEEK_NEXT: (False, "next"),
    Action.MQ_LOOKUP_PEEK_PREV: (False, "prev"),
    Action.MQ_LOOKUP_RECEIVE_CURRENT: (True, "current"),
    Action.MQ_LOOKUP_RECEIVE_NEXT: (True, "next"),
    Action.MQ_LOOKUP_RECEIVE_PREV: (True, "prev"),
}
_FIRST: Final = 0
_LAST: Final = 0xFFFFFFFFFFFFFFFF


class Read(NamedTuple):
    """The outcome of a read: a status, and the message if that is MQ_OK."""

    status: int
    lookup_identifier: int = 0
    value: bytes = b""
    """The stored value of the message; empty if there is none."""
    entry: RemoteReadEntry | None = None
    """The locked message, which the caller has to end; None for a peek."""


def by_position(queue: RemoteQueue, cursor: Cursor | None, action: int, milliseconds: int) -> Awaitable[Message] | None:
    """The data model's event for a read at the front or at a cursor; None if the action is none of these."""
    timeout = None if milliseconds == INFINITE else milliseconds / 1000
    match action:
        case Action.MQ_ACTION_RECEIVE:
            return (cursor or queue.descriptor).receive_begin(timeout)
        case Action.MQ_ACTION_PEEK_CURRENT:
            return (cursor or queue.descriptor).peek(timeout)
        case Action.MQ_ACTION_PEEK_NEXT if cursor is not None:
            return cursor.peek_next(timeout)
        case _:
            return None


def by_lookup_id(queue: RemoteQueue, lookup_id: int, action: int) -> Awaitable[Message] | None:
    """Read Message By Lookup Identifier; None for values that name no message.

    The text removes the message at once, even if it is lost on its way: here it is locked first, too.
    """
    found = LOOKUPS.get(action)
    if found is None:
        return None
    locks, seek = found
    if seek != "next" and lookup_id == _FIRST:
        return None
    if seek == "next" and lookup_id == _FIRST:
        seek = "first"
    elif seek == "prev" and lookup_id == _LAST:
        seek = "last"
    descriptor = queue.descriptor
    read = descriptor.receive_begin_by_lookup_id if locks else descriptor.peek_by_lookup_id
    return read(lookup_id, seek)


def locks(action: int) -> bool:
    """Whether an action removes its message, which is locked until the reader has it."""
    return action == Action.MQ_ACTION_RECEIVE or LOOKUPS.get(action, (False,))[0]


class Reads:
    """Performs reads, and limits the messages that are locked for one client."""

    def __init__(self, held_bytes: int) -> None:
        """``held_bytes`` limits the messages that may be locked for one client at a time; one message always may."""
        self._held_bytes = held_bytes

    async def read(
        self,
        caller: Caller,
        queue: RemoteQueue,
        request_id: int,
        work: Awaitable[Message],
        *,
        locks: bool,
        cancelled: int = ErrorCode.MQ_ERROR_OPERATION_CANCELLED,
    ) -> Read:
        """Wait for a message. ``cancelled`` is the status of a read that its client cancels."""
        task = asyncio.current_task()
        assert task is not None
        entry = RemoteReadEntry(queue, request_id, task)
        queue.reads[entry.request_id] = entry
        try:
            message = await work
        except MessageQueuingError as error:
            return Read(int(error.code))
        except asyncio.CancelledError:
            if not entry.cancelled:
                raise
            task.uncancel()
            return Read(cancelled)
        finally:
            if queue.reads.get(entry.request_id) is entry:
                del queue.reads[entry.request_id]
        entry.lookup_identifier = message.lookup_identifier
        return self._result(caller, entry, whole_value(message), locks=locks)

    def read_at_once(
        self, caller: Caller, queue: RemoteQueue, request_id: int
    ) -> tuple[Read, asyncio.Future[None] | None] | None:
        """Receive a message that is available now, and return the write that must be on disk before it may be sent;
        None if none is available. Raises MessageQueuingError.
        """
        begun = queue.descriptor.begin_available()
        if begun is None:
            return None
        lookup_identifier, value, write = begun
        entry = RemoteReadEntry(queue, request_id, lookup_identifier=lookup_identifier)
        return self._result(caller, entry, value, locks=True), write

    def _result(self, caller: Caller, entry: RemoteReadEntry, value: bytes, *, locks: bool) -> Read:
        size = len(without_dead_letter_header(value)) - PREFIX_SIZE
        full = locks and caller.association.held and caller.association.held + size > self._held_bytes
        if size > MAXIMUM_BUFFER or full:
            if locks:
                entry.queue.descriptor.give_back(entry.lookup_identifier)
            return Read(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES if full else ErrorCode.MQ_ERROR_BUFFER_OVERFLOW)
        if locks:
            entry.hold(caller.association, size)
        return Read(MQ_OK, entry.lookup_identifier, value, entry if locks else None)

    def begin_end(self, entry: RemoteReadEntry, *, delete: bool) -> asyncio.Future[None]:
        """Dequeue Message End: delete the locked message or put it back, and return the write of that. Raises
        MessageQueuingError.
        """
        entry.release()
        return entry.queue.descriptor.end_begun(entry.lookup_identifier, delete)

    async def end(self, entry: RemoteReadEntry, *, delete: bool) -> int:
        """The same; return the status, when it is on disk."""
        try:
            await self.begin_end(entry, delete=delete)
        except MessageQueuingError as error:
            return int(error.code)
        return MQ_OK

    def cancel(self, queue: RemoteQueue, request_id: int) -> int:
        """Cancel Waiting Message Read Request (MS-MQDMPR 3.1.7.1.17), and return the status."""
        entry = queue.reads.get(request_id)
        if entry is None:
            return ErrorCode.MQ_ERROR
        if entry.cancelled:
            return STATUS_NOT_FOUND
        entry.cancel()
        return MQ_OK
