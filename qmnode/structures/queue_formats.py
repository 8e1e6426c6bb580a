"""Names of queues inside packets: the queue format types of UserHeader (MS-MQMQ 2.2.18.1.5 and 2.2.18.1.7)."""

from qmnode.structures.fields import guid, length16, padding, text, u32
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Structure


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

__all__ = [
    "DirectQueueFormatName",
    "PrivateQueueFormatName",
    "PrivateQueueFormatNameId",
    "PublicQueueFormatName",
    "QueueFormat",
]
