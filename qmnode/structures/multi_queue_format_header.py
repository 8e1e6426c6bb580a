"""MultiQueueFormatHeader (MS-MQMQ 2.2.20.1 to 2.2.20.3, 2.2.18.1.4): the names in a send to several queues."""

from typing import Final

from qmnode.structures.fields import (
    AFTER,
    array,
    choice,
    const16,
    data,
    guid,
    length32,
    nested,
    padding,
    text_to_null,
    u16,
    u32,
)
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.layout import Structure
from qmnode.structures.names import (
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    PrivateFormatName,
    PublicFormatName,
)
from qmnode.structures.names.multiple import MAX_ELEMENTS

DESTINATION: Final = 0x0064
ADMIN: Final = 0x00C8
RESPONSE: Final = 0x012C
SIGNATURE: Final = 0x015E

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

    id: int          = const16(0, "ID", SIGNATURE, "Start of the signature section")
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
