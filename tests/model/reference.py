"""The specification as the simplest program that does it: lists in memory, nothing else (MS-MQDMPR 3.1.7, 3.2).

Messages are known by their bodies. Where the node's answer is an error, an operation here raises :class:`Refused`.
"""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from qmnode.structures.error_codes import ErrorCode

START: Final = (-1, -1)


class Refused(Exception):
    """The operation ends with this code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


NOTHING: Final = ErrorCode.MQ_ERROR_IO_TIMEOUT
NOT_FOUND: Final = ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
ALREADY_RECEIVED: Final = ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
LOCKED: Final = ErrorCode.MQ_ERROR_TRANSACTION_USAGE
ENDED: Final = ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
ILLEGAL: Final = ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION


@dataclass(eq=False)
class Position:
    """A message and its place."""

    body: bytes
    key: tuple[int, int]
    """Seven minus the priority, and a number that grows with every message: the order of delivery."""
    express: bool = False
    expires: float | None = None
    peek_when_locked: bool = False
    dead_letter: bool = False
    transactional: bool = False
    lookup: int | None = None
    """LookupIdentifier, as soon as the node has shown it."""
    holder: "object | None" = None
    """The transaction or two-phase read that has it locked."""
    purge_pending: bool = False
    aborts: int = 0
    moves: int = 0

    def __lt__(self, other: "Position") -> bool:
        return self.key < other.key

    @property
    def available(self) -> bool:
        return self.holder is None

    @property
    def visible(self) -> bool:
        """To a peek."""
        return self.available or (self.peek_when_locked and not self.purge_pending)


@dataclass(eq=False)
class Unit:
    """A transaction."""

    sent: list[tuple["Queue", Position]] = field(default_factory=list)
    taken: list[tuple["Queue", Position]] = field(default_factory=list)
    moved: list[tuple["Queue", Position, "Queue"]] = field(default_factory=list)
    ended: bool = False


@dataclass(eq=False)
class Waiter:
    """A read that waits."""

    queue: "Queue"
    deadline: float
    destructive: bool
    unit: Unit | None = None
    cursor: "Cursor | None" = None
    outcome: "bytes | ErrorCode | None" = None


@dataclass(eq=False)
class Queue:
    """A queue, with its journal."""

    name: str
    transactional: bool = False
    journaling: bool = False
    limit: int | None = None
    """How many of the messages that the test sends the quota has room for."""
    positions: list[Position] = field(default_factory=list)
    journal: list[Position] = field(default_factory=list)
    waiting: deque[Waiter] = field(default_factory=deque)
    reserved: int = 0

    def find(self, body: bytes) -> Position | None:
        return next((one for one in self.positions if one.body == body), None)

    def after(self, key: tuple[int, int], peek: bool) -> Position | None:
        for one in self.positions:
            if one.key > key and (one.visible if peek else one.available):
                return one
        return None

    def before(self, key: tuple[int, int] | None) -> Position | None:
        found = [one for one in self.positions if (key is None or one.key < key) and one.visible]
        return found[-1] if found else None


@dataclass(eq=False)
class Cursor:
    """3.2: its position and state; it waits for nothing here."""

    queue: Queue
    key: tuple[int, int] = START
    at: Position | None = None
    """The message that was read: state Read. None is Unread."""

    def peek(self) -> Position:
        if self.at is not None:
            if self.at not in self.queue.positions or not self.at.available:
                raise Refused(ALREADY_RECEIVED)
            return self.at
        return self._found(self.queue.after(self.key, peek=True))

    def peek_next(self) -> Position:
        if self.at is None:
            raise Refused(ILLEGAL)
        return self._found(self.queue.after(self.key, peek=True))

    def _found(self, found: Position | None) -> Position:
        self.at = found
        if found is None:
            raise Refused(NOTHING)
        self.key = found.key
        return found

    def for_receive(self) -> Position:
        if self.at is not None:
            if self.at not in self.queue.positions or not self.at.available:
                raise Refused(ALREADY_RECEIVED)
            found: Position | None = self.at
        else:
            found = self.queue.after(self.key, peek=False)
        if found is None:
            raise Refused(NOT_FOUND)
        self.key, self.at = found.key, None
        return found


class Reference:
    """A queue manager."""

    def __init__(self, queues: list[Queue], now: float) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.dead_letter = Queue("dead letter")
        self.transactional_dead_letter = Queue("transactional dead letter")
        self.now = now
        self._sequence = 0

    # Sending

    def position(self, body: bytes, priority: int = 3, lifetime: int | None = None, **more: bool) -> Position:
        self._sequence += 1
        expires = None if lifetime is None else int(self.now) + lifetime
        return Position(body, (7 - priority, self._sequence), expires=expires, **more)

    def check_quota(self, queue: Queue, count: int = 1) -> None:
        if queue.limit is not None and len(queue.positions) + queue.reserved + count > queue.limit:
            raise Refused(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)

    def arrive(self, queue: Queue, position: Position) -> None:
        insort(queue.positions, position)
        self._available(queue, position)

    def _available(self, queue: Queue, position: Position) -> None:
        """Message Position Available, 3.1.7.2.2."""
        position.holder = None
        while queue.waiting:
            reader = queue.waiting.popleft()
            reader.outcome = position.body
            if reader.cursor is not None:
                reader.cursor.key = position.key
                reader.cursor.at = None if reader.destructive else position
            if reader.destructive:
                self.take(queue, position, reader.unit)
                return

    def send_in(self, unit: Unit, queue: Queue, position: Position) -> None:
        unit.sent.append((queue, position))
        queue.reserved += 1

    # Receiving

    def take(self, queue: Queue, position: Position, unit: Unit | None) -> None:
        if unit is None:
            self.delete(queue, position)
        else:
            position.holder = unit
            unit.taken.append((queue, position))

    def delete(self, queue: Queue, position: Position, received: bool = True) -> None:
        """Message Position Deleted, 3.1.7.2.1, and what follows for journals."""
        queue.positions.remove(position)
        position.holder = None
        if received and queue.journaling:
            insort(queue.journal, position)
        elif not received and position.dead_letter:
            letters = self.transactional_dead_letter if position.transactional else self.dead_letter
            insort(letters.positions, position)

    def first(self, queue: Queue, peek: bool = False) -> Position:
        found = queue.after(START, peek)
        if found is None:
            raise Refused(NOTHING)
        return found

    def release(self, queue: Queue, position: Position) -> None:
        """Locked to Available, or gone if it was purged or its time has passed meanwhile."""
        if position.purge_pending or self.is_due(position):
            position.purge_pending = False
            self.delete(queue, position, received=False)
        else:
            self._available(queue, position)

    def purge(self, queue: Queue) -> None:
        for position in list(queue.positions):
            if position.available:
                self.delete(queue, position, received=False)
            else:
                position.purge_pending = True

    def move(self, queue: Queue, position: Position, target: Queue) -> None:
        queue.positions.remove(position)
        position.moves += 1
        position.holder = None
        position.purge_pending = False
        self.arrive(target, position)

    # Transactions

    def commit(self, unit: Unit) -> None:
        self._end(unit)
        for queue, position in unit.taken:
            position.purge_pending = False
            self.delete(queue, position)
        for queue, position, target in unit.moved:
            self.move(queue, position, target)
        for queue, position in unit.sent:
            queue.reserved -= 1
            self.arrive(queue, position)

    def abort(self, unit: Unit, count: bool = True) -> None:
        self._end(unit)
        for queue, _ in unit.sent:
            queue.reserved -= 1
        held = [(queue, position) for queue, position in unit.taken]
        held += [(queue, position) for queue, position, _ in unit.moved]
        for queue, position in held:
            position.aborts += count and not position.purge_pending
            self.release(queue, position)

    def _end(self, unit: Unit) -> None:
        unit.ended = True
        for queue in self.queues.values():
            for reader in [reader for reader in queue.waiting if reader.unit is unit]:
                self.give_up(reader, ENDED)

    def give_up(self, reader: Waiter, code: ErrorCode) -> None:
        """The read ends without a message."""
        reader.queue.waiting.remove(reader)
        reader.outcome = code
        if reader.cursor is not None:
            reader.cursor.at = None

    # Time

    def is_due(self, position: Position) -> bool:
        return position.expires is not None and position.expires <= self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for queue in self.queues.values():
            for reader in [reader for reader in queue.waiting if reader.deadline <= self.now]:
                self.give_up(reader, NOTHING)
            for position in [one for one in queue.positions if one.available and self.is_due(one)]:
                self.delete(queue, position, received=False)

    # Restarts

    def restart(self, units: list[Unit], begun: list[tuple[Queue, Position]], clean: bool) -> None:
        """What was open is gone, and what is express. A clean stop ends what is held, a power cut forgets it."""
        for queue in self.queues.values():
            queue.waiting.clear()
        for unit in units:
            if clean:
                self.abort(unit)
            else:
                unit.ended = True
        for queue, position in begun if clean else []:
            self.release(queue, position)
        for queue in (*self.queues.values(), self.dead_letter, self.transactional_dead_letter):
            queue.reserved = 0
            queue.positions = [one for one in queue.positions if not one.express]
            queue.journal = [one for one in queue.journal if not one.express]
            for position in queue.positions:
                position.holder = None
                position.purge_pending = False
