"""The sending half of an open queue: the checks, signature and numbers before a message is accepted."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, InTransaction, QueueApi, QueueType
from qmnode.model.delayed import REQUESTS, delay_requested
from qmnode.model.message import INFINITE, Message
from qmnode.model.outcomes import ADMINISTRATION_QUEUES, check_named, check_told
from qmnode.model.ports import Entry, PutSignature
from qmnode.model.positions import lookup_identifier_of
from qmnode.model.queue import Queue
from qmnode.model.serialization import Destination, TransactionFields, address_packets, serialize, serialize_plain
from qmnode.model.stored_message import (
    DELAYED,
    EXPRESS,
    FLAGS,
    PRIORITY,
    message_from_packet,
    shapes_of,
    with_dead_letter_queue,
    with_time_to_reach_queue,
)
from qmnode.model.transaction import Transaction, unit_of_work
from qmnode.structures.enumerations import QueuePrivacyLevel
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import FormatName
from qmnode.structures.packet_view import Packet, Shape

if TYPE_CHECKING:
    from qmnode.model.context import Context


Mark = Callable[[list[bytes]], None]
"""Notes the identifiers of messages in the batch that has them."""
_SEND: Final = Access.SEND.value
_OPTIONAL: Final = int(QueuePrivacyLevel.OPTIONAL)


class SendingDescriptor(QueueApi):
    """The sending part of an open queue; the rest is in :mod:`qmnode.model.open_queue`."""

    def __init__(self, context: "Context", queue: Queue, name: FormatName, access: Access) -> None:
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


def asks_for_authentication(message: Message) -> bool:
    """Whether a message is to be signed here. One that already has a signature is sent with that."""
    asked = message.__dict__
    return bool(asked.get("authentication_level")) and not asked.get("signature") and "lookup_identifier" not in asked
