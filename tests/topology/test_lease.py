"""The lease: who gets it, when it is taken over, and that nobody else's clock matters."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest

from mqenterprise.topology.apply import Clock, LeaseLost, LeaseTaken, Record, acquire, is_dead, process_mark, this_place
from mqenterprise.topology.plan import TargetError
from tests.topology.memory import MemoryLease


class FakeTime:
    """Seconds that pass only while someone waits."""

    def __init__(self):
        self.seconds = 1000.0
        self.meanwhile = lambda: None

    def clock(self) -> Clock:
        return Clock(lambda: self.seconds, self.wait)

    def wait(self, seconds):
        self.seconds += seconds
        self.meanwhile()


@pytest.fixture
def entry():
    return MemoryLease()


@pytest.fixture
def fake():
    return FakeTime()


def held(entry, **fields):
    record = Record(**{"token": 5, "holder": "alice on desk, process 1", "place": "elsewhere", **fields})
    entry.text = record.text()
    return record


def test_the_token_grows_with_every_holder(entry):
    tokens = []
    for _ in range(3):
        with acquire(entry) as lease:
            tokens.append(lease.token)

    assert tokens == [1, 2, 3]


def test_a_lease_that_is_held_is_refused_with_the_holders_name(entry):
    held(entry)

    with pytest.raises(LeaseTaken, match="alice on desk, process 1 is applying a plan"):
        acquire(entry)


def test_waiting_gets_the_lease_when_it_is_given_back(entry, fake):
    held(entry)
    told = []

    def give_back():
        entry.text = Record(5, 1).text()

    fake.meanwhile = give_back

    lease = acquire(entry, patience=60, waiting=told.append, clock=fake.clock())

    assert lease.token == 6
    assert told == ["alice on desk, process 1"]


def test_a_holder_that_renews_keeps_its_lease(entry, fake):
    renewals = iter(range(1, 10_000))
    held(entry)
    fake.meanwhile = lambda: held(entry, renewal=next(renewals))

    with pytest.raises(LeaseTaken):
        acquire(entry, patience=300, clock=fake.clock())


def test_a_lease_that_is_not_renewed_for_its_time_to_live_is_taken_over(entry, fake):
    held(entry, time_to_live=20.0)

    lease = acquire(entry, patience=60, clock=fake.clock())

    assert lease.token == 6
    assert 1020.0 <= fake.seconds <= 1021.0


def test_a_holder_on_this_machine_whose_process_is_gone_is_not_waited_for(entry):
    child = subprocess.Popen(["/bin/sleep", "60"])
    record = held(entry, place=this_place(), process=process_mark(child.pid))
    assert not is_dead(record)

    child.kill()
    child.wait()

    assert acquire(entry).token == 6


def test_a_process_number_that_was_given_again_is_not_the_holder(entry):
    assert is_dead(Record(1, holder="x", place=this_place(), process=f"{os.getpid()}/0"))


def test_a_lease_that_cannot_be_renewed_is_lost_after_its_time_to_live(entry, fake):
    lease = acquire(entry, clock=fake.clock(), time_to_live=20.0)
    entry.away = True
    fake.wait(19)
    lease.renew()
    lease.check()

    fake.wait(1)

    with pytest.raises(LeaseLost, match="could not be renewed for 20 s"):
        lease.check()


def test_renewing_keeps_it(entry, fake):
    lease = acquire(entry, clock=fake.clock(), time_to_live=20.0)
    for _ in range(5):
        fake.wait(15)
        lease.renew()

    lease.check()


def test_a_renewal_whose_answer_was_lost_is_no_loss(entry, fake):
    lease = acquire(entry, clock=fake.clock())
    swap = entry.swap

    def swap_and_say_no(old, new):
        swap(old, new)
        return False

    entry.swap = swap_and_say_no
    lease.renew()

    lease.check()


def test_a_lease_that_was_taken_over_is_lost(entry, fake):
    lease = acquire(entry, clock=fake.clock())
    held(entry, token=9)

    lease.renew()

    with pytest.raises(LeaseLost, match="taken over"):
        lease.check()


def test_of_many_that_want_it_at_once_one_gets_it(entry):
    got, refused = [], []
    barrier = threading.Barrier(8)

    def want():
        barrier.wait()
        try:
            got.append(acquire(entry))
        except LeaseTaken:
            refused.append(1)

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(got) == 1
    assert len(refused) == 7


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "hello",
        '{"token": "a"}',
        '{"token": 1, "more": 2}',
        '{"token": 1, "time_to_live": NaN}',
        '{"token": 1, "time_to_live": 1e300}',
        '{"token": 1, "process": 5}',
    ],
)
def test_a_text_that_is_no_lease_is_not_overwritten(entry, text):
    entry.text = text

    with pytest.raises(TargetError, match="not one of ours"):
        acquire(entry)
