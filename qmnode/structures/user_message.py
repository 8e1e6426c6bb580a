"""UserMessage packet (MS-MQMQ 2.2.20): the headers of a message and their order."""

from enum import IntEnum
from typing import Final

from qmnode.structures.enumerations import EncryptionAlgorithm, HashAlgorithm, MessageClass, PrivacyLevel, is_permitted
from qmnode.structures.fields import (
    AFTER,
    Flags,
    Octets,
    array,
    bits,
    choice,
    const8,
    const16,
    const32,
    data,
    guid,
    length8,
    length16,
    length32,
    nested,
    padding,
    raw,
    text,
    text_to_null,
    u8,
    u16,
    u32,
    u64,
    view,
)
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.layout import Structure
from qmnode.structures.names import (
    MAX_ELEMENTS,
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    PrivateFormatName,
    PublicFormatName,
)

# ----------------------------------------------------------------------------------------------------------------------
# BaseHeader (MS-MQMQ 2.2.19.1): the first 16 bytes of every packet but pings.

VERSION: Final = 0x10
SIGNATURE: Final = 0x524F494C
MAX_PACKET_SIZE: Final = 0x00400000
INFINITE: Final = 0xFFFFFFFF


# fmt: off
class BaseFlags(Flags, width=16):
    """Options of the packet. X bits are reserved: kept as they are, ignored."""

    PR = bits(0, 3, "Priority, 0 to 7, default 3; 0 in a transactional message")
    IN = bits(3, 1, "Internal packet: EstablishConnection, ConnectionParameters or SessionAck")
    SH = bits(4, 1, "A SessionHeader is present")
    DH = bits(5, 1, "A DebugHeader is present")
    X9 = bits(6, 1, "Reserved")
    X8 = bits(7, 1, "Reserved")
    TR = bits(8, 1, "Message tracing is on; DH is set too")
    X6 = bits(9, 1, "Reserved")
    X5 = bits(10, 1, "Reserved")
    X4 = bits(11, 1, "Reserved")
    X3 = bits(12, 1, "Reserved")
    X2 = bits(13, 1, "Reserved")
    X1 = bits(14, 1, "Reserved")
    X0 = bits(15, 1, "Reserved")


class BaseHeader(Structure, section="MS-MQMQ 2.2.19.1"):
    """Identifies a packet and gives its size, ``packet_size``, without the SessionHeader of a UserMessage."""

    version_number: int      = const8(0, "VersionNumber", VERSION, "Version of the packet format, 0x10")
    reserved: int            = u8(1, "Reserved", "Any value, ignored", default=0)
    flags: int               = u16(2, "Flags", "Options", bits=BaseFlags, default=BaseFlags.of(PR=3))
    signature: int           = const32(4, "Signature", SIGNATURE, "The letters LIOR")
    packet_size: int         = u32(8, "PacketSize", "Bytes of the whole packet, at most 4 MiB", default=0,
                                   allowed=range(MAX_PACKET_SIZE + 1), strict=True)
    time_to_reach_queue: int = u32(12, "TimeToReachQueue", "Seconds; 0xFFFFFFFF is for ever", default=INFINITE,
                                   values={INFINITE: "for ever"}, allowed=range(INFINITE + 1))
# fmt: on


# ----------------------------------------------------------------------------------------------------------------------
# Names of queues inside packets: the queue format types of UserHeader (MS-MQMQ 2.2.18.1.5 and 2.2.18.1.7).


# fmt: off
class PrivateQueueFormatNameId(Structure, section="MS-MQMQ 2.2.18.1.5.1"):
    """A private queue of a host that the context identifies."""

    private_queue_identifier: int = u32(0, "PrivateQueueIdentifier", "The queue's number at its queue manager")


class DirectQueueFormatName(Structure, section="MS-MQMQ 2.2.18.1.5.2"):
    """A queue by direct format name, without ``DIRECT=``: ``OS:host\\\\private$\\\\orders``. Padding is kept."""

    direct_format_name_size: int = length16(0, "Count", "Bytes of DirectFormatName, null included",
                                            of="direct_format_name")
    direct_format_name: str      = text(2, "DirectFormatName", "The name, ended by a null")
    padding: bytes               = padding("Padding", "Any bytes, up to 4-byte alignment")


