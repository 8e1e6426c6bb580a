"""Turns of the event loop: each block of strangers gets its part, and all of them pause while others are busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from qmnode import shares
from qmnode.shares import STEP, Peer, Turns, declared
from tests.lab.waiting import eventually

MILLISECOND = 1_000_000
MALLORY, BYSTANDER = "192.0.2.66", "192.0.2.1"


class Work:
    """Turns that each cost some nanoseconds of a clock that only they move."""

    def __init__(self) -> None:
        self.now = 0
        self.done: list[str] = []
        self.turns = Turns(lambda: self.now)

    def turn(self, name: str, cost: int = MILLISECOND, left: int = 0) -> Callable[[], bool]:
        """A turn, and so many more after it."""
        rest = [left]

        def take() -> bool:
            self.now += cost
            self.done.append(name)
            rest[0] -= 1
            return rest[0] >= 0

        return take

    def take(
        self, name: str, address: str, cost: int = MILLISECOND, size: int = STEP, *, is_urgent: bool = False
    ) -> bool:
        return self.turns.take(address, size, self.turn(name, cost), is_urgent=is_urgent)

    def be_busy(self) -> None:
        self.turns.heard = asyncio.get_running_loop().time() + 60.0

    async def all_done(self, count: int) -> list[str]:
        await eventually(lambda: len(self.done) == count)
        return self.done


async def test_a_block_that_has_used_little_comes_first() -> None:
    work = Work()
    work.be_busy()
    assert not work.take("first", MALLORY, 5 * MILLISECOND)
    for _ in range(3):
        assert work.take("mallory", MALLORY, 5 * MILLISECOND)
    assert work.take("bystander", BYSTANDER)
    assert (await work.all_done(5)).index("bystander") <= 2


async def test_a_provider_s_network_has_the_part_of_one_address() -> None:
    work = Work()
    work.be_busy()
    work.take("first", "2001:db8::1", 5 * MILLISECOND)
    for number in range(20):
        work.take("mallory", f"2001:db8:{number:x}::1", 5 * MILLISECOND)
    for _ in range(3):
        work.take("bystander", BYSTANDER, 5 * MILLISECOND)
    done = await work.all_done(24)
    assert max(place for place, name in enumerate(done) if name == "bystander") <= 7


async def test_customers_of_one_provider_have_equal_parts() -> None:
    work = Work()
    work.be_busy()
    for number in range(20):
        work.take("mallory", f"2001:db8:1:{number:x}::1", 5 * MILLISECOND)
    for _ in range(3):
        work.take("bystander", "2001:db8:2::1", 5 * MILLISECOND)
    done = await work.all_done(23)
    assert max(place for place, name in enumerate(done) if name == "bystander") <= 8


async def test_time_that_was_not_used_is_not_saved_up() -> None:
    work = Work()
    for _ in range(50):
        assert not work.take("early", MALLORY)
        await asyncio.sleep(0)
    work.be_busy()
    work.take("now", MALLORY)
    for _ in range(4):
        work.take("mallory", MALLORY)
        work.take("late", BYSTANDER)
    assert "mallory" in (await work.all_done(59))[51:54]


async def test_strangers_alone_have_all_the_time() -> None:
    work = Work()
    for number in range(100):
        assert not work.take(str(number), MALLORY, MILLISECOND // 100, 200_000)
    await asyncio.sleep(0)


async def test_strangers_pause_while_others_are_busy() -> None:
    work = Work()
    work.be_busy()
    assert not work.take("first", MALLORY)
    assert work.take("second", BYSTANDER)
    assert work.done == ["first"]
    assert await work.all_done(2) == ["first", "second"]


async def test_much_of_a_stranger_waits_while_others_are_busy() -> None:
    work = Work()
    work.be_busy()
    assert work.take("much", MALLORY, size=STEP + 1)
    await work.all_done(1)


async def test_a_new_session_waits_for_its_own_block_only() -> None:
    work = Work()
    work.be_busy()
    work.take("first", MALLORY)
    work.take("mallory", MALLORY)
    assert not work.take("new", BYSTANDER, is_urgent=True)
    assert work.done == ["first", "new"]
    assert work.take("new of mallory", MALLORY, is_urgent=True)
    await work.all_done(4)


async def test_urgent_input_of_one_network_waits_once_it_has_had_its_time() -> None:
    work = Work()
    work.be_busy()
    work.take("first", MALLORY)
    assert not work.take("dear", MALLORY, 3 * MILLISECOND, is_urgent=True)
    for number in range(3):
        assert work.take(str(number), MALLORY, 3 * MILLISECOND, is_urgent=True)
    assert not work.take("new", BYSTANDER, is_urgent=True)
    assert work.done == ["first", "dear", "new"]
    assert not work.take("of one provider", "2001:db8:1::1", 3 * MILLISECOND, is_urgent=True)
    assert work.take("of the same provider", "2001:db8:2::1", is_urgent=True)
    await work.all_done(8)


async def test_urgent_input_of_many_networks_waits_in_the_order_of_their_use() -> None:
    work = Work()
    work.take("first", MALLORY, 10 * MILLISECOND)
    waits = [work.take("many", f"192.0.2.{number}", 3 * MILLISECOND, is_urgent=True) for number in range(100, 110)]
    assert waits == [False] * 3 + [True] * 7
    assert work.take("last", BYSTANDER, is_urgent=True)
    await work.all_done(12)


async def test_much_urgent_input_is_not_taken_at_once() -> None:
    work = Work()
    work.be_busy()
    work.take("first", MALLORY)
    assert work.take("much", BYSTANDER, size=STEP + 1, is_urgent=True)
    await work.all_done(2)


async def test_what_follows_from_input_keeps_later_input_waiting() -> None:
    work = Work()
    work.be_busy()
    work.turns.follow(MALLORY, partial(work.turn("follows", 5 * MILLISECOND)))
    assert work.take("mallory", MALLORY)
    assert work.take("bystander", BYSTANDER)
    assert work.done == ["follows"]
    await work.all_done(3)


async def test_urgent_input_without_end_leaves_others_their_turns() -> None:
    work = Work()
    work.be_busy()
    assert not work.take("first", MALLORY)
    assert work.take("bystander", BYSTANDER)
    async with asyncio.timeout(20):
        while "bystander" not in work.done:
            assert not work.take("new", MALLORY, 1, is_urgent=True)
            work.turns.carry(1000)
            await asyncio.sleep(0)


async def test_a_turn_that_fails_ends_no_other() -> None:
    def fail() -> bool:
        raise RuntimeError

    work = Work()
    work.be_busy()
    work.take("first", MALLORY)
    assert work.turns.take(MALLORY, STEP, fail, is_urgent=False)
    assert work.take("mallory", MALLORY)
    await work.all_done(2)


async def test_declared_parties_do_not_wait_for_strangers() -> None:
    work = Work()
    work.be_busy()
    work.take("first", MALLORY)
    for _ in range(3):
        work.take("mallory", MALLORY)
    work.turns.wait(declared("ALICE"), BYSTANDER, work.turn("alice", left=1))
    assert (await work.all_done(6))[1:3] == ["alice", "alice"]


def taken_of(work: Work, peer: Peer, name: str, cost: int = MILLISECOND) -> bool:
    return work.turns.take_of(peer, work.turn(name, cost), asyncio.get_running_loop().time())


async def test_a_declared_peer_that_takes_more_than_its_part_waits_and_others_do_not() -> None:
    work = Work()
    mallory, alice = work.turns.peer(declared("MALLORY")), work.turns.peer(declared("ALICE"))
    assert not taken_of(work, alice, "alice")
    assert not taken_of(work, mallory, "much", 8 * MILLISECOND)
    for _ in range(3):
        assert taken_of(work, mallory, "mallory", 8 * MILLISECOND)
    for _ in range(2):
        assert not taken_of(work, alice, "alice")
    assert work.done == ["alice", "much", "alice", "alice"]
    await work.all_done(7)


async def test_a_declared_peer_pauses_in_proportion_while_others_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    had = [0.0]
    monkeypatch.setattr(shares, "_had", lambda: had[0])
    work = Work()
    mallory, alice = work.turns.peer(declared("MALLORY")), work.turns.peer(declared("ALICE"))
    taken_of(work, alice, "alice")
    taken_of(work, mallory, "much", 8 * MILLISECOND)
    taken_of(work, mallory, "mallory")
    await asyncio.sleep(0.05)
    had[0] = 0.011
    await asyncio.sleep(0.05)
    assert work.done == ["alice", "much"]
    had[0] = 0.013
    await work.all_done(3)


async def test_a_declared_peer_alone_has_all_the_time_in_slices() -> None:
    work = Work()
    mallory = work.turns.peer(declared("MALLORY"))
    taken_of(work, mallory, "much", 8 * MILLISECOND)
    for _ in range(4):
        assert taken_of(work, mallory, "mallory")
    await asyncio.sleep(0)
    assert len(work.done) == 3
    await asyncio.sleep(0)
    assert len(work.done) == 5
    assert not taken_of(work, mallory, "later")


async def test_what_follows_from_the_input_of_a_declared_peer_is_of_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_WINDOW", "_BUSY"):
        monkeypatch.setattr(shares, name, 60.0)  # a slow machine ends neither
    work = Work()
    mallory, alice = work.turns.peer(declared("MALLORY")), work.turns.peer(declared("ALICE"))
    work.turns.heard_own()
    assert not taken_of(work, mallory, "little")
    work.turns.follow(mallory, work.turn("follows", 3 * MILLISECOND))
    assert not taken_of(work, mallory, "an application receives it")
    assert not taken_of(work, alice, "alice")
    assert taken_of(work, mallory, "mallory")
    assert not taken_of(work, alice, "alice")
    await work.all_done(6)
    work.turns.follow(mallory, work.turn("follows", 300 * MILLISECOND))
    began = asyncio.get_running_loop().time()
    assert taken_of(work, mallory, "mallory")
    await work.all_done(8)
    assert asyncio.get_running_loop().time() - began > 0.05


async def test_applications_slow_strangers_only_where_peers_are_declared() -> None:
    work = Work()
    work.turns.heard_own()
    assert not work.turns.are_scarce
    work.turns.knows_peers = True
    work.turns.heard_own()
    assert work.turns.are_scarce
    assert not work.take("a little", MALLORY)


async def test_debts_of_strangers_are_not_forgiven() -> None:
    work = Work()
    work.be_busy()
    work.turns.follow(MALLORY, partial(work.turn("follows", 200 * MILLISECOND)))
    began = asyncio.get_running_loop().time()
    for _ in range(3):
        work.take("mallory", MALLORY)
    await work.all_done(4)
    assert asyncio.get_running_loop().time() - began > 0.4


async def test_steps_of_a_stranger_keep_later_input_waiting() -> None:
    work = Work()
    work.be_busy()

    async def steps() -> None:
        work.turn("step", 5 * MILLISECOND)()
        await asyncio.sleep(0)
        work.turn("step", 5 * MILLISECOND)()

    await work.turns.steps(MALLORY, steps())
    assert work.take("mallory", MALLORY)
    assert work.take("bystander", BYSTANDER)
    assert work.done == ["step", "step"]
    await work.all_done(4)


async def test_steps_hand_on_results_errors_and_cancellations() -> None:
    work = Work()
    seen: list[object] = []
    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def steps() -> None:
        seen.append(await asked)
        try:
            await asyncio.sleep(3600)
        finally:
            seen.append("ended")

    task = asyncio.get_running_loop().create_task(work.turns.steps(MALLORY, steps()))
    asyncio.get_running_loop().call_soon(asked.set_result, "answered")
    await eventually(lambda: seen == ["answered"])
    task.cancel()
    await eventually(lambda: task.done())
    assert task.cancelled()
    assert seen == ["answered", "ended"]

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("as the work does")

    with pytest.raises(ValueError, match="as the work does"):
        await work.turns.steps(MALLORY, fails())


def test_the_time_that_a_thread_has_had_does_not_jump_when_no_descriptor_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    delays = tmp_path / "schedstat"
    delays.write_text("1 1000000000000 1\n")
    monkeypatch.setattr(shares, "_DELAYS", str(delays))
    had = shares._had()
    delays.unlink()
    assert 0.0 <= shares._had() - had < 500.0


async def test_time_that_other_processes_have_ends_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    had = [0.0]
    monkeypatch.setattr(shares, "_had", lambda: had[0])
    work = Work()
    work.be_busy()
    work.take("first", MALLORY)
    work.take("mallory", MALLORY)
    await asyncio.sleep(0.1)
    assert work.done == ["first"]
    had[0] = 1.0
    await work.all_done(2)


async def test_time_that_other_processes_have_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    had = [0.0]
    monkeypatch.setattr(shares, "_had", lambda: had[0])
    work = Work()
    work.turns.heard = asyncio.get_running_loop().time() - 1.0
    assert work.turns.are_scarce
    assert work.turns.are_scarce
    had[0] = 1.0
    assert not work.turns.are_scarce
