"""Administrative work gives way to applications whose work comes in small pieces, and goes on when they rest."""

from __future__ import annotations

import asyncio
import contextlib
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

import pytest

from qmnode.administration.turns import Pace, _look

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.soak, pytest.mark.timed]
_SECONDS = 0.5


def spin(seconds: float) -> None:
    until = thread_time() + seconds
    while thread_time() < until:
        pass


async def worked(jobs: int, *, paced: bool = True) -> float:
    """The part of the time that jobs get together."""
    began, got = perf_counter(), 0.0

    async def job() -> None:
        nonlocal got
        pace = Pace()
        while perf_counter() < began + _SECONDS:
            spin(0.0002)
            got += 0.0002
            await (pace.rest() if paced else asyncio.sleep(0))

    await asyncio.gather(*(job() for _ in range(jobs)))
    return got / (perf_counter() - began)


@contextlib.asynccontextmanager
async def applications() -> AsyncIterator[None]:
    """Work in pieces of a fifth of a millisecond, with pauses as when it waits for the disk."""

    async def work() -> None:
        while True:
            for _ in range(5):
                spin(0.0002)
                await asyncio.sleep(0)
            await asyncio.sleep(0.001)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()


@pytest.mark.parametrize("jobs", [1, 5])
async def test_work_gives_way_to_applications(jobs: int) -> None:
    async with applications():
        await worked(1)  # until the first look
        assert await worked(jobs) < 0.2


async def test_work_that_waits_beside_other_work_hides_nothing_for_ever() -> None:
    """Each of them counts the time of all, more than the loop has."""

    async def job() -> None:
        pace = Pace()
        for _ in range(40):
            spin(0.0002)
            await asyncio.sleep(0.002)  # for the disk
            await pace.rest()

    async with applications():
        await asyncio.gather(*(job() for _ in range(5)))
    await worked(1)
    all_there_is = await worked(1, paced=False)
    assert await worked(1) > 0.3 * all_there_is


async def test_applications_are_seen_while_work_waits_for_the_disk() -> None:
    """Else each wait counts their work as its own, and they seem to need nothing."""

    async def job() -> None:
        pace = Pace()
        with pace.waiting():
            await asyncio.sleep(0.08)
        await pace.rest()

    async with applications():
        looked, *_ = await asyncio.gather(_look(0.1), job(), job())
    assert looked


async def test_the_wait_for_the_disk_is_not_held_against_the_work() -> None:
    """A twentieth of the time is for the work: waits of ten milliseconds must not make it a hundredth."""
    steps = 0
    async with applications():
        await worked(1)
        pace, until = Pace(), perf_counter() + 2
        while perf_counter() < until:
            spin(0.0005)
            with pace.waiting():
                await asyncio.sleep(0.01)
            await pace.rest()
            steps += 1
    assert steps > 20  # about 90 on a free machine, and 10 if the waits counted


@pytest.mark.parametrize("jobs", [1, 5])
async def test_work_takes_an_idle_loop(jobs: int) -> None:
    async with applications():
        await worked(1)
    await worked(1)
    all_there_is = await worked(1, paced=False)  # other processes take their part
    assert await worked(jobs) > 0.3 * all_there_is  # a twentieth if it took the loop for busy