class PublicQueueFormatName(Structure, section="MS-MQMQ 2.2.18.1.7.1"):
    """A public queue by its identifier."""

    public_queue_identifier: Guid = guid(0, "PublicQueueIdentifier", "The queue's identifier in the directory")


class PrivateQueueFormatName(Structure, section="MS-MQMQ 2.2.18.1.7.2"):
    """A private queue with its queue manager."""

    source_queue_manager: Guid    = guid(0, "SourceQueueManager", "The queue manager that hosts the queue")
    private_queue_identifier: int = u32(16, "PrivateQueueIdentifier", "The queue's number there")
# fmt: on


QueueFormat = PrivateQueueFormatNameId | DirectQueueFormatName | PublicQueueFormatName | PrivateQueueFormatName
"""The ways in which UserHeader can name a queue."""


# ----------------------------------------------------------------------------------------------------------------------
# UserHeader (MS-MQMQ 2.2.19.2): the source and destination of a message, and the headers of its packet.

_DESTINATION = {
    0: "none",
    3: "private queue on the destination host",
    5: "public queue",
    7: "direct",
}
_ADMIN = {**_DESTINATION, 2: "private queue on the source host", 6: "private queue on another host"}
_RESPONSE = {
    **_ADMIN,
    1: "same as the administration queue",
    4: "private queue on the host of the administration queue",
}


# fmt: off
class UserFlags(Flags, width=32):
    """Options of a user message. X bits are reserved: kept as they are, ignored."""

    RC = bits(0, 5, "Routing servers that have handled the packet", allowed=range(0x1E))
    DM = bits(5, 2, "Delivery mode", values={0: "express", 1: "recoverable"})
    X1 = bits(7, 1, "Reserved")
    JN = bits(8, 1, "Negative source journaling: keep the message if it is not delivered")
    JP = bits(9, 1, "Positive source journaling: keep a copy once it is delivered")
    DQ = bits(10, 3, "Type of DestinationQueue", values=_DESTINATION)
    AQ = bits(13, 3, "Type of AdminQueue", values=_ADMIN)
    RQ = bits(16, 3, "Type of ResponseQueue", values=_RESPONSE)
    SH = bits(19, 1, "A SecurityHeader is present")
    TH = bits(20, 1, "A TransactionHeader is present")
    MP = bits(21, 1, "A MessagePropertiesHeader is present: always", allowed=(1,))
    CQ = bits(22, 1, "ConnectorType is present")
    MQ = bits(23, 1, "A MultiQueueFormatHeader is present")
    X2 = bits(24, 1, "Reserved")
    AH = bits(25, 1, "The packet was first sent over HTTP")
    X3 = bits(26, 2, "Reserved")
    HH = bits(28, 1, "A SoapHeader is present")
    X4 = bits(29, 3, "Reserved")


class UserHeader(Structure, section="MS-MQMQ 2.2.19.2"):
    """Source and destination of a message.

    Queue types and CQ follow from the given queues where possible. A private queue by number can be meant in several
    ways, so set AQ and RQ for it in ``flags``.
    """

    source_queue_manager: Guid  = guid(0, "SourceQueueManager", "The first sender")
    queue_manager_address: Guid = guid(16, "QueueManagerAddress", "The destination's; null for a direct name",
                                       default=ZERO_GUID)
    time_to_be_received: int    = u32(32, "TimeToBeReceived", "Seconds since it was sent; 0xFFFFFFFF is for ever",
                                      default=0xFFFFFFFF)
    sent_time: int              = u32(36, "SentTime", "Seconds since 1970", default=0)
    message_id: int             = u32(40, "MessageID", "Unique among the messages of the sender")
    flags: int                  = u32(44, "Flags", "Options", bits=UserFlags, default=UserFlags.of(MP=1))

    destination_queue: PrivateQueueFormatNameId | PublicQueueFormatName | DirectQueueFormatName | None = choice(
        48, "DestinationQueue", "Where the message goes", on="flags.DQ",
        cases={0: None, 3: PrivateQueueFormatNameId, 5: PublicQueueFormatName, 7: DirectQueueFormatName})

    admin_queue: (
        PrivateQueueFormatNameId | PublicQueueFormatName | PrivateQueueFormatName | DirectQueueFormatName | None
    ) = choice(
        AFTER, "AdminQueue", "Where administration acknowledgments go", on="flags.AQ", default=None,
        cases={0: None, 2: PrivateQueueFormatNameId, 3: PrivateQueueFormatNameId, 5: PublicQueueFormatName,
               6: PrivateQueueFormatName, 7: DirectQueueFormatName})

    response_queue: (
        PrivateQueueFormatNameId | PublicQueueFormatName | PrivateQueueFormatName | DirectQueueFormatName | None
    ) = choice(
        AFTER, "ResponseQueue", "Where the application wants replies; absent when it is the AdminQueue (RQ is 1)",
        on="flags.RQ", default=None,
        cases={0: None, 1: None, 2: PrivateQueueFormatNameId, 3: PrivateQueueFormatNameId,
               4: PrivateQueueFormatNameId, 5: PublicQueueFormatName, 6: PrivateQueueFormatName,
               7: DirectQueueFormatName})

    connector_type: Guid | None = guid(AFTER, "ConnectorType", "Of the application", when="flags.CQ", default=None)
