"""Incoming transactional sequences and the order acknowledgments they owe (3.1.5.8.6, 3.1.6.9)."""

from __future__ import annotations

import pytest

from qmnode.protocol.incoming_sequences import PASSING_LIMIT, IncomingSequence, IncomingSequences, Route, Turn
from qmnode.protocol.received import DestinationName
from qmnode.protocol.states import Timer
from qmnode.settings.protocol import TransferSettings
from qmnode.shares import Accountant
from qmnode.structures.guid import ZERO_GUID, Guid
from tests.protocol.machines import ALICE, BOB, CAROL, TIME

FIRST, SECOND = 0x5_0000_0001, 0x5_0000_0002
DESTINATION = b"\x07name"


def table(**parameters: float) -> IncomingSequences:
    return IncomingSequences(TransferSettings(**parameters), Accountant())  # type: ignore[arg-type]


def accepted(
    sequences: IncomingSequences, number: int, now: float = 0.0, *, sequence_id: int = FIRST
) -> IncomingSequence:
    """A sequence that has taken messages up to ``number`` and has them on disk."""
    sequence = sequences.get(ALICE, DESTINATION, now)
    sequences.accept(sequence, sequence_id, number, TIME)
    sequences.persisted(sequence, sequence_id, number, now)
    return sequence


@pytest.mark.parametrize(
    ("sequence_id", "number", "previous", "turn"),
    [
        (FIRST, 5, 4, Turn.NEXT),
        (FIRST, 9, 4, Turn.NEXT),  # 5 to 8 expired at the sender: gaps are allowed
        (FIRST, 9, 2, Turn.NEXT),  # the one before it was taken, and the sender did not know yet
        (FIRST, 6, 5, Turn.EARLY),
        (FIRST, 4, 3, Turn.DUPLICATE),
        (FIRST, 1, 0, Turn.DUPLICATE),
        (SECOND, 1, 0, Turn.NEXT),
        (SECOND, 7, 0, Turn.NEXT),
        (SECOND, 2, 1, Turn.EARLY),
        (FIRST - 1, 5, 4, Turn.OLD),
    ],
)
def test_the_conditions_of_3_1_5_8_6(sequence_id: int, number: int, previous: int, turn: Turn) -> None:
    assert accepted(table(), 4).turn(sequence_id, number, previous) is turn


def test_a_new_sequence_begins_with_a_message_that_has_none_before_it() -> None:
    sequence = table().get(ALICE, DESTINATION, 0.0)
    assert sequence.turn(FIRST, 2, 1) is Turn.EARLY
    assert sequence.turn(FIRST, 1, 0) is Turn.NEXT


def test_identifiers_compare_as_one_number_with_the_time_stamp_high() -> None:
    sequence = accepted(table(), 4, sequence_id=0x5_FFFF_FFFF)
    assert sequence.turn(0x6_0000_0000, 1, 0) is Turn.NEXT


def test_a_message_out_of_order_never_advances_the_sequence() -> None:
    """The last paragraph of 3.1.5.8.6 sets the numbers for every message, accepted or not."""
    sequences = table()
    sequence = accepted(sequences, 4)
    sequences.reject(sequence, Turn.EARLY, TIME, 0.0)
    assert (sequence.sequence_id, sequence.sequence_number) == (FIRST, 4)
    assert sequence.reject_count == 1
    assert sequence.turn(FIRST, 5, 4) is Turn.NEXT


def test_a_sequence_that_is_over_is_acknowledged_again_up_to_what_came() -> None:
    """Its sender was restored. No restore was between the two: the newer one began when the older had ended."""
    sequences = table()
    sequence = accepted(sequences, 4, sequence_id=SECOND)
    sequences.take_order_acknowledgments(60.0)
    for number in (2, 3, 1):
        sequences.came_again(sequence, FIRST, number, TIME, 60.0)
    acknowledged = [one[2:] for one in sequences.take_order_acknowledgments(120.0)]
    assert acknowledged == [(FIRST, 3), (SECOND, 4)]
    sequences.reject(sequence, Turn.DUPLICATE, TIME, 120.0)
    assert [one[2:] for one in sequences.take_order_acknowledgments(180.0)] == [(SECOND, 4)], "once"


def test_a_sequence_from_before_another_restore_is_not_acknowledged() -> None:
    sequences = table()
    sequence = accepted(sequences, 4, sequence_id=0x6_0000_0001)
    sequences.take_order_acknowledgments(60.0)
    sequences.came_again(sequence, FIRST, 2, TIME, 60.0)
    assert sequences.next_timer() is None


