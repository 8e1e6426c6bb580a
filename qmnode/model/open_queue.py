"""OpenQueueDescriptor: MS-MQDMPR 3.1.1.16. An open queue, and what an application does with it."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, InTransaction, QueueApi, QueuePrivacyLevel, QueueType, Seek, Share
from qmnode.model.claims import Claim, Delete, Lock
from qmnode.model.claims import InTransaction as TransactionClaim
from qmnode.model.cursor import END, START, Cursor
from qmnode.model.dead_letter_header import with_dead_letter_queue
from qmnode.model.dead_letters import check_named
from qmnode.model.deletion import purge_queue
from qmnode.model.message import INFINITE, Message
from qmnode.model.packet import received_message
from qmnode.model.packet_parts import PRIORITY
from qmnode.model.ports import Entry, PutSignature
from qmnode.model.positions import LANE_SHIFT, PositionState
from qmnode.model.queue import Queue
from qmnode.model.record import EXPRESS, FLAGS, moved
from qmnode.model.serialization import Destination, TransactionFields, serialize, serialize_plain
from qmnode.model.transaction import Transaction
from qmnode.model.waiting import WaitingMessageReadOperation, timed_out
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.names import FormatName

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

_SEND: Final = Access.SEND.value
_RECEIVE: Final = Access.RECEIVE.value
_READ: Final = (Access.RECEIVE | Access.PEEK).value
_RECEIVED_AT_ONCE: Final = 16 * 1024 * 1024
"""Bytes after which ``receive_many`` takes no more: what one call holds in memory, and sends to an application in one
frame (:data:`qmnode.local.frames.MAXIMUM_FRAME`), has a limit, whatever number it asks for."""
_OPTIONAL: Final = int(QueuePrivacyLevel.OPTIONAL)
_DELETE: Final = Delete()
_LOCK: Final = Lock()


class OpenQueueDescriptor(QueueApi):
    """One queue, opened."""

    def __init__(
        self, manager: "QueueManager", handle: int, queue: Queue, name: FormatName, access: Access, share: Share
    ) -> None:
        self.manager = manager
        self.handle = handle
        self.queue = queue
        self.format_name = str(name)
        if access is Access.SEND:
            self.destination = Destination(manager.identifier, name, transit=queue.queue_type is QueueType.OUTGOING)
        self.access = access
        self.share = share
        self.cursors: dict[int, Cursor] = {}
        self.waiting: set[WaitingMessageReadOperation] = set()
        self.begun: set[int] = set()
        """Messages that two-phase reads of this descriptor hold."""
        self._access = int(access)
        self._open = True
        self._store = manager.store
        self.caller: object = None
        """Who opened it, for access checks; None is the process that embeds the node."""

    # Sending

    async def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        """Enqueue Message To An Open Queue (3.1.7.1.27)."""
        put = None
        if message.__dict__.get("authentication_level") and asks_for_authentication(message):
            (put,) = await self.signatures([message], transaction)
        unit = self.unit_of_work(transaction)
        identifier = self.enqueue(message, unit, put)
        if unit is None:
            await self._store.durable()
        elif transaction == "single":
            await unit.commit()
        return identifier

    async def send_many(self, messages: Iterable[Message], transaction: InTransaction = None) -> list[bytes]:
        """Enqueue Message To An Open Queue, for each; all share one write."""
        listed = list(messages)
        puts = await self.signatures(listed, transaction) if any(map(asks_for_authentication, listed)) else None
        unit = self.unit_of_work(transaction)
        identifiers = self._enqueue_all(listed, unit, puts)
        if unit is None:
            await self._store.durable()
        elif transaction == "single":
            await unit.commit()
        return identifiers

    async def signatures(self, messages: Sequence[Message], transaction: InTransaction) -> list[PutSignature | None]:
        """The signatures of the messages that ask for one and bring none of their own."""
        signing = self.manager.signing
        if signing is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED, "this queue manager has nothing to sign messages with"
            )
        # The place in a transaction and the numbers are not signed, so those of this value need not be the right ones.
        fields = None if transaction is None else TransactionFields(0)
        now = self.manager.clock.time()
        values = [
            (serialize(message, self.destination, 0, now, fields), message.authentication_level)
            if asks_for_authentication(message)
            else (b"", 0)
            for message in messages
        ]
        return await signing.sign(values, self.user_id, local=not self.destination.transit)

    def enqueue(self, message: Message, unit: Transaction | None, put: PutSignature | None = None) -> bytes:
        """Put one message in the batch, or in the transaction."""
        lookup_identifier, value, identifier = self.accept(message, unit, put_signature=put)
        self.put(lookup_identifier, value, unit)
        return identifier

    def put(self, lookup_identifier: int, value: bytes, unit: Transaction | None) -> None:
        """Put an accepted message in the queue, or in the transaction."""
        if unit is None:
            self.queue.arrive(lookup_identifier, value)
        else:
            unit.enqueue(self.queue, lookup_identifier, value)

    def _enqueue_all(
        self, messages: list[Message], unit: Transaction | None, puts: list[PutSignature | None] | None
    ) -> list[bytes]:
        # First see that every one can be sent, then send: all or none.
        accepted = self._accept_plain(messages, unit) if puts is None else None
        if accepted is None:
            accepted = self._accept_all(messages, unit, puts)
        entries = [(lookup_identifier, value) for lookup_identifier, value, _ in accepted]
        if unit is None:
            self.queue.arrive_many(entries)
        else:
            unit.enqueue_many(self.queue, entries)
        return [identifier for _, _, identifier in accepted]

    def _accept_plain(self, messages: list[Message], unit: Transaction | None) -> list[tuple[int, bytes, bytes]] | None:
        """``accept`` for messages that have nothing but a body, into a queue that demands nothing; None for others, and
        if there may be no room."""
        manager, queue = self.manager, self.queue
        quotas = manager.quotas
        if queue.authentication or queue.privacy_level != _OPTIONAL or queue.quota != INFINITE or quotas.throttled:
            return None
        fields, first = (None, False) if unit is None else (unit.fields, not unit.has_sent)
        now, next_place, owner = manager.clock.time(), manager.sequence.next, manager.identifier
        values = serialize_plain(messages, self.destination, manager.ordinal.next, now, fields, first)
        if values is None or quotas.used + sum(len(value) for _, value in values) > quotas.limit:
            return None
        return [
            (7 - (value[PRIORITY] & 7) << LANE_SHIFT | next_place(), value, owner + ordinal.to_bytes(4, "little"))
            for ordinal, value in values
        ]

    def _accept_all(
        self, messages: list[Message], unit: Transaction | None, puts: list[PutSignature | None] | None
    ) -> list[tuple[int, bytes, bytes]]:
        accepted = []
        size = 0
        for number, message in enumerate(messages):
            accepted.append(self.accept(message, unit, size, put_signature=None if puts is None else puts[number]))
            size += len(accepted[-1][1])
        return accepted

    def accept(
        self,
        message: Message,
        unit: Transaction | None,
        ahead: int = 0,
        ordinal: int | None = None,
        put_signature: PutSignature | None = None,
    ) -> tuple[int, bytes, bytes]:
        """The message as it will be stored, with its lookup identifier and its message identifier.

        ``ahead`` are bytes that will be put in the queue before it. Copies of a message share their ``ordinal``.
        """
        manager, queue = self.manager, self.queue
        if queue.authentication or queue.privacy_level != _OPTIONAL:
            self._check_demands(message, authenticated=put_signature is not None)
        if ordinal is None:
            ordinal = manager.ordinal.next()
        now = manager.clock.time()
        if unit is None:
            value = serialize(message, self.destination, ordinal, now)
        else:
            value = serialize(message, self.destination, ordinal, now, unit.fields, not (ahead or unit.has_sent))
        if put_signature is not None:
            value = put_signature(value)
        if named := message.__dict__.get("application_dead_letter_queue"):
            value = self._with_dead_letter_queue(value, named)
        quotas, size = manager.quotas, len(value) + ahead
        if quotas.used + size > quotas.limit or quotas.throttled or queue.quota != INFINITE:
            quotas.check(queue, size)
        return (
            # 3.1.7.1.9 has this only for transactional messages, and 0 for the others, which would have no priorities.
            7 - (value[PRIORITY] & 7) << LANE_SHIFT | manager.sequence.next(),
            value,
            manager.identifier + ordinal.to_bytes(4, "little"),
        )

    def _with_dead_letter_queue(self, value: bytes, pathname: str) -> bytes:
        check_named(self.manager, pathname, self.caller)
        if not value[FLAGS] & EXPRESS:
            self._store.named_dead_letters()
        return with_dead_letter_queue(value, pathname)

    def _check_demands(self, message: Message, *, authenticated: bool) -> None:
        """What the queue demands of messages that come over the network (MS-MQQB 3.1.5.8.3), it demands of all.

        The body of a message that stays on this computer is encrypted for nobody; that it asks for it is enough.
        """
        queue = self.queue
        if queue.authentication and not authenticated:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"{queue.pathname} takes authenticated messages only: send with an authentication_level",
            )
        if queue.privacy_level == QueuePrivacyLevel.BODY and not message.privacy_level:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"{queue.pathname} takes encrypted messages only: send with a privacy_level",
            )
        if queue.privacy_level == QueuePrivacyLevel.NONE and message.privacy_level:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{queue.pathname} takes no encrypted messages: send in clear"
            )

    def unit_of_work(self, transaction: InTransaction) -> Transaction | None:
        """Check that this descriptor may send, and with this transaction."""
        queue = self.queue
        if not self._open or not self._access & _SEND or queue.deleted:
            self._refuse(_SEND)
        # Whether a queue elsewhere is transactional is found out there.
        if (transaction is None) is queue.transactional and queue.queue_type is not QueueType.OUTGOING:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
                f"{queue.pathname} is transactional: send in a transaction"
                if queue.transactional
                else f"{queue.pathname} is not transactional: send without a transaction",
            )
        return None if transaction is None else self.manager.unit_of_work(transaction)

    # Receiving

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Dequeue Message (3.1.7.1.10)."""
        claim = self.claim(transaction)
        entry = self.queue.take()
        if entry is None:
            if timeout is not None and timeout <= 0:
                raise timed_out()
            entry = await WaitingMessageReadOperation(self, claim).wait(timeout)
        else:
            claim.take(self.queue, *entry)
        await self.settle(claim, (entry,))
        return received_message(*entry)

    async def receive_many(
        self, limit: int, timeout: float | None = None, transaction: InTransaction = None
    ) -> list[Message]:
        """Dequeue Message, up to ``limit`` times; all share one write."""
        if limit < 1:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, "receive_many: the limit is at least 1")
        return await self._dequeue(limit, timeout, self.claim(transaction))

    async def receive_begin(self, timeout: float | None = None, *, tag: object = None) -> Message:
        """Dequeue Message Begin (3.1.7.1.11). ``tag`` is for ``cancel_waiting``."""
        self.check_read(timeout, _RECEIVE)
        return self.begin((await self._dequeue(1, timeout, _LOCK, tag))[0])

    async def receive_begin_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13), of which only the first phase is done: the message is locked.

        Finish with ``receive_end``.
        """
        self.check_read(None, _RECEIVE)
        entry = self._seek(lookup_identifier, seek, peek=False)
        if entry is None:
            raise _no_message(lookup_identifier, seek)
        self.queue.take_this(entry[0])
        _LOCK.take(self.queue, *entry)
        await self.settle(_LOCK, [entry])
        return self.begin(received_message(*entry))

    def begin(self, message: Message) -> Message:
        """A message that is locked is this descriptor's to end, or to give back when it is closed."""
        self.begun.add(message.lookup_identifier)
        if not self._open:  # closed while the call waited for the disk
            self._give_back()
            self._refuse(_RECEIVE)
        return message

    def cancel_waiting(self, tag: object) -> bool:
        """Cancel Waiting Message Read Request (3.1.7.1.17), of whoever has the queue open. False: nobody waits so."""
        for operation in self.queue.waiting:
            if tag is not None and operation.tag == tag and not operation.closed:
                operation.cancel()
                return True
        return False

    async def receive_end(self, lookup_identifier: int, delete: bool) -> None:
        """Dequeue Message End (3.1.7.1.12)."""
        self.check_read(None, _RECEIVE)
        queue = self.queue
        position = queue.locked.get(lookup_identifier)
        if position is None or position.transaction is not None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, f"no receive_begin holds message {lookup_identifier:#x}"
            )
        self.begun.discard(lookup_identifier)
        self._end_read(lookup_identifier, delete)
        await self._store.durable()

    def _end_read(self, lookup_identifier: int, delete: bool) -> None:
        queue = self.queue
        position = queue.unlock(lookup_identifier)
        if position.state is PositionState.PURGE_PENDING:
            queue.delete(lookup_identifier, position.value, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)
        elif delete:
            queue.delete(lookup_identifier, position.value)
        else:
            queue.make_available(lookup_identifier, position.value)

    def _give_back(self) -> None:
        """Nobody will end the two-phase reads of this descriptor: their messages are available again."""
        for lookup_identifier in list(self.begun):
            self.give_back(lookup_identifier)

    def give_back(self, lookup_identifier: int) -> None:
        """Nobody will end this two-phase read: its message is available again, in its old place."""
        if lookup_identifier not in self.begun:
            return
        self.begun.discard(lookup_identifier)
        position = self.queue.locked.get(lookup_identifier)
        if position is not None and position.transaction is None:
            self._end_read(lookup_identifier, delete=False)
            self._store.durable()

    async def _dequeue(self, limit: int, timeout: float | None, claim: Claim, tag: object = None) -> list[Message]:
        queue = self.queue
        entries: list[Entry] = []
        size = 0
        while len(entries) < limit and size < _RECEIVED_AT_ONCE:
            entry = queue.take()
            if entry is None:
                break
            claim.take(queue, *entry)
            entries.append(entry)
            size += len(entry[1])
        if not entries:
            if timeout is not None and timeout <= 0:
                raise timed_out()
            entries.append(await WaitingMessageReadOperation(self, claim, tag=tag).wait(timeout))
        await self.settle(claim, entries)
        return [received_message(*entry) for entry in entries]

    def claim(self, transaction: InTransaction) -> Claim:
        """Check that this descriptor may receive, and say what a receive does to its message."""
        if not self._open or not self._access & _RECEIVE or self.queue.deleted:
            self._refuse(_RECEIVE)
        if transaction is None or transaction == "single":
            return _DELETE
        if not self.queue.transactional:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
                f"{self.queue.pathname} is not transactional: receive without a transaction",
            )
        return TransactionClaim(self.manager.unit_of_work(transaction))

    async def settle(self, claim: Claim, entries: Sequence[Entry]) -> None:
        """Wait until what was received is off the disk. If the caller is cancelled meanwhile, it all goes back."""
        future = self._store.durable() if claim is _DELETE else self._store.pending()
        if future is None:
            self._store.check()
            return
        try:
            await future
        except asyncio.CancelledError:
            for entry in reversed(entries):
                claim.undo(self.queue, *entry)
            self._store.durable()
            raise

    # Peeking

    async def peek(self, timeout: float | None = None) -> Message:
        """Peek Message (3.1.7.1.15)."""
        self.check_read(timeout)
        entry = self.queue.first(peek=True)
        if entry is None:
            if timeout is not None and timeout <= 0:
                raise timed_out()
            entry = await WaitingMessageReadOperation(self, None).wait(timeout)
        await self.settle_peek()
        return received_message(*entry)

    async def settle_peek(self) -> None:
        """What was seen must not vanish: wait until the write that it may be part of is on disk."""
        future = self._store.pending()
        if future is None:
            self._store.check()  # what could not be written is in memory all the same
        else:
            await future

    def cursor(self) -> Cursor:
        """Open Cursor (3.1.7.1.1)."""
        self.check_read(None)
        cursor = Cursor(self, self.manager.next_handle())
        self.cursors[cursor.handle] = cursor
        return cursor

    # By lookup identifier

    async def receive_by_lookup_id(self, lookup_identifier: int, transaction: InTransaction = None) -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13), destructive."""
        claim = self.claim(transaction)
        entry = (lookup_identifier, self._value_by_lookup_id(lookup_identifier))
        self.queue.take_this(lookup_identifier)
        claim.take(self.queue, *entry)
        await self.settle(claim, [entry])
        return received_message(*entry)

    async def peek_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13), with Seek Available Message Position With Id (3.1.7.3.3)."""
        self.check_read(None)
        entry = self._seek(lookup_identifier, seek)
        if entry is None:
            raise _no_message(lookup_identifier, seek)
        await self.settle_peek()
        return received_message(*entry)

    def _seek(self, lookup_identifier: int, seek: Seek, *, peek: bool = True) -> Entry | None:
        queue = self.queue
        match seek:
            case "first":
                return queue.after(START, peek=peek)
            case "last":
                return queue.before(END, peek=peek)
            case "next":
                return queue.after(lookup_identifier, peek=peek)
            case "prev":
                return queue.before(lookup_identifier, peek=peek)
            case "current":
                return lookup_identifier, self._value_by_lookup_id(lookup_identifier, peek=peek)

    def _value_by_lookup_id(self, lookup_identifier: int, peek: bool = False) -> bytes:
        queue = self.queue
        position = queue.locked.get(lookup_identifier)
        if position is not None:
            if peek and queue.is_peekable(position):
                return position.value
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_USAGE if peek else ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
                f"message {lookup_identifier:#x} is locked: it is being received",
            )
        value = queue.value_of(lookup_identifier)
        if value is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, f"there is no message {lookup_identifier:#x} in {queue.pathname}"
            )
        return value

    # Moving and deleting

    async def move(self, lookup_identifier: int, target: QueueApi, transaction: InTransaction = None) -> None:
        """Move Message (3.1.7.1.16)."""
        self.check_read(None, _RECEIVE)
        into = self._move_target(target)
        unit = None
        if transaction is not None and transaction != "single":
            unit = self.manager.unit_of_work(transaction)
        value = self._value_by_lookup_id(lookup_identifier)
        self.queue.take_this(lookup_identifier)
        if unit is not None:
            unit.move(self.queue, lookup_identifier, value, into)
            return
        self.queue.remove(lookup_identifier, value)
        into.insert(lookup_identifier, moved(value))
        await self._store.durable()

    def _move_target(self, target: QueueApi) -> Queue:
        if not isinstance(target, OpenQueueDescriptor) or target.manager is not self.manager or not target._open:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_HANDLE, "the target of a move is an open queue of the same queue manager"
            )
        if not target._access & Access.MOVE:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, "the target of a move is open for Access.MOVE")
        target.queue.check_open()
        family = {id(queue.parent or queue) for queue in (self.queue, target.queue)}
        if len(family) > 1 or target.queue is self.queue:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_PARAMETER, "a message moves only between a queue and its subqueues"
            )
        return target.queue

    async def purge(self) -> None:
        """Purge Queue (3.1.7.1.7)."""
        self.check_read(None, _RECEIVE)
        await purge_queue(self.manager, self.queue)

    # The descriptor

    def check_read(self, timeout: float | None, access: int = _READ) -> None:
        """Raise unless this descriptor may read."""
        if not self._open or not self._access & access or self.queue.deleted:
            self._refuse(access)

    def _refuse(self, access: int) -> None:
        if not self._open:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_HANDLE, f"{self.format_name} was closed: open it again"
            )
        if not self._access & access:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"{self.format_name} was opened for {self.access.name}, which does not allow this",
            )
        self.queue.check_open()

    async def close(self) -> None:
        """Close Queue (3.1.7.1.6)."""
        self.closed()

    def closed(self) -> None:
        """Cancel the waiting reads, close the cursors, leave the queue."""
        if not self._open:
            return
        self._open = False
        for operation in list(self.waiting):
            operation.cancel(sentence="the queue was closed while the call waited")
        for cursor in list(self.cursors.values()):
            cursor.closed()
        self._give_back()
        self.manager.descriptor_closed(self)


def asks_for_authentication(message: Message) -> bool:
    """Whether a message is to be signed here. One that brings a signature is sent with that."""
    asked = message.__dict__
    return bool(asked.get("authentication_level")) and not asked.get("signature") and "lookup_identifier" not in asked


def _no_message(lookup_identifier: int, seek: Seek) -> MessageQueuingError:
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, f"there is no {seek} message for {lookup_identifier:#x}"
    )
