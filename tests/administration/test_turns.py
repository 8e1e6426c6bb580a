"""Turns at work: owners one after the other, and each owner's waiters in their order."""

import asyncio
from collections.abc import Callable

from qmnode.administration.turns import JobTurns


async def taken(turns: JobTurns, owner: str, order: list[str], name: str, go_on: asyncio.Event) -> None:
    async with turns.turn(owner):
        order.append(name)
        await go_on.wait()


async def passes(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def test_owners_take_turns_and_each_keeps_its_own_order() -> None:
    turns, order, go_on = JobTurns(1), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(taken(turns, name[0], order, name, go_on)) for name in ("a1", "a2", "a3", "b1", "c1")]
    await passes(lambda: order == ["a1"] and turns.anyone_waits)
    go_on.set()
    await asyncio.gather(*tasks)
    assert order == ["a1", "a2", "b1", "c1", "a3"]
    assert not turns.anyone_waits


async def test_a_waiter_that_was_cancelled_takes_no_place() -> None:
    turns, order, go_on = JobTurns(1), list[str](), asyncio.Event()
    go_on.set()
    async with turns.turn("a"):
        waiters = [asyncio.create_task(taken(turns, "a", order, name, go_on)) for name in ("waits", "given", "next")]
        await passes(lambda: turns.anyone_waits)
        await asyncio.sleep(0)
        waiters[0].cancel()
    waiters[1].cancel()  # the place is its own, and it has not noticed
    await asyncio.gather(*waiters, return_exceptions=True)
    assert order == ["next"] and not turns.anyone_waits
    async with asyncio.timeout(60), turns.turn("b"):
        assert not turns.anyone_waits
