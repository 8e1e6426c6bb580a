r"""Delayed delivery: messages that wait at their source until their delivery time. An extension of MS-MQDMPR.

A message with ``deliver_at`` or ``deliver_in`` is checked, addressed and signed as any other when it is sent. Then it
waits in a system queue of the node where it was sent, ``.\private$\delayed$``, beside an index that is ordered by
delivery time. At that time it leaves, in one batch with its entry, the way of an ordinary message: into its local
queue, or into the outgoing queue to another machine, which never learns of the delay.

* A waiting message is kept on disk, also an express one: nobody can send it again. It is express again once delivered.
* SentTime is the time of delivery, so that both lifetimes (3.1.1.12) run from there. The identifier is that of the
  send.
* A delay counts from the send; in a transaction, from the commit. Each delayed message is a transaction of its own when
  it is delivered, so that a transactional queue gets them in the order of their delivery times, then of their sends.
* The wall clock decides. A clock that is set back delays messages, and never delivers one early.
* A message whose destination refuses it by then (gone, full, or closed to the sender) becomes a dead letter, asked for
  or not. Its class is that of a refused arrival, and acknowledgments are sent as requested. While the dead-letter queue
  has no room either, it waits.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import ceil
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueType
from qmnode.model.leaving_queue import check_named, dead_letter_queue, kept
from qmnode.model.message import check_values
from qmnode.model.ports import Entry, TimerHandle
from qmnode.model.positions import lookup_identifier_of
from qmnode.model.queue import Queue
from qmnode.model.stored_message import (
    BROKEN,
    EXPRESS,
    FLAGS,
    NAMED_DEAD_LETTER,
    PREFIX_SIZE,
    PRIORITY,
    RECOVERABLE_FLAG,
    REPORT,
    TRANSACTIONAL,
    Delay,
    dead_letter_queue_of,
    delay_of,
    received_message,
    user_flags,
    with_class,
    with_delay,
    with_prefix,
    with_sent_time,
    without_dead_letter_header,
    without_delay,
)
from qmnode.shares import DELAYED_BYTES, Kind
from qmnode.structures.enumerations import MessageClass, QueuePrivacyLevel
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.model.message import Message
    from qmnode.model.shared_state import Context
    from qmnode.structures.names import FormatName

log = structlog.get_logger(__name__)

REQUESTS: Final = frozenset(("deliver_at", "deliver_in"))
"""The properties by which a sender asks for a delay."""
_BEGINNING: Final = (0, 0)
_CHUNK: Final = 200
"""Messages that are delivered in one pass of the event loop; the rest wait for the next."""
_CHUNK_BYTES: Final = 1024 * 1024
"""Bytes of them after which no further one is read in this pass."""
_LOOK: Final = 1.0
"""Seconds between two looks at the clock, which somebody may set forward."""
_PAUSE: Final = 30.0
"""Seconds until the next try for messages that neither their destination nor a dead-letter queue has room for."""
_NEVER: Final = 1 << 63
_BAD_DESTINATION: Final = {
    ErrorCode.MQ_ERROR_ACCESS_DENIED: MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED,
}


class _Way(NamedTuple):
    """Properties that messages which go on together share."""

    destination: str
    sender: bytes


def is_delayed(message: "Message") -> bool:
    """Whether a message asks for a delay, perhaps of no time."""
    return not REQUESTS.isdisjoint(message.__dict__)


def delay_requested(properties: Mapping[str, Any], now: float) -> tuple[int, int] | None:
    """The delivery time that a message asks for, and the delay from which it follows, or 0: in milliseconds. None if
    it is to be delivered at once. Raises MQ_ERROR_ILLEGAL_PROPERTY_VALUE if it asks for both, or for what is no time.
    """
    check_values({name: properties[name] for name in REQUESTS if name in properties})
    at, delay = properties.get("deliver_at", 0), properties.get("deliver_in", 0)
    if at and delay:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
            "a message has a delivery time or a delay, not both: leave out deliver_at or deliver_in",
        )
    if delay:
        return ceil((now + delay) * 1000), ceil(delay * 1000)
    return (ceil(at * 1000), 0) if at > now else None


class DelayedQueue(Queue):
    """The messages that wait for their delivery time, and the timer that delivers them."""

    is_delayed = True

    def __init__(self, context: "Context", queue_id: int, pathname: str, queue_type: QueueType, **more: Any) -> None:
        super().__init__(context, queue_id, pathname, queue_type, **more)
        self.recorder = None  # a message begins its history when it is delivered
        self._timer: TimerHandle | None = None
        self._next = _NEVER
        """The time of the next message, in milliseconds since 1970."""
        self._searched = _BEGINNING
        """The index before this entry has been processed, so that the search does not begin among deleted keys."""
        self._put_off: tuple[int, int] | None = None
        """The first entry of a message that waits for room."""
        self._retry_at = 0.0

    def start(self) -> None:
        """Deliver what became due while the node was down, and set the timer."""
        self._arm_for_next()

    def stop(self) -> None:
        """Stop the timer, because the queue manager closes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Sending

    def hold(self, value: bytes, due: tuple[int, int], destination: str, caller: object) -> bytes:
        """An accepted message as it waits here. Raises MQ_ERROR_INSUFFICIENT_RESOURCES if delayed messages have used
        the part of the quota that they may have for the sake of this caller.
        """
        policy = self.context.access_policy
        sender, kind = b"", Kind.OWN
        if policy is not None and caller is not None:
            sender, kind = policy.rights_of(caller), policy.kind_of(caller)
        value = with_delay(value, Delay(*due, destination, sender))
        self._check_share(kind, len(value))
        return value

    def _check_share(self, kind: Kind, size: int) -> None:
        """Keep the reserves free of all messages together: no memory is needed for the sender of each. Refused messages
        become dead letters, so that the rest of the quota counts as well.
        """
        share, quotas = DELAYED_BYTES, self.context.quotas
        limit, most = quotas.limit / 2, quotas.limit_of(kind)
        if kind is not Kind.OWN:
            limit *= 1 - (share.own if kind is Kind.DECLARED else share.reserve)
        if self.total_bytes + self.reserved_bytes + size > limit:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"delayed messages have used the part of quotas.queue_manager_quota that is theirs, {limit / 1024:.0f} "
                f"KB for such a sender: send without a delay, cancel some in {self.pathname}, or raise the quota",
            )
        if kind is not Kind.OWN and quotas.used + size > most:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"the queues hold {most / 1024:.0f} KB of quotas.queue_manager_quota, up to which such a sender may "
                "delay messages: receive or purge messages or dead letters, or raise the quota",
            )

    # Messages

    def arrive(self, lookup_identifier: int, value: bytes) -> None:
        """Insert a message that waits: it has not reached its queue."""
        self.insert(lookup_identifier, value)

    def arrive_many(self, entries: Sequence[Entry]) -> None:
        """``arrive`` for each of the messages."""
        for lookup_identifier, value in entries:
            self.insert(lookup_identifier, value)

    def arrive_committed(self, entries: Sequence[Entry]) -> None:
        """Insert the messages of a transaction: a delay begins now."""
        now = self.context.clock.time()
        for lookup_identifier, value in entries:
            delay = delay_of(value)
            if delay.delay:
                value = with_delay(without_delay(value), delay._replace(due=ceil(now * 1000) + delay.delay))
            self.insert(lookup_identifier, value)

    def insert(self, lookup_identifier: int, value: bytes) -> None:
        """Store a message and its entry of the index."""
        self.store.delayed_messages()
        super().insert(lookup_identifier, value)
        entry = delay_of(value).due, lookup_identifier
        self.store.put_delayed(*entry)
        self._expect(entry)

    def make_available(self, lookup_identifier: int, value: bytes) -> None:
        """Locked to Available: the message may have become due meanwhile."""
        super().make_available(lookup_identifier, value)
        self._expect((delay_of(value).due, lookup_identifier))

    def delete(self, lookup_identifier: int, value: bytes, reason: int = MessageClass.MQMSG_CLASS_ACK_RECEIVE) -> None:
        """Cancel a message that has been taken or unlocked. A caller that takes it out of here is no receiver of it."""
        if reason == MessageClass.MQMSG_CLASS_ACK_RECEIVE:
            self.remove(lookup_identifier, value, received=True)
        else:
            super().delete(lookup_identifier, value, reason)

    def remove(self, lookup_identifier: int, value: bytes, *, received: bool = False) -> None:
        """Remove a taken or unlocked message with its entry of the index."""
        super().remove(lookup_identifier, value, received=received)
        self.store.delete_delayed(delay_of(value).due, lookup_identifier)

    # Delivery

    def _expect(self, entry: tuple[int, int]) -> None:
        if entry < self._searched:
            self._searched = entry
        if entry[0] < self._next:
            self._arm(entry[0])

    def _arm(self, due: int) -> None:
        self.stop()
        self._next = due
        clock = self.context.clock
        self._timer = clock.call_later(min(_LOOK, max(0.0, due / 1000 - clock.time())), self._look)

    def _arm_for_next(self) -> None:
        self.stop()
        self._next = _NEVER
        self.store.make_visible()
        for entry in self.store.read_delayed(self._searched, _NEVER, 1):
            self._searched = entry
            self._arm(entry[0])
        if self._put_off is not None and self._timer is None:
            self._arm(ceil(self._retry_at * 1000))

    def _look(self) -> None:
        self._timer = None
        now = self.context.clock.time()
        if self._put_off is not None and not 0 < self._retry_at - now <= _PAUSE:
            self._searched, self._put_off = min(self._searched, self._put_off), None
            self._next = 0
        if int(now * 1000) < self._next:
            self._arm(self._next)
        else:
            self._deliver_due(int(now * 1000))

    def _deliver_due(self, now: int) -> None:
        store = self.store
        store.make_visible()
        due = store.read_delayed(self._searched, now, _CHUNK)
        # All are read before the first is changed: a read writes what was changed before it.
        waiting: list[tuple[_Way, int, Entry]] = []
        size, after = 0, (due[-1][0], due[-1][1] + 1) if len(due) == _CHUNK else (now + 1, 0)
        for when, lookup_identifier in due:
            if size >= _CHUNK_BYTES:
                after = when, lookup_identifier
                break
            if lookup_identifier in self.locked:
                continue  # an administrator holds it; it is due when it comes back
            try:
                value = self.value_of(lookup_identifier)
                way = None if value is None else _way_of(value)
            except (MessageQueuingError, *BROKEN) as error:
                store.check()
                # It stays in the index for the next start, and keeps no other message from its delivery.
                log.error("a delayed message cannot be read", lookup=lookup_identifier, reason=str(error))
                continue
            if value is None or way is None:  # cancelled
                store.delete_delayed(when, lookup_identifier)
            else:
                waiting.append((way, when, (lookup_identifier, value)))
                size += len(value)
        self._searched = max(self._searched, after)
        for way, some in groupby(waiting, itemgetter(0)):
            self._deliver(way, [(when, entry) for _, when, entry in some])
        store.durable()
        self._arm_for_next()

    def _deliver(self, way: _Way, messages: list[tuple[int, Entry]]) -> None:
        """Deliver messages with one destination, as their sender would send them now."""
        context, (destination, sender) = self.context, way
        caller = context.access_policy.caller_with(sender) if sender and context.access_policy is not None else None
        queue: Queue | None = None
        reason = MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q
        try:
            name = cast("FormatName", context.names.parse(destination))
            queue = context.opening.find(name, Access.SEND, caller=caller)
            if not context.opening.may_open(queue, Access.SEND, caller):
                queue, reason = None, MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED
        except MessageQueuingError as error:
            if error.code is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES:
                self._wait_for_room(messages[0], error.sentence)
                return
            reason = _BAD_DESTINATION.get(error.code, reason)
        for message in messages:
            lookup_identifier, value = message[1]
            refused = reason if queue is None else _refusal(queue, value)
            if refused is not None or queue is None:
                self._bury(message, refused or reason, destination)
                continue
            self.take_this(lookup_identifier)
            self.remove(lookup_identifier, value)
            value = _as_sent(value, context.clock.time(), transit=queue.queue_type is QueueType.OUTGOING)
            value = self._with_allowed_dead_letter_queue(value, caller)
            entry = lookup_identifier_of(value[PRIORITY], context.sequence.next()), value
            if value[FLAGS] & TRANSACTIONAL:
                queue.arrive_committed([entry])
            else:
                queue.arrive(*entry)

    def _with_allowed_dead_letter_queue(self, value: bytes, caller: object) -> bytes:
        """A message without the dead-letter queue that its sender names if the sender may not send there now: SentTime
        no longer says that the queue is younger than the permission.
        """
        if value[FLAGS] & NAMED_DEAD_LETTER:
            try:
                check_named(self.context, dead_letter_queue_of(value), caller)
            except MessageQueuingError as error:
                log.warning("a delayed message loses its dead-letter queue", reason=error.sentence)
                return with_prefix(without_dead_letter_header(value), flags=value[FLAGS] & ~NAMED_DEAD_LETTER)
        return value

    def _bury(self, message: tuple[int, Entry], reason: MessageClass, destination: str) -> None:
        """Make a message that its destination refuses a dead letter, and notify its sender as requested."""
        lookup_identifier, value = message[1]
        plain = without_delay(value)
        found = received_message(lookup_identifier, plain)
        keeper = dead_letter_queue(self.context, found, len(plain) - PREFIX_SIZE)
        if self.context.quotas.is_over_its_own(keeper, len(plain)):
            self._wait_for_room(message, f"the quota of {keeper.pathname} would be passed")
            return
        log.warning(
            "a delayed message cannot be delivered, and becomes a dead letter", destination=destination,
            reason=reason.name, message=found.identifier.hex(), kept_in=keeper.pathname,
        )  # fmt: skip
        self.take_this(lookup_identifier)
        self.remove(lookup_identifier, value)
        self.tally.die(plain, reason)
        keeper.insert(lookup_identifier, with_class(kept(plain), reason))
        if plain[FLAGS] & REPORT:
            self.context.outcomes.acknowledge(found, reason)

    def _wait_for_room(self, message: tuple[int, Entry], reason: str) -> None:
        entry = message[0], message[1][0]
        if self._put_off is None:
            log.warning("delayed messages wait for room", reason=reason, again_in=_PAUSE)
            self._put_off, self._retry_at = entry, self.context.clock.time() + _PAUSE
        self._put_off = min(self._put_off, entry)


