"""What is said about messages: administration and final acknowledgments, traces, fates (3.1.5.7, 3.1.7.2, 3.1.7.15)."""

from __future__ import annotations

from typing import Any

import pytest

from qmnode.delivery.acknowledgments import final_ack_fate
from qmnode.protocol.acknowledgments import (
    Fate,
    FinalAcknowledgment,
    administration_acknowledgment,
    after_final_ack,
    after_order_ack,
    final_ack_packet,
    has_expired,
    order_ack_packet,
    position_deleted,
    received_report,
    refused_here,
    sent_report,
)
from qmnode.protocol.incoming_sequences import OrderAcknowledgment, Route
from qmnode.protocol.ping import PingClient, ping_response
from qmnode.protocol.received import MessageReader
from qmnode.protocol.reception import FinalAckReceived
from qmnode.protocol.states import Timer
from qmnode.structures.enumerations import INSECURE_NACKS, MessageClass
from qmnode.structures.guid import ZERO_GUID
from qmnode.structures.packets import FinalAckBody, MessageKind, OrderAckBody, message_kind
from qmnode.structures.user_message import (
    BaseFlags,
    BaseHeader,
    DebugHeader,
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PropertyFlags,
    PublicQueueFormatName,
    SecurityFlags,
    SecurityHeader,
    TransactionFlags,
    TransactionHeader,
    UserFlags,
    UserMessage,
)
from tests.protocol.machines import ALICE, ALL_ACKNOWLEDGMENTS, BOB, CAROL, TIME, message, transactional

JN, JP, TH = UserFlags.of(JN=1), UserFlags.of(JP=1), UserFlags.of(TH=1)
ADMIN = DirectQueueFormatName(direct_format_name=r"OS:alice\private$\admin")
QUEUE = PrivateQueueFormatNameId(private_queue_identifier=5)
RECEIVED = MessageClass.MQMSG_CLASS_ACK_RECEIVE
REACHED = MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE
TIMEOUT = MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT
PURGED = MessageClass.MQMSG_CLASS_NACK_Q_PURGED


def parsed(**more: Any) -> UserMessage:
    return UserMessage.parse(message(1, **more))


# --- administration acknowledgments ---
@pytest.mark.parametrize(
    ("asked", "message_class", "wanted"),
    [
        (PropertyFlags.of(PA=1), REACHED, True),
        (PropertyFlags.of(PA=1), RECEIVED, False),
        (PropertyFlags.of(PA=1), TIMEOUT, False),
        (PropertyFlags.of(PR=1), RECEIVED, True),
        (PropertyFlags.of(PR=1), REACHED, False),
        (PropertyFlags.of(NA=1), TIMEOUT, True),
        (PropertyFlags.of(NA=1), PURGED, False),
        (PropertyFlags.of(NR=1), PURGED, True),
        (PropertyFlags.of(NR=1), TIMEOUT, False),
    ],
)
def test_only_what_was_asked_for_is_sent(asked: int, message_class: MessageClass, wanted: bool) -> None:
    original = parsed(properties=asked, admin_queue=ADMIN)
    assert (administration_acknowledgment(original, message_class) is not None) is wanted


def test_without_an_administration_queue_nothing_is_sent() -> None:
    assert administration_acknowledgment(parsed(properties=ALL_ACKNOWLEDGMENTS), REACHED) is None


@pytest.mark.parametrize("message_class", sorted(INSECURE_NACKS))
def test_insecure_nacks_need_permission(message_class: MessageClass) -> None:
    original = parsed(properties=ALL_ACKNOWLEDGMENTS, admin_queue=ADMIN)
    assert administration_acknowledgment(original, message_class) is None
    assert administration_acknowledgment(original, message_class, send_insecure_nacks=True) is not None


def test_the_body_comes_back_only_with_bad_news_and_never_encrypted() -> None:
    plain = parsed(properties=ALL_ACKNOWLEDGMENTS, admin_queue=ADMIN, body=b"text")
    secret = parsed(
        properties=ALL_ACKNOWLEDGMENTS,
        admin_queue=ADMIN,
        body=b"text",
        security_header=SecurityHeader(flags=SecurityFlags.of(EB=1)),
    )
    bodies = {
        (original, kind): administration_acknowledgment(original, kind).body  # type: ignore[union-attr]
        for original in (plain, secret)
        for kind in (REACHED, RECEIVED, TIMEOUT)
    }
    assert [key for key, body in bodies.items() if body] == [(plain, TIMEOUT)]


