"""UserMessage packet (MS-MQMQ 2.2.20): the headers of a message and their order."""

from qmnode.structures.base_header import BaseHeader
from qmnode.structures.debug_header import DebugHeader
from qmnode.structures.fields import AFTER, nested
from qmnode.structures.layout import Structure
from qmnode.structures.message_properties_header import MessagePropertiesHeader
from qmnode.structures.multi_queue_format_header import MultiQueueFormatHeader
from qmnode.structures.security_header import SecurityHeader
from qmnode.structures.session_header import SessionHeader
from qmnode.structures.soap_header import SoapHeader
from qmnode.structures.transaction_header import TransactionHeader
from qmnode.structures.user_header import UserHeader


# fmt: off
class UserMessage(
    Structure,
    section="MS-MQMQ 2.2.20",
    total="base_header.packet_size",
    outside_total=("session_header",),
    requires={"base_header.flags.IN": 0, "user_header.flags.MP": 1},
):
    """A message with its headers. The flags for optional headers follow from the headers given.

    PacketSize excludes the SessionHeader (2.2.19.1), so on a stream a packet that has one is 16 bytes longer.
    """

    base_header: BaseHeader         = nested(0, BaseHeader, "Size and options of the packet", default=BaseHeader())
    user_header: UserHeader         = nested(16, UserHeader, "Source and destination")
    transaction_header: TransactionHeader | None = nested(
        AFTER, TransactionHeader, "Place in a transactional sequence", when="user_header.flags.TH", default=None)
    security_header: SecurityHeader | None = nested(
        AFTER, SecurityHeader, "Sender, signature, key", when="user_header.flags.SH", default=None)
    message_properties_header: MessagePropertiesHeader = nested(
        AFTER, MessagePropertiesHeader, "Label, body, properties")
    debug_header: DebugHeader | None = nested(
        AFTER, DebugHeader, "Queue for trace messages", when="base_header.flags.DH", default=None)
    soap_header: SoapHeader | None  = nested(
        AFTER, SoapHeader, "Text of the application", when="user_header.flags.HH", default=None)
    multi_queue_format_header: MultiQueueFormatHeader | None = nested(
        AFTER, MultiQueueFormatHeader, "All destinations", when="user_header.flags.MQ", default=None)
    session_header: SessionHeader | None = nested(
        AFTER, SessionHeader, "Acknowledges messages of the session", when="base_header.flags.SH", default=None)
# fmt: on
