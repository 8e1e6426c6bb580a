"""Where cryptography runs: here, or where it does not hold up the event loop.

The library gives up the interpreter's lock for an RSA operation and must get it back from a loop that is busy, which
hands it over every 5 ms (``sys.setswitchinterval``): measured, a signature of 280 microseconds then takes 1,480. So a
thread pays only while there is a core and time to spare; a node that is at its limit is faster with ``inline``.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Worker(Protocol):
    """Runs a piece of work, for example ``asyncio.to_thread``."""

    async def __call__(self, work: Callable[[], Result], /) -> Result:
        """Return the result of ``work``."""


async def inline(work: Callable[[], Result]) -> Result:
    """The worker of a node with one core: here and now."""
    return work()
