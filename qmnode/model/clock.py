"""The system's clock."""

import asyncio
import time
from collections.abc import Callable

from qmnode.model.ports import TimerHandle


class SystemClock:
    """Wall time and the timers of the running event loop."""

    def time(self) -> float:
        """Seconds since 1970 (UTC)."""
        return time.time()

    def call_later(self, delay: float, callback: Callable[[], object]) -> TimerHandle:
        """Call back after ``delay`` seconds."""
        return asyncio.get_running_loop().call_later(delay, callback)