def test_a_new_message_of_a_sender_that_went_back_unnoticed_is_not_acknowledged() -> None:
    """It has the numbers of an old one, whose acknowledgment would delete it at its sender."""
    sequences = table()
    sequence = accepted(sequences, 4, sequence_id=SECOND)
    sequences.take_order_acknowledgments(60.0)
    sequences.reject(sequence, Turn.OLD, TIME + 9, 60.0)
    sequences.came_again(sequence, FIRST, 2, TIME + 9, 60.0)
    assert sequences.next_timer() is None


def test_sequences_are_kept_per_source_and_destination_as_named() -> None:
    sequences = table()
    accepted(sequences, 4)
    assert sequences.find(ALICE, b"\x03other") is None
    assert sequences.find(BOB, DESTINATION) is None
    assert sequences.find(ALICE, DESTINATION) is not None


def test_the_reject_count_is_reset_by_the_next_accepted_message() -> None:
    sequences = table()
    sequence = accepted(sequences, 4)
    for _ in range(3):
        sequences.reject(sequence, Turn.DUPLICATE, TIME, 0.0)
    assert sequence.reject_count == 3
    sequences.accept(sequence, FIRST, 5, TIME)
    assert sequence.reject_count == 0


# --- order acknowledgments ---
def test_an_order_acknowledgment_goes_to_the_source_with_the_incoming_identifier() -> None:
    """3.1.7.17 puts OutgoingTxSequenceID into it and sends it to the session's peer, who may be a router."""
    sequences = table()
    sequence = accepted(sequences, 4)
    sequence.route = Route(True, "127.0.0.9")
    (acknowledgment,) = sequences.take_order_acknowledgments(0.5)
    assert acknowledgment == (ALICE, Route(True, "127.0.0.9"), FIRST, 4)


def test_it_is_sent_after_half_a_second_and_once() -> None:
    sequences = table()
    accepted(sequences, 4, 10.0)
    assert sequences.next_timer() == (Timer.ORDER_ACK_SEND, 10.5)
    assert sequences.take_order_acknowledgments(10.4) == []
    assert len(sequences.take_order_acknowledgments(10.5)) == 1
    assert sequences.next_timer() is None


def test_acknowledgments_of_many_sequences_are_sent_in_turns() -> None:
    sequences = table()
    for number in range(100):
        sequence = sequences.get(Guid(number.to_bytes(16, "little")), DESTINATION, 0.0)
        sequences.accept(sequence, FIRST, 1, TIME)
        sequences.persisted(sequence, FIRST, 1, 0.0)
    turns = []
    while (timer := sequences.next_timer()) is not None and timer[1] <= 1.0:
        turns.append(sequences.take_order_acknowledgments(1.0))
    assert max(map(len, turns)) <= 32
    assert len({one.source for turn in turns for one in turn}) == sum(map(len, turns)) == 100


def test_many_messages_of_some_do_not_put_off_the_acknowledgments_of_others() -> None:
    sequences = table()
    accepted(sequences, 1)
    many = TransferSettings().order_ack_every
    for turn in range(3):
        for number in range(100):
            busy = sequences.get(Guid(number.to_bytes(16, "little")), DESTINATION, 0.0)
            for message in range(turn * many, turn * many + many):
                sequences.accept(busy, FIRST, message + 1, TIME)
            sequences.persisted(busy, FIRST, turn * many + many, 1.0)
        sent = sequences.take_order_acknowledgments(1.0)
        assert len(sent) == 32
        assert (ALICE in {one.source for one in sent}) == (turn == 0)


def test_more_messages_put_it_off_but_not_past_the_maximum_delay() -> None:
    sequences = table()
    now = 0.0
    for number in range(1, 30):
        accepted(sequences, number, now)
        now += 0.4
        if sequences.take_order_acknowledgments(now):
            break
    assert 10.0 <= now <= 10.8


def test_it_comes_at_once_when_many_messages_wait_for_it() -> None:
    sequences = table(order_ack_every=100)
    sequence = sequences.get(ALICE, DESTINATION, 0.0)
    for number in range(1, 101):
        sequences.accept(sequence, FIRST, number, TIME)
    sequences.persisted(sequence, FIRST, 100, 0.0)
    assert sequences.next_timer() == (Timer.ORDER_ACK_SEND, float("-inf"))
    (acknowledgment,) = sequences.take_order_acknowledgments(0.0)
    assert acknowledgment.sequence_number == 100
    assert sequences.take_order_acknowledgments(60.0) == []