def _way_of(value: bytes) -> _Way:
    delay = delay_of(value)
    return _Way(delay.destination, delay.sender)


def _refusal(queue: Queue, value: bytes) -> MessageClass | None:
    """The reason why a queue here refuses a message now, as it would one from another machine (MS-MQQB 3.1.5.8.3)."""
    if queue.queue_type in (QueueType.OUTGOING, QueueType.CONNECTOR):
        return None
    if queue.transactional and not value[FLAGS] & TRANSACTIONAL:
        return MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG
    if not queue.transactional and value[FLAGS] & TRANSACTIONAL:
        return MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q
    if queue.authentication or queue.privacy_level != QueuePrivacyLevel.OPTIONAL:
        message = received_message(0, without_delay(value))
        if queue.authentication and not message.signature:
            return MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE
        if bool(message.privacy_level) is (queue.privacy_level == QueuePrivacyLevel.NONE):
            return MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION
    if queue.context.quotas.is_over_its_own(queue, len(value)):
        return MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA
    return None


def _as_sent(value: bytes, now: float, *, transit: bool) -> bytes:
    """A message that has waited, as if it were sent now."""
    value = with_sent_time(without_delay(value), now, transit=transit)
    if not value[FLAGS] & TRANSACTIONAL and not user_flags(value) & RECOVERABLE_FLAG:
        return with_prefix(value, flags=value[FLAGS] | EXPRESS)
    return value