@pytest.mark.parametrize(
    ("queue", "flags", "name"),
    [
        (PrivateQueueFormatNameId(private_queue_identifier=0x1F), UserFlags.of(AQ=2), f"PRIVATE={'41' * 4}-"),
        (PrivateQueueFormatNameId(private_queue_identifier=0x1F), UserFlags.of(AQ=3), f"PRIVATE={'42' * 4}-"),
        (PublicQueueFormatName(public_queue_identifier=CAROL), 0, f"PUBLIC={'43' * 4}-"),
        (
            PrivateQueueFormatName(source_queue_manager=CAROL, private_queue_identifier=0x1F),
            0,
            f"PRIVATE={'43' * 4}-",
        ),
        (ADMIN, 0, "DIRECT=OS:alice"),
    ],
    ids=["on the source", "on the destination", "public", "elsewhere", "direct"],
)
def test_the_administration_queue_is_named_by_its_type(queue: Any, flags: int, name: str) -> None:
    original = parsed(properties=ALL_ACKNOWLEDGMENTS, admin_queue=queue, flags=flags, address=BOB)
    acknowledgment = administration_acknowledgment(original, REACHED)
    assert acknowledgment is not None
    assert acknowledgment.queue.startswith(name)
    if "PRIVATE" in name:
        assert acknowledgment.queue.endswith("\\0000001f")


# --- final acknowledgments ---
def final_asked(flags: int = 0, *, required: bool = False) -> UserMessage:
    header = TransactionHeader(
        tx_sequence_id=7,
        tx_sequence_number=3,
        previous_tx_sequence_number=2,
        flags=TransactionFlags.of(FA=int(required)),
    )
    return UserMessage.parse(message(9, transaction=header, flags=flags))


@pytest.mark.parametrize(("flags", "required"), [(JN, False), (JP, False), (0, True)])
def test_a_message_that_leaves_its_queue_is_finally_acknowledged(flags: int, required: bool) -> None:
    final = position_deleted(final_asked(flags, required=required), RECEIVED, Route(True, "10.0.0.9"))
    assert final is not None
    assert final.body == FinalAckBody(
        tx_sequence_id=7, tx_sequence_number=3, tx_previous_sequence_number=2, source_guid=ALICE, message_id=9
    )


def test_a_message_that_nobody_journals_is_not() -> None:
    assert position_deleted(final_asked(), RECEIVED, Route(False, "")) is None
    assert position_deleted(parsed(flags=JP), RECEIVED, Route(False, "")) is None


def test_the_packets_are_what_the_other_side_recognises() -> None:
    direct, private = Route(True, "10.0.0.9"), Route(False, "10.0.0.9")
    order = OrderAcknowledgment(ALICE, direct, 7, 3)
    final = FinalAcknowledgment(ALICE, private, PURGED, position_deleted(final_asked(JN), PURGED, private).body)  # type: ignore[union-attr]

    order_packet = UserMessage.parse(order_ack_packet(order, BOB, 77, TIME))
    final_packet = UserMessage.parse(final_ack_packet(final, BOB, 78, TIME))

    assert message_kind(order_packet) is MessageKind.ORDER_ACK
    assert message_kind(final_packet) is MessageKind.FINAL_ACK
    assert order_packet.user_header.queue_manager_address == ZERO_GUID
    assert final_packet.user_header.queue_manager_address == ALICE
    assert OrderAckBody.parse(order_packet.message_properties_header.message_body) == OrderAckBody(
        tx_sequence_id=7, tx_sequence_number=3, tx_previous_sequence_number=2
    )
    readers = [MessageReader().read(packet.write()).recoverable for packet in (order_packet, final_packet)]
    assert readers == [False, True]  # 2.2.4 and 2.2.5; the table in 3.1.7.17 makes both recoverable


def test_order_acknowledgments_of_one_route_differ_in_what_they_acknowledge() -> None:
    for route, address in ((Route(True, "192.0.2.9"), ZERO_GUID), (Route(False, "192.0.2.9"), CAROL)):
        for number in (1, 2**32 - 1):
            order_ack_packet(OrderAcknowledgment(ALICE, route, 7, 3), BOB, 77, TIME)
            packet = UserMessage.parse(
                order_ack_packet(OrderAcknowledgment(CAROL, route, 2**63, number), BOB, 78, TIME + 1)
            )
            header = packet.user_header
            assert (header.queue_manager_address, header.source_queue_manager) == (address, BOB)
            assert (header.message_id, header.sent_time) == (78, TIME + 1)
            assert OrderAckBody.parse(packet.message_properties_header.message_body) == OrderAckBody(
                tx_sequence_id=2**63, tx_sequence_number=number, tx_previous_sequence_number=number - 1
            )


# --- fates ---
@pytest.mark.parametrize(
    ("flags", "message_class", "fate"),
    [
        (0, RECEIVED, Fate.RELEASE),
        (JP, RECEIVED, Fate.JOURNAL),
        (JN, RECEIVED, Fate.RELEASE),
        (JP, PURGED, Fate.RELEASE),
        (JN, PURGED, Fate.TRANSACTIONAL_DEAD_LETTER),
        (JN | JP, RECEIVED, Fate.JOURNAL),
        (JN | JP, PURGED, Fate.TRANSACTIONAL_DEAD_LETTER),
    ],
)
def test_what_a_final_acknowledgment_makes_of_a_message(flags: int, message_class: int, fate: Fate) -> None:
    assert after_final_ack(flags, message_class) is fate


def test_what_an_order_acknowledgment_makes_of_a_message() -> None:
    assert after_order_ack(0) is Fate.RELEASE
    assert {after_order_ack(JN), after_order_ack(JP), after_order_ack(0, True)} == {Fate.AWAIT_FINAL_ACK}


