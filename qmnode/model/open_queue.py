"""OpenQueueDescriptor, MS-MQDMPR 3.1.1.16: an open queue and its operations."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, InTransaction, QueueApi, QueueType, Seek, Share
from qmnode.model.delayed_delivery import REQUESTS, delay_requested
from qmnode.model.leaving_queue import ADMINISTRATION_QUEUES, check_named, check_told
from qmnode.model.message import INFINITE, Message
from qmnode.model.ports import Arrived, Entry, PutSignature
from qmnode.model.positions import (
    RECEIVED_AT_ONCE,
    Claim,
    PositionState,
    WaitingRead,
    count_first,
    lookup_identifier_of,
    take_received,
    timed_out,
)
from qmnode.model.purging import purge_queue
from qmnode.model.queue import Queue
from qmnode.model.reading import (
    END,
    START,
    Cursor,
    Delete,
    Lock,
    ReadOutcome,
    TransactionClaim,
    WaitingMessageReadOperation,
)
from qmnode.model.retries import peeked_message
from qmnode.model.serialization import Destination, TransactionFields, address_packets, serialize, serialize_plain
from qmnode.model.stored_message import (
    DELAYED,
    EXPRESS,
    FLAGS,
    PRIORITY,
    Room,
    message_from_packet,
    moved,
    received_message,
    shapes_of,
    whole_value,
    with_dead_letter_queue,
    with_time_to_reach_queue,
)
from qmnode.model.transaction import Transaction, unit_of_work
from qmnode.structures.enumerations import MessageClass, QueuePrivacyLevel
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import FormatName
from qmnode.structures.packet_view import Packet, Shape

if TYPE_CHECKING:
    from qmnode.model.shared_state import Context


Mark = Callable[[list[bytes]], None]
"""Notes the identifiers of messages in the batch that has them."""
_SEND: Final = Access.SEND.value
_OPTIONAL: Final = int(QueuePrivacyLevel.OPTIONAL)
_RECEIVE: Final = Access.RECEIVE.value
_READ: Final = (Access.RECEIVE | Access.PEEK).value
_DELETE: Final = Delete()
_LOCK: Final = Lock()


class OpenQueueDescriptor(QueueApi):
    """One queue, opened for receiving, sending or both."""

    def __init__(
        self, context: "Context", handle: int, queue: Queue, name: FormatName, access: Access, share: Share
    ) -> None:
        self.context = context
        self.queue = queue
        self.format_name = str(name)
        if access is Access.SEND:
            self.destination = Destination(
                context.identifier, name, transit=queue.queue_type is QueueType.OUTGOING, own=context.names
            )
        self.access = access
        self.caller: object = None
        """The user that opened it, for access checks; None is the process that embeds the node."""
        self._trace_rules = context.traced.rules_of(queue.pathname, self.format_name)
        self._access = int(access)
        self._open = True
        self._store = context.store
        self.handle = handle
        self.share = share
        self.cursors: dict[int, Cursor] = {}
        self.waiting: set[WaitingRead] = set()
        self.begun: set[int] = set()
        """Messages that two-phase reads of this descriptor hold."""

    # Sending

    async def send_once(self, message: Message, identity: bytes, transaction: InTransaction = None) -> None:
        """``send``, unless a message of this identity has arrived within the window of the queue. In a transaction
        that is decided when it commits.
        """
        duplicates = self.context.duplicates
        if not isinstance(transaction, Transaction) and duplicates.is_known(self.queue, identity):
            duplicates.dropped += 1
            if (future := self._store.pending()) is not None:  # the first one may not be on disk yet
                await future
            return
        unit = self.unit_of_work(transaction)
        lookup_identifier, value, _ = self.accept(message, unit)
        if unit is None:
            duplicates.remember(self.queue, identity, express=bool(value[FLAGS] & EXPRESS))
        self.put(lookup_identifier, value, unit, identity)
        await self._written(unit, transaction)

    async def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        """Enqueue Message To An Open Queue (3.1.7.1.27)."""
        put = None
        if message.__dict__.get("authentication_level") and asks_for_authentication(message):
            (put,) = await self.signatures([message], transaction)
        unit = self.unit_of_work(transaction)
        identifier = self.enqueue(message, unit, put)
        await self._written(unit, transaction)
        return identifier

    async def send_many(
        self, messages: Iterable[Message], transaction: InTransaction = None, mark: Mark | None = None
    ) -> list[bytes]:
        """Enqueue Message To An Open Queue, for each; all share one write, with what ``mark`` writes."""
        listed = list(messages)
        puts = await self.signatures(listed, transaction) if any(map(asks_for_authentication, listed)) else None
        unit = self.unit_of_work(transaction)
        identifiers = self._enqueue_all(listed, unit, puts)
        if mark is not None:
            mark(identifiers)
        await self._written(unit, transaction)
        return identifiers

    async def send_packets(
        self, packets: Sequence[Packet], transaction: InTransaction = None, mark: Mark | None = None
    ) -> list[bytes]:
        """``send_many`` for UserMessage packets whose addresses and numbers are filled in here. Raises PacketError if
        one is malformed. A packet in memory of its own comes alone, and is not to be read afterwards.
        """
        shapes = shapes_of(packets)
        unit = self.unit_of_work(transaction)
        accepted = self._accept_packets(packets, shapes, unit)
        if accepted is None:
            identifiers = self._enqueue_all([message_from_packet(packet) for packet in packets], unit, None)
        else:
            identifiers, entries = accepted
            self._put_all(entries, unit)
        if mark is not None:
            mark(identifiers)
        await self._written(unit, transaction)
        return identifiers

    async def signatures(self, messages: Sequence[Message], transaction: InTransaction) -> list[PutSignature | None]:
        """The signatures of the messages that ask for one and have none of their own."""
        signing = self.context.signing
        if signing is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED, "this queue manager has nothing to sign messages with"
            )
        # The place in a transaction and the numbers are not signed, so this value may have other ones.
        fields = None if transaction is None else TransactionFields(0)
        now = self.context.clock.time()
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

    def put(self, lookup_identifier: int, value: bytes, unit: Transaction | None, identity: bytes = b"") -> None:
        """Put an accepted message in the queue, or in the transaction; a delayed one among those that wait."""
        if value[0] == DELAYED:
            delayed = self.context.queues.delayed
            if unit is None:
                delayed.arrive(lookup_identifier, value)
            else:
                unit.delay(delayed, lookup_identifier, value, self.queue, identity)
        elif unit is None:
            self.queue.arrive(lookup_identifier, value)
        else:
            unit.enqueue(self.queue, lookup_identifier, value, identity)

    def _enqueue_all(
        self, messages: list[Message], unit: Transaction | None, puts: list[PutSignature | None] | None
    ) -> list[bytes]:
        # First check that all can be sent, then send: all or none.
        accepted = self._accept_alike(messages, unit) if puts is None else None
        if accepted is None:
            accepted = self._accept_all(messages, unit, puts)
            if any(value[0] == DELAYED for _, value, _ in accepted):
                for lookup_identifier, value, _ in accepted:
                    self.put(lookup_identifier, value, unit)
                return [identifier for _, _, identifier in accepted]
        self._put_all([(lookup_identifier, value) for lookup_identifier, value, _ in accepted], unit)
        return [identifier for _, _, identifier in accepted]

    def _put_all(self, entries: list[Entry], unit: Transaction | None) -> None:
        if unit is None:
            self.queue.arrive_many(entries)
        else:
            unit.enqueue_many(self.queue, entries)

    async def _written(self, unit: Transaction | None, transaction: InTransaction) -> None:
        """Wait until what was sent is on disk, if that is now."""
        if unit is None:
            await self._store.durable()
        elif transaction == "single":
            await unit.commit()

    def _has_demands(self) -> bool:
        """Whether the queue asks for signed, encrypted or clear messages, or for few, or a rule may trace them."""
        queue = self.queue
        return (
            queue.authentication
            or queue.privacy_level != _OPTIONAL
            or queue.quota != INFINITE
            or bool(self._trace_rules)
        )

    def _accept_packets(
        self, packets: Sequence[Packet], shapes: Sequence[Shape | None], unit: Transaction | None
    ) -> tuple[list[bytes], list[Entry]] | None:
        """``accept`` for packets into a queue without demands: message identifiers, and entries of the queue. None if
        one of them is rare, and if there may be no room.
        """
        if self._has_demands():
            return None
        context, quotas = self.context, self.context.quotas
        # Before they are addressed: a packet that becomes the stored value cannot be read again.
        most = sum(map(len, packets)) + len(packets) * self.destination.most_added
        if quotas.used + most > quotas.limit:
            return None
        fields, first = (None, False) if unit is None else (unit.fields, not unit.has_sent)
        ordinals = context.ordinal.take(len(packets))
        values = address_packets(packets, shapes, self.destination, ordinals, context.clock.time(), fields, first)
        if values is None:
            return None
        if context.time_to_reach_queue is not None:
            values = [self._with_default_time(value, context.time_to_reach_queue) for value in values]
        places, owner = context.sequence.take(len(values)), context.identifier
        return (
            [owner + ordinal.to_bytes(4, "little") for ordinal in ordinals],
            [
                (lookup_identifier_of(value[PRIORITY], place), value)
                for place, value in zip(places, values, strict=True)
            ],
        )

    def _accept_alike(self, messages: list[Message], unit: Transaction | None) -> list[tuple[int, bytes, bytes]] | None:
        """``accept`` for messages that have only a body, into a queue without demands. None for other messages, and if
        there may be no room.
        """
        if self._has_demands():
            return None
        context, quotas = self.context, self.context.quotas
        fields, first = (None, False) if unit is None else (unit.fields, not unit.has_sent)
        now, owner = context.clock.time(), context.identifier
        values = serialize_plain(messages, self.destination, context.ordinal.take, now, fields, first)
        if values is None or quotas.used + sum(len(value) for _, value in values) > quotas.limit:
            return None
        if (reach := context.time_to_reach_queue) is not None:
            values = [(ordinal, self._with_default_time(value, reach)) for ordinal, value in values]
        places = context.sequence.take(len(values))
        return [
            (lookup_identifier_of(value[PRIORITY], place), value, owner + ordinal.to_bytes(4, "little"))
            for (ordinal, value), place in zip(values, places, strict=True)
        ]

    def _accept_all(
        self, messages: list[Message], unit: Transaction | None, puts: list[PutSignature | None] | None
    ) -> list[tuple[int, bytes, bytes]]:
        accepted: dict[int, tuple[int, bytes, bytes]] = {}
        size = 0
        # The delayed ones last: none of them is the first of this transaction.
        order = sorted(range(len(messages)), key=lambda number: not REQUESTS.isdisjoint(messages[number].__dict__))
        for number in order:
            put = None if puts is None else puts[number]
            accepted[number] = self.accept(messages[number], unit, size, put_signature=put)
            size += len(accepted[number][1])
        return [accepted[number] for number in range(len(messages))]

    def accept(
        self,
        message: Message,
        unit: Transaction | None,
        ahead: int = 0,
        ordinal: int | None = None,
        put_signature: PutSignature | None = None,
    ) -> tuple[int, bytes, bytes]:
        """The message in its stored form, with its lookup identifier and its message identifier.

        ``ahead`` is the number of bytes that will be put in the queue before it. Copies of a message share their
        ``ordinal``.
        """
        context, queue = self.context, self.queue
        if queue.authentication or queue.privacy_level != _OPTIONAL:
            self._check_demands(message, authenticated=put_signature is not None)
        if (self._trace_rules or message.__dict__.get("tracing_requested")) and put_signature is None:
            message = context.traced.request(message, self._trace_rules)
        asked = message.__dict__
        if message.privacy_level and self.destination.is_unencryptable:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                f"a message to {self.format_name} cannot be encrypted: a direct name does not say whose public key to "
                "use; send to a PRIVATE= or PUBLIC= name of the directory",
            )
        if asked.get("acknowledgements_requested"):
            for field in ADMINISTRATION_QUEUES:
                if named := asked.get(field):
                    check_told(context, named, self.caller)
        if ordinal is None:
            ordinal = context.ordinal.next()
        now = context.clock.time()
        due = None if REQUESTS.isdisjoint(asked) else delay_requested(asked, now)
        if unit is None:
            value = serialize(message, self.destination, ordinal, now)
        elif due is not None:
            own = TransactionFields(context.next_transaction_number())
            value = serialize(message, self.destination, ordinal, now, own, first=True, last=True)
        else:
            value = serialize(message, self.destination, ordinal, now, unit.fields, not (ahead or unit.has_sent))
        if context.time_to_reach_queue is not None:
            value = self._with_default_time(value, context.time_to_reach_queue)
        if put_signature is not None:
            value = put_signature(value)
        if named := asked.get("application_dead_letter_queue"):
            value = self._with_dead_letter_queue(value, named)
        if due is not None:
            value = context.queues.delayed.hold(value, due, self.format_name, self.caller)
        quotas, size = context.quotas, len(value) + ahead
        if quotas.used + size > quotas.limit or queue.quota != INFINITE:
            quotas.check(queue, size)
        return (
            # 3.1.7.1.9 says this only of transactional messages, and 0 for the others, which would then have no
            # priorities.
            lookup_identifier_of(value[PRIORITY], context.sequence.next()),
            value,
            context.identifier + ordinal.to_bytes(4, "little"),
        )

    def _with_default_time(self, value: bytes, seconds: int) -> bytes:
        """The time that the directory gives to messages without one of their own."""
        return with_time_to_reach_queue(value, seconds, transit=self.destination.transit)

    def _with_dead_letter_queue(self, value: bytes, pathname: str) -> bytes:
        check_named(self.context, pathname, self.caller)
        if not value[FLAGS] & EXPRESS:
            self._store.named_dead_letters()
        return with_dead_letter_queue(value, pathname)

    def _check_demands(self, message: Message, *, authenticated: bool) -> None:
        """Apply the demands on messages from the network (MS-MQQB 3.1.5.8.3) to local messages too.

        The body of a message that stays on this computer is not encrypted; a request for encryption is enough.
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
        """Check that this descriptor may send, with this transaction."""
        queue = self.queue
        if not self._open or not self._access & _SEND or queue.deleted:
            self._refuse(_SEND)
        # Whether a remote queue is transactional is checked at its destination.
        if (transaction is None) is queue.transactional and queue.queue_type is not QueueType.OUTGOING:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
                f"{queue.pathname} is transactional: send in a transaction"
                if queue.transactional
                else f"{queue.pathname} is not transactional: send without a transaction",
            )
        return None if transaction is None else unit_of_work(self.context, transaction)

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

    # Receiving

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Dequeue Message (3.1.7.1.10), waiting for one if necessary."""
        claim = self.claim(transaction)
        entry = self.queue.take() if not self.queue.paused else None
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

    async def receive_begin(self, timeout: float | None = None) -> Message:
        """Dequeue Message Begin (3.1.7.1.11)."""
        self.check_read(timeout, _RECEIVE)
        return self.begin((await self._dequeue(1, timeout, _LOCK))[0])

    def begin_available(self) -> tuple[int, bytes, asyncio.Future[None] | None] | None:
        """``receive_begin`` of a message that is available now: its lookup identifier, its stored value, and the write
        that must be on disk before anybody may see it; None if none is available.
        """
        self.check_read(None, _RECEIVE)
        self._store.check()
        queue = self.queue
        entry = None if queue.paused else queue.take()
        if entry is None:
            return None
        lookup_identifier, value = entry
        queue.lock(lookup_identifier, value, None)
        self.begun.add(lookup_identifier)
        return lookup_identifier, value, self._store.pending()

    async def receive_begin_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13), first phase only: the message is locked.

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
        """Record a locked message as held by this descriptor, which ends the read, or returns the message on
        closing.
        """
        self.begun.add(message.lookup_identifier)
        if not self._open:  # closed while the call waited for the disk
            self._give_back()
            self._refuse(_RECEIVE)
        return message

    async def receive_begin_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        """Dequeue Message Begin, up to ``limit`` times. Finish each with ``end_read``, or hand it to a transaction."""
        self.check_read(timeout, _RECEIVE)
        messages = await self._dequeue(limit, timeout, _LOCK)
        self.begun.update(message.lookup_identifier for message in messages)
        if not self._open:
            self._give_back()
            self._refuse(_RECEIVE)
        return messages

    def end_read(self, lookup_identifier: int, outcome: ReadOutcome) -> None:
        """Finish a two-phase read in this pass's batch. Nothing happens if the queue was deleted meanwhile."""
        queue = self.queue
        self.begun.discard(lookup_identifier)
        position = queue.locked.get(lookup_identifier)
        if position is None or position.transaction is not None:
            return
        if outcome is ReadOutcome.ABANDONED:
            counts = queue.max_deliveries or queue.retry_pause
            outcome = ReadOutcome.FAILED if counts else ReadOutcome.RETURNED
        if position.state is PositionState.PURGE_PENDING or outcome in (ReadOutcome.TAKEN, ReadOutcome.RETURNED):
            self._end_read(lookup_identifier, delete=outcome is ReadOutcome.TAKEN)
            return
        value = queue.unlock(lookup_identifier).value
        if outcome is ReadOutcome.REJECTED:
            self.context.outcomes.rejected(queue, lookup_identifier, value)
        else:
            self.context.retries.failed(queue, lookup_identifier, value)

    def end_read_in(self, lookup_identifier: int, transaction: InTransaction, *, hold: bool = False) -> None:
        """Hand a message that is locked to a transaction: received if it commits, in its old place if it aborts.

        With ``hold``, an abort leaves it locked for this descriptor, as before, while that is open.
        MQ_ERROR_TRANSACTION_USAGE if the queue is not transactional.
        """
        if transaction is None or not self.queue.transactional:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
                f"{self.queue.pathname} is not transactional: receive without a transaction",
            )
        unit = unit_of_work(self.context, transaction)
        position = self.queue.locked.get(lookup_identifier)
        if position is None or position.transaction is not None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, f"message {lookup_identifier:#x} is no longer locked"
            )
        self.begun.discard(lookup_identifier)
        unit.adopt(self.queue, lookup_identifier, position, self if hold else None)

    def hold(self, lookup_identifier: int) -> bool:
        """Lock a message again whose transaction aborts; False if this descriptor is closed, or the message purged."""
        position = self.queue.locked[lookup_identifier]
        if not self._open or position.state is PositionState.PURGE_PENDING:
            return False
        position.transaction = None
        self.begun.add(lookup_identifier)
        return True

    async def receive_end(self, lookup_identifier: int, delete: bool) -> None:
        """Dequeue Message End (3.1.7.1.12)."""
        await self.end_begun(lookup_identifier, delete)

    def end_begun(self, lookup_identifier: int, delete: bool) -> asyncio.Future[None]:
        """``receive_end``, which has happened when the returned write is on disk."""
        self.check_read(None, _RECEIVE)
        queue = self.queue
        position = queue.locked.get(lookup_identifier)
        if position is None or position.transaction is not None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, f"no receive_begin holds message {lookup_identifier:#x}"
            )
        self.end_read(lookup_identifier, ReadOutcome.TAKEN if delete else ReadOutcome.ABANDONED)
        return self._store.durable()

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
        """End unfinished two-phase reads whose messages the receiver may have seen."""
        for lookup_identifier in sorted(self.begun):  # others may wait: they get them in the queue's order
            self.abandon(lookup_identifier)

    def abandon(self, lookup_identifier: int) -> None:
        """End an unfinished two-phase read whose message the receiver may have seen."""
        if lookup_identifier in self.begun:
            self.end_read(lookup_identifier, ReadOutcome.ABANDONED)
            self._store.durable()

    def give_back(self, lookup_identifier: int) -> None:
        """Make the message of an unfinished two-phase read, which no receiver has seen, available again."""
        if lookup_identifier not in self.begun:
            return
        self.begun.discard(lookup_identifier)
        position = self.queue.locked.get(lookup_identifier)
        if position is not None and position.transaction is None:
            self._end_read(lookup_identifier, delete=False)
            self._store.durable()

    async def _dequeue(self, limit: int, timeout: float | None, claim: Claim) -> list[Message]:
        entries = self.take_available(limit, claim)
        if not entries:
            if timeout is not None and timeout <= 0:
                raise timed_out()
            entries.append(await WaitingMessageReadOperation(self, claim).wait(timeout))
            if claim is _DELETE and self._open and not self.queue.deleted:
                # Those that came with it. Not for a transaction: it may have ended meanwhile.
                entries += self.take_available(limit - 1, claim, len(entries[0][1]))
        await self.settle(claim, entries)
        return [received_message(*entry) for entry in entries]

    def take_available(self, limit: int, claim: Claim, size: int = 0) -> list[Entry]:
        """Take and claim up to ``limit`` messages that are available now, in one call that has ``size`` bytes
        already.
        """
        queue = self.queue
        if queue.paused:
            return []
        if claim is _DELETE:
            return take_received(queue, limit, RECEIVED_AT_ONCE - size)
        entries: list[Entry] = []
        while len(entries) < limit and size < RECEIVED_AT_ONCE:
            entry = queue.take()
            if entry is None:
                break
            claim.take(queue, *entry)
            entries.append(entry)
            size += len(entry[1])
        return entries

    def take_fitting(self, limit: int, room: Room, claim: Claim) -> list[Entry]:
        """Take and claim up to ``limit`` available messages, up to one that is larger than the room of each of their
        receivers. MQ_ERROR_BUFFER_OVERFLOW if that is the first.
        """
        if self.queue.paused:
            return []
        count = count_first(self.queue, limit, room.holds)
        if not count and (entry := self.queue.first()) is not None:
            room.check(entry[1])
        return self.take_available(count, claim)

    async def receive_fitting(self, room: Room, timeout: float | None, transaction: InTransaction) -> Message:
        """Dequeue Message (3.1.7.1.10) unless it is larger than the room of the receiver."""
        self.claim(transaction)
        message = await self.receive_begin(timeout)
        entry = message.lookup_identifier, whole_value(message)
        try:
            room.check(entry[1])
            if transaction is not None and transaction != "single":
                self.end_read_in(entry[0], transaction)
                return message
            self.end_read(entry[0], ReadOutcome.TAKEN)
        finally:
            self.give_back(entry[0])
        await self.settle(_DELETE, [entry])
        return message

    def put_back(self, entries: Sequence[Arrived]) -> None:
        """Make messages available again, in their old places, that were received outside of a transaction and whose
        receiver did not get them.
        """
        # Others may wait: they get them in the queue's order.
        for lookup_identifier, value in sorted(entries, key=itemgetter(0)):
            _DELETE.undo(self.queue, lookup_identifier, bytes(value))
        self._store.durable()

    def claim(self, transaction: InTransaction) -> Claim:
        """Check that this descriptor may receive, and return the effect of a receive on its message."""
        if not self._open or not self._access & _RECEIVE or self.queue.deleted:
            self._refuse(_RECEIVE)
        if transaction is None or transaction == "single":
            return _DELETE
        if not self.queue.transactional:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
                f"{self.queue.pathname} is not transactional: receive without a transaction",
            )
        return TransactionClaim(unit_of_work(self.context, transaction))

    async def settle(self, claim: Claim, entries: Sequence[Entry]) -> None:
        """Wait until the removal of received messages is on disk. If the caller is cancelled meanwhile, all are
        returned.
        """
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
        """Peek Message (3.1.7.1.15), waiting for one if necessary."""
        self.check_read(timeout)
        entry = self.queue.first(peek=True)
        if entry is None:
            if timeout is not None and timeout <= 0:
                raise timed_out()
            entry = await WaitingMessageReadOperation(self, None).wait(timeout)
        await self.settle_peek()
        return peeked_message(self.queue, *entry)

    async def settle_peek(self) -> None:
        """Wait until the write that a peeked message may be part of is on disk, so that the message cannot vanish."""
        future = self._store.pending()
        if future is None:
            self._store.check()  # a message whose write failed is still in memory
        else:
            await future

    def cursor(self) -> Cursor:
        """Open Cursor (3.1.7.1.1) on this queue."""
        self.check_read(None)
        cursor = Cursor(self, self.context.next_handle())
        self.cursors[cursor.handle] = cursor
        return cursor

    # By lookup identifier

    async def receive_by_lookup_id(
        self, lookup_identifier: int, transaction: InTransaction = None, *, held: bool = False
    ) -> Message:
        """Read Message By Lookup Identifier (3.1.7.1.13), destructive. With ``held``, also one that is held back, since
        its receiver has it already.
        """
        claim = self.claim(transaction)
        entry = (lookup_identifier, self._value_by_lookup_id(lookup_identifier, held=held))
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
        return peeked_message(self.queue, *entry)

    def _seek(self, lookup_identifier: int, seek: Seek, *, peek: bool = True) -> Entry | None:
        queue = self.queue
        if not peek:
            queue.check_resumed()
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

    def _value_by_lookup_id(self, lookup_identifier: int, peek: bool = False, *, held: bool = False) -> bytes:
        queue = self.queue
        position = queue.locked.get(lookup_identifier)
        if position is not None:
            if peek and queue.is_peekable(position):
                return position.value
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_USAGE if peek else ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
                f"message {lookup_identifier:#x} is locked: it is being received",
            )
        if not peek and not held:
            queue.check_resumed()
            self.context.retries.check_due(queue, lookup_identifier)
        value = queue.value_of(lookup_identifier)
        if value is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, f"there is no message {lookup_identifier:#x} in {queue.pathname}"
            )
        return value

    # Moving and deleting

    async def move(self, lookup_identifier: int, target: QueueApi, transaction: InTransaction = None) -> None:
        """Move Message (3.1.7.1.16) between a queue and its subqueues."""
        self.check_read(None, _RECEIVE)
        into = self._move_target(target)
        unit = None
        if transaction is not None and transaction != "single":
            unit = unit_of_work(self.context, transaction)
        value = self._value_by_lookup_id(lookup_identifier, held=True)
        self.queue.take_this(lookup_identifier)
        if unit is not None:
            unit.move(self.queue, lookup_identifier, value, into)
            return
        self.queue.remove(lookup_identifier, value)
        into.insert(lookup_identifier, moved(value))
        await self._store.durable()

    def _move_target(self, target: QueueApi) -> Queue:
        if not isinstance(target, OpenQueueDescriptor) or target.context is not self.context or not target._open:
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
        """Purge Queue (3.1.7.1.7): delete all its messages."""
        self.check_read(None, _RECEIVE)
        await purge_queue(self.context, self.queue)

    # The descriptor

    def check_read(self, timeout: float | None, access: int = _READ) -> None:
        """Raise unless this descriptor may read."""
        if not self._open or not self._access & access or self.queue.deleted:
            self._refuse(access)

    async def close(self) -> None:
        """Close Queue (3.1.7.1.6) and everything opened through it."""
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
        queue, mode = self.queue, (self.access, self.share)
        del queue.descriptors[self.handle]
        queue.open_modes[mode] -= 1
        if not queue.open_modes[mode]:
            del queue.open_modes[mode]
        if self._access & _READ:
            queue.readers -= 1
            if not queue.readers:
                queue.forget_window()


def asks_for_authentication(message: Message) -> bool:
    """Whether a message is to be signed here. One that already has a signature is sent with that."""
    asked = message.__dict__
    return bool(asked.get("authentication_level")) and not asked.get("signature") and "lookup_identifier" not in asked


def _no_message(lookup_identifier: int, seek: Seek) -> MessageQueuingError:
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, f"there is no {seek} message for {lookup_identifier:#x}"
    )
