"""SessionHeader (MS-MQMQ 2.2.20.4): acknowledges the messages of a session, alone or on a UserMessage."""

from typing import Final

from qmnode.structures.fields import u16, u32
from qmnode.structures.layout import Structure

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
