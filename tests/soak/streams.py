"""Streams of numbered messages, what was confirmed of each, and what has to have come of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import qmnode

ASKS_EVERY = 4
"""Every so many messages want administration acknowledgments of their arrival and their receiving."""
JOURNALED_EVERY = 3
"""Every so many want a copy in their source's journal."""


@dataclass
class Batch:
    """Messages that were sent in one transaction, or in one call."""

    numbers: range
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
    batches: list[Batch] = field(default_factory=list)
    received: list[qmnode.Message] = field(default_factory=list)

    def next_batch(self, size: int) -> tuple[Batch, list[qmnode.Message]]:
        """The next messages to be sent."""
        start = self.batches[-1].numbers.stop if self.batches else 0
        batch = Batch(range(start, start + size))
        self.batches.append(batch)
        return batch, [self._message(number) for number in batch.numbers]

    def _message(self, number: int) -> qmnode.Message:
        message = qmnode.Message(f"{self.name} {number}".encode(), recoverable=True)
        if self.asks(number):
            message.acknowledgements_requested = 0x03
            message.administration_queue_format_name = self.admin
        message.positive_journaling_requested = self.is_journaled(number)
        return message

    @staticmethod
    def asks(number: int) -> bool:
        return number % ASKS_EVERY == 0

    @staticmethod
    def is_journaled(number: int) -> bool:
        return number % JOURNALED_EVERY == 0

    @property
    def last_confirmed(self) -> int:
        """The last number that must arrive; -1 for none."""
        return max((batch.numbers[-1] for batch in self.batches if batch.confirmed), default=-1)

    def numbers(self) -> list[int]:
        """What arrived, in its order."""
        found = []
        for message in self.received:
            name, _, number = message.body.decode().partition(" ")
            assert name == self.name, f"{message.body!r} is in the queue of {self.name}"
            found.append(int(number))
        return found

    def findings(self) -> Iterator[str]:
        """What is wrong with what arrived."""
        arrived = self.numbers()
        counts = Counter(arrived)
        confirmed = {number for batch in self.batches if batch.confirmed for number in batch.numbers}
        sent = {number for batch in self.batches for number in batch.numbers}
        if lost := sorted(confirmed - set(arrived)):
            yield f"{self.name}: lost {_short(lost)}"
        if twice := sorted(number for number, count in counts.items() if count > 1):
            yield f"{self.name}: twice {_short(twice)}"
        if unsent := sorted(set(arrived) - sent):
            yield f"{self.name}: nobody sent {_short(unsent)}"
        if not self.transactional:
            return
        if arrived != sorted(arrived):
            wrong = [number for before, number in pairwise(arrived) if number < before]
            yield f"{self.name}: out of order at {_short(wrong)}"
        for batch in self.batches:
            present = sum(number in counts for number in batch.numbers)
            if present not in (0, len(batch.numbers)):
                yield f"{self.name}: {present} messages of transaction {batch.numbers}"

    def wanted(self) -> Iterator[tuple[bytes, int]]:
        """Identifier of each message that arrived, and its number."""
        yield from zip((message.identifier for message in self.received), self.numbers(), strict=True)


def copies(kind: str, wanted: set[bytes], found: Sequence[bytes]) -> Iterator[str]:
    """What is wrong with copies and acknowledgments: exactly one for each message that asked, and no other."""
    counts = Counter(found)
    if missing := wanted - set(counts):
        yield f"{kind}: {len(missing)} of {len(wanted)} missing"
    if unasked := set(counts) - wanted:
        yield f"{kind}: {len(unasked)} that nobody asked for"
    if twice := [identifier for identifier, count in counts.items() if count > 1]:
        yield f"{kind}: {len(twice)} twice"


def _short(numbers: Sequence[int]) -> str:
    return f"{list(numbers[:8])}{f' and {len(numbers) - 8} more' if len(numbers) > 8 else ''}"
