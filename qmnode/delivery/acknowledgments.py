"""Order and final acknowledgments that arrive: the check of their origin, their effects (MS-MQQB 3.1.5.6, 3.1.5.7)."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from qmnode.delivery.awaiting_final_acks import ON_THE_WAY, Belief, FinalAcks
from qmnode.delivery.strangers import Doubt
from qmnode.protocol.acknowledgments import FinalAcknowledgment
from qmnode.protocol.incoming_sequences import OrderAcknowledgment
from qmnode.protocol.outgoing_sequences import AckResult, OutgoingSequence
from qmnode.protocol.reception import FinalAckReceived, OrderAckReceived
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.transport.connection import Connection

if TYPE_CHECKING:
    from qmnode.delivery.network import Network
    from qmnode.delivery.queue_sender import QueueSender

_REACHED_FOR: Final = 1.0
"""Seconds for which the set of addresses that messages go to is cached."""


class Acknowledgments:
    """Processes the order and final acknowledgments that sessions receive."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self._outgoing = network.state.outgoing
        self._loop = asyncio.get_running_loop()
        self._reached: set[str] = set()
        self._reached_at = float("-inf")
        self.final_acks = FinalAcks(
            network.manager, network.state, self._queue_sender_of, self._answers_for, network.queue_sender
        )

    def take_order_ack(self, connection: Connection, received: OrderAckReceived) -> None:
        """Receive an OrderAck packet, 3.1.5.6."""
        body, now, distrust = received.body, self._loop.time(), self._network.distrust
        sequence = self._outgoing.of(body.tx_sequence_id)
        number = body.tx_sequence_number
        author = received.author if sequence is None else self._answers_for(received.author, sequence.destination)
        is_for_author = sequence is not None and sequence.destination in (ZERO_GUID, author)
        if (
            sequence is not None
            and is_for_author
            and not self._comes_from_there(connection, received.author, sequence.queue)
        ):
            if received.author in connection.neighbour.unanswered:
                return  # it comes again: the destination repeats it
            if received.author in connection.neighbour.elsewhere:
                # A stored message can still end at the next hop: the destination would wait for it for ever.
                distrust.missed(Doubt.ORDER_ACK, connection.address, now)
                return
            number = self._believed(sequence, received, connection.address)
            if number < body.tx_sequence_number and not self._waits(sequence, received):
                distrust.missed(Doubt.ORDER_ACK, connection.address, now)
            if not number:
                return
        if sequence is not None and author == sequence.destination and self._outgoing.is_older(sequence.active_id):
            queue_sender = self._network.queue_sender(sequence.queue)
            name = "" if queue_sender is None else queue_sender.queue.pathname
            self._network.after_restore.acknowledged(sequence, name, number)
        result, sequence = self._outgoing.take_order_ack(author, body.tx_sequence_id, number, now, self._network.time())
        if result is AckResult.FORGED:
            distrust.missed(Doubt.ORDER_ACK, connection.address, now)
            if received.author == connection.session.remote:
                self._loop.call_soon(connection.close)
        if result is AckResult.PROGRESS and sequence is not None:
            self._progress(sequence, connection.address)

    def take_final_ack(self, connection: Connection, received: FinalAckReceived) -> None:
        """Receive a FinalAck packet, 3.1.5.7."""
        address, now, distrust = connection.address, self._loop.time(), self._network.distrust
        neighbour = connection.neighbour
        if (
            not neighbour.speaks_for(received.author)
            and distrust.is_noisy(address, now)
            and not self._is_reached(address, now)
        ):
            distrust.note(Doubt.FINAL_ACK, address, now)
        elif (received.author in neighbour.elsewhere and not neighbour.is_unsettled) or not self.final_acks.take(
            received, partial(self._belief, connection, received)
        ):
            distrust.missed(Doubt.FINAL_ACK, address, now)

    def take_own(self, acknowledgment: OrderAcknowledgment | FinalAcknowledgment) -> None:
        """Process an acknowledgment that would go to this node's own order queue."""
        own = self._network.manager.identifier
        if isinstance(acknowledgment, FinalAcknowledgment):
            final = FinalAckReceived(own, acknowledgment.message_class, acknowledgment.body)
            self.final_acks.take(final, lambda *_: Belief.WHOLE)
            return
        result, sequence = self._outgoing.take_order_ack(
            own, acknowledgment.sequence_id, acknowledgment.sequence_number, self._loop.time(), self._network.time()
        )
        if result is AckResult.PROGRESS and sequence is not None:
            self._progress(sequence, "")

    def stored(self, queue_sender: "QueueSender") -> None:
        """The next hop has stored more messages of a queue: process the acknowledgments that waited for that."""
        credibility = queue_sender.credibility
        waiting, credibility.final_acks = credibility.final_acks, {}
        for acknowledgment in waiting.values():
            self.final_acks.take(acknowledgment, lambda *_: Belief.IF_ARRIVED)
        order, credibility.order_ack = credibility.order_ack, None
        sequence = None if order is None else self._outgoing.of(order.body.tx_sequence_id)
        if order is None or sequence is None:
            return
        address = credibility.order_ack_from
        number = self._believed(sequence, order, address)
        if number:
            now, time = self._loop.time(), self._network.time()
            author = self._answers_for(order.author, sequence.destination)
            result, _ = self._outgoing.take_order_ack(author, order.body.tx_sequence_id, number, now, time)
            if result is AckResult.PROGRESS:
                self._progress(sequence, address)

    def _progress(self, sequence: OutgoingSequence, address: str) -> None:
        """Record that messages of a sequence were acknowledged."""
        self._network.state.changed(sequence)
        queue_sender = self._network.queue_sender(sequence.queue)
        if queue_sender is not None:
            queue_sender.credibility.answers_from = address
            queue_sender.unacknowledged.order_acknowledged(sequence.acknowledged)
            queue_sender.queue.accepted((sequence.active_id, sequence.acknowledged))
            queue_sender.schedule()
        self._network.timers_changed()

    def _believed(self, sequence: OutgoingSequence, received: OrderAckReceived, address: str) -> int:
        """The number up to which an order acknowledgment from another address is accepted."""
        queue_sender = self._network.queue_sender(sequence.queue)
        if queue_sender is None or self._answers_for(received.author, sequence.destination) != sequence.destination:
            return 0
        return queue_sender.unacknowledged.stored_up_to(received, address)

    def _waits(self, sequence: OutgoingSequence, received: OrderAckReceived) -> bool:
        """Whether an order acknowledgment is kept until the next hop has stored more messages."""
        queue_sender = self._network.queue_sender(sequence.queue)
        return queue_sender is not None and queue_sender.credibility.order_ack is received

    def _answers_for(self, author: Guid, destination: Guid) -> Guid:
        return self._network.identities.answers_for(author, destination)

    def _is_reached(self, address: str, now: float) -> bool:
        """Whether messages of this node go to an address, or did so a moment ago."""
        if now >= self._reached_at + _REACHED_FOR:
            self._reached = self._network.addresses_reached()
            self._reached_at = now
        return address in self._reached

    def _belief(
        self, connection: Connection, received: FinalAckReceived, queue: bytes, destination: Guid, has_arrived: bool
    ) -> Belief:
        """The extent to which a final acknowledgment for a message of an outgoing queue is believed. ``destination`` is
        null for a message to an address at which nobody has answered since the start. ``has_arrived``: the message has
        its order acknowledgment.
        """
        author = received.author
        if connection.neighbour.speaks_for(author):
            if received.message_class not in ON_THE_WAY and destination != ZERO_GUID:
                return Belief.WHOLE  # it is compared with the author
            if received.message_class not in ON_THE_WAY:
                self._loop.call_soon(connection.close)
                return Belief.NOT_YET
            queue_sender = self._network.queue_sender(queue)
            is_destination = queue_sender is not None and queue_sender.unacknowledged.destination == author
            own = self._network.manager.identifier
            if is_destination or self._network.identities.may_pass_on(author, own):
                return Belief.WHOLE
            has_it = queue_sender is not None and queue_sender.credibility.comes_from(connection.address)
            return Belief.IF_STORED if has_it else Belief.NEVER
        if self._comes_from_there(connection, author, queue):
            return Belief.WHOLE
        if author in connection.neighbour.unanswered or connection.neighbour.is_unsettled:
            self._loop.call_soon(connection.close)
            return Belief.NOT_YET
        if received.message_class in ON_THE_WAY and self._network.identities.only_registered:
            return Belief.NEVER
        queue_sender = self._network.queue_sender(queue)
        if queue_sender is not None and not has_arrived and queue_sender.credibility.is_too_early(self._loop.time()):
            self._loop.call_soon(connection.close)
            return Belief.NOT_YET
        if queue_sender is None or not queue_sender.credibility.address:
            return Belief.IF_ARRIVED if self._network.identities.is_workgroup else Belief.IF_STORED
        if queue_sender.credibility.answers_from == connection.address:
            return Belief.IF_ARRIVED
        return Belief.IF_STORED

    def _comes_from_there(self, connection: Connection, author: Guid, queue: bytes) -> bool:
        """Whether acknowledgments for an outgoing queue are expected from this connection."""
        if connection.neighbour.speaks_for(author):
            return True
        queue_sender = self._network.queue_sender(queue)
        return queue_sender is not None and queue_sender.credibility.comes_from(connection.address)

    def _queue_sender_of(self, sequence_id: int) -> "QueueSender | None":
        sequence = self._outgoing.of(sequence_id)
        return None if sequence is None else self._network.queue_sender(sequence.queue)
