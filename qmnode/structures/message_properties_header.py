"""MessagePropertiesHeader (MS-MQMQ 2.2.19.3): label, body and properties of a message."""

from enum import IntEnum
from typing import Final

from qmnode.structures.fields import (
    AFTER,
    Flags,
    Octets,
    bits,
    length8,
    length32,
    padding,
    raw,
    text,
    u8,
    u16,
    u32,
    view,
)
from qmnode.structures.layout import Structure
from qmnode.structures.message_classes import MessageClass, is_permitted
from qmnode.structures.message_security import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel

MAX_LABEL: Final = 0xFA
"""Characters of a label, including its null."""


def _names(values: type[IntEnum]) -> dict[int, str]:
    return {member.value: member.name for member in values}


class _PermittedClasses:
    """The message classes that the specification, or its mask for applications, allows."""

    def __contains__(self, message_class: object) -> bool:
        return isinstance(message_class, int) and is_permitted(message_class)


# fmt: off
class PropertyFlags(Flags, width=8):
    """The administration acknowledgments that the sender requests. X bits are unused: kept as they are, ignored."""

    PA = bits(0, 1, "Acknowledge that the message reached its queue")
    PR = bits(1, 1, "Acknowledge that an application received it")
    NA = bits(2, 1, "Tell when it does not reach its queue")
    NR = bits(3, 1, "Tell when no application receives it")
    X  = bits(4, 4, "Unused")


class MessagePropertiesHeader(Structure, section="MS-MQMQ 2.2.19.3"):
    """Properties of a message and the data of the application.

    Algorithms are not checked here: an unknown one is a failure of authentication or decryption (MS-MQQB 3.1.5.8.3),
    not a malformed packet. Padding is kept.
    """

    flags: int                = u8(0, "Flags", "Wanted acknowledgments", bits=PropertyFlags, default=0)
    label_length: int         = length8(1, "LabelLength", "Characters of Label with its null, 0 to 250",
                                        of="label", unit=2, allowed=range(MAX_LABEL + 1))
    message_class: int        = u16(2, "MessageClass", "What the message is (2.2.18.1.6)",
                                    values=_names(MessageClass), allowed=_PermittedClasses(), default=0)
    correlation_id: bytes     = raw(4, 20, "CorrelationID", "Free; in acknowledgments a MessageIdentifier",
                                    default=bytes(20))
    body_type: int            = u32(24, "BodyType", "PROPVARIANT type of the body (2.2.12)", default=0)
    application_tag: int      = u32(28, "ApplicationTag", "Of the application", default=0)
    message_size: int         = length32(32, "MessageSize", "Bytes of MessageBody", of="message_body")
    allocation_body_size: int = u32(36, "AllocationBodySize", "Bytes that the sender had allocated for the body",
                                    default=0)
    privacy_level: int        = u32(40, "PrivacyLevel", "How the body is encrypted", default=0,
                                    values=_names(PrivacyLevel))
    hash_algorithm: int       = u32(44, "HashAlgorithm", "What signatures hash with", default=HashAlgorithm.SHA_512,
                                    values=_names(HashAlgorithm))
    encryption_algorithm: int = u32(48, "EncryptionAlgorithm", "What the body is encrypted with",
                                    default=EncryptionAlgorithm.AES256, values=_names(EncryptionAlgorithm))
    extension_size: int       = length32(52, "ExtensionSize", "Bytes of ExtensionData", of="extension_data")
    label: str                = text(56, "Label", "Of the application, at most 249 characters", default="",
                                     empty_is_absent=True)
    extension_data: Octets    = view(AFTER, "ExtensionData", "Of the application, at any alignment", default=b"")
    message_body: Octets      = view(AFTER, "MessageBody", "What the application sends, at any alignment", default=b"")
    padding: bytes            = padding("Padding", "Any bytes, up to 4-byte alignment")
# fmt: on
