"""Several neighbours bring messages of one source to one destination: whose place is whose.

Over plain connections a packet proves nothing, and the numbers in it can be counted. So a sequence has one branch for
all neighbours that are known to speak for the source (itself, at an address that the directory gives it, and routing
servers), and one for each other address. Nobody moves the place of another's branch:

- A stranger's first message begins where the known branch is, and again when that has moved. While those that are known
  speak, strangers wait.
- Among strangers, which an honest source that changes its address looks like, a new one goes on where another is, and
  what one of them brought word for word is not delivered again.

What remains possible over plain connections: a stranger delivers messages of its own in another's name. It cannot keep
out, delay for good or acknowledge those of a source that has its place. Among strangers, a source without one can be
kept out by as many addresses as have branches, and what it sends first is lost where others took its numbers and what
they brought is no longer known (after a restart).
"""

from collections.abc import Callable
from typing import Final

from qmnode.protocol.incoming_sequences import IncomingSequence, Turn
from qmnode.protocol.latest import is_the_same
from qmnode.protocol.received import ReceivedMessage

SPEAKING: Final = 20.0
"""Seconds for which those that are known are taken to go on speaking. Less than the first interval after which senders
send again, so that an honest source in a strange place waits for one of them."""


def turn_among(
    sequence: IncomingSequence,
    received: ReceivedMessage,
    now: float,
    of_others: Callable[[ReceivedMessage, str], list[bytes]],
) -> tuple[Turn, int]:
    """The turn of a message when other branches are there, and the number up to which its branch then is.

    Only the place of ``sequence`` may change. ``of_others``: what other strangers brought in that place.
    """
    others = [one for one in sequence.stream if one is not sequence]
    known = next((one for one in others if not one.bringer), None)
    if sequence.bringer and known is not None:
        if now - known.heard_at < SPEAKING:
            return Turn.CONTESTED, 0
        base = known.sequence_id, known.sequence_number
        if sequence.base != base:
            sequence.base = base
            sequence.sequence_id, sequence.sequence_number = base
            # A source that sends again what is on disk here is told so, whoever brought it.
            durable = known.durable_id, known.durable_number
            sequence.durable_id, sequence.durable_number = max((sequence.durable_id, sequence.durable_number), durable)
    number = received.tx_sequence_number
    place = received.headers.tx_sequence_id or 0, number, received.previous_tx_sequence_number
    own = sequence.turn(*place)
    if own not in (Turn.NEXT, Turn.EARLY):
        return own, number
    said = of_others(received, sequence.bringer)
    if any(is_the_same(one, received.packet) for one in said):
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
                return Turn.NEXT, number  # it said something else
            return Turn.ALREADY, one.sequence_number
    return own, number
