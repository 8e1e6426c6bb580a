"""SEQUENCE_INFO (MS-MQMQ 2.2.5 and 2.2.5.1): a message's place in a stream between two computers."""

from qmnode.structures.fields import i64, u32
from qmnode.structures.layout import Structure


# fmt: off
class SequenceInfo(Structure, section="MS-MQMQ 2.2.5.1", title="SEQUENCE_INFO"):
    """The place of a message in the sequence from one sending computer to one destination queue."""

    seq_id: int  = i64(0, "SeqID", "The sequence")
    seq_no: int  = u32(8, "SeqNo", "The message's number in the sequence")
    prev_no: int = u32(12, "PrevNo", "The number of the message before it")
# fmt: on
