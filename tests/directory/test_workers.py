"""Threads for calls that block: who waits for one can be cancelled at any moment."""

from __future__ import annotations

import asyncio
import time

from mqenterprise.directory.port import Workers


async def test_an_answer_that_comes_in_the_moment_of_a_cancellation_does_not_swallow_it() -> None:
    """A node that stops cancels those who wait for its directory, and waits until they have ended."""
    workers, loop = Workers(1, 1), asyncio.get_running_loop()

    async def follow() -> None:
        while True:
            await workers.call(answer, 60)

    following = asyncio.create_task(follow())

    def answer() -> None:
        loop.call_soon_threadsafe(cancel_right_after_the_answer)

    def cancel_right_after_the_answer() -> None:
        time.sleep(0.1)  # the answer is given to the loop meanwhile
        loop.call_soon(following.cancel)

    ended, _ = await asyncio.wait({following}, timeout=60)
    workers.close()
    assert ended
    assert following.cancelled()