def test_it_comes_soon_after_the_last_of_many_that_came_quickly() -> None:
    sequences = table()
    sequence = sequences.get(ALICE, DESTINATION, 0.0)
    for number in range(1, 41):
        sequences.accept(sequence, FIRST, number, TIME)
        sequences.persisted(sequence, FIRST, number, number * 0.01)
        assert sequences.take_order_acknowledgments(number * 0.01) == []
    assert sequences.next_timer() == (Timer.ORDER_ACK_SEND, pytest.approx(0.4 + 0.05))
    (acknowledgment,) = sequences.take_order_acknowledgments(0.46)
    assert acknowledgment.sequence_number == 40


def test_it_speaks_only_of_what_is_on_disk() -> None:
    sequences = table()
    sequence = accepted(sequences, 4)
    sequences.accept(sequence, FIRST, 9, TIME)
    (acknowledgment,) = sequences.take_order_acknowledgments(0.5)
    assert acknowledgment.sequence_number == 4


def test_a_duplicate_of_what_is_not_on_disk_yet_is_not_acknowledged() -> None:
    sequences = table()
    sequence = sequences.get(ALICE, DESTINATION, 0.0)
    sequences.accept(sequence, FIRST, 1, TIME)
    sequences.reject(sequence, Turn.DUPLICATE, TIME, 0.0)
    assert sequences.take_order_acknowledgments(0.5) == []
    sequences.persisted(sequence, FIRST, 1, 0.6)
    assert len(sequences.take_order_acknowledgments(1.1)) == 1


def test_a_duplicate_is_acknowledged_again() -> None:
    sequences = table()
    sequence = accepted(sequences, 4)
    sequences.take_order_acknowledgments(0.5)
    sequences.reject(sequence, Turn.DUPLICATE, TIME, 20.0)
    (acknowledgment,) = sequences.take_order_acknowledgments(20.5)
    assert acknowledgment.sequence_number == 4


# --- disk ---
def test_a_sequence_survives_a_restart() -> None:
    sequences = table()
    sequence = accepted(sequences, 4)
    sequence.route = Route(True, "fe80::1")
    sequences.reject(sequence, Turn.EARLY, TIME + 5, 0.0)
    record = sequence.record()
    assert record.value is not None

    again = table()
    again.load([(record.key, record.value)], 0.0)
    found = again.find(ALICE, DESTINATION)
    assert found is not None
    assert (found.sequence_id, found.sequence_number, found.reject_count) == (FIRST, 4, 1)
    assert (found.last_access, found.route) == (TIME + 5, Route(True, "fe80::1"))
    assert found.turn(FIRST, 4, 3) is Turn.DUPLICATE
    assert [sequence.source for sequence in again] == [ALICE]


def test_what_was_in_use_at_the_end_is_acknowledged_once_more_after_a_restart() -> None:
    sequences = table()
    recent, old = IncomingSequence(ALICE, DESTINATION, 0.0), IncomingSequence(BOB, DESTINATION, 0.0)
    sequences.accept(recent, FIRST, 4, TIME)
    sequences.accept(old, SECOND, 9, TIME - 3600)
    records = [sequence.record() for sequence in (old, recent)]

    again = table()
    again.load([(record.key, record.value) for record in records if record.value is not None], 100.0)
    timer = again.next_timer()
    assert timer is not None
    told = again.take_order_acknowledgments(timer[1])
    assert [(one.source, one.sequence_id, one.sequence_number) for one in told] == [(ALICE, FIRST, 4)]
    assert again.next_timer() is None


def test_an_abandoned_write_gives_the_turn_back() -> None:
    sequences = table()
    sequence = accepted(sequences, 4)
    sequences.accept(sequence, FIRST, 5, TIME)
    assert sequence.turn(FIRST, 5, 4) is Turn.DUPLICATE
    sequences.abandon(sequence)
    assert sequence.turn(FIRST, 5, 4) is Turn.NEXT


# --- bounds ---
def has_place(sequences: IncomingSequences, source: Guid, bringer: str = "", later: int = 0) -> bool:
    """Whether the first message of a source to another queue is taken."""
    return sequences.find_place(sequences.get(source, b"\x07m\0o\0", 0.0, bringer), TIME + later)[0]


def test_there_is_a_limit_to_sequences() -> None:
    sequences = table(incoming_sequences=1)
    accepted(sequences, 4)
    assert not has_place(sequences, BOB)


