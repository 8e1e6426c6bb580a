"""Branches of an incoming sequence, for several neighbours that deliver messages of one source to one destination.

Over plain connections a packet proves nothing, and its numbers can be guessed. So a sequence has one branch for all
neighbours that are known to speak for the source (the source itself, at an address that the directory gives, and
routing servers), and one for each other address. No neighbour can move the position of another's branch:

- A stranger's first message begins at the position of the known branch, and begins there again when that has moved.
  While known neighbours speak, strangers wait. A source that only its certificate made known has stopped speaking when
  its last session ends: it may go back to plain connections.
- Among strangers, which an honest source with changing addresses looks like, a new one continues from another's
  position, and a message that another one delivered word for word is not delivered again.

One attack remains possible over plain connections: a stranger delivers messages of its own in another's name. It cannot
block, delay permanently or acknowledge messages of a source that has a branch. A source without one, among strangers,
can be blocked by as many addresses as there may be branches. Its first messages are lost where others took their
numbers and the node no longer remembers the others' messages (after a restart).
"""

from collections.abc import Callable
from typing import Final

from qmnode.protocol.incoming_sequences import IncomingSequence, Turn
from qmnode.protocol.message_id_history import is_the_same
from qmnode.protocol.received import ReceivedMessage

SPEAKING: Final = 20.0
"""Seconds for which known neighbours are assumed to continue speaking. Less than the first interval after which senders
send again, so that an honest source at an unknown address waits for one such interval.
"""


def turn_among(
    sequence: IncomingSequence,
    received: ReceivedMessage,
    packet: bytes,
    now: float,
    left: float,
    of_others: Callable[[ReceivedMessage, str], list[bytes]],
) -> tuple[Turn, int]:
    """The turn of a message when there are other branches, and the resulting number of its branch.

    Only the position of ``sequence`` may change. ``packet`` is that of the message, decrypted. ``of_others`` holds the
    packets that other strangers delivered at that position. ``left`` is the end of the last session that proved the
    source by a certificate alone: nothing that was heard before counts as speaking.
    """
    others = [one for one in sequence.stream if one is not sequence]
    known = next((one for one in others if not one.bringer), None)
    if sequence.bringer and known is not None:
        if left < known.heard_at and now - known.heard_at < SPEAKING:
            return Turn.CONTESTED, 0
        base = known.sequence_id, known.sequence_number
        if sequence.base != base:
            sequence.base = base
            sequence.sequence_id, sequence.sequence_number = base
            # A source that resends messages that are on disk here gets their acknowledgment, whichever neighbour
            # delivered them.
            durable = known.durable_id, known.durable_number
            sequence.durable_id, sequence.durable_number = max((sequence.durable_id, sequence.durable_number), durable)
    number = received.tx_sequence_number
    place = received.headers.tx_sequence_id or 0, number, received.previous_tx_sequence_number
    own = sequence.turn(*place)
    if own not in (Turn.NEXT, Turn.EARLY):
        return own, number
    said = of_others(received, sequence.bringer)
    if any(is_the_same(one, packet) for one in said):
        return Turn.ALREADY, number
    is_new = not sequence.sequence_id
    if own is Turn.NEXT and not is_new:
        return own, number
    for one in others:
        if one.sequence_id == place[0] and one.turn(*place) is Turn.NEXT:
            return Turn.NEXT, number
    if not is_new:
        return own, number
    for one in others:
        if one.turn(*place) is Turn.DUPLICATE:
            if not sequence.bringer or said:
                return Turn.NEXT, number  # its content is different
            return Turn.ALREADY, one.sequence_number
    return own, number
