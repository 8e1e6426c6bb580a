"""The input of digital signatures: MS-MQMQ 2.5, the values of fields of a UserMessage in a fixed order.

The section names fields and no encoding. A value here is the field's bytes as the packet has them, without padding; an
absent field has no bytes. Numbers that the section casts have the width of the cast.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from qmnode.structures.enumerations import AuthenticationLevel
from qmnode.structures.fields import Octets
from qmnode.structures.user_message import (
    BaseFlags,
    DirectQueueFormatName,
    MQFDirectQueueFormatName,
    MQFFormatNameElement,
    QueueFormat,
    UserFlags,
    UserMessage,
)

FLAGS_COVERED: Final = 0x0F
"""The bits of MessagePropertiesHeader.Flags that a signature covers: those that request acknowledgments."""


class SignedProperty(NamedTuple):
    """One value that a signature covers: the specification's name for it, and its extraction from a message."""

    name: str
    take: Callable[[UserMessage], Octets]


def _queue(queue: QueueFormat | None) -> bytes:
    if queue is None:
        return b""
    written = queue.write()
    return written[: len(written) - len(queue.padding)] if isinstance(queue, DirectQueueFormatName) else written


def _label(message: UserMessage) -> bytes:
    label = message.message_properties_header.label
    return f"{label}\0".encode("utf-16-le", "surrogatepass") if label else b""


def _source_journaling(message: UserMessage) -> bytes:
    flags = message.user_header.flags
    return bytes([UserFlags.JP.get(flags) << 1 | UserFlags.JN.get(flags)])


def _format_names(message: UserMessage) -> bytes:
    header = message.multi_queue_format_header
    return b"" if header is None else b"".join(map(_element, header.destination.format_name_list))


def _element(element: MQFFormatNameElement) -> bytes:
    name = element.format_name
    alignment = 0 if isinstance(name, MQFDirectQueueFormatName) else len(name.padding)
    return _number("H", element.format_type) + name.write()[alignment:]


def _number(code: str, value: int) -> bytes:
    return struct.pack(f"<{code}", value)


# fmt: off
_EVERY: Final = (
    SignedProperty("MessagePropertiesHeader.CorrelationID", lambda m: m.message_properties_header.correlation_id),
    SignedProperty("MessagePropertiesHeader.ApplicationTag",
                   lambda m: _number("I", m.message_properties_header.application_tag)),
    SignedProperty("MessagePropertiesHeader.MessageBody", lambda m: m.message_properties_header.message_body),
    SignedProperty("MessagePropertiesHeader.Label", _label),
    SignedProperty("UserHeader.ResponseQueue", lambda m: _queue(m.user_header.response_queue)),
    SignedProperty("UserHeader.AdminQueue", lambda m: _queue(m.user_header.admin_queue)),
)
_SEVERAL_QUEUES: Final = (
    SignedProperty("MessagePropertiesHeader.ExtensionData", lambda m: m.message_properties_header.extension_data),
    SignedProperty("MultiQueueFormatHeader.FormatNameList", _format_names),
)
_OPTIONS: Final = (
    SignedProperty("UserHeader.SourceQueueManager", lambda m: m.user_header.source_queue_manager),
    SignedProperty("UserHeader.Flags.DM", lambda m: bytes([UserFlags.DM.get(m.user_header.flags)])),
    SignedProperty("BaseHeader.Flags.PR", lambda m: bytes([BaseFlags.PR.get(m.base_header.flags)])),
    SignedProperty("UserHeader.Flags.JP and JN", _source_journaling),
    SignedProperty("MessagePropertiesHeader.Flags",
                   lambda m: bytes([m.message_properties_header.flags & FLAGS_COVERED])),
    SignedProperty("MessagePropertiesHeader.MessageClass",
                   lambda m: _number("H", m.message_properties_header.message_class)),
    SignedProperty("MessagePropertiesHeader.BodyType",
                   lambda m: _number("I", m.message_properties_header.body_type)),
    SignedProperty("UserHeader.ConnectorType", lambda m: m.user_header.connector_type or b""),
)
_DESTINATION: Final = (
    SignedProperty("UserHeader.DestinationQueue", lambda m: _queue(m.user_header.destination_queue)),
)
# fmt: on

SIGNED_PROPERTIES: Final = {
    AuthenticationLevel.SIG10: _EVERY,
    AuthenticationLevel.SIG20: _EVERY + _OPTIONS + _DESTINATION,
    AuthenticationLevel.SIG30: _EVERY + _SEVERAL_QUEUES + _OPTIONS,
}
"""MS-MQMQ 2.5.1 (MSMQ 1.0), 2.5.2 (MSMQ 2.0) and 2.5.3 (MSMQ 3.0, for several queues), in order."""


def signed_bytes(message: UserMessage, level: AuthenticationLevel) -> bytes:
    """The bytes that a signature of this kind hashes. Raises KeyError for AuthenticationLevel.NONE."""
    return b"".join(signed.take(message) for signed in SIGNED_PROPERTIES[level])