# fmt: on


# ----------------------------------------------------------------------------------------------------------------------
# MessagePropertiesHeader (MS-MQMQ 2.2.19.3): label, body and properties of a message.

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


# ----------------------------------------------------------------------------------------------------------------------
# SecurityHeader (MS-MQMQ 2.2.20.6): the sender of a message, its signature and the key of its body.


# fmt: off
class SecurityFlags(Flags, width=16):
    """The contents of SecurityData. X bits are unused: kept as they are, ignored.

    AI states whether SecurityData is present, yet frame 7 of MS-MQQB 4.1.7 has a SecurityID and a clear AI: the sizes
    decide which parts are present.
    """

    ST  = bits(0, 4, "Type of SecurityID", values={0: "none", 1: "SID", 2: "queue manager"})
    AU  = bits(4, 1, "Authenticated; sent as 0", allowed=(0,))
    EB  = bits(5, 1, "The body is encrypted")
    DE  = bits(6, 1, "The default cryptographic provider is used")
    AI  = bits(7, 1, "SecurityData is present")
    AS  = bits(8, 4, "Type of signature that authenticated; sent as 0", allowed=(0,))
    X12 = bits(12, 4, "Unused (X12 to X15)")


class ProviderInfo(Structure, section="MS-MQMQ 2.2.20.6"):
    """The cryptographic provider, when it is not the default."""

    provider_type: int = u32(0, "ProviderType", "Type of the provider (PROV_RSA_FULL is 1)")
    provider_name: str = text_to_null(4, "ProviderName", "Its name")


class SecurityHeader(Structure, section="MS-MQMQ 2.2.20.6"):
    """Security information; a part of size zero is absent. Each part is padded to 4 bytes; padding is kept."""

    flags: int                = u16(0, "Flags", "Options", bits=SecurityFlags, default=0)
    sender_id_size: int       = length16(2, "SenderIdSize", "Bytes of SecurityID", of="security_id")
    encryption_key_size: int  = length16(4, "EncryptionKeySize", "Bytes of EncryptionKey", of="encryption_key")
    signature_size: int       = length16(6, "SignatureSize", "Bytes of Signature", of="signature")
    sender_cert_size: int     = length32(8, "SenderCertSize", "Bytes of SenderCert, at most 65535", of="sender_cert",
                                         allowed=range(1 << 16))
    provider_info_size: int   = length32(12, "ProviderInfoSize", "Bytes of ProviderInfo", of="provider_info")
    security_id: bytes        = data(16, "SecurityID", "SID of the sender, or GUID of its queue manager", default=b"")
    security_id_padding: bytes    = padding("SecurityID padding")
    encryption_key: bytes     = data(AFTER, "EncryptionKey", "SIMPLEBLOB with the key of the body", default=b"")
    encryption_key_padding: bytes = padding("EncryptionKey padding")
    signature: bytes          = data(AFTER, "Signature", "Digital signature of the properties in 2.5", default=b"")
    signature_padding: bytes      = padding("Signature padding")
    sender_cert: bytes        = data(AFTER, "SenderCert", "X.509 certificate of the sender", default=b"")
    sender_cert_padding: bytes    = padding("SenderCert padding")
    provider_info: bytes      = data(AFTER, "ProviderInfo", "The provider, when not the default", default=b"",
                                     holds=ProviderInfo)
    provider_info_padding: bytes  = padding("ProviderInfo padding")
