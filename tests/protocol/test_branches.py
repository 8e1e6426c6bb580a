"""Honest sources that change their addresses, or that the directory no longer knows
(``qmnode.protocol.incoming_sequences``)."""

from __future__ import annotations

import tracemalloc
from itertools import count

import pytest

from qmnode.protocol import message_id_history
from qmnode.protocol.incoming_sequences import MOST_BRANCHES, IncomingSequence, Route
from qmnode.structures.guid import Guid
from qmnode.structures.user_message import DirectQueueFormatName
from tests.protocol.machines import ALICE, CAROL, TIME, message, transactional
from tests.protocol.receiver import SEQUENCE, Receiver, identifiers

NAME = r"TCP:127.0.0.2\private$\q"
QUEUE = DirectQueueFormatName(direct_format_name=NAME)
HOUR = 3600


def number(value: int, sequence: int = SEQUENCE) -> bytes:
    return transactional(value, sequence, value, value - 1, queue=QUEUE)


def branches(receiver: Receiver) -> dict[str, IncomingSequence]:
    return {one.bringer: one for one in receiver.incoming}


def moving(receiver: Receiver, first: int, last: int, apart: int) -> list[int]:
    """A source that sends one message, in a sequence of its own, from each of many addresses in turn; how many of them
    found no place."""
    without = []
    for at in range(first, last):
        packet = transactional(at, SEQUENCE + at, 1, 0, queue=QUEUE)
        admission = receiver.take(packet, address=f"10.0.0.{at}", time=TIME + at * apart)
        assert len(admission.taken) + admission.without_place == 1
        without.append(admission.without_place)
    return without


def test_a_source_may_have_another_address_each_day() -> None:
    receiver = Receiver().transactional_queue()
    assert sum(moving(receiver, 1, 60, 24 * HOUR)) == 0
    known = branches(receiver)
    assert len(known) <= MOST_BRANCHES
    assert "10.0.0.59" in known
    assert "10.0.0.1" not in known
    again = Receiver(receiver.store)
    assert set(branches(again)) == set(known)


def test_a_branch_that_was_used_within_the_hour_is_not_pushed_out() -> None:
    receiver = Receiver().transactional_queue()
    assert sum(moving(receiver, 1, MOST_BRANCHES + 1, 1)) == 0
    before = set(branches(receiver))
    assert sum(moving(receiver, 20, 30, 1)) == 10
    assert set(branches(receiver)) == before


def test_nothing_is_forgotten_for_an_address_that_finds_no_place_anyway() -> None:
    receiver = Receiver(incoming_sequences_per_neighbour=1).transactional_queue()
    moving(receiver, 1, MOST_BRANCHES + 1, 1)
    before = set(branches(receiver))
    receiver.take(transactional(1, SEQUENCE, 1, 0, source=CAROL), address="10.0.0.99", time=TIME + 9 * HOUR)
    admission = receiver.take(number(1, SEQUENCE + 900), address="10.0.0.99", time=TIME + 9 * HOUR)
    assert admission.without_place == 1
    assert before < set(branches(receiver))


def known_then_stranger() -> tuple[Receiver, IncomingSequence]:
    """A source of which five messages came while it was known, and that nobody vouches for any more."""
    receiver = Receiver().transactional_queue()
    receiver.take(*(number(value) for value in range(1, 6)), speaks_for=ALICE)
    receiver.incoming.take_order_acknowledgments(100.0)
    (known,) = receiver.incoming
    known.heard_at = float("-inf")  # as after a restart
    return receiver, known


def test_a_source_that_became_a_stranger_is_told_what_is_on_disk() -> None:
    receiver, known = known_then_stranger()
    admission = receiver.take(*(number(value) for value in (3, 4, 5)), address="10.0.0.9")
    assert (admission.taken, admission.duplicates) == ([], 3)
    acknowledgments = receiver.incoming.take_order_acknowledgments(100.0)
    assert acknowledgments == [(ALICE, Route(True, "10.0.0.9"), SEQUENCE, 5)]
    assert known.sequence_number == 5
    assert identifiers(receiver.take(number(6), address="10.0.0.9")) == [6]


def test_a_stranger_is_not_told_of_what_is_not_on_disk_yet() -> None:
    receiver, known = known_then_stranger()
    known.durable_number = 3
    receiver.take(number(5), address="10.0.0.9")
    (acknowledgment,) = receiver.incoming.take_order_acknowledgments(100.0)
    assert acknowledgment.sequence_number == 3


def test_final_acknowledgments_go_where_the_source_is_now() -> None:
    receiver = Receiver().transactional_queue()
    receiver.take(number(1), number(2), address="10.0.0.1", now=1.0)
    receiver.take(number(2), number(3), address="10.0.0.2", now=2.0)
    key = next(iter(receiver.incoming)).destination

    def route(value: int, of: Receiver = receiver) -> str:
        found = of.incoming.find(ALICE, key, SEQUENCE, value)
        assert found is not None
        return found.route.address

    assert [route(value) for value in (1, 2, 3)] == ["10.0.0.2"] * 3
    receiver.take(number(4), address="10.0.0.1", now=3.0)
    assert [route(value) for value in (1, 2, 3, 4)] == ["10.0.0.1"] * 4
    receiver.take(number(4), address="10.0.0.3", now=4.0)  # word for word, as anybody can say who saw it
    assert route(4) == "10.0.0.1"


def test_final_acknowledgments_go_to_the_branch_that_has_the_message() -> None:
    receiver, _ = known_then_stranger()
    receiver.take(number(6), address="10.0.0.9")
    key = next(iter(receiver.incoming)).destination
    routes = [receiver.incoming.find(ALICE, key, SEQUENCE, value).route.address for value in (5, 6)]  # type: ignore[union-attr]
    assert routes == ["127.0.0.7", "10.0.0.9"]


def test_large_messages_of_many_strangers_are_remembered_and_not_kept() -> None:
    receiver, body = Receiver(), bytes(3 << 20)
    tracemalloc.start()
    try:
        for at in range(16):
            receiver.take(message(at + 1, body=body), address=f"10.0.0.{at}")
        assert tracemalloc.get_traced_memory()[0] < 32 << 20
    finally:
        tracemalloc.stop()
    assert identifiers(receiver.take(message(1, body=body), address="10.0.0.99")) == []
    assert identifiers(receiver.take(message(1, body=b"another"), address="10.0.0.98")) == [1]


def test_small_messages_of_many_strangers_are_kept_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests of them would need as much memory, and be made again and again."""
    digested: list[bytes] = []
    monkeypatch.setattr(message_id_history, "_BYTES", 16 << 10)
    monkeypatch.setattr(message_id_history, "_ALL_BYTES", 256 << 10)
    monkeypatch.setattr(message_id_history, "content_of", lambda packet: digested.append(packet) or Guid(bytes(16)))
    receiver, numbers = Receiver(), count(1)
    for at in range(32):
        for _ in range(200):
            receiver.take(message(next(numbers)), address=f"10.0.0.{at}")
    assert not digested
    receiver.take(message(next(numbers), body=bytes(64 << 10)), address="10.0.0.1")
    receiver.take(message(next(numbers)), address="10.0.0.2")
    assert len(digested) == 1
