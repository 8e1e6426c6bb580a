"""Outgoing transactional sequences: numbers, order acknowledgments, resending (3.1.1.5, 3.1.5.6, 3.1.6.5,
3.1.7.1.3)."""

from __future__ import annotations

import pytest

from qmnode.protocol.commands import Family, Record
from qmnode.protocol.outgoing_sequences import ROLL_OVER, AckResult, OutgoingSequence, OutgoingSequences, transfer_info
from qmnode.protocol.states import Timer
from qmnode.protocol.wire import LocalProtocolError
from qmnode.settings.protocol import TransferSettings
from qmnode.structures.guid import ZERO_GUID
from tests.protocol.machines import BOB, CAROL, TIME

QUEUE = b"queue"
STAMP = 1_700_000_000


def table(timestamp: int = STAMP) -> OutgoingSequences:
    return OutgoingSequences(TransferSettings(), timestamp)


def sent(sequences: OutgoingSequences, count: int, now: float = 0.0) -> OutgoingSequence:
    """A queue whose first ``count`` messages are committed and sent."""
    first = sequences.assign(QUEUE, count)
    sequence = sequences.get(QUEUE)
    for number in range(first.first_number, first.first_number + count):
        assert sequence.prepare(first.sequence_id, number) == number - 1
    sequences.sent(sequence, now)
    return sequence


def ack(sequences: OutgoingSequences, sequence: OutgoingSequence, number: int, now: float = 0.0) -> AckResult:
    return sequences.take_order_ack(BOB, sequence.active_id, number, now, TIME)[0]


def reload(sequences: OutgoingSequences, sequence: OutgoingSequence) -> None:
    """Load what a sequence has written."""
    records = [(QUEUE, one.value or b"") for one in (sequence.record(), sequence.owner_record())]
    sequences.load(records[:1], None, records[1:])


# --- numbers ---
def test_numbers_are_given_out_in_order_from_one() -> None:
    sequences = table()
    first, second = sequences.assign(QUEUE, 3), sequences.assign(QUEUE, 2)
    assert (first.first_number, second.first_number) == (1, 4)
    assert first.sequence_id == second.sequence_id == (STAMP << 32) + 1


def test_every_queue_and_every_new_sequence_has_an_identifier_of_its_own() -> None:
    """Ordinal 1 for every session, as in 3.1.1.3.1, would not tell whose messages an order acknowledgment is for."""
    sequences = table()
    one, other = sequences.assign(b"one", 1).sequence_id, sequences.assign(b"other", 1).sequence_id
    assert one < other


def test_a_new_sequence_begins_when_all_is_acknowledged() -> None:
    sequences = table()
    sequence = sent(sequences, 3)
    assert ack(sequences, sequence, 3) is AckResult.PROGRESS
    following = sequences.assign(QUEUE, 1)
    assert following.first_number == 1
    assert following.sequence_id > sequence.active_id
    assert sequence.prepare(following.sequence_id, 1) == 0


def test_the_sequence_goes_on_while_something_is_not_acknowledged() -> None:
    sequences = table()
    sequence = sent(sequences, 3)
    ack(sequences, sequence, 2)
    assert sequences.assign(QUEUE, 1) == (sequence.active_id, 4, (sequence.record(),))


def test_a_message_takes_the_one_sent_before_it_as_its_previous() -> None:
    """Messages 3 and 4 expired before they were sent: the gap is bridged, 3.1.7.1.3."""
    sequences = table()
    first = sequences.assign(QUEUE, 6)
    sequence = sequences.get(QUEUE)
    assert [sequence.prepare(first.sequence_id, number) for number in (1, 2, 5, 6)] == [0, 1, 2, 5]


def test_the_head_of_a_pass_follows_what_is_acknowledged() -> None:
    sequences = table()
    sequence = sent(sequences, 6)
    ack(sequences, sequence, 3)
    sequence.rewind()
    assert sequence.prepare(sequence.active_id, 3) is None  # acknowledged meanwhile
    assert sequence.prepare(sequence.active_id, 5) == 3
    assert sequence.prepare(sequence.active_id, 6) == 5


