"""Waiting for a condition: at least a minute, and longer on a machine with more work than processors.

With ``QMNODE_TEST_PAUSE=SECONDS`` all tests pause for so long between two looks. With 0 they see what is true for a
moment only, and with 0.3 they miss it: both find tests that wait for something else than they need.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Result = TypeVar("Result")
_PAUSE: Final = os.environ.get("QMNODE_TEST_PAUSE")


def _pause(usual: float) -> float:
    return usual if _PAUSE is None else float(_PAUSE)


LEAST: Final = 60.0
"""Seconds that every wait lasts at least: a busy machine can stand still for many."""


def patience() -> float:
    """How many times longer than a quiet machine this one may take: by the work per processor, up to 4."""
    return min(4.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def wait_until(condition: Callable[[], Result], limit: float, what: str, pause: float = 0.02) -> Result:
    """The condition's answer as soon as it is true; AssertionError with ``what`` when it never is."""
    deadline = time.monotonic() + max(limit, LEAST) * patience()
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {max(limit, LEAST):g} s of a quiet machine")
        time.sleep(_pause(pause))


async def holds(condition: Callable[[], Awaitable[bool]], limit: float, what: str, pause: float = 0.02) -> None:
    """Return when the condition is true, in an event loop; AssertionError with ``what`` when it never is."""
    await until(condition, what, limit, pause)


async def until(
    condition: Callable[[], Awaitable[Result]], what: str, limit: float = 60.0, pause: float = 0.03
) -> Result:
    """The answer of an awaitable condition as soon as it is true; AssertionError with ``what`` when it never is."""
    deadline = time.monotonic() + max(limit, LEAST) * patience()
    while True:
        answer = await condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {max(limit, LEAST):g} s of a quiet machine")
        await asyncio.sleep(_pause(pause))


async def eventually(condition: Callable[[], bool], what: str = "it") -> None:
    """Wait in an event loop for a condition of this process, at most a minute on a quiet machine."""

    async def is_so() -> bool:
        return condition()

    await holds(is_so, 60.0, what, 0.01)
