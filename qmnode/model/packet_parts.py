"""Where things are in a UserMessage packet (MS-MQMQ 2.2.20) and in its stored form: for the two modules that run once
for each message, in one direction each. It comes from the declared structures; what the modules do is checked against
them by their tests.
"""

import struct
from typing import Final

from qmnode.model.message import DEFAULTS
from qmnode.model.record import PREFIX, PREFIX_SIZE, RecordFlag
from qmnode.structures import base_header
from qmnode.structures.base_header import BaseFlags, BaseHeader
from qmnode.structures.guid import guid_from_text, guid_to_text
from qmnode.structures.message_properties_header import MessagePropertiesHeader
from qmnode.structures.places import codes_of, offset_of
from qmnode.structures.security_header import SecurityHeader
from qmnode.structures.transaction_header import TransactionFlags, TransactionHeader
from qmnode.structures.user_header import UserFlags, UserHeader

MAXIMUM_PACKET_SIZE: Final = 0x00400000
"""BaseHeader.PacketSize, MS-MQMQ 2.2.19.1."""
MAXIMUM_LABEL: Final = 249

BASE_HEADER_SIZE: Final = BaseHeader().size
HEAD: Final = struct.Struct(PREFIX.format + codes_of(BaseHeader) + codes_of(UserHeader))
USER: Final = struct.Struct("<" + codes_of(UserHeader))
PROPERTIES: Final = struct.Struct("<" + codes_of(MessagePropertiesHeader))
TRANSACTION: Final = struct.Struct("<" + codes_of(TransactionHeader))
PROPERTIES_OFFSET: Final = struct.Struct("<I")
REACH: Final = struct.Struct(f"<{offset_of(BaseHeader, 'time_to_reach_queue')}xI")
"""BaseHeader.TimeToReachQueue of a packet."""
SOURCE: Final = slice(PREFIX_SIZE + BASE_HEADER_SIZE, PREFIX_SIZE + BASE_HEADER_SIZE + 16)
"""UserHeader.SourceQueueManager in a stored value."""
SIGNATURE: Final = base_header.SIGNATURE
VERSION_NUMBER: Final = base_header.VERSION
FIXED_SIZE: Final = HEAD.size - PREFIX_SIZE + PROPERTIES.size
TIME_TO_REACH_QUEUE: Final[int] = DEFAULTS["time_to_reach_queue"]
SEQUENCE: Final = struct.Struct("<" + codes_of(TransactionHeader)[1:])
"""TxSequenceID, TxSequenceNumber and PreviousTxSequenceNumber, at the end of a TransactionHeader."""
SEQUENCE_AT: Final = TRANSACTION.size - SEQUENCE.size
PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
RECOVERABLE_FLAG: Final = UserFlags.of(DM=1)
NEGATIVE_JOURNAL_FLAG: Final = UserFlags.JN.mask
POSITIVE_JOURNAL_FLAG: Final = UserFlags.JP.mask
DESTINATION_SHIFT: Final = UserFlags.DQ.shift
ADMINISTRATION_SHIFT: Final = UserFlags.AQ.shift
RESPONSE_SHIFT: Final = UserFlags.RQ.shift
TO_MASK: Final = UserFlags.DQ.mask
HAS_SECURITY: Final = UserFlags.SH.mask
HAS_TRANSACTION: Final = UserFlags.TH.mask
HAS_PROPERTIES: Final = UserFlags.MP.mask
HAS_CONNECTOR: Final = UserFlags.CQ.mask
TRANSACTIONAL: Final = RecordFlag.TRANSACTIONAL.value
FIRST_FLAG: Final = TransactionFlags.FM.mask
LAST_FLAG: Final = TransactionFlags.LM.mask
NO_CORRELATION: Final = bytes(20)
KEEP_ON_LOSS: Final = RecordFlag.NEGATIVE_JOURNAL.value
KEEP_ON_DELIVERY: Final = RecordFlag.POSITIVE_JOURNAL.value
RARE_FLAGS: Final = UserFlags.SH.mask | UserFlags.MQ.mask | UserFlags.HH.mask
TRACED: Final = BaseFlags.DH.mask
SECURITY_SIZES: Final = struct.Struct("<" + codes_of(SecurityHeader))


PRIORITY: Final = PREFIX_SIZE + offset_of(BaseHeader, "flags")
"""Where in a value the priority is, in the low three bits."""

NAME_SIZES: Final = (0, 0, 4, 4, 4, 16, 20, None)
"""Bytes of a queue's name by its type in Flags.DQ, AQ or RQ (2.2.19.2); a direct name says its own."""


class Names:
    """Reads the queue names of a UserHeader, one after the other."""

    __slots__ = ("address", "offset", "source", "value")

    def __init__(self, value: bytes, source: bytes, address: bytes) -> None:
        self.value = value
        self.source = source
        self.address = address
        self.offset = HEAD.size

    def bytes(self, count: int) -> bytes:
        start = self.offset
        self.offset += count
        return self.value[start : self.offset]

    def skip(self, kind: int) -> None:
        size = NAME_SIZES[kind]
        if size is None:
            size = int.from_bytes(self.value[self.offset : self.offset + 2], "little") + 2
            size += -size & 3
        self.offset += size

    def take(self, kind: int, administration: str = "") -> str:
        match kind:
            case 0:
                return ""
            case 1:
                return administration
            case 5:
                return f"PUBLIC={guid_to_text(self.bytes(16))}"
            case 7:
                size = int.from_bytes(self.bytes(2), "little")
                text = self.bytes(size)[:-2].decode("utf-16-le", "replace")
                self.offset += -(size + 2) & 3
                return f"DIRECT={text}"
            case 6:
                computer = self.bytes(16)
            case 4:
                # On the computer of the administration queue.
                computer = (
                    guid_from_text(administration[8:44]) if administration.startswith("PRIVATE=") else self.source
                )
            case _:
                computer = self.source if kind == 2 else self.address
        return f"PRIVATE={guid_to_text(computer)}\\{int.from_bytes(self.bytes(4), 'little'):08x}"