def test_a_sequence_that_runs_out_of_numbers_is_followed_by_another_one_after_the_other() -> None:
    sequences = table()
    sequence = sent(sequences, 2)
    sequence.next_number = ROLL_OVER
    following = sequences.assign(QUEUE, 2)
    assert following.first_number == 1
    old = sequence.active_id
    assert sequence.prepare(following.sequence_id, 1) is None  # two are never active at a time
    assert ack(sequences, sequence, 2) is AckResult.PROGRESS
    assert [sequence.prepare(following.sequence_id, number) for number in (1, 2)] == [0, 1]
    assert sequences.take_order_ack(BOB, old, 2, 0.0, TIME)[0] is AckResult.NOTHING_NEW
    assert ack(sequences, sequence, 1) is AckResult.PROGRESS


def test_nothing_is_assigned_to_no_message() -> None:
    with pytest.raises(LocalProtocolError):
        table().assign(QUEUE, 0)


# --- order acknowledgments ---
def test_an_order_acknowledgment_covers_all_up_to_its_number() -> None:
    sequences = table()
    sequence = sent(sequences, 5)
    assert ack(sequences, sequence, 3) is AckResult.PROGRESS
    assert sequence.acknowledged == 3
    assert not sequence.idle()
    assert ack(sequences, sequence, 5) is AckResult.PROGRESS
    assert sequence.idle()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_repeated_or_older_one_changes_nothing(number: int) -> None:
    sequences = table()
    sequence = sent(sequences, 5)
    ack(sequences, sequence, 2)
    assert ack(sequences, sequence, number) is AckResult.NOTHING_NEW
    assert sequence.acknowledged == 2


def test_a_late_one_of_the_sequence_before_does_not_delete_new_messages() -> None:
    """3.1.5.6 compares the number alone: a late acknowledgment of message 3 would delete the new messages 1 to 3."""
    sequences = table()
    sequence = sent(sequences, 3)
    old = sequence.active_id
    ack(sequences, sequence, 3)
    sent(sequences, 5)
    assert sequences.take_order_ack(BOB, old, 3, 0.0, TIME)[0] is AckResult.NOTHING_NEW
    assert sequence.acknowledged == 0


def test_a_number_that_was_not_sent_is_not_acknowledged() -> None:
    sequences = table()
    sequence = sent(sequences, 3)
    sequences.assign(QUEUE, 3)
    assert ack(sequences, sequence, 5) is AckResult.NOTHING_NEW  # committed, not sent: perhaps sent before a restart
    assert ack(sequences, sequence, 7) is AckResult.FORGED  # never given out
    assert sequence.acknowledged == 0


def test_for_a_new_owner_the_sequence_begins_with_the_first_message_that_is_not_acknowledged() -> None:
    sequences = table()
    sequence = sent(sequences, 6)
    assert sequence.leads_to(BOB) and not sequence.leads_to(BOB)
    ack(sequences, sequence, 3)
    sequence.rewind()
    assert sequence.leads_to(CAROL)
    assert sequence.prepare(sequence.active_id, 3) is None, "the old owner has it"
    assert sequence.prepare(sequence.active_id, 4) == 0
    assert sequence.prepare(sequence.active_id, 5) == 4
    assert sequences.take_order_ack(CAROL, sequence.active_id, 5, 0.0, TIME)[0] is AckResult.PROGRESS
    sequence.rewind()
    assert sequence.prepare(sequence.active_id, 6) == 5


def test_an_owner_that_is_unknown_for_a_while_changes_nothing() -> None:
    sequences = table()
    sequence = sent(sequences, 6)
    sequence.leads_to(BOB)
    ack(sequences, sequence, 3)
    sequence.rewind()
    assert not sequence.leads_to(ZERO_GUID) and not sequence.leads_to(BOB)
    assert sequence.prepare(sequence.active_id, 4) == 3
    assert sequences.take_order_ack(CAROL, sequence.active_id, 5, 0.0, TIME)[0] is AckResult.FORGED


