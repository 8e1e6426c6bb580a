"""The event loop of a node: uvloop where installed (extra ``uvloop``), which is cheaper, or asyncio's own."""

import asyncio
import os
from asyncio import selector_events
from collections.abc import Callable, Sequence
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


_OWN_TRANSPORT: Final = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
_IS_SOUND: Final = "writelines" not in vars(_OWN_TRANSPORT) or {"_maybe_pause_protocol", "_conn_lost"} <= {
    *_OWN_TRANSPORT.writelines.__code__.co_names
}


def write_together(transport: asyncio.WriteTransport, parts: Sequence[bytes | bytearray | memoryview]) -> None:
    """Write ``parts``, none empty, in one call, so that the limit of the transport's buffer holds on each Python.

    ``writelines`` of asyncio's own sockets never pauses its protocol in Python 3.12.1 and 3.13.0 (CPython 127655). Some
    releases write to a lost connection, too, whose file descriptor may belong to another, which is then read no more
    (CPython 136234).
    """
    if _IS_SOUND or type(transport) is not _OWN_TRANSPORT:
        transport.writelines(parts)
    else:
        transport.write(b"".join(parts))


def loop_name() -> str:
    """The running loop: ``asyncio`` or ``uvloop``."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]
