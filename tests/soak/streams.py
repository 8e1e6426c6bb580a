"""Streams of numbered messages, what was confirmed of each, and what has to have come of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise

import qmnode
from qmnode.storage.large_messages import SMALLEST
from qmnode.structures.enumerations import PrivacyLevel
from qmnode.structures.guid import Guid

LARGE_EVERY = 499
"""The store has such a message in a file of its own."""
ASKS_EVERY = 4
"""Every so many messages want administration acknowledgments: all, but for the arrival of what expires then."""
JOURNALED_EVERY = 3
"""Every so many want a copy in their source's journal when they have arrived."""
BURIED_EVERY = 2
"""Every so many want a copy in a dead-letter queue when they have not."""
TRACED_EVERY = 5
"""Every so many want a report from each queue manager that they come to."""
HONEST = "honest"
"""The label of all messages. It is in clear, also where the body is encrypted."""
LIFE = 3
"""Seconds to be received, for those that nobody receives."""


class End(Enum):
    """What becomes of the messages of a stream."""

    RECEIVED = auto()
    UNKNOWN = auto()
    """There is no such queue."""
    FULL = auto()
    """Their queue has no room."""
    UNREAD = auto()
    """They expire, wherever they are then."""


@dataclass
class Batch:
    """Messages that were sent in one transaction, or in one call."""

    numbers: range
    steady: bool
    """Whether no node was killed from when they were sent."""
    confirmed: bool = False
    """Whether the node said that it has them. If it was killed before that, nobody knows."""


@dataclass
class Stream:
    """One sender's messages to one queue."""

    name: str
    destination: str
    """Format name."""
    transactional: bool
    admin: str
    """Format name of the administration queue at the source."""
    reports: Guid
    """The public queue for trace reports, at the source too."""
    end: End = End.RECEIVED
    encrypted: bool = False
    batches: list[Batch] = field(default_factory=list)
    received: list[qmnode.Message] = field(default_factory=list)

    def next_batch(self, size: int, steady: bool) -> tuple[Batch, list[qmnode.Message]]:
        """The next messages to be sent."""
        start = self.batches[-1].numbers.stop if self.batches else 0
        batch = Batch(range(start, start + size), steady)
        self.batches.append(batch)
        return batch, [self._message(number) for number in batch.numbers]

    def _message(self, number: int) -> qmnode.Message:
        text = f"{self.name} {number}".ljust(SMALLEST if number % LARGE_EVERY == 0 else 0)
        message = qmnode.Message(text.encode(), recoverable=True, label=HONEST)
        if self.encrypted:
            message.privacy_level = PrivacyLevel.ADVANCED
        if self.asks(number):
            message.acknowledgements_requested = 0x0C if self.end is End.UNREAD else 0x0F
            message.administration_queue_format_name = self.admin
        # What is not transactional has arrived, for its source, when the next hop has it.
        message.positive_journaling_requested = self.is_journaled(number) and (self.is_received or self.transactional)
        message.negative_journaling_requested = self.is_buried(number)
        if self.is_traced(number):
            message.tracing_requested = True
            message.tracing_queue_identifier = self.reports
        if self.end is End.UNREAD:
            message.time_to_be_received = LIFE
        return message

    @property
    def is_received(self) -> bool:
        return self.end is End.RECEIVED

    @staticmethod
    def asks(number: int) -> bool:
        return number % ASKS_EVERY == 0

    @staticmethod
    def is_journaled(number: int) -> bool:
        return number % JOURNALED_EVERY == 0

    @staticmethod
    def is_buried(number: int) -> bool:
        return number % BURIED_EVERY == 0

    def is_traced(self, number: int) -> bool:
        return self.is_received and number % TRACED_EVERY == 0

    def sent(self) -> set[int]:
        return {number for batch in self.batches for number in batch.numbers}

    def has_sent(self) -> bool:
        """Whether anything was sent that leaves a trace of every kind."""
        return any(map(self.is_buried, self.confirmed()))

    def confirmed(self) -> set[int]:
        return {number for batch in self.batches if batch.confirmed for number in batch.numbers}

    def steady(self) -> set[int]:
        """What was sent when no node was killed any more."""
        return {number for batch in self.batches if batch.steady for number in batch.numbers}

    def begun(self, seen: set[int]) -> set[int]:
        """What was sent for certain: confirmed, or seen, or in one transaction with what was seen."""
        begun = self.confirmed() | seen
        if self.transactional:
            begun.update(number for batch in self.batches if seen & set(batch.numbers) for number in batch.numbers)
        return begun

    def numbers(self) -> list[int]:
        """What arrived, in its order."""
        found = []
        for message in self.received:
            name, number = named(message.body)
            assert name == self.name, f"{message.body!r} is in the queue of {self.name}"
            found.append(number)
        return found

    def findings(self) -> Iterator[str]:
        """What is wrong with what arrived."""
        if not self.is_received:
            return
        arrived = self.numbers()
        counts = Counter(arrived)
        if lost := sorted(self.confirmed() - set(arrived)):
            yield f"{self.name}: lost {short(lost)}"
        if twice := sorted(number for number, count in counts.items() if count > 1):
            yield f"{self.name}: twice {short(twice)}"
        if unsent := sorted(set(arrived) - self.sent()):
            yield f"{self.name}: nobody sent {short(unsent)}"
        if not self.transactional:
            return
        if arrived != sorted(arrived):
            wrong = [number for before, number in pairwise(arrived) if number < before]
            yield f"{self.name}: out of order at {short(wrong)}"
        for batch in self.batches:
            present = sum(number in counts for number in batch.numbers)
            if present not in (0, len(batch.numbers)):
                yield f"{self.name}: {present} messages of transaction {batch.numbers}"

    def arrived(self) -> Iterator[tuple[bytes, int]]:
        """Identifier of each message that arrived, and its number."""
        yield from zip((message.identifier for message in self.received), self.numbers(), strict=True)


def named(body: bytes) -> tuple[str, int]:
    """The stream that a message is of, and its number there."""
    name, _, number = body.decode().partition(" ")
    return name, int(number)


def short(numbers: Sequence[int]) -> str:
    """The first of them, for people."""
    return f"{list(numbers[:8])}{f' and {len(numbers) - 8} more' if len(numbers) > 8 else ''}"
