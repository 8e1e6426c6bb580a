"""Refused messages are counted by queue, sender and reason, and never take more than their room."""

from __future__ import annotations

from qmnode.model.traffic import QUEUES_KEPT, SENDERS_KEPT, Refusals, RefusedSender, Standing
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import Guid

DENIED = MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED
SOURCE = Guid(bytes(16))


def sender(number: int, standing: Standing = Standing.NEVER) -> RefusedSender:
    return RefusedSender(int(DENIED), standing, SOURCE, number.to_bytes(8, "little"))


def test_one_row_counts_what_one_sender_is_refused_for_one_reason() -> None:
    refusals = Refusals()
    refusals.note("a", sender(1), "10.0.0.1", 100, 1000.0)
    refusals.note("a", sender(1), "10.0.0.2", 50, 1001.0)
    refusals.note("a", sender(2, Standing.UNKNOWN), "10.0.0.3", 1, 1002.0)
    last, first = refusals.of("a")
    assert (first.count, first.size, first.address) == (2, 150, "10.0.0.2")
    assert (first.first_time, first.last_time) == (1000.0, 1001.0)
    assert (last.standing, last.count) == ("unknown", 1)
    assert refusals.denied == {"never": 2, "unknown": 1}


def test_a_queue_keeps_its_last_senders_and_a_node_its_last_queues() -> None:
    refusals = Refusals()
    for number in range(SENDERS_KEPT + 5):
        refusals.note("a", sender(number), "10.0.0.1", 1, float(number))
        refusals.note("a", sender(0), "10.0.0.1", 1, float(number))
    rows = refusals.of("a")
    assert len(rows) == SENDERS_KEPT
    assert rows[0].count == SENDERS_KEPT + 6
    for number in range(QUEUES_KEPT):
        refusals.note(f"q{number}", sender(1), "10.0.0.1", 1, 0.0)
    assert refusals.of("a") == []
    assert len(refusals.of("q0")) == 1
