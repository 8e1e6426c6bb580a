"""The acknowledgments that a sender of messages believes (MS-MQQB 3.1.5.6, 3.1.5.7).

An acknowledgment is believed if it comes from a neighbour known to speak for the destination, or from the address to
which the messages were sent. Any other one is believed only for messages that the next hop has stored, as the session's
acknowledgments show; the specification requires those as well (ReceivedSessionAck). This serves a destination whose own
sessions come from another address than the one at which it is reached. An attacker that guesses numbers can remove only
messages that are already safe on another machine.
"""

from collections.abc import Iterable
from typing import Final

from qmnode.protocol.admission import FinalAckReceived, OrderAckReceived

_PENDING: Final = 256
"""The most final acknowledgments of one outgoing queue that wait for those of the session."""
_EXPECTED: Final = 600.0
"""Seconds for which final acknowledgments come again because nobody has answered yet where their messages go."""


class Credibility:
    """For one outgoing queue: the addresses that its messages went to, and those that the next hop has stored."""

    def __init__(self) -> None:
        self.address = ""
        """The peer address of the last session."""
        self.answers_from = ""
        """The address from which the last correct acknowledgment came."""
        self.order_ack: OrderAckReceived | None = None
        """An order acknowledgment that waits for acknowledgments of the session."""
        self.order_ack_from = ""
        self.final_acks: dict[int, FinalAckReceived] = {}
        """Final acknowledgments that wait for those of the session, by the number of their message."""
        self._stored: set[int] = set()
        self._early_since: float | None = None
        """The time at which the first final acknowledgment came before any session."""

    def comes_from(self, address: str) -> bool:
        """Whether messages were sent to this address."""
        return bool(address) and address == self.address

    def is_too_early(self, now: float) -> bool:
        """Whether a final acknowledgment has to come again, because nobody has answered yet where its message goes.

        That ends: other acknowledgments come behind it, and perhaps nobody will ever answer there.
        """
        if self._early_since is None:
            self._early_since = now
        return not self.address and now < self._early_since + _EXPECTED

    def stored(self, lookup_identifiers: Iterable[int]) -> bool:
        """Record that the next hop has stored these messages. Return whether an acknowledgment waits for that."""
        self._stored.update(lookup_identifiers)
        return self.order_ack is not None or bool(self.final_acks)

    def arrived(self, lookup_identifiers: Iterable[int]) -> None:
        """Forget these messages: they are acknowledged."""
        self._stored.difference_update(lookup_identifiers)

    def is_stored(self, lookup_identifier: int | None) -> bool:
        """Whether the next hop has stored a message."""
        return lookup_identifier in self._stored

    def up_to(self, sent: dict[int, int], number: int) -> int:
        """The last number up to ``number`` of which the next hop has stored every message of ``sent``; 0 for none."""
        last = 0
        for one, lookup_identifier in sent.items():
            if one > number or lookup_identifier not in self._stored:
                break
            last = one
        return last

    def wait_for(self, acknowledgment: FinalAckReceived) -> bool:
        """Keep a final acknowledgment until the next hop has stored its message. Return whether it is newly waiting."""
        number = acknowledgment.body.tx_sequence_number
        if len(self.final_acks) >= _PENDING or self.final_acks.get(number) == acknowledgment:
            return False
        self.final_acks[number] = acknowledgment
        return True
