"""Putting messages into other queues: in the batch of the store in which they leave their own.

Nothing here waits, and nothing reads the store, between the first change and the last: so a crash finds a message in
one place. Targets are opened before, which may wait.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from qmnode.administration.promises import QueueRole, TransferMode, kind_of, promise
from qmnode.administration.queue_names import format_name
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.model.message import INFINITE, Message
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.queue import OutgoingQueue, Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import PREFIX_SIZE, SOURCE, moved
from qmnode.model.transaction import Transaction
from qmnode.structures.enumerations import MessageClass, QueuePrivacyLevel
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import new_guid
from qmnode.structures.names import MultipleElementFormatName

_KB: Final = 1024
MOST_TARGETS: Final = 1000
"""Queues that one job may put messages into: names in messages come from anybody."""


class TransferOutcome(NamedTuple):
    """The outcome for one message."""

    way: TransferMode
    target: str
    lookup_identifier: int = 0
    """In the target, if that is a queue of this node."""
    identifier: bytes = b""
    """Of the message that was sent anew."""
    detail: str = ""
    """Where to look for the message if it does not arrive; empty for a target on this node."""


@dataclass(slots=True)
class Target:
    """A queue that messages are put into, or why that cannot be."""

    name: str
    kind: QueueRole
    descriptor: OpenQueueDescriptor | None = None
    error: MessageQueuingError | None = None


class Targets:
    """The targets of one job, by the names that it has for them, open until they are closed."""

    def __init__(self, manager: QueueManager, caller: object, transactional: bool | None) -> None:
        """``transactional``: whether to send in transactions to other machines; None does as the message was sent."""
        self._manager = manager
        self._caller = caller
        self._transactional = transactional
        self._targets: dict[str, Target] = {}
        self._made: set[Queue] = set()
        """Outgoing queues that were created by opening them, until something is put into them."""

    def get(self, name: str) -> Target | None:
        """A target that was opened; beyond the limit, one that refuses everything."""
        found = self._targets.get(name)
        if found is None and len(self._targets) >= MOST_TARGETS:
            return Target(name, QueueRole.REMOTE, error=_too_many())
        return found

    async def open(self, name: str) -> Target:
        """Open a target. A refusal is kept, and counts for every message that would go there."""
        target = Target(name, QueueRole.REMOTE)
        try:
            full = format_name(name)
            parsed = self._manager.names.parse(full)
            subqueue = bool(getattr(getattr(parsed, "path", None), "subqueue", ""))
            access = Access.MOVE if subqueue else Access.SEND
            names = self._manager.names
            is_new = isinstance(parsed, MultipleElementFormatName) or names.outgoing(parsed) is None
            opened = await self._manager.open_queue(full, access, caller=self._caller)
            if not isinstance(opened, OpenQueueDescriptor):
                await opened.close()
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"{name} names several queues: name one"
                )
            target.descriptor = opened
            if not isinstance(opened.queue, OutgoingQueue):
                target.kind = kind_of(opened.queue)
            elif is_new:
                self._made.add(opened.queue)
        except MessageQueuingError as error:
            target.error = error
        self._targets[name] = target
        return target

    async def close(self) -> None:
        """Close the queues that are open. A new outgoing queue that nothing was put into is none any more."""
        for target in self._targets.values():
            if target.descriptor is not None:
                await target.descriptor.close()
        self._targets.clear()
        while self._made:
            queue = self._made.pop()
            if isinstance(queue, OutgoingQueue) and not queue.deleted and queue.is_unused():
                self._manager.context.queues.forget(queue)

    # One message

    def onward(self, target: Target, message: Message) -> str:
        """Where to look for a message that goes to another machine, which nobody can check here; else empty."""
        if target.descriptor is None or not isinstance(target.descriptor.queue, OutgoingQueue):
            return ""
        keeper = "this node" if self._sends_in_transaction(message) else "that machine"
        return f"it leaves for another machine: if the queue does not exist there, look in the dead letters of {keeper}"

    def _sends_in_transaction(self, message: Message) -> bool:
        return message.transactional if self._transactional is None else self._transactional

    def check_return(self, source: Queue, target: Queue, size: int) -> None:
        """Whether a moved message may go back. Raises what forbids it."""
        if kind_of(source) is not kind_of(target) or not self._manager.opening.may_open(
            source, Access.SEND, self._caller
        ):
            raise _denied(f"it may not go back to {source.pathname}")
        _check_room(source, size)

    def plan(
        self, source: Queue, target: Target, lookup_identifier: int, message: Message, *, copies: bool
    ) -> TransferMode:
        """How a message would get there. Raises what forbids it. This may read the store."""
        if target.error is not None:
            raise MessageQueuingError(target.error.code, target.error.sentence)
        assert target.descriptor is not None
        into = target.descriptor.queue
        into.check_open()
        way = promise(kind_of(source), target.kind, copies=copies).way
        if way is TransferMode.REFUSED:
            raise _denied(promise(kind_of(source), target.kind, copies=copies).sentence)
        if message.unreadable and way is TransferMode.ANEW:
            raise _denied(f"it is unreadable ({message.unreadable}): it can only be moved as it is")
        if way is TransferMode.AS_IT_IS:
            if into is source:
                raise _denied("it is in this queue already")
            _check_demands(into, message)
            if lookup_identifier in into.locked or into.value_of(lookup_identifier) is not None:
                raise _denied("its place in the target is taken by a copy of it")
        elif into.parent is not None:
            raise _denied("a subqueue takes only what is moved as it is, from a queue of its kind")
        if (
            isinstance(source, OutgoingQueue)
            and not copies
            and message.source_machine_identifier != self._manager.identifier
        ):
            raise _denied("it is another machine's message on its way: this node may not send it in its own name")
        return way

    def put(
        self, source: Queue, target: Target, lookup_identifier: int, value: bytes, way: TransferMode, message: Message,
        *, copies: bool
    ) -> TransferOutcome:  # fmt: skip
        """Put a planned message into its target, and take it out of its source unless it is copied."""
        assert target.descriptor is not None
        if way is TransferMode.AS_IT_IS:
            into = target.descriptor.queue
            _check_room(into, len(value))
            take_out(source, lookup_identifier, value)
            into.insert(lookup_identifier, moved(value))
            return TransferOutcome(way, into.pathname, lookup_identifier)
        if kind_of(source) is QueueRole.DEAD_LETTERS:  # the class said why it died
            outcome = self.send(target, message, message_class=MessageClass.MQMSG_CLASS_NORMAL)
        else:
            outcome = self.send(target, message)
        if not copies:
            take_out(source, lookup_identifier, value, received=True)
            if source.recorder is not None:
                source.recorder.deleted(source, ((lookup_identifier, value),), MessageClass.MQMSG_CLASS_ACK_RECEIVE)
        return outcome

    def send(self, target: Target, message: Message, **changes: Any) -> TransferOutcome:
        """Send another message with the content of this one, in the batch of this pass."""
        assert target.descriptor is not None
        context, descriptor = self._manager.context, target.descriptor
        queue = descriptor.queue
        outgoing = isinstance(queue, OutgoingQueue)
        if outgoing:  # a mistake in the name of its queue must not be its end
            changes = {"negative_journaling_requested": True} | changes
        copy = message.copy(**changes)
        wanted = self._sends_in_transaction(message) if outgoing else queue.transactional
        unit = Transaction(context, new_guid()) if wanted else None
        try:
            lookup_identifier, value, identifier = descriptor.accept(copy, unit)
        except BaseException:
            if unit is not None:
                unit.transaction_abort()
            raise
        descriptor.put(lookup_identifier, value, unit)
        self._made.discard(queue)
        if unit is not None:
            unit.transaction_commit()
        place = 0 if outgoing else lookup_identifier
        return TransferOutcome(TransferMode.ANEW, queue.pathname, place, identifier, self.onward(target, message))


def take_out(queue: Queue, lookup_identifier: int, value: bytes, *, received: bool = False) -> None:
    """Take an available message out of its queue, and notify nobody."""
    queue.take_this(lookup_identifier)
    queue.remove(lookup_identifier, value, received=received)


def is_foreign(queue: Queue, value: bytes) -> bool:
    """Whether a message is on its way from another machine to a third."""
    return isinstance(queue, OutgoingQueue) and value[SOURCE] != queue.context.identifier


def _check_demands(queue: Queue, message: Message) -> None:
    """A queue demands of moved messages what it demands of all."""
    owner = queue.parent or queue
    if owner.authentication and not message.authentication_level:
        raise _denied(f"{owner.pathname} takes authenticated messages only")
    if owner.privacy_level == QueuePrivacyLevel.BODY and not message.privacy_level:
        raise _denied(f"{owner.pathname} takes encrypted messages only")


def _check_room(queue: Queue, size: int) -> None:
    """Of the queue: the queue manager has the message already."""
    if queue.quota != INFINITE and queue.total_bytes + queue.reserved_bytes + size - PREFIX_SIZE > queue.quota * _KB:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
            f"the quota of {queue.pathname}, {queue.quota} KB, would be passed: receive messages, or raise the quota",
        )


def _too_many() -> MessageQueuingError:
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_ACCESS_DENIED, f"one job puts messages into at most {MOST_TARGETS} queues"
    )


def _denied(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, sentence)
