"""Messages that the queue manager sends about messages: administration, order and final acknowledgments.

3.1.5.8.10, 3.1.7.2, 3.1.7.15 and 3.1.7.17. They are decided on and described here; the caller gives them an identifier
and puts them into an outgoing queue, in the same batch as the messages that they are about.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from qmnode.model.outcomes import Repeated
from qmnode.protocol.disposition import WITHOUT_BODY
from qmnode.protocol.incoming_sequences import OrderAcknowledgment, Route
from qmnode.structures.acks import (
    ORDER_QUEUE,
    ORDER_QUEUE_NAME,
    FinalAckBody,
    OrderAckBody,
    final_ack,
    order_ack,
    pack_order_ack_body_into,
)
from qmnode.structures.base_header import BaseFlags
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.message_classes import INSECURE_NACKS, MessageClass
from qmnode.structures.message_properties_header import PropertyFlags
from qmnode.structures.multi_queue_format_header import MOST_ADMINISTRATION_QUEUES, format_names
from qmnode.structures.names import PrivateFormatName, PublicFormatName
from qmnode.structures.packet_view import ADDRESS, SENT_TIME_AT, pack_sent_into
from qmnode.structures.queue_formats import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueFormat,
)
from qmnode.structures.security_header import SecurityFlags
from qmnode.structures.transaction_header import TransactionFlags
from qmnode.structures.user_header import UserFlags, UserHeader
from qmnode.structures.user_message import UserMessage

_PRIVATE_ON_SOURCE: Final = 2
_MESSAGE_ID_SIZE: Final = 4
_INDIRECT: Final = Route(False, "")


class AdministrationAcknowledgment(NamedTuple):
    """An acknowledgment to the administration queue of another message, 3.1.7.15. Properties without a field here have
    the values of its table: no acknowledgments, no journaling, no security, infinite times.
    """

    message_class: MessageClass
    queue: str
    """The administration queue as a format name. The peer wrote it: if it is not a valid name, discard this."""
    correlation_id: bytes
    """MessageIdentifier of the acknowledged message."""
    response_queue: str
    """The destination of the acknowledged message, to identify its queue to the reader."""
    repeated: Repeated
    body: bytes
    """The body of the acknowledged message, for negative acknowledgments of messages that are not encrypted."""


class FinalAcknowledgment(NamedTuple):
    """A FinalAck packet to be sent: 2.2.5, 3.1.7.17."""

    source: Guid
    """Its destination: the queue manager that sent the message first."""
    route: Route
    message_class: MessageClass
    body: FinalAckBody


def format_name(queue: QueueFormat | None, kind: int, header: UserHeader) -> str:
    """The format name of a queue that a UserHeader names, 3.1.7.15; empty for none. ``kind`` is DQ, AQ or RQ."""
    match queue:
        case PrivateQueueFormatNameId():
            owner = header.source_queue_manager if kind == _PRIVATE_ON_SOURCE else header.queue_manager_address
            return str(PrivateFormatName(owner, queue.private_queue_identifier))
        case PrivateQueueFormatName():
            return str(PrivateFormatName(queue.source_queue_manager, queue.private_queue_identifier))
        case PublicQueueFormatName():
            return str(PublicFormatName(queue.public_queue_identifier))
        case DirectQueueFormatName():
            return f"DIRECT={queue.direct_format_name}"
        case None:
            return ""


def administration_queues(message: UserMessage, kind: int) -> str:
    """The destination of acknowledgments as a format name, several for several queues (MS-MQMQ 2.2.20.1)."""
    several = message.multi_queue_format_header
    if several is not None and 1 < len(several.administration.format_name_list) <= MOST_ADMINISTRATION_QUEUES:
        try:
            return format_names(several.administration)
        except ValueError:
            pass  # the peer may write invalid names
    return format_name(message.user_header.admin_queue, kind, message.user_header)


def requested(message: UserMessage, message_class: int) -> bool:
    """Whether the sender asked for this administration acknowledgment (MS-MQMQ 2.2.19.3, Flags)."""
    flags = message.message_properties_header.flags
    arrival = PropertyFlags.PA.mask, PropertyFlags.NA.mask
    receipt = PropertyFlags.PR.mask, PropertyFlags.NR.mask
    positive, negative = receipt if message_class & 0x4000 else arrival
    return bool(flags & (negative if message_class & 0x8000 else positive))


def administration_acknowledgment(
    message: UserMessage, message_class: MessageClass, send_insecure_nacks: bool = False
) -> AdministrationAcknowledgment | None:
    """The acknowledgment of this class. None if not requested, without a queue, or insecure by 5.1."""
    header = message.user_header
    admin_kind = UserFlags.AQ.get(header.flags)
    if not admin_kind or not requested(message, message_class):
        return None
    if message_class in INSECURE_NACKS and not send_insecure_nacks:
        return None
    security = message.security_header
    encrypted = security is not None and bool(security.flags & SecurityFlags.EB.mask)
    without_body = message_class in WITHOUT_BODY or encrypted
    return AdministrationAcknowledgment(
        message_class=message_class,
        queue=administration_queues(message, admin_kind),
        correlation_id=header.source_queue_manager + header.message_id.to_bytes(_MESSAGE_ID_SIZE, "little"),
        response_queue=format_name(header.destination_queue, UserFlags.DQ.get(header.flags), header),
        repeated=Repeated(
            message.message_properties_header.label,
            message.message_properties_header.application_tag,
            BaseFlags.PR.get(message.base_header.flags),
            message.message_properties_header.body_type,
            UserFlags.DM.get(header.flags) == 1,
        ),
        body=b"" if without_body else bytes(message.message_properties_header.message_body),
    )


def final_acknowledgment(message: UserMessage, message_class: MessageClass, route: Route) -> FinalAcknowledgment | None:
    """The FinalAck of this class for a transactional message; None for any other."""
    transaction = message.transaction_header
    if transaction is None:
        return None
    header = message.user_header
    body = FinalAckBody(
        tx_sequence_id=transaction.tx_sequence_id,
        tx_sequence_number=transaction.tx_sequence_number,
        tx_previous_sequence_number=transaction.previous_tx_sequence_number,
        source_guid=header.source_queue_manager,
        message_id=header.message_id,
    )
    return FinalAcknowledgment(header.source_queue_manager, route, message_class, body)


def order_queue_of(source: Guid, route: Route) -> str:
    """The format name of the queue that receives order and final acknowledgments, 3.1.7.17."""
    if route.direct:
        return f"DIRECT=TCP:{route.address}{ORDER_QUEUE_NAME}"
    return str(PrivateFormatName(source, ORDER_QUEUE.private_queue_identifier))


def order_ack_packet(acknowledgment: OrderAcknowledgment, identifier: Guid, message_id: int, time: int) -> bytes:
    """The OrderAck packet, 2.2.4, of queue manager ``identifier``."""
    source, route, sequence_id, number = acknowledgment
    form, body_at = _order_ack_form(Route(True, route.address) if route.direct else _INDIRECT, identifier)
    packet = bytearray(form)
    if not route.direct:
        packet[ADDRESS] = source
    pack_sent_into(packet, SENT_TIME_AT, time, message_id)
    pack_order_ack_body_into(packet, body_at, sequence_id, number, number - 1, b"")
    return bytes(packet)


@lru_cache(maxsize=1024)
def _order_ack_form(route: Route, identifier: Guid) -> tuple[bytes, int]:
    """An OrderAck packet whose fields are to be filled in, and the offset of its body: acknowledgments are as many as
    the sequences of strangers.
    """
    body = OrderAckBody(tx_sequence_id=0, tx_sequence_number=1, tx_previous_sequence_number=0)
    packet = order_ack(_user_header(ZERO_GUID, route, identifier, 0, 0), body).write()
    return packet, packet.rindex(body.write())


def final_ack_packet(acknowledgment: FinalAcknowledgment, identifier: Guid, message_id: int, time: int) -> bytes:
    """The FinalAck packet, 2.2.5, of queue manager ``identifier``."""
    header = _user_header(acknowledgment.source, acknowledgment.route, identifier, message_id, time)
    return final_ack(header, acknowledgment.message_class, acknowledgment.body).write()


def _user_header(source: Guid, route: Route, identifier: Guid, message_id: int, time: int) -> UserHeader:
    queue: DirectQueueFormatName | PrivateQueueFormatNameId = ORDER_QUEUE
    if route.direct:
        queue = DirectQueueFormatName(direct_format_name=f"TCP:{route.address}{ORDER_QUEUE_NAME}")
    return UserHeader(
        source_queue_manager=identifier,
        queue_manager_address=ZERO_GUID if route.direct else source,
        sent_time=time,
        message_id=message_id,
        destination_queue=queue,
    )


def position_deleted(message: UserMessage, reason: MessageClass, route: Route) -> FinalAcknowledgment | None:
    """Message Position Deleted, 3.1.7.2: the FinalAck for a message that left its destination queue, received or not.

    ``route`` is that of the incoming sequence of the message (``IncomingSequences.find``).
    """
    transaction = message.transaction_header
    journaling = message.user_header.flags & (UserFlags.JN.mask | UserFlags.JP.mask)
    if transaction is None or not (journaling or transaction.flags & TransactionFlags.FA.mask):
        return None
    return final_acknowledgment(message, reason, route)