# fmt: on


# ----------------------------------------------------------------------------------------------------------------------
# TransactionHeader (MS-MQMQ 2.2.20.5): the place of a message in a transactional sequence.


# fmt: off
class TransactionFlags(Flags, width=32):
    """Options of a transactional message. X bits are unused: kept as they are, ignored.

    The section says both that values outside its table are an error and that the X bits are ignored; Windows ignores
    them.
    """

    CG = bits(0, 1, "ConnectorQMGuid is present")
    FA = bits(1, 1, "A FinalAck is required")
    FM = bits(2, 1, "First message of its transaction")
    LM = bits(3, 1, "Last message of its transaction")
    ID = bits(4, 20, "Correlates the messages of one transaction")
    X  = bits(24, 8, "Unused (X1 to X8)")


class TransactionHeader(Structure, section="MS-MQMQ 2.2.20.5"):
    """Sequence numbers of a transactional message. ``tx_sequence_id`` is the 64-bit integer of a TxSequenceID."""

    flags: int                       = u32(0, "Flags", "Options", bits=TransactionFlags, default=0)
    tx_sequence_id: int              = u64(4, "TxSequenceID", "The sequence: Ordinal low, TimeStamp high")
    tx_sequence_number: int          = u32(12, "TxSequenceNumber", "Place in the sequence, from 1",
                                           allowed=range(1, 1 << 32))
    previous_tx_sequence_number: int = u32(16, "PreviousTxSequenceNumber", "That of the message before, or 0",
                                           allowed=range((1 << 32) - 1))
    connector_qm_guid: Guid | None   = guid(AFTER, "ConnectorQMGuid", "Of the application", when="flags.CG",
                                            default=None)
# fmt: on


# ----------------------------------------------------------------------------------------------------------------------
# SessionHeader (MS-MQMQ 2.2.20.4): acknowledges the messages of a session, alone or on a UserMessage.

WINDOW_SIZE: Final = 64


# fmt: off
class SessionHeader(Structure, section="MS-MQMQ 2.2.20.4"):
    """Counts of messages received and sent on a session."""

    ack_sequence_number: int            = u16(0, "AckSequenceNumber", "All messages up to this one are received")
    recoverable_msg_ack_seq_number: int = u16(2, "RecoverableMsgAckSeqNumber", "Lowest recoverable one stored, or 0",
                                              default=0)
    recoverable_msg_ack_flags: int      = u32(4, "RecoverableMsgAckFlags", "Bit k: that number + k is stored",
                                              default=0)
    user_msg_sequence_number: int       = u16(8, "UserMsgSequenceNumber", "Messages sent on the session")
    recoverable_msg_seq_number: int     = u16(10, "RecoverableMsgSeqNumber", "Recoverable messages sent", default=0)
    window_size: int                    = u16(12, "WindowSize", "Messages that may wait for acknowledgment",
                                              default=WINDOW_SIZE, allowed=range(1, 1 << 16))
    reserved: int                       = u16(14, "Reserved", "Any value, ignored", default=0)
# fmt: on


# ----------------------------------------------------------------------------------------------------------------------
# SoapHeader (MS-MQMQ 2.2.20.7): application text of messages that came over HTTP.


