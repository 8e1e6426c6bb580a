"""OrderAck and FinalAck packets (MS-MQQB 2.2.4, 2.2.5): UserMessages to the order queue."""

from enum import Enum
from struct import Struct
from typing import Final

from qmnode.structures.base_header import BaseHeader
from qmnode.structures.fields import guid, raw, u32, u64
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Structure, codes_of
from qmnode.structures.message_classes import MessageClass, is_receive_acknowledgment
from qmnode.structures.message_properties_header import MessagePropertiesHeader
from qmnode.structures.queue_formats import DirectQueueFormatName, PrivateQueueFormatNameId
from qmnode.structures.user_header import UserFlags, UserHeader
from qmnode.structures.user_message import UserMessage

ORDER_ACK_LABEL: Final = "QM Ordering Ack"
ORDER_QUEUE_NAME: Final = r"\PRIVATE$\order_queue$"
ORDER_QUEUE: Final = PrivateQueueFormatNameId(private_queue_identifier=4)
ACK_BODY_SIZE: Final = 0x24
_NEGATIVE: Final = 0x8000


class MessageKind(Enum):
    """The kind of a UserMessage for the protocol (MS-MQQB 3.1.5.1.1)."""

    USER_MESSAGE = "UserMessage Packet"
    ORDER_ACK = "OrderAck Packet"
    FINAL_ACK = "FinalAck Packet"


# fmt: off
class OrderAckBody(Structure, section="MS-MQQB 2.2.4.1", title="OrderAck Body"):
    """The last transactional message received in order. ``tx_sequence_id`` is a TxSequenceID as one integer."""

    tx_sequence_id: int              = u64(0, "TxSequenceID", "The sequence")
    tx_sequence_number: int          = u32(8, "TxSequenceNumber", "The message's place in it, from 1",
                                           allowed=range(1, 1 << 32))
    tx_previous_sequence_number: int = u32(12, "TxPreviousSequenceNumber", "TxSequenceNumber - 1",
                                           allowed=range((1 << 32) - 1))
    reserved: bytes                  = raw(16, 20, "Reserved", "0, ignored", default=bytes(20))


class FinalAckBody(Structure, section="MS-MQQB 2.2.5.1", title="FinalAck Body"):
    """The outcome of a transactional message. ``tx_sequence_id`` is a TxSequenceID as one integer."""

    tx_sequence_id: int              = u64(0, "TxSequenceID", "The sequence")
    tx_sequence_number: int          = u32(8, "TxSequenceNumber", "The message's place in it, from 1",
                                           allowed=range(1, 1 << 32))
    tx_previous_sequence_number: int = u32(12, "TxPreviousSequenceNumber", "That of the message before",
                                           allowed=range((1 << 32) - 1))
    source_guid: Guid                = guid(16, "SourceGUID", "The queue manager that sent the message")
    message_id: int                  = u32(32, "MessageID", "The message's identifier there")
# fmt: on


def is_order_queue(queue: object) -> bool:
    """Whether a destination is the order queue of its host: by number, or by direct name."""
    if isinstance(queue, DirectQueueFormatName):
        return queue.direct_format_name.casefold().endswith(ORDER_QUEUE_NAME.casefold())
    return queue == ORDER_QUEUE


def message_kind(message: UserMessage) -> MessageKind:
    """OrderAck, FinalAck or user message, by section 3.1.5.1.1. Administration acknowledgments are user messages."""
    properties = message.message_properties_header
    message_class = properties.message_class
    final = is_receive_acknowledgment(message_class) or bool(message_class & _NEGATIVE)
    if message_class != MessageClass.MQMSG_CLASS_ORDER_ACK and not final:
        return MessageKind.USER_MESSAGE
    if message.base_header.flags or properties.label != ORDER_ACK_LABEL:
        return MessageKind.USER_MESSAGE
    if properties.message_size != ACK_BODY_SIZE or not is_order_queue(message.user_header.destination_queue):
        return MessageKind.USER_MESSAGE
    return MessageKind.FINAL_ACK if final else MessageKind.ORDER_ACK


pack_order_ack_body_into: Final = Struct("<" + codes_of(OrderAckBody)).pack_into
"""The fields of an OrderAckBody at an offset."""


def order_ack(user_header: UserHeader, body: OrderAckBody) -> UserMessage:
    """The OrderAck packet with this body. ``user_header`` has its source and destination; its flags are set here."""
    return _ack(user_header, MessageClass.MQMSG_CLASS_ORDER_ACK, body, delivery_mode=0)


def final_ack(user_header: UserHeader, message_class: MessageClass, body: FinalAckBody) -> UserMessage:
    """The FinalAck packet of this class with this body: recoverable, otherwise like ``order_ack``."""
    return _ack(user_header, message_class, body, delivery_mode=1)


def _ack(
    user_header: UserHeader, message_class: MessageClass, body: OrderAckBody | FinalAckBody, delivery_mode: int
) -> UserMessage:
    content = body.write()
    return UserMessage(
        base_header=BaseHeader(flags=0),
        user_header=user_header.replace(flags=UserFlags.of(MP=1, DM=delivery_mode)),
        message_properties_header=MessagePropertiesHeader(
            label=ORDER_ACK_LABEL,
            message_class=message_class,
            message_body=content,
            allocation_body_size=len(content),
        ),
    )
