"""How a read makes a message its own, and how it gives it back when its caller is gone before the answer."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from qmnode.model.queue import Queue
    from qmnode.model.transaction import Transaction


class Claim(Protocol):
    """What a destructive read does to the message that it found."""

    @property
    def transaction(self) -> "Transaction | None":
        """The transaction that the read is part of."""

    def take(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """The message, which has been taken (``Queue.take`` or ``take_this``), is the reader's."""

    def undo(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """The reader was cancelled: the message is available again, in its old place."""


class Delete:
    """A plain receive: the message is gone."""

    transaction = None

    @staticmethod
    def take(queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Message Position Deleted."""
        queue.delete(lookup_identifier, value)

    @staticmethod
    def undo(queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Put it back under its old lookup identifier, and take its copy out of the journal."""
        if queue.deleted:
            return
        if queue.journaling and queue.journal.value_of(lookup_identifier) is not None:
            queue.journal.take_this(lookup_identifier)
            queue.journal.remove(lookup_identifier, value)
        queue.insert(lookup_identifier, value)


class Lock:
    """The first phase of a two-phase read (3.1.7.1.11): the message is locked until the second."""

    transaction = None

    @staticmethod
    def take(queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Available to Locked."""
        queue.lock(lookup_identifier, value, None)

    @staticmethod
    def undo(queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Locked to Available."""
        if not queue.deleted:
            queue.unlock(lookup_identifier)
            queue.make_available(lookup_identifier, value)


class InTransaction:
    """A receive in a transaction: the message is locked until the transaction ends."""

    __slots__ = ("transaction",)

    def __init__(self, transaction: "Transaction") -> None:
        self.transaction = transaction

    def take(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Available to Locked, deleted at commit."""
        self.transaction.dequeue(queue, lookup_identifier, value)

    def undo(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Not part of the transaction any more."""
        self.transaction.give_back(queue, lookup_identifier)
