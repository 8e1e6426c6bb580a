"""Finding messages in the queues of one node, a page at a time.

A page ends when it is full, or when its time is over: a search of many messages shows how far it is, holds the messages
of one page in memory, and goes on where its cursor points to. A caller that asks no further has cancelled it.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import translate
from time import monotonic
from typing import Final

from qmnode.administration.criteria import Check, Criteria, compiled
from qmnode.administration.queue_names import queue_name
from qmnode.administration.turns import Pace
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueType
from qmnode.model.message import Message
from qmnode.model.ports import Entry
from qmnode.model.positions import LANE_SHIFT, SEQUENCE_MASK
from qmnode.model.queue import Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.retries import peeked_message
from qmnode.model.stored_message import received_message
from qmnode.structures.error_codes import ErrorCode

_CHUNK: Final = 64
_CHUNK_BYTES: Final = 128 * 1024
"""Messages and bytes that one read of the store returns at the most: the loop waits for it."""
_COMPARED: Final = 200
"""Comparisons of a pattern with a queue between two chances for others to work."""
MOST_QUEUES: Final = 10_000
PAGE: Final = 1000
"""Messages of a page at the most."""
PAGE_BYTES: Final = 4 * 1024 * 1024
PAGE_SECONDS: Final = 0.5
_BACKWARDS: Final = "-"
_CURSOR: Final = re.compile(rf"({_BACKWARDS}?)([0-9a-f]{{1,8}})\.([0-9a-f]{{1,16}})")
_END: Final = (1 << 64) - 1
_LAST_QUEUE: Final = (1 << 32) - 1
_CHUNK_BACKWARDS: Final = 8
"""Messages that a read from the end returns at the most, however large they are."""


@dataclass(frozen=True, slots=True)
class SearchPosition:
    """Where a search goes on: a queue, by its number in the store, and a lookup identifier in it."""

    queue: int = 0
    lookup_identifier: int = 0
    backwards: bool = False
    """Whether it goes on with the message before it."""

    @classmethod
    def parse(cls, text: str) -> "SearchPosition":
        """From a cursor; ``-`` is the end, from which a search goes backwards. MQ_ERROR_INVALID_PARAMETER."""
        if not text:
            return cls()
        if text == _BACKWARDS:
            return cls(_LAST_QUEUE, _END, backwards=True)
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"{text!r:.80} is no cursor: use the one of the page before"
            )
        return cls(int(found[2], 16), int(found[3], 16), backwards=bool(found[1]))

    def __str__(self) -> str:
        return f"{_BACKWARDS if self.backwards else ''}{self.queue:x}.{self.lookup_identifier:x}"


@dataclass(frozen=True, slots=True)
class Found:
    """A message that was found."""

    queue: str
    """Path name, or the format name of an outgoing queue."""
    message: Message
    after: SearchPosition
    """Where a search goes on that has shown the messages up to this one."""


@dataclass(slots=True)
class Page:
    """Some of the messages that a search finds."""

    found: list[Found] = field(default_factory=list)
    scanned: int = 0
    """Messages that were looked at for this page."""
    total: int = 0
    """Messages in all the queues now, looked at or not."""
    next: str = ""
    """Cursor of the next page; empty at the end."""
    refused: tuple[str, ...] = ()
    """Queues that were left out, since the caller may not read them."""


async def chosen_queues(manager: QueueManager, names: Sequence[str]) -> list[Queue]:
    """The queues that names and patterns mean, in the order of their numbers. MQ_ERROR_QUEUE_NOT_FOUND for a name.

    Patterns, with ``*`` and ``?``, mean queues, subqueues and outgoing queues; journals and dead-letter queues only
    those that have a semicolon. Many patterns are compared with many queues a part at a time: others work meanwhile.
    """
    chosen: dict[int, Queue] = {}
    # Compiled here: the cache of the standard library holds fewer than a caller may ask for.
    patterns = [
        (";" in name, re.compile(translate(compiled(name))).match)
        for name in dict.fromkeys(names)
        if "*" in name or "?" in name
    ]
    for name in names:
        if "*" not in name and "?" not in name:
            found = manager.names.find(queue_name(name))
            if not found.is_internal:
                chosen[found.queue_id] = found
    compared, pace = 0, Pace()
    for queue in list(_all_queues(manager)) if patterns else ():
        if queue.is_internal or queue.deleted:
            continue
        local = queue.pathname.partition("\\")[2].casefold()
        texts = (queue.pathname.casefold(), local, local.rpartition("\\")[2])
        for has_semicolon, fits_pattern in patterns:
            compared += 1
            if not compared % _COMPARED:
                await pace.rest()
            if (has_semicolon or queue.queue_type is not QueueType.SYSTEM) and any(map(fits_pattern, texts)):
                chosen[queue.queue_id] = queue
                break
    if len(chosen) > MOST_QUEUES:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
            f"{len(chosen)} queues are meant: at most {MOST_QUEUES} are searched at once, so name fewer",
        )
    return [chosen[number] for number in sorted(chosen) if not chosen[number].deleted]


def _all_queues(manager: QueueManager) -> Iterator[Queue]:
    for queue in manager.queue_collection.values():
        yield queue
        if queue.journal_queue is not None:
            yield queue.journal_queue


def readable(manager: QueueManager, queues: Sequence[Queue], caller: object) -> tuple[list[Queue], tuple[str, ...]]:
    """Those that the caller may peek at, and the names of the others."""
    allowed = [queue for queue in queues if manager.opening.may_open(queue, Access.PEEK, caller)]
    refused = tuple(queue.pathname for queue in queues if queue not in allowed) if len(allowed) < len(queues) else ()
    return allowed, refused


def read_some(queue: Queue, first: int, last: int = _END) -> tuple[list[Entry], int]:
    """Available messages from a lookup identifier on, and where to go on; -1 when nothing is left.

    Only messages that the store shows are read: call its ``make_visible`` before.
    """
    for lane in queue.lanes[first >> LANE_SHIFT :]:
        if lane is None or not lane.count or lane.index << LANE_SHIFT > last:
            continue
        begin = max(first, lane.head)
        entries = queue.store.read_messages(
            queue.queue_id, begin, min(lane.last, last), _CHUNK, _CHUNK_BYTES, lane.express_count > 0
        )
        if entries:
            locked = queue.locked
            found = [entry for entry in entries if entry[0] not in locked] if locked else entries
            return found, entries[-1][0] + 1
    return [], -1


def _read_before(queue: Queue, first: int, last: int) -> tuple[list[Entry], int]:
    """Available messages from a lookup identifier down to another, and where to go on; -1 when nothing is left."""
    for lane in reversed(queue.lanes[: (last >> LANE_SHIFT) + 1]):
        if lane is None or not lane.count:
            continue
        begin, end = max(first, lane.head), min(last, lane.last)
        if begin > end:
            continue
        entries = queue.store.read_backwards(queue.queue_id, end, begin, _CHUNK_BACKWARDS, lane.express_count > 0)
        if entries:
            return [entry for entry in entries if entry[0] not in queue.locked], entries[-1][0] - 1
    return [], -1


async def search_page(
    manager: QueueManager,
    names: Sequence[str],
    criteria: Criteria,
    cursor: str = "",
    limit: int = PAGE,
    *,
    caller: object = None,
) -> Page:
    """The next messages that are found, in the order of queues and of delivery, or against it if the cursor is one of
    those that go backwards. See the errors of its parts.
    """
    place = SearchPosition.parse(cursor)
    queues = await chosen_queues(manager, names)
    if len(queues) == 1 and len(names) == 1 and not manager.opening.may_open(queues[0], Access.PEEK, caller):
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{queues[0].pathname}: {caller} has no right to peek at messages"
        )
    allowed, refused = readable(manager, queues, caller)
    page = Page(total=sum(queue.message_count for queue in allowed), refused=refused)
    checks, limit = criteria.checks(), min(limit, PAGE)
    until, size, pace, back = monotonic() + PAGE_SECONDS, 0, Pace(), place.backwards
    for queue, entries, after in chunks(allowed, criteria, place):
        for lookup_identifier, value in entries:
            page.scanned += 1
            message = received_message(lookup_identifier, value)
            if fits(message, checks):
                after_it = SearchPosition(queue.queue_id, lookup_identifier + (-1 if back else 1), back)
                page.found.append(Found(queue.pathname, peeked_message(queue, lookup_identifier, value), after_it))
                size += len(value)
                if len(page.found) >= limit or size >= PAGE_BYTES:
                    page.next = str(after_it)
                    break
        if not page.next and monotonic() >= until:
            if after >= 0:
                page.next = str(SearchPosition(queue.queue_id, after, back))
            elif not back:
                page.next = str(SearchPosition(queue.queue_id + 1))
            elif queue.queue_id:
                page.next = str(SearchPosition(queue.queue_id - 1, _END, back))
        if page.next:
            break
        await pace.rest()
    await _settled(manager)
    return page


_START: Final = SearchPosition()


def chunks(
    queues: Sequence[Queue], criteria: Criteria, place: SearchPosition = _START
) -> Iterator[tuple[Queue, list[Entry], int]]:
    """Read the messages of queues a few at a time, in the order of a search, with the place where each read ended."""
    last = _END if criteria.last is None else criteria.last
    if queues:
        # Once: to write for each read what others have in the batch of the pass would cost them their shared writes.
        with suppress(MessageQueuingError):  # a store that has failed still shows what it had
            queues[0].store.make_visible()
    for queue in reversed(queues) if place.backwards else ():
        if queue.queue_id > place.queue:
            continue
        last = min(last, place.lookup_identifier) if queue.queue_id == place.queue else last
        while criteria.first <= last and not queue.deleted:
            entries, last = _read_before(queue, criteria.first, last)
            yield queue, entries, last
        last = _END if criteria.last is None else criteria.last
    for queue in queues if not place.backwards else ():
        if queue.queue_id < place.queue:
            continue
        first = max(criteria.first, place.lookup_identifier if queue.queue_id == place.queue else 0)
        while 0 <= first <= last and not queue.deleted:
            entries, first = read_some(queue, first, last)
            yield queue, entries, first


async def _settled(manager: QueueManager) -> None:
    """Wait until found messages are on disk: a message that was seen must not vanish in a crash."""
    pending = manager.store.pending()
    if pending is None:
        manager.store.check()
    else:
        await pending


def fits(message: Message, checks: Sequence[Check]) -> bool:
    """Whether all criteria are true of a message."""
    return all(check(message) for check in checks)


def came_before(lookup_identifier: int, sequence: int) -> bool:
    """Whether a message got its place before this number was given out: a job leaves alone what comes after it."""
    return lookup_identifier & SEQUENCE_MASK <= sequence
