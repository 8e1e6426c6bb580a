"""Python's cycle collector, paused while very many objects are made that are all kept."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def paused_collector() -> Iterator[None]:
    """No collection meanwhile.

    Making a million objects that stay has the collector look through all of them again and again: two thirds of the
    time that a large declaration takes to read.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
