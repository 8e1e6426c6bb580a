"""What the node was asked, what it answered, and what may therefore be in its queues after a power cut.

Every message carries its number. A :class:`Unit` is what happens together: a transaction, one send, one move. Of a unit
that was asked to commit and did not answer, either all has happened or nothing; of one that never was asked, nothing.
A plain receive that did not answer may have taken messages that nobody was told of: at most as many as it asked for.
"""

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

_CHECKSUM: Final = 4


class State(Enum):
    """How far a unit of work is."""

    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False)
class Sent:
    """A message."""

    number: int
    sender: int
    place: str
    """The queue that it is in, once it is sent; nowhere when it was received."""
    priority: int
    express: bool
    unit: "Unit"
    taken_by: "Unit | None" = None
    disturbed: bool = False
    """It was given back or moved: it may be behind younger ones that were received meanwhile."""
    size: int = 0
    changed: int = 0
    """When something about its place was last asked or answered."""

    @property
    def body(self) -> bytes:
        """What is sent: the number, filled up, and a checksum."""
        text = b"%d|%s|" % (self.number, b"*" * self.size)
        return text + zlib.crc32(text).to_bytes(_CHECKSUM, "big")


@dataclass(eq=False)
class Unit:
    """What happens together."""

    state: State = State.OPEN
    sent: list[Sent] = field(default_factory=list)
    taken: list[Sent] = field(default_factory=list)
    moved: list[tuple[Sent, str]] = field(default_factory=list)


GONE: Final = ""
"""The place of a message that is in no queue."""


