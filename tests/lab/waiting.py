"""Waiting for a condition, with a limit."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Result = TypeVar("Result")


def wait_until(condition: Callable[[], Result], limit: float, what: str, pause: float = 0.02) -> Result:
    """The condition's answer as soon as it is true; AssertionError with ``what`` when it never is."""
    deadline = time.monotonic() + limit
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {limit:g} s")
        time.sleep(pause)


async def holds(condition: Callable[[], Awaitable[bool]], limit: float, what: str, pause: float = 0.02) -> None:
    """Return when the condition is true, in an event loop; AssertionError with ``what`` when it never is."""
    deadline = time.monotonic() + limit
    while not await condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {limit:g} s")
        await asyncio.sleep(pause)
