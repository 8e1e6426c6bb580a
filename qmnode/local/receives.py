"""Receives of an application outside of transactions. They need no task, and lose no message when they end early.

A receive waits for a message, then for the disk, then until its answer is handed to the socket. When the application
cancels it or goes away before that, its messages are put back in their old places.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from qmnode.errors import MessageQueuingError
from qmnode.model.reading import WaitingRead

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmnode.model.open_queue import OpenQueueDescriptor
    from qmnode.model.ports import Entry
    from qmnode.model.reading import Claim


class Taken:
    """The messages of one receive, gone from their queue."""

    __slots__ = ("entries", "limit", "number", "queue")

    def __init__(self, number: int, queue: OpenQueueDescriptor, limit: int, entries: list[Entry]) -> None:
        self.number = number
        self.queue = queue
        self.limit = limit
        self.entries = entries


class WaitingReceive(WaitingRead):
    """A receive that waits for a message."""

    __slots__ = ("_receives", "limit", "number", "queue")

    def __init__(self, receives: Receives, number: int, queue: OpenQueueDescriptor, limit: int, claim: Claim) -> None:
        super().__init__(queue, claim)
        self._receives = receives
        self.number = number
        self.queue = queue
        self.limit = limit

    def found(self, entry: Entry) -> None:
        """Take the message, and at the end of the pass those that came with it."""
        self._receives.found(self, entry)

    def failed(self, error: MessageQueuingError) -> None:
        """Report that there will be no message."""
        self._receives.failed(self.number, error)


class Receives:
    """The receives of one connection, by the numbers of their calls."""

    __slots__ = ("_answer", "_by_write", "_fail", "_found", "_taken", "_unsent", "_waiting")

    def __init__(
        self, answer: Callable[[int, list[Entry]], None], fail: Callable[[int, MessageQueuingError], None]
    ) -> None:
        """``answer`` is called with the number of a receive and its messages once they are gone from the disk, and
        ``fail`` with its error. The messages count as received after ``sent``.
        """
        self._answer = answer
        self._fail = fail
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
        return len(self._waiting) + len(self._taken)

    def __contains__(self, number: int) -> bool:
        return number in self._waiting or number in self._taken

    def start(self, number: int, queue: OpenQueueDescriptor, limit: int, timeout: float | None) -> None:
        """Receive up to ``limit`` messages. Raises MessageQueuingError as ``receive_many``."""
        claim = queue.claim(None)
        if entries := queue.take_available(limit, claim):
            self._remove(Taken(number, queue, limit, entries))
            return
        waiting = WaitingReceive(self, number, queue, limit, claim)
        waiting.begin(timeout)
        self._waiting[number] = waiting

    def found(self, waiting: WaitingReceive, entry: Entry) -> None:
        """Note that a message has come, which is gone from its queue."""
        del self._waiting[waiting.number]
        taken = self._taken[waiting.number] = Taken(waiting.number, waiting.queue, waiting.limit, [entry])
        if not self._found:
            asyncio.get_running_loop().call_soon(self._take_more)
        self._found.append(taken)

    def failed(self, number: int, error: MessageQueuingError) -> None:
        """End a receive that waited in vain."""
        del self._waiting[number]
        self._fail(number, error)

    def _take_more(self) -> None:
        """Take the messages that came together with those of receives that waited."""
        found, self._found = self._found, []
        for taken in found:
            if self._taken.get(taken.number) is not taken:
                continue  # it was cancelled meanwhile
            if taken.limit > 1:
                with contextlib.suppress(MessageQueuingError):  # the queue was closed or deleted: one has been received
                    size = len(taken.entries[0][1])
                    taken.entries += taken.queue.take_available(taken.limit - 1, taken.queue.claim(None), size)
            self._remove(taken)

    def _remove(self, taken: Taken) -> None:
        """Wait for the write that removes the messages from the disk."""
        self._taken[taken.number] = taken
        written = taken.queue.context.store.durable()
        shared = self._by_write.get(written)
        if shared is None:
            shared = self._by_write[written] = []
            written.add_done_callback(self._removed)
        shared.append(taken)

    def _removed(self, written: asyncio.Future[None]) -> None:
        error = cast("MessageQueuingError | None", written.exception())
        for taken in self._by_write.pop(written):
            if self._taken.get(taken.number) is not taken:
                continue  # it was cancelled meanwhile
            del self._taken[taken.number]
            if error is None:
                self._unsent.append(taken)
                self._answer(taken.number, taken.entries)
            else:
                self._fail(taken.number, error)

    def hand_over(self, queue: OpenQueueDescriptor, entries: list[Entry]) -> None:
        """Keep messages that are gone from the disk until ``sent``, or put them back."""
        self._unsent.append(Taken(0, queue, len(entries), entries))

    def sent(self) -> None:
        """Note that all answers have been handed to the socket."""
        self._unsent.clear()

    def cancel(self, number: int) -> bool:
        """End a receive without its messages. False if it has been answered, or was never started."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.leave()
            return True
        taken = self._taken.pop(number, None)
        if taken is None:
            return False
        taken.queue.put_back(taken.entries)
        return True

    def abandon(self) -> None:
        """End all receives: the application went away, and gets no answer any more."""
        for waiting in self._waiting.values():
            waiting.leave()
        self._waiting.clear()
        left = [*self._unsent, *self._taken.values()]
        self._unsent.clear()
        self._taken.clear()
        # Other receivers may wait for them: they get them in the queue's order.
        entries = [(entry, one.queue) for one in left for entry in one.entries]
        for entry, queue in sorted(entries, key=lambda one: one[0][0]):
            queue.put_back([entry])
