"""Running the node in the foreground, to its exit code."""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from qmnode.commands.error_line import complain
from qmnode.errors import ConfigurationError, MessageQueuingError

_OPEN_FILES: Final = 256
"""Open files with which a node can serve: about 60 for its store and its sockets, and some for each connection."""
_SLOW_STOP: Final = 20.0
"""Seconds until the log says what holds up a stop. systemd kills the process after 60 (TimeoutStopSec)."""


def run_node(config: Path | None) -> int:
    """0 stopped on request, 1 it could not start or failed, 2 the settings cannot be used."""
    with _cheap_imports():
        import asyncio

        from qmnode.allocator import keep_freed_memory
        from qmnode.event_loop import loop_factory
        from qmnode.security.private_files import forbid_core_dumps
        from qmnode.service import Service, configure_log
        from qmnode.settings.node import read_settings

    try:
        settings = read_settings(config)
        _check_open_files()
        configure_log(settings.log)
        forbid_core_dumps()
        keep_freed_memory()
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(Service(settings, config, _tell_what_holds_up_the_stop).run())
    except ConfigurationError as error:
        complain(str(error))
        return 2
    except MessageQueuingError as error:
        # Here no node is looked for: one could not start, whatever its error would mean to others.
        complain(str(error))
        return 1
    return 0


def check_host(config: Path | None) -> int:
    """Print whether the node could run here: 0 it could, 1 it could not, 2 the settings cannot be used."""
    from qmnode.settings.node import read_settings
    from qmnode.standby import facts, faults

    try:
        found = faults(read_settings(config))
    except ConfigurationError as error:
        complain(str(error))
        return 2
    sys.stdout.write(f"{'unfit' if found else 'fit'}: {'; '.join([*found, facts()])}\n")
    return 1 if found else 0


def _check_open_files() -> None:
    """Raise ConfigurationError if this process may open too few files to serve."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES:
        most = min(hard, _OPEN_FILES) if hard != resource.RLIM_INFINITY else _OPEN_FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most == _OPEN_FILES:
            return
        raise ConfigurationError(
            f"this process may open {most} files, and a node needs {_OPEN_FILES} for its store, its sockets and a few "
            "connections: raise the limit, with 'ulimit -n 4096' in a shell or LimitNOFILE= in the service's unit"
        )


def _tell_what_holds_up_the_stop() -> None:
    """Have it said in the log before the service manager loses patience: what is awaited, and what threads do."""
    import asyncio
    import faulthandler

    asyncio.get_running_loop().call_later(_SLOW_STOP, _log_what_is_awaited)
    faulthandler.dump_traceback_later(_SLOW_STOP + 5)  # where work that does not end keeps the loop from the line above


def _log_what_is_awaited() -> None:
    import asyncio

    import structlog

    waiting = sorted(f"{task.get_name()}: {_innermost(task.get_coro())}" for task in asyncio.all_tasks())
    structlog.get_logger().warning("stopping takes long", seconds=_SLOW_STOP, awaited=waiting)


def _innermost(awaited: object) -> str:
    """Where the last coroutine of a chain stands that has a line of code."""
    place = "?"
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None)
        if frame is not None:
            place = f"{frame.f_code.co_qualname}, {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None)
    return place


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