# fmt: off
class SoapHeader(Structure, section="MS-MQMQ 2.2.20.7"):
    """Two sections of text. Lengths are in characters, nulls included.

    The section does not mention padding; BaseHeader.PacketSize counts "padding bytes used to align the various message
    headers on 4-byte boundaries", so each section is padded. Padding is kept.
    """

    header_section_id: int  = const16(0, "HeaderSectionID", 0x0320, "Start of the header section")
    reserved: int           = u16(2, "Reserved", "0, ignored", default=0)
    header_data_length: int = length32(4, "HeaderDataLength", "Characters of Header", of="header", unit=2)
    header: str             = text(8, "Header", "Of the application", empty_is_absent=True, default="")
    header_padding: bytes   = padding("Header padding")
    body_section_id: int    = const16(AFTER, "BodySectionID", 0x0384, "Start of the body section")
    reserved1: int          = u16(AFTER, "Reserved1", "0, ignored", default=0)
    body_data_length: int   = length32(AFTER, "BodyDataLength", "Characters of Body", of="body", unit=2)
    body: str               = text(AFTER, "Body", "Of the application", empty_is_absent=True, default="")
    body_padding: bytes     = padding("Body padding", clipped=True)
# fmt: on


# ----------------------------------------------------------------------------------------------------------------------
# DebugHeader (MS-MQMQ 2.2.20.8): the queue that gets the trace messages of a packet.


# fmt: off
class DebugFlags(Flags, width=16):
    """Type of the queue. X bits are unused: kept as they are, ignored."""

    QT = bits(0, 2, "Type of queue", values={0: "none", 1: "public queue"})
    X  = bits(2, 14, "Unused (X2 to X15)")


class DebugHeader(Structure, section="MS-MQMQ 2.2.20.8"):
    """The destination of trace messages."""

    flags: int                    = u16(0, "Flags", "Options", bits=DebugFlags, default=0)
    reserved: int                 = u16(2, "Reserved", "0, ignored", default=0)
    queue_identifier: Guid | None = choice(4, "QueueIdentifier", "The public queue for trace messages", on="flags.QT",
                                           cases={0: None, 1: guid()}, default=None)
# fmt: on


# ----------------------------------------------------------------------------------------------------------------------
# MultiQueueFormatHeader (MS-MQMQ 2.2.20.1 to 2.2.20.3, 2.2.18.1.4): the names in a send to several queues.

DESTINATION: Final = 0x0064
ADMIN: Final = 0x00C8
RESPONSE: Final = 0x012C
SIGNATURE_SECTION: Final = 0x015E

MOST_ADMINISTRATION_QUEUES: Final = 16
"""The most administration queues of a message that get acknowledgments. If it lists more, only the one in its
UserHeader does: a stranger's message must not cause a thousand.
"""


# fmt: off
class MQFPublicQueueFormatName(Structure, section="MS-MQMQ 2.2.18.1.7.1", floating=True):
    """A public queue in a list of names. The section is silent on alignment; like the other GUIDs of these lists
    (2.2.18.1.4.2, 2.2.18.1.7.2) it starts at a multiple of 4. Padding is kept.
    """

    padding: bytes                = padding("Padding", "Any bytes, up to 4-byte alignment")
    public_queue_identifier: Guid = guid(AFTER, "PublicQueueIdentifier", "The queue's identifier in the directory")


class MQFPrivateQueueFormatName(Structure, section="MS-MQMQ 2.2.18.1.7.2", floating=True):
    """A private queue in a list of names. Padding is kept."""

    padding: bytes                = padding("Padding", "Any bytes, up to 4-byte alignment")
    source_queue_manager: Guid    = guid(AFTER, "SourceQueueManager", "The queue manager that hosts the queue")
    private_queue_identifier: int = u32(AFTER, "PrivateQueueIdentifier", "The queue's number there")


class MQFDirectQueueFormatName(Structure, section="MS-MQMQ 2.2.18.1.4.1"):
    """A queue by direct format name, in a list of names."""

    direct_format_name: str = text_to_null(0, "DirectFormatName", "The name, without DIRECT=")


class MQFDistributionQueueFormatName(Structure, section="MS-MQMQ 2.2.18.1.4.2", floating=True):
    """A distribution list, in a list of names. Padding is kept."""

    padding: bytes                     = padding("Padding", "Any bytes, up to 4-byte alignment")
    distribution_list_identifier: Guid = guid(AFTER, "DistributionListIdentifier", "The list's identifier")


