"""Messages that the queue manager sends about messages: administration, order and final acknowledgments.

3.1.5.8.10, 3.1.7.2, 3.1.7.15 and 3.1.7.17. They are decided on and described here; the caller gives them an identifier
and puts them into an outgoing queue, in the same batch as the messages that they are about.
"""

from datetime import UTC, datetime
from enum import Enum, auto, unique
from functools import lru_cache
from typing import Final, NamedTuple

from qmnode.model.leaving_queue import Repeated
from qmnode.protocol.incoming_sequences import OrderAcknowledgment, Route
from qmnode.structures.enumerations import INSECURE_NACKS, MessageClass
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text
from qmnode.structures.names import PrivateFormatName, PublicFormatName
from qmnode.structures.packet_view import ADDRESS, SENT_TIME_AT, pack_sent_into
from qmnode.structures.packets import (
    ORDER_QUEUE,
    ORDER_QUEUE_NAME,
    FinalAckBody,
    OrderAckBody,
    final_ack,
    order_ack,
    pack_order_ack_body_into,
)
from qmnode.structures.user_message import (
    INFINITE,
    MOST_ADMINISTRATION_QUEUES,
    BaseFlags,
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PropertyFlags,
    PublicQueueFormatName,
    QueueFormat,
    SecurityFlags,
    TransactionFlags,
    UserFlags,
    UserHeader,
    UserMessage,
    format_names,
)

# ----------------------------------------------------------------------------------------------------------------------
# Decisions about a message and its copy at the sender: journals, dead-letter queues, refusals.
#
# Figures 5 to 10 of 3.1.1.1.1, sections 3.1.5.5.4, 3.1.5.6, 3.1.5.7, 3.1.5.8.8, 3.1.7.1.2, 3.1.7.1.5.1 and 3.1.7.15.

_JN: Final = UserFlags.JN.mask
_JP: Final = UserFlags.JP.mask
_TH: Final = UserFlags.TH.mask

WITHOUT_BODY: Final = frozenset({MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE, MessageClass.MQMSG_CLASS_ACK_RECEIVE})
"""Administration acknowledgments that do not return the body (3.1.7.15)."""


@unique
class Fate(Enum):
    """The fate of a message that leaves the outgoing queue, or that is refused."""

    RELEASE = auto()
    """The message is deleted."""
    JOURNAL = auto()
    """Moved to the system journal queue."""
    DEAD_LETTER = auto()
    """Moved to the system dead-letter queue."""
    TRANSACTIONAL_DEAD_LETTER = auto()
    """The message's application dead-letter queue if it has one, else the system transactional dead-letter queue."""
    AWAIT_FINAL_ACK = auto()
    """Moved to AwaitingFinalACKTable until the FinalAck reports its outcome."""
    KEEP = auto()
    """Stays where it is."""


def after_order_ack(user_flags: int, final_ack_requested: bool = False) -> Fate:
    """The fate of a transactional message that an order acknowledgment covers (3.1.5.6); FA is the header's flag."""
    return Fate.AWAIT_FINAL_ACK if user_flags & (_JN | _JP) or final_ack_requested else Fate.RELEASE


def after_final_ack(user_flags: int, message_class: int) -> Fate:
    """The fate of a message with a FinalAck, whether it waited for it or is still in the outgoing queue (3.1.5.7)."""
    if message_class == MessageClass.MQMSG_CLASS_ACK_RECEIVE:
        return Fate.JOURNAL if user_flags & _JP else Fate.RELEASE
    return Fate.TRANSACTIONAL_DEAD_LETTER if user_flags & _JN else Fate.RELEASE


KEPT_WHEN_REFUSED: Final = frozenset(
    {
        MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA,
        MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT,
        MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED,
        MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q,
        MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG,
    }
)
"""Refusals after which a message that is not transactional goes to the dead-letter queue of the refusing node, since
its source has deleted it. 3.1.5.8.8 requires this for the quota. It is done for the others too, because some are not
even acknowledged by default and would leave no trace. Refusals for security keep nothing.
"""


def refused_here(user_flags: int, message_class: int) -> Fate:
    """The fate of a refused message at the refuser. A transactional one is kept by its source for the FinalAck."""
    if message_class in KEPT_WHEN_REFUSED and user_flags & _JN and not user_flags & _TH:
        return Fate.DEAD_LETTER
    return Fate.RELEASE


def has_expired(time_to_reach_queue: int, sent_time: int, time: int) -> bool:
    """Whether the time to reach the queue has ended (3.1.7.1.2, MS-MQMQ 2.2.19.1): seconds, since 1970."""
    return time_to_reach_queue != INFINITE and time - sent_time > time_to_reach_queue


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


# ----------------------------------------------------------------------------------------------------------------------
# Trace reports: a queue manager's reports on a message that requested tracing (1.3.6, 3.1.5.8.9, 3.1.7.1.7).

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class TraceReport(NamedTuple):
    """An express message of class MQMSG_CLASS_REPORT to a public queue."""

    queue: str
    label: str
    body: bytes
    """UTF-16-LE text of the report."""
    source: Guid
    """The source queue manager of the traced message."""


def received_report(message: UserMessage, time: int) -> TraceReport | None:
    """The report about a message that arrived here, 3.1.5.8.9; None if it requested none."""
    return _report(message, time, None)


def sent_report(message: UserMessage, time: int, next_hop: str) -> TraceReport | None:
    """The report about a message that was sent from here to the address ``next_hop``, 3.1.7.1.7."""
    return _report(message, time, next_hop)


def _report(message: UserMessage, time: int, next_hop: str | None) -> TraceReport | None:
    debug = message.debug_header
    if not message.base_header.flags & BaseFlags.TR.mask or debug is None or debug.queue_identifier is None:
        return None
    header = message.user_header
    hops = UserFlags.RC.get(header.flags)
    source = guid_to_text(header.source_queue_manager).upper()
    destination = format_name(header.destination_queue, UserFlags.DQ.get(header.flags), header)
    # The grammar's qm-id comes from "the source queue identifier"; a message names no source queue, so it is the first
    # four digits of the source queue manager. The same "received by" stands in both labels of the text.
    label = f"{source[:4]}:{header.message_id:08X}:{hops:02X} received by {source} at {_time_date(time)}"
    lines = [
        f"<MESSAGE ID>{header.message_id:08X}</MESSAGE ID>\r\n",
        f"<TARGET QUEUE>{destination}</TARGET QUEUE>\r\n",
    ]
    if next_hop is not None:
        lines += [f"<NEXT HOP>{next_hop}</NEXT HOP>\r\n", f"<HOP COUNT>{hops:02X} </HOP COUNT>\r\n"]
    queue = str(PublicFormatName(Guid(debug.queue_identifier)))
    return TraceReport(queue, label, "".join(lines).encode("utf-16-le", "surrogatepass"), header.source_queue_manager)


def _time_date(time: int) -> str:
    """time-date of the grammar: ``01:02:03 PM Sat, Nov 21 26``, in UTC and in any locale."""
    moment = datetime.fromtimestamp(time, UTC)
    hour = moment.strftime("%I:%M:%S")
    half = "AM" if moment.hour < 12 else "PM"
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{hour} {half} {day}, {month} {moment.day:02} {moment.year % 100:02}"
