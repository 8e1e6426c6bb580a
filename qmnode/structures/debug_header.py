"""DebugHeader (MS-MQMQ 2.2.20.8): the queue that gets the trace messages of a packet."""

from qmnode.structures.fields import Flags, bits, choice, guid, u16
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Structure


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
