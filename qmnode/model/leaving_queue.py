"""Actions when a message leaves its queue: Message Position Deleted, MS-MQDMPR 3.1.7.2.1 and MS-MQQB 3.1.7.2.

These are a copy for the queue's journal, a copy for a dead-letter queue, and an acknowledgment for the sender. They
share one batch with the deletion, so that no crash can separate a message from its copy.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueType
from qmnode.model.message import Acknowledgment, Message
from qmnode.model.positions import lookup_identifier_of
from qmnode.model.quotas import EnqueueStatus
from qmnode.model.serialization import Destination, serialize
from qmnode.model.stored_message import (
    DELAYED,
    FLAGS,
    NEGATIVE_JOURNAL,
    NEVER,
    NOTICE,
    ON_ARRIVAL,
    ON_LOSS,
    PREFIX_SIZE,
    REPORT,
    TRANSACTIONAL,
    received_message,
    with_class,
    with_prefix,
    without_delay,
)
from qmnode.shares import OWN, Party
from qmnode.structures.enumerations import (
    INSECURE_NACKS,
    MessageClass,
    QueuePrivacyLevel,
    is_negative_acknowledgment,
    is_receive_acknowledgment,
)
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import SEPARATOR, FormatName, MultipleElementFormatName, PathName, QueueNameError
from qmnode.structures.user_message import MOST_ADMINISTRATION_QUEUES

if TYPE_CHECKING:
    from qmnode.model.queue import Queue
    from qmnode.model.shared_state import Context


log = structlog.get_logger(__name__)


def check_named(context: "Context", pathname: str, caller: object) -> None:
    """Raise if the dead-letter queue that an application names is not a path name, or is a queue that it may not send
    to.

    Whether the queue exists and can keep the message is checked only when it is needed.
    """
    try:
        PathName.parse(pathname)
    except QueueNameError as error:
        raise MessageQueuingError(error.code, f"application_dead_letter_queue: {error.sentence}") from None
    try:
        queue = context.names.find(pathname)
    except MessageQueuingError:
        return
    if not context.opening.may_open(queue, Access.SEND, caller):
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED,
            f"application_dead_letter_queue: {caller} may not send to {queue.pathname}",
        )


ADMINISTRATION_QUEUES: Final = ("administration_queue_format_name", "administration_multi_queue_format_name")


def check_told(context: "Context", format_name: str, caller: object) -> None:
    """Raise if an application names a queue of this machine for acknowledgments to which it may not send.

    Wrong names and missing queues are no errors here: there is no acknowledgment then.
    """
    try:
        name = context.names.parse(format_name)
    except MessageQueuingError:
        return
    for one in elements(name):
        queue = context.names.local(one) if context.names.is_local(one) else None
        if queue is not None and not context.opening.may_open(queue, Access.SEND, caller):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"administration queue: {caller} may not send to {queue.pathname}",
            )


def elements(name: "FormatName | MultipleElementFormatName") -> "tuple[FormatName, ...]":
    """The names that a name is made of."""
    return name.elements if isinstance(name, MultipleElementFormatName) else (name,)


def dead_letter_queue(context: "Context", message: "Message", size: int) -> "Queue":
    """The queue for a dead message of ``size`` bytes: a mistake in the named queue never loses the message."""
    system = context.queues.transactional_dead_letter if message.transactional else context.queues.dead_letter
    pathname = message.application_dead_letter_queue
    if not pathname:
        return system
    try:
        queue = context.names.find(pathname)
    except MessageQueuingError as error:
        fault: str | None = str(error)
    else:
        fault = _fault(context, queue, message, size)
        if fault is None:
            return queue
    log.warning(
        "a dead letter goes to the queue of the system", named=pathname, queue=system.pathname, reason=fault,
        message=message.identifier.hex(),
    )  # fmt: skip
    return system


def _fault(context: "Context", queue: "Queue", message: "Message", size: int) -> str | None:
    """The reason why a queue cannot keep a dead letter."""
    if queue.queue_type not in (QueueType.PRIVATE, QueueType.PUBLIC) or queue.is_journal or queue.parent is not None:
        return "it is no queue that applications send to"
    if queue.transactional is not message.transactional:
        return "one of queue and message is transactional"
    if queue.create_time > message.sent_time:
        return "it was made after the message was sent, so nobody knows whether the sender may use it"
    if queue.authentication or queue.privacy_level == QueuePrivacyLevel.BODY:
        return "it takes only messages that are signed or encrypted"
    if context.quotas.status(queue, size) is not EnqueueStatus.ACCEPTED:
        return "it has no room: receive or purge messages, or raise the quota"
    return None


_NOTICE_LIFETIME: Final = 345_600
"""Seconds that an administration acknowledgment may be in transit: 4 days, for ever in 3.1.7.15."""
_ACKNOWLEDGED_BY: Final = {
    # (negative, about receiving) to the bit of AcknowledgementsRequested that asks for it.
    (False, False): Acknowledgment.POSITIVE_ARRIVAL,
    (False, True): Acknowledgment.POSITIVE_RECEIVE,
    (True, False): Acknowledgment.NEGATIVE_ARRIVAL,
    (True, True): Acknowledgment.NEGATIVE_RECEIVE,
}


class Repeated(NamedTuple):
    """The properties of a message that its administration acknowledgments have too.

    MS-MQQB 3.1.7.15 copies neither label nor application value. With them an application tells its answers apart, and
    with one priority "arrived" stays before "received".
    """

    label: str
    app_specific: int
    priority: int
    body_type: int
    recoverable: bool


def acknowledgment(message_class: int, body: bytes, identifier: bytes, destination: str, repeated: Repeated) -> Message:
    """The administration acknowledgment (MS-MQQB 3.1.7.15) for the message with an ``identifier`` that was sent to
    ``destination``.
    """
    return Message(
        body,
        message_class=message_class,
        correlation_identifier=identifier,
        response_queue_format_name=destination,
        time_to_reach_queue=_NOTICE_LIFETIME,
        **repeated._asdict(),
    )


class Outcomes:
    """Performs the actions that a message requested for when it leaves its queue."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self.journal_copies_dropped = 0
        """Copies that a journal's quota had no room for."""
        self.dead_letters_dropped = 0
        """Copies that a dead-letter queue, or the queue manager's quota, had no room for."""

    def message_position_deleted(self, queue: "Queue", lookup_identifier: int, value: bytes, reason: int) -> None:
        """A message was deleted for this reason."""
        if reason == MessageClass.MQMSG_CLASS_ACK_RECEIVE:
            if queue.journaling:
                self.add_to_journal(queue.journal, lookup_identifier, value)
        elif value[FLAGS] & NEGATIVE_JOURNAL and not queue.is_dead_letter:
            self.add_to_dead_letters(lookup_identifier, value, reason)
        if value[FLAGS] & REPORT:
            self.acknowledge(received_message(lookup_identifier, value), reason)
        network = self._context.network
        if value[FLAGS] & TRANSACTIONAL and network is not None and not (queue.is_dead_letter or queue.is_journal):
            network.message_left(value, reason)

    def rejected(self, queue: "Queue", lookup_identifier: int, value: bytes) -> None:
        """A receiver rejected this unlocked message: it becomes a dead letter, asked for or not, unless it was one."""
        if queue.is_dead_letter:
            queue.make_available(lookup_identifier, value)
            return
        reason = MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED
        asked = bool(value[FLAGS] & NEGATIVE_JOURNAL)
        queue.delete(lookup_identifier, value, reason)
        if not asked:
            message = received_message(lookup_identifier, value)
            kept_in = dead_letter_queue(self._context, message, len(value) - PREFIX_SIZE)
            self._keep_dead(kept_in, lookup_identifier, value, reason, self._context.quotas.limit)

    def gave_up(self, queue: "Queue", lookup_identifier: int, value: bytes) -> bool:
        """Make a dead letter here, asked for or not, of this unlocked message, which failed as often as its queue
        allows. False if there is no room for it: it may not be lost.
        """
        size, reason = len(value) - PREFIX_SIZE, MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED
        dead = received_message(lookup_identifier, value)
        kept_in = dead_letter_queue(self._context, dead, size)
        if self._context.quotas.is_over_its_own(kept_in, size):
            return False
        log.warning(
            "a message that failed as often as its queue allows becomes a dead letter", queue=queue.pathname,
            message=dead.identifier.hex(), kept_in=kept_in.pathname,
        )  # fmt: skip
        queue.remove(lookup_identifier, value)
        queue.tally.die(value, reason)
        if queue.recorder is not None:
            queue.recorder.deleted(queue, ((lookup_identifier, value),), reason)
        kept_in.insert(lookup_identifier, with_class(kept(value), reason))
        value = with_prefix(value, flags=value[FLAGS] & ~NEGATIVE_JOURNAL)
        self.message_position_deleted(queue, lookup_identifier, value, reason)
        return True

    def arrived(self, lookup_identifier: int, value: bytes) -> None:
        """A message reached its queue here: acknowledge that, and keep a copy if it was sent from here."""
        message = received_message(lookup_identifier, value)
        if message.positive_journaling_requested and message.source_machine_identifier == self._context.identifier:
            self.add_to_journal(self._context.queues.journal, lookup_identifier, value)
        self.acknowledge(message, MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE)

    def add_to_journal(self, journal: "Queue", lookup_identifier: int, value: bytes) -> None:
        """Copy a message to a journal: target journaling, and positive source journaling."""
        if self._context.quotas.journal_has_room(journal, len(value) - PREFIX_SIZE):
            journal.insert(lookup_identifier, kept(value))
        else:
            self.journal_copies_dropped += 1

    def add_to_dead_letters(
        self, lookup_identifier: int, value: bytes, reason: int, limit: float | None = None
    ) -> None:
        """Negative source journaling: copy a message that was not received to a dead-letter queue, if it asks for that.

        The application's named queue is used, or else the system's, for messages from other machines too. A
        transactional message from elsewhere is kept by its sender, who is notified by the final acknowledgment.

        ``limit``: the bytes that the queue manager may store with it, if the message was not stored here before.
        """
        message = received_message(lookup_identifier, value)
        context = self._context
        if not message.negative_journaling_requested:
            return
        if message.transactional and message.source_machine_identifier != context.identifier:
            return
        queue = dead_letter_queue(context, message, len(value) - PREFIX_SIZE)
        self._keep_dead(queue, lookup_identifier, value, reason, context.quotas.limit if limit is None else limit)

    def _keep_dead(self, queue: "Queue", lookup_identifier: int, value: bytes, reason: int, limit: float) -> None:
        """Put a message into a dead-letter queue. Beyond its quota it is discarded (MS-MQDMPR 3.1.1.12)."""
        if self._context.quotas.has_room(queue, len(value) - PREFIX_SIZE, limit):
            queue.insert(lookup_identifier, with_class(kept(value), reason))
            return
        self.dead_letters_dropped += 1
        log.warning(
            "dead letters are discarded: receive or purge those that are kept, or raise the quota of their queue",
            queue=queue.pathname, discarded=self.dead_letters_dropped,
        )  # fmt: skip

    def acknowledge(self, message: Message, message_class: int) -> None:
        """Send Administration Acknowledgment (MS-MQQB 3.1.7.15), if the message asks for one of this class."""
        asked = _ACKNOWLEDGED_BY[is_negative_acknowledgment(message_class), is_receive_acknowledgment(message_class)]
        if not message.acknowledgements_requested & asked or not message.administration_queue_format_name:
            return
        is_told = self._context.settings.transfer.send_insecure_nacks or self._is_own(message)
        if message_class in INSECURE_NACKS and not is_told:
            return
        several = message.administration_multi_queue_format_name
        if several.count(SEPARATOR) >= MOST_ADMINISTRATION_QUEUES:
            several = ""
        negative = is_negative_acknowledgment(message_class)
        self.send_internally(
            several or message.administration_queue_format_name,
            acknowledgment(
                message_class,
                message.body if negative and not message.privacy_level else b"",
                message.identifier,
                message.destination_queue_format_name,
                Repeated(message.label, message.app_specific, message.priority, message.body_type, message.recoverable),
            ),
            self._context.notices.party(message.identifier[:16]),
            message.sent_time if self._is_own(message) else None,
        )

    def _is_own(self, message: Message) -> bool:
        """Whether a local application sent a message, so that it is notified of everything."""
        return message.source_machine_identifier == self._context.identifier

    def send_internally(
        self, format_name: str, message: Message, party: Party = OWN, named_at: int | None = None
    ) -> None:
        """Send a notice of the queue manager about a message (MS-MQQB 3.1.7.15). It is dropped if that fails, or if the
        ``party`` that causes it has no room.

        ``named_at`` is the time at which an application of this machine named the queue and was asked for its right to
        send there (:func:`check_told`). A queue here that somebody else named takes a notice only as it would take a
        message without a sender: or else anybody could write into every queue, by the way of acknowledgments.

        Each element of a multiple name gets a message of its own, as its receiver may be the same.
        """
        try:
            name = self._context.names.parse(format_name)
        except MessageQueuingError:
            return
        names = elements(name)
        if (
            message.body
            and is_negative_acknowledgment(message.message_class)
            and not self._context.notices.may_have_body(party, len(names))
        ):
            message = message.copy(body=b"")
        for one in names:
            self._send_one(one, message, party, named_at)

    def _send_one(self, name: FormatName, message: Message, party: Party, named_at: int | None) -> None:
        context = self._context
        try:
            queue = context.opening.find(name, Access.SEND, party=party)
        except MessageQueuingError as error:
            if error.code is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES:
                log.warning("a message about a message cannot be sent", destination=str(name), reason=str(error))
            return
        if queue.transactional or not self._takes_notice(queue, named_at):
            return
        ordinal = context.ordinal.next()
        destination = Destination(
            context.identifier, name, transit=queue.queue_type is QueueType.OUTGOING, own=context.names
        )
        try:
            value = serialize(message, destination, ordinal, context.clock.time())
        except (MessageQueuingError, ValueError) as error:  # a peer's names need not be valid destinations
            log.warning("a message about a message cannot be sent", destination=str(name), reason=str(error))
            return
        size = len(value) - PREFIX_SIZE
        if not context.quotas.has_room(queue, len(value), context.quotas.limit_of(party.kind)):
            return
        if party is not OWN and not context.notices.account.admits(party, size):
            log.warning(
                "an acknowledgment or report is not sent: too many wait, see quotas.notices and "
                "quotas.notices_per_neighbour",
                destination=str(name), neighbour=party.name, dropped=sum(context.notices.account.refused.values()),
            )  # fmt: skip
            return
        if party is not OWN:
            value = with_prefix(value, flags=value[FLAGS] | NOTICE)
            context.notices.entered(queue.queue_id, party, size)
        queue.arrive(lookup_identifier_of(message.priority, context.sequence.next()), value)

    def _takes_notice(self, queue: "Queue", named_at: int | None) -> bool:
        """Whether a queue's access list lets a notice in."""
        policy = self._context.access_policy
        if policy is None or queue.queue_type in (QueueType.OUTGOING, QueueType.CONNECTOR):
            return True
        if named_at is not None and queue.create_time <= named_at:
            return True  # asked when the message was sent
        if self._context.opening.may_open(queue, Access.SEND, policy.unproven):
            return True
        log.info("the access list of a queue refuses an acknowledgment or report", queue=queue.pathname)
        return False


def kept(value: bytes) -> bytes:
    """The message as a journal or dead-letter queue keeps it: without expiry and without requests for notices."""
    if value[0] == DELAYED:
        value = without_delay(value)
    return with_prefix(value, flags=value[FLAGS] & ~(ON_ARRIVAL | ON_LOSS), expires=NEVER)
