"""Which received messages are taken and what each causes (3.1.5.8), above all where the text loses messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qmnode.protocol import reception as reception_module
from qmnode.protocol.acknowledgments import order_queue_of
from qmnode.protocol.commands import Family
from qmnode.protocol.incoming_sequences import Route
from qmnode.protocol.received import DestinationName
from qmnode.protocol.reception import Admission, Destination, DestinationKind, Verdict
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.packets import FinalAckBody, OrderAckBody, final_ack, order_ack
from qmnode.structures.user_message import (
    BaseFlags,
    BaseHeader,
    DebugHeader,
    DirectQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    SecurityFlags,
    SecurityHeader,
    UserFlags,
    UserHeader,
    UserMessage,
)
from tests.protocol.machines import ALICE, ALL_ACKNOWLEDGMENTS, BOB, CAROL, TIME, message, transactional
from tests.protocol.receiver import ADMIN, SEQUENCE, Receiver, answered, asking, identifiers
from tests.protocol.test_history import page_count


# --- duplicates ---
def test_a_duplicate_is_settled_before_it_is_dropped() -> None:
    """3.1.5.8.1 drops it before 3.1.5.8.2 counts it: the counts differ, the session closes, the message comes again."""
    receiver = Receiver()
    receiver.take(message(1, recoverable=True))
    admission = receiver.take(message(1, recoverable=True), message(2, recoverable=True))
    assert identifiers(admission) == [2]
    assert admission.duplicates == 1
    assert (admission.ordinal, admission.recoverable_ordinal) == (3, 3)


def test_the_same_identifier_of_another_source_is_taken() -> None:
    receiver = Receiver()
    assert identifiers(receiver.take(message(1), message(1, source=CAROL))) == [1, 1]


def test_the_history_is_in_the_write_of_the_message_and_survives_a_restart() -> None:
    receiver = Receiver()
    admission = receiver.take(message(1, recoverable=True))
    assert [record.family for record in admission.records] == [Family.MESSAGE_ID_HISTORY]
    assert Receiver(receiver.store).take(message(1, recoverable=True)).taken == []


def test_express_messages_are_wanted_again_after_a_restart() -> None:
    receiver = Receiver()
    assert receiver.take(message(1)).records == []
    assert receiver.take(message(1)).taken == []
    assert identifiers(Receiver(receiver.store).take(message(1))) == [1]


def test_a_message_for_which_the_disk_is_full_leaves_no_trace() -> None:
    """3.1.5.8.2 enters it into the history before 3.1.5.8.8 finds no room: sent again, it would be a duplicate."""
    receiver = Receiver()
    packet = message(1, recoverable=True)
    admission = receiver.take(packet, message(2, recoverable=True), room=len(packet) + 10)
    assert admission.stopped
    assert identifiers(admission) == [1]
    assert (admission.ordinal, admission.recoverable_ordinal) == (1, 1)
    assert identifiers(receiver.take(message(2, recoverable=True))) == [2]


def test_a_write_that_failed_leaves_no_trace() -> None:
    receiver = Receiver().transactional_queue()
    first = receiver.admit(transactional(1, SEQUENCE, 1, 0))
    receiver.reception.abandon(first)
    assert identifiers(receiver.take(transactional(1, SEQUENCE, 1, 0))) == [1]
    plain = Receiver()
    plain.reception.abandon(plain.admit(message(1, recoverable=True)))
    assert identifiers(plain.take(message(1, recoverable=True))) == [1]


# --- transactional messages ---
def test_transactional_messages_are_taken_once_and_in_order() -> None:
    receiver = Receiver().transactional_queue()
    packets = [transactional(number, SEQUENCE, number, number - 1) for number in range(1, 6)]
    admission = receiver.take(packets[0], packets[1], packets[3], packets[0], packets[2], packets[3], packets[4])
    assert identifiers(admission) == [1, 2, 3, 4, 5]
    assert (admission.duplicates, admission.out_of_order) == (1, 1)
    assert admission.ordinal == admission.recoverable_ordinal == 7


def test_who_brings_too_many_sequences_is_told_apart_from_other_neighbours() -> None:
    receiver = Receiver(incoming_sequences_per_neighbour=3).transactional_queue()
    strangers = [Guid(bytes([number]) * 16) for number in range(1, 9)]
    first = [transactional(1, SEQUENCE, 1, 0, source=source) for source in strangers]
    admission = receiver.take(*first, address="127.0.0.66")
    assert (len(admission.taken), admission.without_place, admission.out_of_order) == (3, 5, 5)
    assert admission.ordinal == 8
    admission = receiver.take(first[-1], transactional(1, SEQUENCE, 1, 0), address="127.0.0.2")
    assert (len(admission.taken), admission.without_place) == (2, 0)
    assert receiver.take(transactional(2, SEQUENCE, 2, 1, source=strangers[0]), address="127.0.0.66").without_place == 0


def test_a_neighbour_pushes_out_of_the_history_only_what_it_brought() -> None:
    receiver = Receiver(history_sparse_pages=10)
    receiver.take(message(1, recoverable=True), address="127.0.0.2")
    for number in range(2, 60):
        receiver.take(message(number * 5000, source=Guid(bytes([number]) * 16)), address="127.0.0.66")
    assert receiver.take(message(1, recoverable=True), address="127.0.0.2").duplicates == 1
    assert page_count(receiver.history) == 11


def test_the_sequence_is_one_record_in_the_write_of_its_messages() -> None:
    receiver = Receiver().transactional_queue()
    admission = receiver.take(*(transactional(number, SEQUENCE, number, number - 1) for number in range(1, 65)))
    assert [record.family for record in admission.records] == [Family.INCOMING_SEQUENCE]
    again = Receiver(receiver.store).transactional_queue()
    assert again.take(transactional(64, SEQUENCE, 64, 63)).taken == []
    assert identifiers(again.take(transactional(65, SEQUENCE, 65, 64))) == [65]


def test_two_names_of_one_queue_are_two_sequences() -> None:
    receiver = Receiver().transactional_queue()
    by_address = DirectQueueFormatName(direct_format_name=r"TCP:127.0.0.2\private$\q")
    by_name = DirectQueueFormatName(direct_format_name=r"OS:bob\private$\q")
    receiver.take(*(transactional(number, SEQUENCE + 1, number, number - 1, queue=by_address) for number in (1, 2)))
    assert identifiers(receiver.take(transactional(3, SEQUENCE, 1, 0, queue=by_name))) == [3]


def test_order_acknowledgments_wait_for_the_disk_and_go_to_the_source() -> None:
    receiver = Receiver().transactional_queue()
    admission = receiver.admit(transactional(1, SEQUENCE, 1, 0), address="127.0.0.7")
    assert receiver.incoming.take_order_acknowledgments(100.0) == []
    receiver.reception.persisted(admission, 0.0)
    (acknowledgment,) = receiver.incoming.take_order_acknowledgments(100.0)
    assert acknowledgment == (ALICE, Route(True, "127.0.0.7"), SEQUENCE, 1)
    assert order_queue_of(ALICE, acknowledgment.route) == r"DIRECT=TCP:127.0.0.7\PRIVATE$\order_queue$"


def test_by_a_private_name_the_acknowledgment_passes_routers_to_the_source() -> None:
    receiver = Receiver().transactional_queue()
    queue = PrivateQueueFormatNameId(private_queue_identifier=9)
    receiver.take(transactional(1, SEQUENCE, 1, 0, queue=queue, address=BOB), address="10.0.0.1")
    (acknowledgment,) = receiver.incoming.take_order_acknowledgments(100.0)
    assert acknowledgment.source == ALICE
    name = order_queue_of(acknowledgment.source, acknowledgment.route)
    assert name == "PRIVATE=41414141-4141-4141-4141-414141414141\\00000004"


REFUSALS = [
    (lambda receiver: receiver.without_queue(), MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q),
    (lambda receiver: receiver, MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q),
]


@pytest.mark.parametrize(("make", "message_class"), REFUSALS)
def test_a_refused_message_does_not_stall_those_behind_it(make: Any, message_class: MessageClass) -> None:
    """Literally a refusal ends before 3.1.5.8.6, so that the next message waits for the refused one for ever."""
    receiver = make(Receiver(send_insecure_nacks=True))
    admission = receiver.take(transactional(1, SEQUENCE, 1, 0), transactional(2, SEQUENCE, 2, 1))
    assert [refused for _, refused in admission.refused] == [message_class] * 2
    assert [final.body.tx_sequence_number for final in admission.final_acks] == [1, 2]
    assert {final.message_class for final in admission.final_acks} == {message_class}
    receiver.transactional_queue()
    assert identifiers(receiver.take(transactional(3, SEQUENCE, 3, 2))) == [3]
    (acknowledgment,) = receiver.incoming.take_order_acknowledgments(100.0)
    assert acknowledgment.sequence_number == 3


def test_a_refused_message_is_refused_once() -> None:
    receiver = Receiver()
    packet = transactional(1, SEQUENCE, 1, 0, properties=ALL_ACKNOWLEDGMENTS, admin_queue=ADMIN)
    first, second = receiver.take(packet), receiver.take(packet)
    assert len(first.final_acks) == len(first.administration) == 1
    assert second.final_acks == second.administration == []


def test_a_queue_that_does_not_exist_leaves_no_sequence_and_refuses_from_anywhere() -> None:
    receiver = Receiver().without_queue()
    admission = receiver.take(transactional(7, SEQUENCE, 7, 6))
    assert len(admission.refused) == 1
    assert [family for family, _ in receiver.store] == [Family.MESSAGE_ID_HISTORY]


# --- refusals ---
def test_a_transactional_message_to_no_queue_is_told_of_once_also_after_a_restart() -> None:
    packet = transactional(1, SEQUENCE, 1, 0, properties=ALL_ACKNOWLEDGMENTS, admin_queue=ADMIN)
    receiver = Receiver(send_insecure_nacks=True).without_queue()
    assert answered(receiver.take(packet)) == [MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q]
    again = Receiver(receiver.store, send_insecure_nacks=True).without_queue().take(packet)
    assert again.administration == again.dead_letters == []
    assert len(again.final_acks) == 1


@pytest.mark.parametrize("transactional_queue", [False, True])
def test_a_message_that_no_queue_here_takes_is_kept_without_claims_if_that_was_asked_for(
    transactional_queue: bool,
) -> None:
    receiver = Receiver().transactional_queue() if transactional_queue else Receiver().without_queue()
    wanted = asking(1, recoverable=True, flags=UserFlags.of(JN=1))
    reason = (
        MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG
        if transactional_queue
        else MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q
    )
    assert receiver.take(wanted, asking(2, recoverable=True)).dead_letters == [(wanted, reason)]
    header = SecurityHeader(flags=SecurityFlags.of(ST=1, AU=1, AS=3), security_id=b"\1\1\0\0\0\0\0\5\x12\0\0\0")
    secured = message(3, recoverable=True, security_header=header, flags=UserFlags.of(JN=1))
    ((kept, _),) = receiver.take(secured).dead_letters
    security = UserMessage.parse(kept).security_header
    assert security is not None
    assert security.flags == SecurityFlags.of(ST=1)


def test_nacks_that_tell_strangers_about_this_queue_manager_are_off_by_default() -> None:
    assert Receiver().without_queue().take(asking()).administration == []
    allowed = Receiver(send_insecure_nacks=True).without_queue().take(asking())
    assert answered(allowed) == [MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q]


def test_denied_access_is_told_to_the_enterprise_where_the_operator_wants_it() -> None:
    denied = {1: Verdict(refused=MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED)}
    wanting = {"tell_enterprise_of_denied_access": True}
    assert Receiver().take(asking(), speaks_for=ALICE, verdicts=denied).administration == []
    assert Receiver(**wanting).take(asking(), verdicts=denied).administration == []
    told = Receiver(**wanting).take(asking(), speaks_for=ALICE, verdicts=denied)
    assert answered(told) == [MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED]
    other = {1: Verdict(refused=MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE)}
    assert Receiver(**wanting).take(asking(), speaks_for=ALICE, verdicts=other).administration == []


def test_a_transactional_queue_takes_only_transactional_messages() -> None:
    admission = Receiver().transactional_queue().take(asking(recoverable=True))
    assert answered(admission) == [MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG]
    assert admission.taken == admission.final_acks == []


def test_a_full_queue_refuses_and_keeps_what_wants_negative_journaling() -> None:
    receiver = Receiver()
    receiver.destination.room = 10
    wanted, unwanted = asking(1, recoverable=True, flags=UserFlags.of(JN=1)), asking(2, recoverable=True)
    admission = receiver.take(wanted, unwanted)
    assert answered(admission) == [MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA] * 2
    assert admission.dead_letters == [(wanted, MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA)]


def test_the_room_of_a_queue_goes_down_with_each_message() -> None:
    receiver = Receiver()
    packet = message(1)
    receiver.destination.room = 2 * len(packet)
    admission = receiver.take(packet, message(2), message(3))
    assert identifiers(admission) == [1, 2]
    assert receiver.destination.room == 0


def test_a_message_that_is_too_late_is_refused_and_not_lost() -> None:
    receiver = Receiver()
    late = asking(1, recoverable=True, flags=UserFlags.of(JN=1), time_to_reach_queue=10, sent_time=TIME - 11)
    in_time = asking(2, time_to_reach_queue=10, sent_time=TIME - 10)
    admission = receiver.take(late, in_time)
    assert identifiers(admission) == [2]
    assert answered(admission) == [
        MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT,
        MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE,
    ]
    assert admission.dead_letters == [(late, MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT)]


@pytest.mark.parametrize(
    "message_class",
    [
        MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE,
        MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION,
        MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED,
        MessageClass.MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER,
    ],
)
def test_what_security_refuses_is_refused(message_class: MessageClass) -> None:
    receiver = Receiver(send_insecure_nacks=True).transactional_queue()
    packet = transactional(1, SEQUENCE, 1, 0, properties=ALL_ACKNOWLEDGMENTS, admin_queue=ADMIN)
    admission = receiver.take(packet, verdicts={1: Verdict(refused=message_class)})
    assert answered(admission) == [message_class]
    assert [final.message_class for final in admission.final_acks] == [message_class]
    assert admission.dead_letters == []


# --- what is taken ---
def test_what_security_decrypted_is_what_is_stored() -> None:
    admission = Receiver().take(message(1), verdicts={1: Verdict(packet=b"clear")})
    assert [taken.packet for taken in admission.taken] == [b"clear"]


def test_authentication_bits_of_a_peer_are_cleared() -> None:
    header = SecurityHeader(flags=SecurityFlags.of(ST=1, AU=1, AS=3), security_id=b"\1\1\0\0\0\0\0\5\x12\0\0\0")
    admission = Receiver().take(message(1, security_header=header))
    (taken,) = admission.taken
    security = UserMessage.parse(taken.packet).security_header
    assert security is not None
    assert security.flags == SecurityFlags.of(ST=1)
    assert security.security_id == header.security_id


def test_arrival_is_acknowledged_to_whoever_asked() -> None:
    """3.1.5.8.10 leaves out messages by direct name, whose QueueManagerAddress is null."""
    admission = Receiver().take(asking(1, recoverable=True), message(2))
    (acknowledgment,) = admission.administration
    assert acknowledgment.message_class == MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE
    assert acknowledgment.queue == r"DIRECT=OS:alice\private$\admin"
    assert acknowledgment.correlation_id == ALICE + b"\1\0\0\0"
    assert acknowledgment.response_queue == r"DIRECT=TCP:127.0.0.2\private$\q"
    assert acknowledgment.repeated.recoverable
    assert acknowledgment.body == b""


def test_a_negative_acknowledgment_carries_the_body() -> None:
    admission = Receiver().transactional_queue().take(asking(1, body=b"the order"))
    assert admission.administration[0].body == b"the order"


def traced(message_id: int, **more: Any) -> bytes:
    return message(
        message_id,
        base_header=BaseHeader(flags=BaseFlags.of(PR=3, TR=1)),
        debug_header=DebugHeader(queue_identifier=CAROL),
        **more,
    )


def test_a_traced_message_is_reported_where_it_passes_and_where_it_ends() -> None:
    for receiver in (Receiver(), Receiver().forwarding()):
        (report,) = receiver.take(traced(0x1234)).traces
        assert report.queue == "PUBLIC=43434343-4343-4343-4343-434343434343"
        assert report.label.startswith("4141:00001234:00 received by 41414141-4141-4141-4141-414141414141 at ")
        assert report.body.decode("utf-16-le") == (
            "<MESSAGE ID>00001234</MESSAGE ID>\r\n<TARGET QUEUE>DIRECT=TCP:127.0.0.2\\private$\\q</TARGET QUEUE>\r\n"
        )


def test_duplicates_and_refused_messages_are_not_reported() -> None:
    receiver = Receiver()
    receiver.take(traced(1))
    assert receiver.take(traced(1)).traces == []
    assert receiver.without_queue().take(traced(2)).traces == []


# --- the order queue ---
def acknowledging(source: Guid = CAROL) -> UserHeader:
    return UserHeader(
        source_queue_manager=source,
        queue_manager_address=BOB,
        message_id=1,
        destination_queue=PrivateQueueFormatNameId(private_queue_identifier=4),
    )


def order_queue() -> Receiver:
    receiver = Receiver()
    receiver.destination = Destination(DestinationKind.ORDER_QUEUE)
    return receiver


def test_order_and_final_acknowledgments_are_handed_on() -> None:
    order = OrderAckBody(tx_sequence_id=7, tx_sequence_number=3, tx_previous_sequence_number=2)
    final = FinalAckBody(
        tx_sequence_id=7, tx_sequence_number=3, tx_previous_sequence_number=2, source_guid=BOB, message_id=9
    )
    admission = order_queue().take(
        order_ack(acknowledging(), order).write(),
        final_ack(acknowledging(), MessageClass.MQMSG_CLASS_ACK_RECEIVE, final).write(),
    )
    assert admission.order_acks_received == [(CAROL, order)]
    assert admission.final_acks_received == [(CAROL, MessageClass.MQMSG_CLASS_ACK_RECEIVE, final)]
    assert admission.taken == []
    assert (admission.ordinal, admission.recoverable_ordinal) == (2, 1)


def test_final_acknowledgments_for_another_queue_manager_and_other_messages_are_dropped() -> None:
    final = FinalAckBody(
        tx_sequence_id=7, tx_sequence_number=3, tx_previous_sequence_number=2, source_guid=ALICE, message_id=9
    )
    admission = order_queue().take(
        final_ack(acknowledging(), MessageClass.MQMSG_CLASS_ACK_RECEIVE, final).write(),
        message(5, queue=PrivateQueueFormatNameId(private_queue_identifier=4), address=BOB),
    )
    assert admission.final_acks_received == admission.order_acks_received == admission.taken == []
    assert admission.ordinal == 2


# --- names ---
def test_unresolved_names_each_destination_once() -> None:
    receiver = Receiver()
    public = PublicQueueFormatName(public_queue_identifier=CAROL)
    messages = receiver.read(message(1), message(2), message(3, queue=public, address=BOB), message(4))
    first, second = receiver.reception.unresolved(messages, {})
    assert first == DestinationName(ZERO_GUID, 7, "TCP:127.0.0.2\\private$\\q\0".encode("utf-16-le"))
    assert second == DestinationName(BOB, 5, CAROL)
    assert receiver.reception.unresolved(messages, {first: 1, second: 2}) == []


def outcome(admission: Admission) -> tuple[Any, ...]:
    return (
        [taken.packet for taken in admission.taken],
        [(received.message_id, why) for received, why in admission.refused],
        admission.records,
        admission.administration,
        admission.final_acks,
        admission.dead_letters,
        (admission.duplicates, admission.out_of_order, admission.ordinal, admission.recoverable_ordinal),
        admission.stopped,
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    transactional_queue=st.booleans(),
    room=st.sampled_from([None, 1_000]),
    batches=st.lists(
        st.lists(
            st.tuples(
                st.integers(1, 12),
                st.sampled_from(["express", "recoverable", "transactional"]),
                st.sampled_from([0xFFFF_FFFF, 1_000, 3]),
                st.sampled_from([0, UserFlags.JN.mask]),
                st.sampled_from([0, ALL_ACKNOWLEDGMENTS]),
            ),
            max_size=8,
        ),
        max_size=4,
    ),
)
def test_messages_that_are_alike_are_decided_on_as_each_by_itself(
    monkeypatch: pytest.MonkeyPatch, transactional_queue: bool, room: int | None, batches: list[list[Any]]
) -> None:
    """The short way through the questions gives the answers of the long one."""
    outcomes = []
    for long_way in (False, True):
        with monkeypatch.context() as patch:
            if long_way:
                patch.setattr(reception_module, "_is_plain", lambda *_: False)
            receiver = Receiver()
            if transactional_queue:
                receiver.transactional_queue()
            for batch in batches:
                packets = []
                for number, kind, lifetime, flags, properties in batch:
                    more = {
                        "time_to_reach_queue": lifetime,
                        "sent_time": TIME - 5,
                        "flags": flags,
                        "properties": properties,
                        "admin_queue": ADMIN,
                    }
                    if kind == "transactional":
                        packets.append(transactional(number, SEQUENCE, number, number - 1, **more))
                    else:
                        packets.append(message(number, recoverable=kind == "recoverable", **more))
                outcomes.append((long_way, outcome(receiver.take(*packets, room=room))))
    assert [one for long_way, one in outcomes if long_way] == [one for long_way, one in outcomes if not long_way]
