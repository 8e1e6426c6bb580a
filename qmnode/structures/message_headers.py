"""The fields of a UserMessage packet (MS-MQMQ 2.2.20) that a receiver reads, in one flat value: for every message.

Each attribute is a field of a header, under its full name; an absent header gives None.
"""

from typing import Final

from qmnode.structures.debug_header import DebugHeader
from qmnode.structures.fields import Bits, Choice, Nested, Octets
from qmnode.structures.flat import Flat, at, bytes_at
from qmnode.structures.guid import Guid
from qmnode.structures.multi_queue_format_header import MultiQueueFormatHeader
from qmnode.structures.queue_formats import QueueFormat
from qmnode.structures.session_header import SessionHeader
from qmnode.structures.user_header import UserFlags, UserHeader
from qmnode.structures.user_message import UserMessage


# fmt: off
class MessageHeaders(Flat, of=UserMessage):
    """The headers of a message. Checked as ``UserMessage.parse`` checks them; the body is a view, not a copy."""

    # BaseHeader, MS-MQMQ 2.2.19.1
    base_flags: int                  = at("base_header.flags")
    packet_size: int                 = at("base_header.packet_size")
    time_to_reach_queue: int         = at("base_header.time_to_reach_queue")

    # UserHeader, 2.2.19.2
    source_queue_manager: Guid       = at("user_header.source_queue_manager")
    queue_manager_address: Guid      = at("user_header.queue_manager_address")
    time_to_be_received: int         = at("user_header.time_to_be_received")
    sent_time: int                   = at("user_header.sent_time")
    message_id: int                  = at("user_header.message_id")
    user_flags: int                  = at("user_header.flags")
    destination_queue_bytes: bytes   = bytes_at("user_header.destination_queue")
    admin_queue_bytes: bytes         = bytes_at("user_header.admin_queue")
    response_queue_bytes: bytes      = bytes_at("user_header.response_queue")
    connector_type: Guid | None      = at("user_header.connector_type")

    # TransactionHeader, 2.2.20.5
    transaction_flags: int | None    = at("transaction_header.flags")
    tx_sequence_id: int | None       = at("transaction_header.tx_sequence_id")
    tx_sequence_number: int | None   = at("transaction_header.tx_sequence_number")
    previous_tx_sequence_number: int | None = at("transaction_header.previous_tx_sequence_number")
    connector_qm_guid: Guid | None   = at("transaction_header.connector_qm_guid")

    # SecurityHeader, 2.2.20.6
    security_flags: int | None       = at("security_header.flags")
    security_id: bytes | None        = at("security_header.security_id")
    encryption_key: bytes | None     = at("security_header.encryption_key")
    signature: bytes | None          = at("security_header.signature")
    sender_cert: bytes | None        = at("security_header.sender_cert")
    provider_info: bytes | None      = at("security_header.provider_info")

    # MessagePropertiesHeader, 2.2.19.3
    property_flags: int              = at("message_properties_header.flags")
    message_class: int               = at("message_properties_header.message_class")
    correlation_id: bytes            = at("message_properties_header.correlation_id")
    body_type: int                   = at("message_properties_header.body_type")
    application_tag: int             = at("message_properties_header.application_tag")
    allocation_body_size: int        = at("message_properties_header.allocation_body_size")
    privacy_level: int               = at("message_properties_header.privacy_level")
    hash_algorithm: int              = at("message_properties_header.hash_algorithm")
    encryption_algorithm: int        = at("message_properties_header.encryption_algorithm")
    label: str                       = at("message_properties_header.label")
    extension_data: Octets           = at("message_properties_header.extension_data")
    message_body: Octets             = at("message_properties_header.message_body")

    # Headers that few messages have, kept whole
    debug_header: DebugHeader | None = at("debug_header")
    multi_queue_format_header: MultiQueueFormatHeader | None = at("multi_queue_format_header")
    session_header: SessionHeader | None = at("session_header")
# fmt: on

    @property
    def destination_queue(self) -> QueueFormat | None:
        """The destination of the message. Not needed by a receiver that has seen ``destination_queue_bytes`` before."""
        return _queue("destination_queue", UserFlags.DQ, self.user_flags, self.destination_queue_bytes)

    @property
    def admin_queue(self) -> QueueFormat | None:
        """The destination of administration acknowledgments."""
        return _queue("admin_queue", UserFlags.AQ, self.user_flags, self.admin_queue_bytes)

    @property
    def response_queue(self) -> QueueFormat | None:
        """The queue for replies to the application; the administration queue when both are the same."""
        if UserFlags.RQ.get(self.user_flags) == _SAME_AS_ADMIN:
            return self.admin_queue
        return _queue("response_queue", UserFlags.RQ, self.user_flags, self.response_queue_bytes)


_SAME_AS_ADMIN: Final = 1


def _queue(attribute: str, kind: Bits, flags: int, written: bytes) -> QueueFormat | None:
    field = UserHeader.PLAN.field(attribute)
    assert isinstance(field, Choice)
    case = field.cases[kind.get(flags)]
    if case is None:
        return None
    assert isinstance(case, Nested)
    queue: QueueFormat = case.structure.parse(written)  # type: ignore[assignment]
    return queue
