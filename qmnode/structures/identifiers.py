"""Identifiers inside packets (MS-MQMQ 2.2.18.1): TxSequenceID, MessageIdentifier, XACTUOW. GUIDs are in ``guid.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmnode.structures.fields import guid, u32
from qmnode.structures.layout import Structure

if TYPE_CHECKING:
    from qmnode.structures.guid import Guid


# fmt: off
class TxSequenceID(Structure, section="MS-MQMQ 2.2.18.1.2"):
    """Identifies a sequence of transactional messages of one queue manager.

    ``number`` is how two are compared: the 64-bit integer that headers keep on their hot path.
    """

    ordinal: int    = u32(0, "Ordinal", "Low 32 bits, grows with each sequence")
    time_stamp: int = u32(4, "TimeStamp", "High 32 bits, seconds since 1970 when the sequence began")

    @property
    def number(self) -> int:
        """The identifier as the 64-bit integer that comparisons use."""
        return self.time_stamp << 32 | self.ordinal

    @classmethod
    def from_number(cls, number: int) -> TxSequenceID:
        """The identifier that a 64-bit integer stands for."""
        return cls(ordinal=number & 0xFFFFFFFF, time_stamp=number >> 32)


class MessageIdentifier(Structure, section="MS-MQMQ 2.2.18.1.3"):
    """Identifies one message among those of all queue managers."""

    queue_manager_guid: Guid = guid(0, "QueueManagerGuid", "The sending queue manager")
    ordinal: int             = u32(16, "Ordinal", "Unique among the messages of that queue manager")


class Xactuow(Structure, section="MS-MQMQ 2.2.18.1.8", title="XACTUOW"):
    """Identifies a transactional unit of work."""

    rgb: Guid = guid(0, "rgb", "A GUID, as 16 characters")
# fmt: on
