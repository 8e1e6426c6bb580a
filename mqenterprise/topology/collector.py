"""Pause Python's cycle collector while very many long-lived objects are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Suspend garbage collection inside the block.

    While a million objects are made that all stay alive, the collector scans them again and again. That takes two
    thirds of the time in which a large declaration is read.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
