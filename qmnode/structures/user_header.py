"""UserHeader (MS-MQMQ 2.2.19.2): the source and destination of a message, and the headers of its packet."""

from qmnode.structures.fields import AFTER, Flags, bits, choice, guid, u32
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.layout import Structure
from qmnode.structures.queue_formats import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
)

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
