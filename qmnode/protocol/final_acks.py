"""Final acknowledgments at the sender: finding the message and deciding its fate (3.1.5.7).

The store holds AwaitingFinalACKTable, by message identifier. A FinalAck is believed only if it fits the message that it
names, so that an attacker who guesses an identifier cannot delete other queue managers' messages.
"""

from typing import Final

from qmnode.protocol.admission import FinalAckReceived
from qmnode.protocol.disposition import Fate, after_final_ack
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.packet_view import places_of, read_sequence_fields
from qmnode.structures.user_header import UserFlags, UserHeader

_USER_AT: Final = 16
ON_THE_WAY: Final = frozenset(
    {MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED, MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT}
)
"""Classes that a queue manager on the way may send; all others come from the destination."""


def final_ack_fate(packet: bytes, acknowledgment: FinalAckReceived, destination: Guid = ZERO_GUID) -> Fate:
    """The fate of the message ``packet`` that has the identifier of the FinalAck. KEEP if the FinalAck does not fit it.

    The message is in the outgoing queue or in AwaitingFinalACKTable. ``destination`` is the queue manager whose order
    acknowledgments count (``OutgoingSequence.destination``), if known.
    """
    header = _user_header(packet)
    body = acknowledgment.body
    if not header.flags & UserFlags.TH.mask or header.message_id != body.message_id:
        return Fate.KEEP
    fields = read_sequence_fields(packet, places_of(packet).transaction_header)
    if fields[:2] != (body.tx_sequence_id, body.tx_sequence_number):
        return Fate.KEEP
    expected = destination_of(packet, destination)
    if acknowledgment.message_class not in ON_THE_WAY and expected not in (ZERO_GUID, acknowledgment.author):
        return Fate.KEEP
    return after_final_ack(header.flags, acknowledgment.message_class)


def destination_of(packet: bytes, known: Guid = ZERO_GUID) -> Guid:
    """The queue manager that a message names as its destination; ``known`` if it has an address alone."""
    named = _user_header(packet).queue_manager_address
    return known if named == ZERO_GUID else named


def _user_header(packet: bytes) -> UserHeader:
    return UserHeader.parse_from(packet, _USER_AT)[0]