def test_a_refused_transactional_message_is_kept_by_its_source_only() -> None:
    quota = MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA
    assert [refused_here(JN, quota), refused_here(JN | TH, quota), refused_here(0, quota)] == [
        Fate.DEAD_LETTER,
        Fate.RELEASE,
        Fate.RELEASE,
    ]


@pytest.mark.parametrize(("age", "expired"), [(9, False), (10, False), (11, True), (-5, False)])
def test_a_message_expires_when_more_than_its_time_is_over(age: int, expired: bool) -> None:
    assert has_expired(10, TIME - age, TIME) is expired
    assert not has_expired(0xFFFFFFFF, 0, TIME)


# --- believing a final acknowledgment ---
def received(message_class: MessageClass = RECEIVED, author: Any = BOB, **changes: int) -> FinalAckReceived:
    fields: dict[str, Any] = {
        "tx_sequence_id": 7,
        "tx_sequence_number": 3,
        "tx_previous_sequence_number": 2,
        "source_guid": ALICE,
        "message_id": 9,
        **changes,
    }
    return FinalAckReceived(author, message_class, FinalAckBody(**fields))


def test_a_final_acknowledgment_that_fits_is_believed() -> None:
    packet = transactional(
        9, 7, 3, 2, flags=JP, address=BOB, queue=PrivateQueueFormatNameId(private_queue_identifier=5)
    )
    assert final_ack_fate(packet, received()) is Fate.JOURNAL


@pytest.mark.parametrize(
    "forged",
    [
        received(message_id=8),
        received(tx_sequence_id=6),
        received(tx_sequence_number=4),
        received(author=CAROL),
        received(PURGED, author=CAROL),
    ],
    ids=["another message", "another sequence", "another number", "another author", "bad news of another author"],
)
def test_one_that_does_not_fit_changes_nothing(forged: FinalAckReceived) -> None:
    packet = transactional(
        9, 7, 3, 2, flags=JP | JN, address=BOB, queue=PrivateQueueFormatNameId(private_queue_identifier=5)
    )
    assert final_ack_fate(packet, forged) is Fate.KEEP
    direct = transactional(9, 7, 3, 2, flags=JP | JN)
    assert final_ack_fate(direct, forged, BOB) is Fate.KEEP


def test_a_queue_manager_on_the_way_may_say_what_happens_on_the_way() -> None:
    packet = transactional(
        9, 7, 3, 2, flags=JN, address=BOB, queue=PrivateQueueFormatNameId(private_queue_identifier=5)
    )
    hops = received(MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED, author=CAROL)
    assert final_ack_fate(packet, hops) is Fate.TRANSACTIONAL_DEAD_LETTER


def test_a_message_that_is_not_transactional_has_none() -> None:
    assert final_ack_fate(message(9), received()) is Fate.KEEP


# --- traces ---
def test_the_report_about_a_sent_message_names_the_next_hop() -> None:
    packet = UserMessage.parse(
        message(
            0xAB,
            base_header=BaseHeader(flags=BaseFlags.of(TR=1)),
            debug_header=DebugHeader(queue_identifier=CAROL),
            hops=2,
        )
    )
    report = sent_report(packet, 1_795_251_723, "10.0.0.7")
    assert report is not None
    assert report.label == (
        "4141:000000AB:02 received by 41414141-4141-4141-4141-414141414141 at 09:02:03 AM Sat, Nov 21 26"
    )
    assert report.body.decode("utf-16-le").endswith("<NEXT HOP>10.0.0.7</NEXT HOP>\r\n<HOP COUNT>02 </HOP COUNT>\r\n")


def test_a_message_that_is_not_traced_has_no_report() -> None:
    assert received_report(parsed(), TIME) is None
    assert received_report(parsed(debug_header=DebugHeader(queue_identifier=CAROL)), TIME) is None


# --- pings ---
def test_a_ping_is_answered_with_its_cookie_and_a_decision() -> None:
    client = PingClient(ALICE)
    cookie, request = client.request(0.0)
    accepted = ping_response(request, BOB, refuse=False)
    assert accepted is not None
    assert client.receive(accepted) == (cookie, True)
    cookie, request = client.request(0.0)
    refused = ping_response(request, BOB, refuse=True)
    assert refused is not None
    assert client.receive(refused) == (cookie, False)


def test_pings_under_way_at_a_time_do_not_disturb_each_other() -> None:
    client = PingClient(ALICE)
    (first, one), (second, two) = client.request(0.0), client.request(0.0)
    answers = [ping_response(request, BOB, refuse=False) for request in (two, one)]
    assert [client.receive(answer) for answer in answers if answer] == [(second, True), (first, True)]


def test_an_unanswered_ping_expires_after_a_second() -> None:
    client = PingClient(ALICE)
    client.request(5.0)
    assert client.next_timer() == (Timer.PING_RESPONSE, 6.0)


@pytest.mark.parametrize("datagram", [b"", b"x", bytes(24), b"\0" * 23, b"\0" * 25])
def test_what_is_no_ping_is_ignored(datagram: bytes) -> None:
    assert PingClient(ALICE).receive(datagram) is None
    assert ping_response(datagram, BOB, refuse=False) is None
