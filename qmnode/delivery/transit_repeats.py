"""Detects transactional messages that another queue manager sends again while they wait here for their next hop."""

from qmnode.model.outgoing import OutgoingQueue
from qmnode.protocol.received import ReceivedMessage
from qmnode.structures.guid import Guid


class Repeats:
    """The messages of other queue managers that wait in an outgoing queue, as ranges of their sequences.

    A source sends transactional messages until their order acknowledgment comes, and none comes while their destination
    is down. Without this, a routing server would store thousands of them again each time. Ranges are kept only while
    nothing leaves the queue, and only where one message names the other as its predecessor. So a message that is called
    repeated is really there, on disk or in the same batch, and will be sent.
    """

    def __init__(self, queue: OutgoingQueue) -> None:
        self.is_sending = False
        """Whether the queue has a session: messages leave it."""
        self._queue = queue
        self._ranges: dict[Guid, tuple[int, int, int]] = {}

    def is_repeated(self, received: ReceivedMessage, arriving: int) -> bool:
        """Whether this transactional message already waits here. If not, it is recorded as waiting.

        ``arriving`` is the number of messages that are accepted but not yet in the queue.
        """
        if self.is_sending:
            return False
        if not self._are_waiting(arriving):  # also after a purge
            self.forget()
        if self._has(received):
            return True
        headers, number = received.headers, received.tx_sequence_number
        source, sequence = headers.source_queue_manager, headers.tx_sequence_id or 0
        known, first, last = self._ranges.get(source, (0, 0, 0))
        if known != sequence or received.previous_tx_sequence_number != last:
            first = number
        self._ranges[source] = (sequence, first, number)
        return False

    def waits(self, received: ReceivedMessage, arriving: int) -> bool:
        """``is_repeated`` for a message that will not be accepted."""
        return not self.is_sending and self._are_waiting(arriving) and self._has(received)

    def _are_waiting(self, arriving: int) -> bool:
        return self._queue.message_count + arriving > len(self._queue.locked)

    def _has(self, received: ReceivedMessage) -> bool:
        headers = received.headers
        known, first, last = self._ranges.get(headers.source_queue_manager, (0, 0, 0))
        return (
            known == (headers.tx_sequence_id or 0)
            and received.previous_tx_sequence_number != last
            and first <= received.tx_sequence_number <= last
        )

    def sending(self) -> None:
        """The queue has a session now."""
        self.is_sending = True
        self.forget()

    def forget(self) -> None:
        """Forget all ranges: messages leave the queue, or have left it."""
        self._ranges.clear()
