"""Which acknowledgments the sender of messages believes (MS-MQQB 3.1.5.6, 3.1.5.7).

Those that come from where the messages went: from a neighbour that is known to speak for their destination, or from the
address to which they were sent. Of any other it is believed that the destination has what the next hop has on its disk,
which the acknowledgments of the session tell; the text asks for those as well (ReceivedSessionAck). A destination whose
own sessions come from another address than the one at which it is reached is served so, and whoever guesses numbers
makes nothing go that is not safe elsewhere.
"""

from collections.abc import Iterable
from typing import Final

from qmnode.protocol.reception import FinalAckReceived, OrderAckReceived

_PENDING: Final = 256
"""Final acknowledgments of one outgoing queue that wait for those of the session."""


class Credibility:
    """Of one outgoing queue: where its messages went, and which of them the next hop has."""

    def __init__(self) -> None:
        self.address = ""
        """Where the last session went."""
        self.answers_from = ""
        """The address from which the last acknowledgment came that turned out right."""
        self.order_ack: OrderAckReceived | None = None
        """One that waits for acknowledgments of the session."""
        self.order_ack_from = ""
        self.final_acks: dict[int, FinalAckReceived] = {}
        """Those that wait for it, by the number of their message."""
        self._stored: set[int] = set()

    def comes_from(self, address: str) -> bool:
        """Whether that is where messages went."""
        return bool(address) and address == self.address

    def stored(self, lookup_identifiers: Iterable[int]) -> bool:
        """The next hop has these on its disk. Whether an acknowledgment waits for that."""
        self._stored.update(lookup_identifiers)
        return self.order_ack is not None or bool(self.final_acks)

    def arrived(self, lookup_identifiers: Iterable[int]) -> None:
        """These are acknowledged."""
        self._stored.difference_update(lookup_identifiers)

    def is_stored(self, lookup_identifier: int | None) -> bool:
        """Whether the next hop has a message."""
        return lookup_identifier in self._stored

    def up_to(self, sent: dict[int, int], number: int) -> int:
        """Of messages that were sent, by their numbers in order, the last up to ``number`` before which the next hop
        has all; 0 for none."""
        last = 0
        for one, lookup_identifier in sent.items():
            if one > number or lookup_identifier not in self._stored:
                break
            last = one
        return last

    def wait_for(self, acknowledgment: FinalAckReceived) -> bool:
        """Look at a final acknowledgment again when the next hop has the message. Whether it waits now, and did not
        before."""
        number = acknowledgment.body.tx_sequence_number
        if len(self.final_acks) >= _PENDING or self.final_acks.get(number) == acknowledgment:
            return False
        self.final_acks[number] = acknowledgment
        return True