class Ledger:
    """Knows all messages, and collects what should not have been (``violations``)."""

    def __init__(self, journaling: Iterable[str] = ()) -> None:
        self.messages: dict[int, Sent] = {}
        self.violations: list[str] = []
        self.answers = 0
        """How many answers were checked."""
        self._clock = 0
        self._journaling = frozenset(journaling)
        self._journals: dict[str, set[int]] = {queue: set() for queue in self._journaling}
        self._units: set[Unit] = set()
        self._identifiers: set[bytes] = set()
        self._highest: dict[tuple[str, int, int], int] = {}
        """The youngest message received, by queue, sender and priority."""
        self.blind_takes: Counter[str] = Counter()
        """Messages that receives under way may take, by queue."""
        self.blind_locks: Counter[str] = Counter()

    def _wrong(self, sentence: str) -> None:
        self.violations.append(sentence)

    # What is asked

    def unit(self) -> Unit:
        """A new unit of work."""
        unit = Unit()
        self._units.add(unit)
        return unit

    def now(self) -> int:
        """A moment, later than all before."""
        self._clock += 1
        return self._clock

    def sending(self, unit: Unit, sender: int, queue: str, priority: int, size: int, express: bool = False) -> Sent:
        """A message is about to be sent."""
        message = Sent(len(self.messages), sender, queue, priority, express, unit, size=size)
        self.messages[message.number] = message
        unit.sent.append(message)
        return message

    def moving(self, unit: Unit, message: Sent, queue: str) -> None:
        """A message is about to be moved."""
        unit.moved.append((message, queue))
        message.changed = self.now()

    # What is answered

    def moved(self, unit: Unit, message: Sent) -> None:
        """A move was answered: in a transaction, the message is locked."""
        message.changed = self.now()
        if unit.state is State.OPEN:
            message.taken_by = unit

    def identified(self, identifiers: Iterable[bytes]) -> None:
        """A send was answered with these message identifiers."""
        for identifier in identifiers:
            if identifier in self._identifiers:
                self._wrong(f"the identifier {identifier.hex()} was given out twice")
            self._identifiers.add(identifier)

    def seen(self, queue: str, body: bytes, asked: int | None = None) -> Sent | None:
        """A message was seen in a queue: by a receive, or by a peek that was asked then.

        Answers to several clients cross. What a receive returns nobody else has, but what a peek returns may have been
        received since, so a peek says nothing of a message that has changed since it was asked.
        """
        self.answers += 1
        if len(body) < _CHECKSUM or zlib.crc32(body[:-_CHECKSUM]).to_bytes(_CHECKSUM, "big") != body[-_CHECKSUM:]:
            self._wrong(f"{queue} has a message that nobody sent: {body[:40]!r}")
            return None
        message = self.messages[int(body[: body.index(b"|")])]
        name = f"message {message.number} of client {message.sender} in {queue}"
        if message.unit.state in (State.OPEN, State.ABORTED, State.ABORTING):
            self._wrong(f"{name} is there, but its transaction is {message.unit.state.value}")
        if message.unit.state is State.COMMITTING:
            self.committed(message.unit)
        if asked is not None and message.changed > asked:
            return message
        for unit in [unit for unit in self._units if unit.state is State.COMMITTING]:
            if any(moved is message and place == queue for moved, place in unit.moved):
                self.committed(unit)
        if message.place != queue:
            self._wrong(f"{name} should be in {message.place or 'no queue: it was received'}")
        if message.taken_by is not None and message.taken_by.state in (State.OPEN, State.COMMITTING):
            self._wrong(f"{name} is there, but a transaction that is {message.taken_by.state.value} has received it")
        return message

    def received(self, unit: Unit, queue: str, bodies: Iterable[bytes]) -> list[Sent]:
        """Messages were received."""
        messages = [message for body in bodies if (message := self.seen(queue, body)) is not None]
        for message in messages:
            message.changed = self.now()
            if unit.state is State.COMMITTED:
                message.place = GONE
                if queue in self._journaling:
                    self._journals[queue].add(message.number)
            else:
                message.taken_by = unit
                unit.taken.append(message)
            if not message.disturbed:
                lane = queue, message.sender, message.priority
                self._highest[lane] = max(self._highest.get(lane, -1), message.number)
        return messages

    def committed(self, unit: Unit) -> None:
        """A commit was answered, or something shows that it has happened."""
        if unit.state is State.COMMITTED:
            return
        unit.state = State.COMMITTED
        self._units.discard(unit)
        for message in unit.taken:
            if message.place in self._journaling:
                self._journals[message.place].add(message.number)
            message.place = GONE
            message.changed = self.now()
        for message, place in unit.moved:
            message.place = place
            message.changed = self.now()
            message.taken_by = None
            message.disturbed = True

    def aborted(self, unit: Unit) -> None:
        """An abort was answered, or the node was restarted."""
        unit.state = State.ABORTED
        self._units.discard(unit)
        for message in unit.sent:
            message.place = GONE
        for message in (*unit.taken, *(message for message, _ in unit.moved)):
            message.changed = self.now()
            if message.taken_by is unit:
                message.taken_by = None
            message.disturbed = True

    # After a restart

    def restarted(self, contents: dict[str, list[bytes]], journals: dict[str, list[bytes]]) -> None:
        """Compare with what is in the queues, first to last, after the node was killed and started again."""
        self._end_open_units()
        found: dict[int, str] = {}
        for queue, bodies in contents.items():
            for body in bodies:
                number = int(body[: body.index(b"|")])
                if number in found:
                    self._wrong(f"message {number} is there twice, in {found[number]} and {queue}")
                found[number] = queue
        for unit in [unit for unit in self._units if unit.state is State.COMMITTING]:
            self._judge(unit, found)
        for queue, bodies in contents.items():
            present = [message for body in bodies if (message := self.seen(queue, body)) is not None]
            self._check_order(queue, present)
        self._check_missing(found)
        self._check_journals(journals)
        self.blind_takes.clear()
        self.blind_locks.clear()

    def _end_open_units(self) -> None:
        for unit in [unit for unit in self._units if unit.state in (State.OPEN, State.ABORTING)]:
            self.aborted(unit)

    def _judge(self, unit: Unit, found: dict[int, str]) -> None:
        """A commit that was not answered: did it happen? Everything that is left of it must say the same."""
        yes = [f"{m.number} sent" for m in unit.sent if m.number in found]
        yes += [f"{m.number} received" for m in unit.taken if m.number not in found]
        yes += [f"{m.number} moved" for m, place in unit.moved if found.get(m.number) == place]
        no = [f"{m.number} not received" for m in unit.taken if m.number in found]
        no += [f"{m.number} not moved" for m, place in unit.moved if found.get(m.number) != place]
        # A message that was sent may have been taken by a receive that did not answer.
        absent = [m for m in unit.sent if m.number not in found and not m.express]
        no += [f"{m.number} not sent" for m in absent if not self.blind_takes[m.place]]
        if yes and no:
            self._wrong(f"a transaction was done by half: {', '.join(yes)}, but {', '.join(no)}")
        if yes:
            self.committed(unit)
            return
        self.aborted(unit)
        for message, place in unit.moved:
            if message.number not in found and self.blind_takes[place]:
                self.blind_takes[message.place] += 1

    def _check_order(self, queue: str, present: list[Sent]) -> None:
        last: dict[tuple[int, int], Sent] = {}
        priority = 7
        late = 0
        for message in present:
            if message.priority > priority:
                self._wrong(f"{queue}: message {message.number} of priority {message.priority} is behind lower ones")
            priority = message.priority
            lane = message.sender, message.priority
            if lane in last and last[lane].number > message.number:
                self._wrong(f"{queue}: message {message.number} is behind {last[lane].number} of the same client")
            last[lane] = message
            if not message.disturbed and message.number < self._highest.get((queue, *lane), -1):
                late += 1
                message.disturbed = True
        if late > self.blind_locks[queue]:
            self._wrong(f"{queue}: {late} messages were overtaken by younger ones")

    def _check_missing(self, found: dict[int, str]) -> None:
        missing: Counter[str] = Counter()
        lost: dict[str, list[int]] = {}
        for message in self.messages.values():
            if message.place == GONE or message.number in found:
                continue
            queue, message.place = message.place, GONE
            if not message.express:
                missing[queue] += 1
                lost.setdefault(queue, []).append(message.number)
                if queue in self._journaling:
                    self._journals[queue].add(message.number)
        for queue, count in missing.items():
            if count > self.blind_takes[queue]:
                self._wrong(f"{queue}: {count} acknowledged messages are lost: {lost[queue][:20]}")

    def _check_journals(self, journals: dict[str, list[bytes]]) -> None:
        for queue, bodies in journals.items():
            numbers = Counter(int(body[: body.index(b"|")]) for body in bodies)
            if twice := [number for number, count in numbers.items() if count > 1]:
                self._wrong(f"the journal of {queue} has twice: {twice[:20]}")
            if lost := sorted(self._journals[queue] - numbers.keys()):
                self._wrong(f"the journal of {queue} misses {lost[:20]}")
            if more := sorted(numbers.keys() - self._journals[queue]):
                self._wrong(f"the journal of {queue} has messages that were not received: {more[:20]}")