class MQFFormatNameElement(Structure, section="MS-MQMQ 2.2.18.1.4", floating=True):
    """One name of a list. ``format_type`` follows from the name."""

    format_type: int = u16(0, "FormatType", "Kind of name", default=0,
                           values={1: "public", 2: "private", 3: "direct", 6: "distribution list"})
    format_name: (
        MQFPublicQueueFormatName | MQFPrivateQueueFormatName | MQFDirectQueueFormatName | MQFDistributionQueueFormatName
    ) = choice(
        2, "FormatName", "The name", on="format_type",
        cases={1: MQFPublicQueueFormatName, 2: MQFPrivateQueueFormatName, 3: MQFDirectQueueFormatName,
               6: MQFDistributionQueueFormatName})


class MQFAddressHeader(Structure, section="MS-MQMQ 2.2.20.2", total="header_size", outside_total=("end_padding",)):
    """A list of names.

    HeaderSize may count the padding after the list or not: the section leaves it open. Counted padding is
    ``list_padding`` (a constructor counts it), other padding is ``end_padding``. Both are kept. The section has no
    limit of names; ours is that of a format name (2.1.7), as a packet could have a million.
    """

    header_size: int   = u32(0, "HeaderSize", "Bytes of this header with its list", default=0)
    header_id: int     = u16(4, "HeaderID", "What the names are for", default=DESTINATION,
                             values={DESTINATION: "destination", ADMIN: "admin", RESPONSE: "response"})
    reserved: int      = u16(6, "Reserved", "0, ignored", default=0)
    element_count: int = length32(8, "ElementCount", "Names in FormatNameList", of="format_name_list",
                                  allowed=range(MAX_ELEMENTS + 1))
    format_name_list: tuple[MQFFormatNameElement, ...] = array(12, MQFFormatNameElement, "FormatNameList", "The names",
                                                               default=())
    list_padding: bytes = padding("Padding", "Any bytes, counted by HeaderSize", clipped=True)
    end_padding: bytes  = padding("Padding", "Any bytes, not counted by HeaderSize")


class MQFSignatureHeader(Structure, section="MS-MQMQ 2.2.20.3"):
    """The signature of a message to several queues."""

    id: int          = const16(0, "ID", SIGNATURE_SECTION, "Start of the signature section")
    reserved: int    = u16(2, "Reserved", "0, ignored", default=0)
    signature_size: int = length32(4, "Size", "Bytes of Signature", of="signature")
    signature: bytes = data(8, "Signature", "Digital signature of the properties in 2.5.3", default=b"")
    padding: bytes   = padding("Padding", "Any bytes, up to 4-byte alignment", clipped=True)


class MultiQueueFormatHeader(
    Structure,
    section="MS-MQMQ 2.2.20.1",
    requires={"destination.header_id": DESTINATION, "administration.header_id": ADMIN, "response.header_id": RESPONSE},
):
    """All queues that a message was sent to, and its administration and response queues."""

    destination: MQFAddressHeader    = nested(0, MQFAddressHeader, "Where the message went", name="Destination")
    administration: MQFAddressHeader = nested(AFTER, MQFAddressHeader, "Where acknowledgments go",
                                              name="Administration", default=MQFAddressHeader(header_id=ADMIN))
    response: MQFAddressHeader       = nested(AFTER, MQFAddressHeader, "Where replies go", name="Response",
                                              default=MQFAddressHeader(header_id=RESPONSE))
    signature: MQFSignatureHeader    = nested(AFTER, MQFSignatureHeader, "Signature over the properties in 2.5.3",
                                              name="Signature", default=MQFSignatureHeader())
# fmt: on


def format_names(addresses: MQFAddressHeader) -> str:
    """The names of a list as one format name, of several elements if need be. Raises ValueError if invalid."""
    return ",".join(str(_format_name(element.format_name)) for element in addresses.format_name_list)


def _format_name(name: Structure) -> FormatName:
    match name:
        case MQFPublicQueueFormatName():
            return PublicFormatName(name.public_queue_identifier)
        case MQFPrivateQueueFormatName():
            return PrivateFormatName(name.source_queue_manager, name.private_queue_identifier)
        case MQFDirectQueueFormatName():
            return DirectFormatName.parse(name.direct_format_name)
        case MQFDistributionQueueFormatName():
            return DistributionListFormatName(name.distribution_list_identifier or ZERO_GUID)
    raise ValueError(f"{type(name).__name__} names no queue")


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
