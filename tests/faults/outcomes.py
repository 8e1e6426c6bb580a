"""What a node makes of a damaged store: whether a message is wrong, or missing without a word."""

from dataclasses import dataclass
from pathlib import Path

from qmnode import QueueManager
from qmnode.errors import MessageQueuingError
from qmnode.storage.verification import verify
from tests.faults.flips import QUEUES, number_of


@dataclass
class Outcome:
    """What was seen of a store with a damage."""

    refused: bool
    """Whether the node did not start."""
    words: list[str]
    """What the node reported."""
    bodies: list[bytes]
    findings: list[str]
    """What the check named; the reason if it could not read the store."""

    @property
    def result(self) -> str:
        """What came of the damage, in two words."""
        return "no start" if self.refused else "named" if self.words else "all there"

    def missing(self, count: int) -> int:
        """How many of the messages 0 to ``count`` - 1 are not there."""
        return count - len({number_of(body) for body in self.bodies} - {-1})

    def violations(self, count: int) -> list[str]:
        """What must not be: the store had the messages 0 to ``count`` - 1."""
        numbers = [number_of(body) for body in self.bodies]
        wrong = []
        if -1 in numbers:
            wrong.append("a message is wrong")
        if len(set(numbers)) != len(numbers):
            wrong.append("a message is there twice")
        missing = self.missing(count)
        if missing and not self.words:
            wrong.append(f"{missing} messages are missing without a word")
        if missing and not self.findings:
            wrong.append(f"{missing} messages are missing, and the check finds nothing")
        return wrong


def named(path: Path) -> list[str]:
    """What the check finds in a store; the reason if it cannot read it."""
    try:
        return [f"{one.where}: {one.sentence}" for one in verify(path).findings]
    except MessageQueuingError as error:
        return [error.sentence]


async def outcome(path: Path) -> Outcome:
    """Start a node on a store and receive everything. The store is not checked."""
    seen = Outcome(False, [], [], [])
    try:
        async with QueueManager.open(path) as qm:
            seen.words += (await qm.status()).warnings
            for name in QUEUES:
                try:
                    async with await qm.open_queue(rf"DIRECT=OS:{name}") as queue:
                        while some := await queue.receive_many(100, timeout=0):
                            seen.bodies += [message.body for message in some]
                except MessageQueuingError as error:
                    if "TIMEOUT" not in str(error):
                        seen.words.append(str(error))
    except MessageQueuingError as error:
        seen.refused = not seen.bodies
        seen.words.append(str(error))
    return seen