def test_a_restarted_sender_knows_its_destination_and_that_messages_may_have_arrived() -> None:
    before = table()
    sequence = sent(before, 6)
    sequence.leads_to(BOB)
    ack(before, sequence, 3)
    after = table()
    reload(after, sequence)
    again = after.get(QUEUE)
    assert (again.destination, again.may_have_arrived(), again.waits_for_earlier()) == (BOB, True, True)
    assert [again.prepare(again.active_id, number) for number in (4, 5, 6)] == [3, 4, 5]
    assert not again.waits_for_earlier() and again.may_have_arrived()
    ack(after, again, 6)
    assert not again.may_have_arrived()
    moved = table()
    reload(moved, sequence)
    assert moved.get(QUEUE).leads_to(CAROL)
    assert moved.get(QUEUE).prepare(sequence.active_id, 4) == 0
    later = table()
    reload(later, moved.get(QUEUE))
    assert later.get(QUEUE).prepare(sequence.active_id, 4) == 0, "the new owner has acknowledged nothing yet"


def test_only_the_destination_acknowledges() -> None:
    sequences = table()
    sequence = sent(sequences, 3)
    sequence.destination = BOB
    assert sequences.take_order_ack(CAROL, sequence.active_id, 3, 0.0, TIME)[0] is AckResult.FORGED
    assert ack(sequences, sequence, 3) is AckResult.PROGRESS


def test_an_unknown_identifier_is_ignored() -> None:
    assert table().take_order_ack(BOB, 12345, 1, 0.0, TIME) == (AckResult.NOTHING_NEW, None)


# --- resending ---
def test_the_resend_interval_climbs_on_time_outs_and_resets_on_progress() -> None:
    """3.1.5.6 climbs on every acknowledgment: six hours after ten of them."""
    sequences = table()
    sequence = sent(sequences, 20)
    for number in range(1, 15):
        ack(sequences, sequence, number)
    assert sequences.resend_interval(sequence) == 30

    now, intervals = 0.0, []
    for _ in range(12):
        timer = sequences.next_timer()
        assert timer is not None
        assert timer[0] is Timer.TRANSACTIONAL_ACK_WAIT
        intervals.append(round(timer[1] - now))
        now = timer[1]
        assert sequences.take_resends(now) == [sequence]
        sequences.sent(sequence, now)
    assert intervals == [30] * 3 + [300] * 3 + [1800] * 3 + [21600] * 3

    sequence.prepare(sequence.active_id, 15)
    ack(sequences, sequence, 15, now)
    assert sequences.resend_interval(sequence) == 30


def test_progress_restarts_the_timer_and_the_last_acknowledgment_stops_it() -> None:
    sequences = table()
    sequence = sent(sequences, 3)
    ack(sequences, sequence, 1, 20.0)
    assert sequences.next_timer() == (Timer.TRANSACTIONAL_ACK_WAIT, 50.0)
    ack(sequences, sequence, 3, 25.0)
    assert sequences.next_timer() is None


def test_an_acknowledgment_without_progress_does_not_put_resending_off() -> None:
    sequences = table()
    sequence = sent(sequences, 3)
    ack(sequences, sequence, 1, 10.0)
    ack(sequences, sequence, 1, 39.0)
    assert sequences.next_timer() == (Timer.TRANSACTIONAL_ACK_WAIT, 40.0)


def test_resending_begins_at_the_head() -> None:
    sequences = table()
    sequence = sent(sequences, 3)
    ack(sequences, sequence, 1)
    assert sequences.take_resends(29.9) == []
    assert sequences.take_resends(30.0) == [sequence]
    assert [sequence.prepare(sequence.active_id, number) for number in (2, 3)] == [1, 2]


def test_a_closed_session_stops_the_timer_and_the_next_begins_at_the_head() -> None:
    sequences = table()
    sequence = sent(sequences, 3)
    sequences.disconnected(sequence)
    assert sequences.next_timer() is None
    assert sequence.prepare(sequence.active_id, 1) == 0


def test_a_message_refused_on_its_way_does_not_stall_those_behind_it() -> None:
    """A router dropped message 2 (too many hops). The destination waits for it, as 3 says that it comes before."""
    sequences = table()
    sequence = sent(sequences, 3)
    ack(sequences, sequence, 1)
    sequences.take_refusal(sequence, 2)
    assert sequences.next_timer() == (Timer.TRANSACTIONAL_ACK_WAIT, float("-inf"))
    assert sequences.take_resends(1.0) == [sequence]
    assert sequences.resend_interval(sequence) == 30
    assert sequence.prepare(sequence.active_id, 3) == 1


