"""TransactionHeader (MS-MQMQ 2.2.20.5): the place of a message in a transactional sequence."""

from qmnode.structures.fields import AFTER, Flags, bits, guid, u32, u64
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Structure


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
