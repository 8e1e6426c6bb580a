"""Notices: messages that the queue manager itself sends about messages (acknowledgments and trace reports)."""

from collections.abc import Callable
from typing import Final

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access
from qmnode.model.leaving_queue import acknowledgment as administration_message
from qmnode.model.message import Message
from qmnode.model.positions import lookup_identifier_of
from qmnode.model.queue import OutgoingQueue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import PREFIX_SIZE, value_of_packet, with_prefix
from qmnode.protocol.acknowledgments import (
    AdministrationAcknowledgment,
    FinalAcknowledgment,
    TraceReport,
    final_ack_packet,
    final_acknowledgment,
    has_expired,
    order_ack_packet,
    order_queue_of,
    position_deleted,
    sent_report,
)
from qmnode.protocol.incoming_sequences import IncomingSequences, OrderAcknowledgment, Route
from qmnode.protocol.received import destination_of
from qmnode.shares import UNKNOWN, Party
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.packet_view import PRIORITY_AT, SOURCE, Packet, read_sending_fields
from qmnode.structures.user_message import UserMessage

log = structlog.get_logger(__name__)

_ORDER_ACK_LIFE: Final = 600.0
"""Seconds in which an order acknowledgment must reach its source. Those for strangers would wait for ever."""

_NOT_REACHED: Final = (
    MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT,
    MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q,
)
"""Reasons for which a message was not delivered: its source is always notified of these."""


class Notices:
    """Puts notices into outgoing queues, or into local queues, in the current batch."""

    def __init__(self, manager: QueueManager, incoming: IncomingSequences) -> None:
        self._manager = manager
        self._incoming = incoming
        self.reaches_itself = False
        """Whether this node has a session with itself, so that it learns the end of its own messages that way."""
        self.take_own: Callable[[OrderAcknowledgment | FinalAcknowledgment], None] = lambda acknowledgment: None
        """Processes acknowledgments of messages that this node sent to itself by a name it did not recognise."""
        self.party_at: Callable[[Guid, str], Party] = lambda source, address: UNKNOWN
        """The party that pays for acknowledgments to a queue manager, at an address if they go to one."""

    def administration(self, acknowledgment: AdministrationAcknowledgment, party: Party) -> None:
        """Send an administration acknowledgment, 3.1.7.15, that a party pays for."""
        self._manager.outcomes.send_internally(
            acknowledgment.queue,
            administration_message(
                acknowledgment.message_class,
                acknowledgment.body,
                acknowledgment.correlation_id,
                acknowledgment.response_queue,
                acknowledgment.repeated,
            ),
            party,
        )

    def trace(self, report: TraceReport, party: Party) -> None:
        """Send a trace report, 3.1.5.8.9, that a party pays for."""
        self._manager.outcomes.send_internally(
            report.queue,
            Message(report.body, label=report.label, message_class=MessageClass.MQMSG_CLASS_REPORT),
            party,
        )

    def sent(self, packet: Packet, address: str) -> None:
        """Sending Trace Message, 3.1.7.1.7: report that a traced message was sent to an address."""
        time = int(self._manager.clock.time())
        lifetime, sent_time, _, _ = read_sending_fields(packet)
        if has_expired(lifetime, sent_time, time):
            return
        try:
            message = UserMessage.parse(packet)
        except PacketError:  # from an old or damaged store: its receiver reports the error
            return
        report = sent_report(message, time, address)
        if report is not None:
            self.trace(report, self._manager.context.notices.party(report.source))

    def order(self, acknowledgment: OrderAcknowledgment) -> None:
        """Send an OrderAck packet, 3.1.7.17."""
        manager = self._manager
        if acknowledgment.source == manager.identifier:
            self.take_own(acknowledgment)
            return
        packet = order_ack_packet(acknowledgment, manager.identifier, manager.ordinal.next(), int(manager.clock.time()))
        self._send(acknowledgment, packet, _ORDER_ACK_LIFE)

    def final(self, acknowledgment: FinalAcknowledgment) -> None:
        """Send a FinalAck packet, 3.1.7.17."""
        manager = self._manager
        if acknowledgment.source == manager.identifier:
            self.take_own(acknowledgment)
            return
        packet = final_ack_packet(acknowledgment, manager.identifier, manager.ordinal.next(), int(manager.clock.time()))
        self._send(acknowledgment, packet)

    def message_left(self, value: bytes, reason: int) -> None:
        """A transactional message left its queue on this node: its source may wait for a FinalAck."""
        packet = value[PREFIX_SIZE:]
        if source_of(packet) == self._manager.identifier and not self.reaches_itself:
            return
        try:
            message = UserMessage.parse(packet)
            name = destination_of(packet)
        except PacketError as error:
            log.warning("no final acknowledgment for a message that cannot be read", reason=str(error))
            return
        transaction = message.transaction_header
        place = (0, 0) if transaction is None else (transaction.tx_sequence_id, transaction.tx_sequence_number)
        sequence = self._incoming.find(source_of(packet), name.key(), *place)
        route = sequence.route if sequence is not None else Route(False, "")
        message_class = MessageClass(reason)
        said = final_acknowledgment if message_class in _NOT_REACHED else position_deleted
        final = said(message, message_class, route)
        if final is not None:
            self.final(final)

    def _send(
        self, acknowledgment: OrderAcknowledgment | FinalAcknowledgment, packet: bytes, life: float | None = None
    ) -> None:
        manager, source, route = self._manager, acknowledgment.source, acknowledgment.route
        format_name = order_queue_of(source, route)
        try:
            name = parse_single_format_name(format_name)
            queue = manager.opening.find(
                name, Access.SEND, party=self.party_at(source, route.address if route.direct else "")
            )
        except (MessageQueuingError, ValueError) as error:
            log.warning("an acknowledgment cannot be sent", destination=format_name, reason=str(error))
            return
        if isinstance(queue, OutgoingQueue):
            now = manager.clock.time()
            value = value_of_packet(packet, now)
            if life is not None:
                value = with_prefix(value, expires=int(now + life))
            queue.insert(next_position(manager, packet), value)


def next_position(manager: QueueManager, packet: bytes) -> int:
    """The lookup identifier for a message that arrives now."""
    return lookup_identifier_of(packet[PRIORITY_AT], manager.sequence.next())


def source_of(packet: bytes) -> Guid:
    """UserHeader.SourceQueueManager of a packet."""
    return Guid(packet[SOURCE])