def test_a_refused_message_that_was_not_sent_or_is_acknowledged_causes_nothing() -> None:
    sequences = table()
    sequence = sent(sequences, 3)
    ack(sequences, sequence, 3)
    sequences.take_refusal(sequence, 2)
    assert sequences.take_resends(1.0) == []


# --- disk ---
def restarted(records: list[Record], timestamp: int = STAMP) -> OutgoingSequences:
    again = table(timestamp)
    store = {(record.family, record.key): record.value for record in records}
    last = next((value for (family, _), value in store.items() if family is Family.SEQUENCE_IDENTIFIERS), None)
    pairs = [(key, value) for (family, key), value in store.items() if family is Family.OUTGOING_SEQUENCE and value]
    again.load(pairs, last)
    for sequence in again:
        sequence.destination = BOB
    return again


def test_a_sequence_goes_on_after_a_restart() -> None:
    sequences = table()
    records = list(sequences.assign(QUEUE, 5).records)
    sequence = sequences.get(QUEUE)
    for number in range(1, 6):
        sequence.prepare(sequence.next_id, number)
    ack(sequences, sequence, 2)
    records.append(sequence.record())

    again = restarted(records)
    sequence = again.get(QUEUE)
    assert sequence.destination == BOB
    # Not sent since the restart: it is sent again, and acknowledged again.
    assert ack(again, sequence, 4) is AckResult.NOTHING_NEW
    assert sequence.prepare(sequence.active_id, 3) == 2
    assert ack(again, sequence, 3) is AckResult.PROGRESS
    assert again.assign(QUEUE, 1).first_number == 6


def test_identifiers_are_never_given_out_twice() -> None:
    sequences = table()
    records: list[Record] = []
    seen = set()
    for _ in range(3):
        for queue in (b"a", b"b"):
            assignment = sequences.assign(queue, 1)
            seen.add(assignment.sequence_id)
            records += assignment.records
            sequence = sequences.get(queue)
            sequence.prepare(assignment.sequence_id, 1)
            ack(sequences, sequence, 1)
            records.append(sequence.record())
        sequences = restarted(records)
    assert len(seen) == 6


def test_a_restored_store_takes_a_newer_time_stamp() -> None:
    sequences = table()
    records = list(sequences.assign(QUEUE, 1).records)
    assert restarted(records, STAMP + 9).assign(b"new", 1).sequence_id > (STAMP + 9) << 32


def test_a_queue_is_forgotten_only_when_nothing_waits() -> None:
    sequences = table()
    sequence = sent(sequences, 1)
    assert sequences.forget(QUEUE) is None
    ack(sequences, sequence, 1)
    assert sequences.forget(QUEUE) == Record(Family.OUTGOING_SEQUENCE, QUEUE, None)
    assert sequences.forget(QUEUE) is None
    assert list(sequences) == []


def test_transfer_info_says_how_far_the_sequence_is() -> None:
    sequences = table()
    sequence = sent(sequences, 5)
    ack(sequences, sequence, 2)
    info = transfer_info(sequence, TransferSettings().resend_table())
    assert info.last_ack == (sequence.active_id, 2, 1)
    assert info.first_non_ack == (sequence.active_id, 3, 2)
    assert info.last_non_ack == (sequence.active_id, 5, 4)
    assert info.next_seq == (sequence.next_id, 6, 5)
    assert (info.no_ack_count, info.last_ack_count, info.last_ack_time) == (3, 1, TIME)
    assert (info.resend_interval, info.resend_count, info.resend_time) == (30, 0, 30.0)


def test_a_restored_store_goes_on_with_a_new_sequence_although_the_last_is_not_acknowledged() -> None:
    before = OutgoingSequences(TransferSettings(), 1_700_000_000)
    old = before.assign(b"queue", 3)
    records = [(record.key, record.value or b"") for record in old.records if record.family is Family.OUTGOING_SEQUENCE]
    restored = OutgoingSequences(TransferSettings(), 1_700_000_500)
    restored.load(records, None)
    fresh = restored.assign(b"queue", 1)
    assert (fresh.sequence_id > old.sequence_id, fresh.first_number) == (True, 1)
    assert restored.assign(b"queue", 1).sequence_id == fresh.sequence_id