def test_whoever_invents_sources_leaves_places_for_others_also_after_a_restart() -> None:
    sequences = table(incoming_sequences=100, incoming_sequences_per_neighbour=20)
    taken = 0
    for number in range(200):
        sequence = sequences.get(Guid(number.to_bytes(16, "big")), DESTINATION, 0.0, "10.0.0.66")
        sequence.route = Route(True, "10.0.0.66")
        if sequences.find_place(sequence, TIME)[0]:
            sequences.accept(sequence, FIRST, 1, TIME)
            taken += 1
    assert taken == 10  # a fifth of the half for strangers
    again = table(incoming_sequences=100, incoming_sequences_per_neighbour=20)
    again.load([(one.record().key, one.record().value or b"") for one in sequences], 0.0)
    for one in (sequences, again):
        assert not has_place(one, CAROL, "10.0.0.66")
        assert has_place(one, BOB, "10.0.0.2")


def filled(**limits: int) -> IncomingSequences:
    """A table in which strangers of ten blocks have as many places as they get."""
    sequences = table(**limits)
    for number in range(2_000):
        bringer = f"10.0.0.{number % 10}"
        sequence = sequences.get(Guid(number.to_bytes(16, "big")), DESTINATION, 0.0, bringer)
        sequence.route = Route(True, bringer)
        if sequences.find_place(sequence, TIME)[0]:
            sequences.accept(sequence, FIRST, 1, TIME)
    return sequences


def test_a_declared_source_always_finds_a_place_and_so_does_another_block() -> None:
    sequences = filled(incoming_sequences=200)
    for number in range(100):
        sequence = sequences.get(Guid(bytes([1, number]) + bytes(14)), DESTINATION, 0.0)
        assert sequences.find_place(sequence, TIME) == (True, [])
        sequences.accept(sequence, FIRST, 1, TIME)
    again = filled(incoming_sequences=200)
    assert has_place(again, BOB, "10.0.1.1")


def test_only_positions_of_strangers_make_room_once_they_are_unused() -> None:
    sequences = table(incoming_sequences=8)
    declared = accepted(sequences, 4)
    for number in range(9):
        sequence = sequences.get(Guid(bytes([number]) * 16), DESTINATION, 0.0, "10.0.0.66")
        if sequences.find_place(sequence, TIME)[0]:
            sequences.accept(sequence, FIRST, 1, TIME)
    count = len(list(sequences))
    assert not has_place(sequences, CAROL, "10.0.0.66", later=3_600)
    assert len(list(sequences)) == count
    assert has_place(sequences, CAROL, "10.0.0.66", later=3_601)
    assert len(list(sequences)) == count - 1
    assert declared in list(sequences)


def spelled(text: str) -> bytes:
    return b"\x07" + text.encode("utf-16-le") + bytes(2)


def test_spellings_of_one_name_are_one_sequence() -> None:
    names = (r"OS:bob\private$\q", r"os:BOB\Private$\Q")
    assert len({DestinationName(ZERO_GUID, 7, spelled(name)[1:]).key() for name in names}) == 1


def test_an_older_store_keeps_its_positions_under_other_keys() -> None:
    """Earlier versions kept a position for each spelling: the latest of them counts."""
    sequences, stored = table(), {}
    for name, number in ((r"OS:bob\private$\q", 3), (r"OS:BOB\private$\Q", 7), (r"OS:BOB\PRIVATE$\Q", 5)):
        sequence = sequences.get(ALICE, spelled(name), 0.0)
        sequences.accept(sequence, FIRST, number, TIME)
        stored[sequence.record().key] = sequence.record().value or b""
    again = table()
    changes = again.load(stored.items(), 0.0)
    for _, key, value in changes:
        if value is None:
            del stored[key]
        else:
            stored[key] = value
    (found,) = again
    assert found.sequence_number == 7
    assert [found.record().key] == list(stored)
    third = table()
    assert third.load(stored.items(), 0.0) == []
    assert [one.sequence_number for one in third] == [7]


def test_sequences_of_queues_that_do_not_exist_are_few_and_not_kept() -> None:
    sequences = table()
    for number in range(PASSING_LIMIT + 50):
        sequence = sequences.get(ALICE, number.to_bytes(4, "big"), 0.0)
        sequences.accept(sequence, FIRST, 1, TIME, keep=False)
        assert not sequence.kept
    assert len(list(sequences)) == 0
    assert sequences.get(ALICE, (PASSING_LIMIT + 49).to_bytes(4, "big"), 0.0).sequence_number == 1
    assert sequences.get(ALICE, (0).to_bytes(4, "big"), 0.0).sequence_number == 0
