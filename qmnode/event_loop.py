"""The event loop of a node: uvloop where installed (extra ``uvloop``), which is cheaper, or asyncio's own."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from qmnode.errors import ConfigurationError

LOOP_VARIABLE: Final = "QMNODE_EVENT_LOOP"
"""Environment variable that chooses: ``asyncio`` or ``uvloop``. Without it, uvloop is used if it is there."""
_ASYNCIO: Final = "asyncio"
_UVLOOP: Final = "uvloop"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The function that makes the loop; None for asyncio's own. Raises ConfigurationError for one that is not there."""
    wanted = os.environ.get(LOOP_VARIABLE, "")
    if wanted not in ("", _ASYNCIO, _UVLOOP):
        raise ConfigurationError(f"{LOOP_VARIABLE}={wanted}: unknown event loop; use {_ASYNCIO} or {_UVLOOP}")
    if wanted == _ASYNCIO:
        return None
    try:
        import uvloop
    except ImportError:
        if wanted:
            raise ConfigurationError(
                f"{LOOP_VARIABLE}={wanted} needs the extra uvloop: pip install 'qmnode[uvloop]'"
            ) from None
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def loop_name() -> str:
    """The running loop: ``asyncio`` or ``uvloop``."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]
