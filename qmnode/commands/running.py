"""Running the node in the foreground, to its exit code."""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from qmnode.errors import ConfigurationError, MessageQueuingError


def run_node(config: Path | None) -> int:
    """0 stopped on request, 1 it could not start or failed, 2 the settings cannot be used."""
    with _cheap_imports():
        import asyncio

        from qmnode.security.process import forbid_core_dumps
        from qmnode.service import Service, configure_log
        from qmnode.settings.node import read_settings

    try:
        settings = read_settings(config)
        configure_log(settings.log)
        forbid_core_dumps()
        asyncio.run(Service(settings, config).run())
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    except MessageQueuingError as error:
        # Here no node is looked for: one could not start, whatever its error would mean to others.
        print(error, file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def _cheap_imports() -> Iterator[None]:
    """Import without what is of no use here.

    That is the collector, which finds no garbage among modules; plugins of pydantic, for which it would read the
    metadata of every package; and rich, which structlog loads if it is there to draw tracebacks: a node logs text.
    """
    gc.disable()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    absent = "rich" not in sys.modules
    if absent:
        sys.modules["rich"] = None  # type: ignore[assignment]  # how the import system is told that there is none
    try:
        importlib.import_module("structlog")
    finally:
        if absent:
            del sys.modules["rich"]
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
