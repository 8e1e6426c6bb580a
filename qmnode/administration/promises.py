"""The promise of an operation for each pair of kinds of queue. ``docs/reference/promises.md`` is drawn from it."""

from enum import StrEnum
from typing import Final, NamedTuple

from qmnode.model.api import QueueType
from qmnode.model.queue import Queue


class QueueRole(StrEnum):
    """The kind of a queue that a message leaves or comes to."""

    PLAIN = "queue"
    TRANSACTIONAL = "transactional queue"
    JOURNAL = "journal"
    DEAD_LETTERS = "dead-letter queue"
    OUTGOING = "outgoing queue"
    REMOTE = "queue of another machine"


class TransferMode(StrEnum):
    """How a message gets into its target."""

    AS_IT_IS = "as it is"
    """Its bytes stay: all properties, the identifier, the lookup identifier, the signature."""
    ANEW = "sent anew"
    """This node sends another message with the same content."""
    REFUSED = "refused"


class Promise(NamedTuple):
    """A cell of the table. ``docs/reference/promises.md`` explains its words."""

    way: TransferMode
    sentence: str


_QUEUES: Final = (QueueRole.PLAIN, QueueRole.TRANSACTIONAL)
KEPT_AS_IT_IS: Final = "everything: identifier, lookup identifier, signature, sender, times, place in its transaction"
KEPT_ANEW: Final = (
    "body, body type, label, extension (headers), correlation identifier, application value, response and "
    "administration queue, acknowledgments, journaling, dead-letter queue, priority, recoverable, time limits (which "
    "begin again)"
)
LOST_ANEW: Final = (
    "identifier, lookup identifier, sent and arrival time, signature and sender, place in its transaction, counts of "
    "aborts and moves"
)
_ONCE: Final = "once"
_REMOTE: Final = "once, then onward"
_TWICE: Final = "perhaps twice"


def kind_of(queue: Queue) -> QueueRole:
    """The kind of a queue of this node; a subqueue is as its queue."""
    if queue.queue_type is QueueType.OUTGOING or queue.queue_type is QueueType.CONNECTOR:
        return QueueRole.OUTGOING
    journal = queue.context.queues.journal
    if queue.is_journal or queue is journal:
        return QueueRole.JOURNAL
    if queue.is_dead_letter or queue.is_delayed:  # messages leave both by being sent anew
        return QueueRole.DEAD_LETTERS
    owner = queue.parent or queue
    return QueueRole.TRANSACTIONAL if owner.transactional else QueueRole.PLAIN


def promise(source: QueueRole, target: QueueRole, *, copies: bool = False) -> Promise:
    """Return the promise of a move, or of a copy, from one kind to another."""
    if target in (QueueRole.JOURNAL, QueueRole.DEAD_LETTERS, QueueRole.OUTGOING):
        return Promise(TransferMode.REFUSED, f"nothing is put into a {target}")
    if not copies and source is target and source in _QUEUES:
        return Promise(TransferMode.AS_IT_IS, _ONCE)
    if target is QueueRole.REMOTE:
        return Promise(TransferMode.ANEW, f"{_REMOTE}, {_TWICE}" if _may_repeat(source, copies) else _REMOTE)
    return Promise(TransferMode.ANEW, _TWICE if _may_repeat(source, copies) else _ONCE)


def _may_repeat(source: QueueRole, copies: bool) -> bool:
    return source is QueueRole.OUTGOING and not copies
