"""Detects other queue managers' transactional messages that are sent again while they wait here for an unavailable next
hop.
"""

from qmnode.protocol.received import ReceivedMessage
from qmnode.structures.guid import Guid


class Repeats:
    """The messages of other queue managers that wait in an outgoing queue, as ranges of their sequences.

    A source sends transactional messages until their order acknowledgment comes, and none comes while their destination
    is down. Without this, a routing server would store thousands of them again each time. Ranges are kept only while
    nothing leaves the queue, and only where one message names the other as its predecessor. So a message that is called
    repeated is really there, on disk or in the same batch, and will be sent.
    """

    def __init__(self) -> None:
        self._ranges: dict[Guid, tuple[int, int, int]] = {}

    def is_repeated(self, received: ReceivedMessage) -> bool:
        """Whether this transactional message already waits here. If not, it is recorded as waiting."""
        if self.waits(received):
            return True
        headers, number = received.headers, received.tx_sequence_number
        source, sequence = headers.source_queue_manager, headers.tx_sequence_id or 0
        known, first, last = self._ranges.get(source, (0, 0, 0))
        if known != sequence or received.previous_tx_sequence_number != last:
            first = number
        self._ranges[source] = (sequence, first, number)
        return False

    def waits(self, received: ReceivedMessage) -> bool:
        """Whether this transactional message already waits here. Changes nothing."""
        headers = received.headers
        known, first, last = self._ranges.get(headers.source_queue_manager, (0, 0, 0))
        return (
            known == (headers.tx_sequence_id or 0)
            and received.previous_tx_sequence_number != last
            and first <= received.tx_sequence_number <= last
        )

    def forget(self) -> None:
        """Forget all ranges: messages leave the queue, or have left it."""
        self._ranges.clear()
