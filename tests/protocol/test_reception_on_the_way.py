"""Messages that are for elsewhere: passed on by a router, or taken by a connector (3.1.5.8, MS-MQBR 3.1.5)."""

from __future__ import annotations

import pytest

from qmnode.protocol.reception import Destination, DestinationKind
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.user_message import PrivateQueueFormatNameId, UserFlags, UserMessage
from tests.protocol.machines import CAROL, message, transactional
from tests.protocol.receiver import SEQUENCE, Receiver, answered, asking, identifiers

FAR = PrivateQueueFormatNameId(private_queue_identifier=3)


def test_a_forwarded_message_has_one_hop_more() -> None:
    admission = Receiver().forwarding().take(message(1, queue=FAR, address=CAROL, hops=4))
    (taken,) = admission.taken
    assert UserFlags.RC.get(UserMessage.parse(taken.packet).user_header.flags) == 5


def test_too_many_hops_are_refused() -> None:
    receiver = Receiver().forwarding()
    admission = receiver.take(
        asking(1, queue=FAR, address=CAROL, hops=28),
        asking(2, queue=FAR, address=CAROL, hops=29),
        transactional(3, SEQUENCE, 1, 0, queue=FAR, address=CAROL, hops=29),
    )
    assert identifiers(admission) == [1]
    assert answered(admission) == [MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED]
    assert [final.message_class for final in admission.final_acks] == [MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED]


def test_transactional_messages_pass_through_again_and_untouched_by_sequences() -> None:
    """They are sent again on purpose, end to end; a router's history would swallow what the destination waits for."""
    receiver = Receiver().forwarding()
    packet = transactional(1, SEQUENCE, 5, 4, queue=FAR, address=CAROL)
    assert identifiers(receiver.take(packet, packet)) == [1, 1]
    assert receiver.store == {}
    assert receiver.incoming.take_order_acknowledgments(100.0) == []


@pytest.mark.parametrize("recoverable", [False, True])
def test_what_passes_through_may_come_by_again(recoverable: bool) -> None:
    """A route that changes brings it back: a router's history would acknowledge it, and it would be gone."""
    receiver = Receiver().forwarding()
    packet = message(1, queue=FAR, address=CAROL, recoverable=recoverable)
    assert identifiers(receiver.take(packet)) == [1]
    assert identifiers(receiver.take(packet)) == [1]
    assert receiver.store == {}


def test_what_ends_on_its_way_is_told_of_once() -> None:
    receiver = Receiver().forwarding()
    for packet, final_acks in (
        (asking(1, queue=FAR, address=CAROL, hops=29), 0),
        (transactional(2, SEQUENCE, 1, 0, queue=FAR, address=CAROL, hops=29), 1),
    ):
        first, again = receiver.take(packet), receiver.take(packet)
        assert len(first.administration) == 1 - final_acks
        assert again.administration == again.dead_letters == []
        # The FinalAck may have been lost, and its source sends the message until it has one.
        assert len(first.final_acks) == len(again.final_acks) == final_acks


def test_a_message_for_which_there_is_no_outgoing_queue_leaves_no_trace() -> None:
    receiver = Receiver()
    receiver.destination = Destination(DestinationKind.FULL)
    admission = receiver.take(asking(1, queue=FAR, address=CAROL))
    assert admission.stopped
    assert (identifiers(admission), admission.administration, receiver.store) == ([], [], {})
    assert identifiers(receiver.forwarding().take(asking(1, queue=FAR, address=CAROL))) == [1]


def connector() -> Receiver:
    receiver = Receiver()
    receiver.destination = Destination(DestinationKind.CONNECTOR, "plain", transactional_queue="ordered")
    return receiver


def test_a_connector_takes_transactional_messages_and_others_once() -> None:
    receiver = connector()
    packets = asking(1, queue=FAR, address=CAROL), transactional(2, SEQUENCE, 1, 0, queue=FAR, address=CAROL)
    assert identifiers(receiver.take(*packets)) == [1, 2]
    admission = receiver.take(*packets)
    assert (identifiers(admission), admission.duplicates) == ([], 2)
    assert len(receiver.incoming.take_order_acknowledgments(100.0)) == 1


def test_arrival_at_a_connector_is_not_arrival_and_its_packet_is_as_it_was() -> None:
    receiver = connector()
    packet = asking(1, queue=FAR, address=CAROL)
    admission = receiver.take(packet)
    assert admission.administration == []
    assert admission.taken[0].packet == packet


def test_arrival_at_a_router_is_not_arrival() -> None:
    assert Receiver().forwarding().take(asking(1, queue=FAR, address=CAROL)).administration == []
