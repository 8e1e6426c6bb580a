"""A watch over the event loops of nodes: turns that take much processor time, and calls that block the loop.

A turn is one pass of asyncio's loop over the callbacks that are ready. Its cost is the processor time of the loop's
thread, which other programs of the machine do not lengthen as they lengthen the time of the clock; the garbage
collector's part counts as well. A slower processor does: so the limit grows with the time that a fixed piece of work
takes in the same process at the moment of the long turn, as a multiple of ``REFERENCE``. In a node's process every
callback counts; in the process of a test those count that are not of the test.

uvloop runs its callbacks in C, where nothing can look: nodes on uvloop are not watched.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
import warnings
from asyncio.base_events import BaseEventLoop
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

LIMIT: Final = 0.050
"""Seconds of processor time that a turn may take, on the machine of ``REFERENCE`` or a faster one."""
REFERENCE: Final = 0.0030
"""Seconds of processor time of the piece of work below, where the limit was set."""
STRICT: Final = "QMNODE_TEST_LOOP_STRICT"
"""Environment variable of a run: with 1 every test fails under which a turn of a watched node was too long, and not
only those with the marker ``loop_watch``.
"""
VARIABLE: Final = "QMNODE_TEST_LOOP_WATCH"
"""Environment variable of a node's process: the file that its watch writes to."""
_NOTED: Final = 0.010
"""A turn as long as this is noted if none was longer."""

SYNC: Final = "the store's own sync: no acknowledgment may leave before it"
ALLOWED: Final[dict[tuple[str, str], str]] = {
    ("subprocess.Popen", "asyncio/unix_events.py"): "asyncio starts processes in its loop; the node starts few",
}
"""The blocking calls that are allowed: what is called, the end of the caller's file, and the reason."""
_FILES_OF_CALLS: Final = ("socket.py", "subprocess.py", "selectors.py", "threading.py", "loop_watch.py")
_AUDITED: Final = frozenset(
    {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "subprocess.Popen", "os.system"}
)


@dataclass(frozen=True)
class Turn:
    """A long turn, or a call that blocked the loop."""

    when: float
    """By the monotonic clock, which all processes of a machine share."""
    processor: float
    """Seconds of the loop thread's processor time; 0 of a blocking call."""
    clock: float
    limit: float
    """Seconds of processor time that were allowed."""
    what: str
    """The callback that took most of it, or the call and its caller."""

    @property
    def is_too_long(self) -> bool:
        return self.processor >= self.limit

    def __str__(self) -> str:
        if not self.limit:
            return f"blocking call: {self.what}"
        return (
            f"{self.processor * 1000:.1f} ms of processor time ({self.clock * 1000:.1f} ms by the clock, "
            f"{self.limit * 1000:.0f} allowed): {self.what}"
        )


def _work() -> float:
    """Seconds of processor time of a fixed piece of work."""
    began = time.thread_time()
    table: dict[int, str] = {}
    for number in range(50_000):
        table[number & 255] = str(number)
    return time.thread_time() - began


def limit_now() -> float:
    """The limit of a turn on this machine as fast as it is at this moment."""
    return LIMIT * max(1.0, min(_work() for _ in range(3)) / REFERENCE)


class Watch:
    """Watches the loops of this process from ``start`` to ``stop``."""

    def __init__(
        self, note: Callable[[Turn], object], *, counts: Callable[[Any], bool] = lambda callback: True
    ) -> None:
        """``note`` takes each turn that was too long or the longest so far; ``counts`` says of which callbacks."""
        self._note, self._counts = note, counts
        self._longest = _NOTED
        self._of_turn = self._clock = self._worst = 0.0
        self._worst_handle: Any = None
        self._thread = 0
        """The thread that runs a callback now."""
        self._collected = self._collecting = 0.0
        """Seconds of processor time of the garbage collector in this turn, and when it began."""
        self._undo: list[tuple[Any, str, Any]] = []

    def start(self) -> None:
        """Begin to look at each callback and each turn."""
        run, once = asyncio.Handle._run, BaseEventLoop._run_once  # type: ignore[attr-defined]

        def watched_run(handle: Any) -> None:
            counts, callback = self._counts(handle._callback), handle._callback
            self._thread = threading.get_ident() if counts else 0
            clock, began = time.perf_counter(), time.thread_time()
            try:
                run(handle)
            finally:
                self._thread = 0
                used = time.thread_time() - began
                if counts:
                    self._of_turn += used
                    self._clock += time.perf_counter() - clock
                    if used > self._worst:
                        self._worst, self._worst_handle = used, callback

        def watched_once(loop: Any) -> None:
            self._of_turn = self._clock = self._worst = self._collected = 0.0
            self._worst_handle = None
            once(loop)
            if self._of_turn >= _NOTED:
                self._end_turn()

        self._replace(asyncio.Handle, "_run", watched_run)
        self._replace(BaseEventLoop, "_run_once", watched_once)
        for module, name in ((time, "sleep"), (os, "fsync"), (os, "fdatasync"), (os, "waitpid")):
            self._replace(module, name, self._blocking(getattr(module, name), f"{module.__name__}.{name}"))
        _audited.add(self)
        gc.callbacks.append(self._collects)

    def stop(self) -> None:
        """Leave everything as it was."""
        _audited.discard(self)
        gc.callbacks.remove(self._collects)
        for owner, name, value in reversed(self._undo):
            setattr(owner, name, value)
        self._undo.clear()

    def _collects(self, phase: str, _: object) -> None:
        if self._thread == threading.get_ident():
            now = time.thread_time()
            if phase == "start":
                self._collecting = now
            else:
                self._collected += now - self._collecting

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _blocking(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            self.called(name)
            return function(*arguments, **more)

        return call

    def called(self, name: str) -> None:
        """Note a call that blocks, if the loop makes it and it is not among those that are allowed."""
        if self._thread != threading.get_ident():
            return
        caller = sys._getframe(1)
        while caller.f_back is not None and caller.f_code.co_filename.endswith(_FILES_OF_CALLS):
            caller = caller.f_back
        file = caller.f_code.co_filename
        if not any(name == call and file.endswith(end) for call, end in ALLOWED):
            self._note(Turn(time.monotonic(), 0.0, 0.0, 0.0, f"{name} by {file}:{caller.f_lineno}"))

    def _end_turn(self) -> None:
        if self._of_turn < min(self._longest, LIMIT / 2):
            return
        self._longest = max(self._longest, self._of_turn)
        most = f"{_named(self._worst_handle)} took {self._worst * 1000:.1f} ms"
        if self._collected >= _NOTED / 2:
            most += f"; the garbage collector took {self._collected * 1000:.1f} ms of the turn"
        limit = limit_now() if self._of_turn >= LIMIT else LIMIT
        self._note(Turn(time.monotonic(), self._of_turn, self._clock, limit, most))


_audited: Final[set[Watch]] = set()


def _hear(event: str, arguments: Any) -> None:
    if event in _AUDITED and _audited:
        for watch in tuple(_audited):
            watch.called(event)


def _named(callback: Any) -> str:
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        names, coroutine = [], task.get_coro()
        while coroutine is not None and len(names) < 12:
            names.append(getattr(coroutine, "__qualname__", type(coroutine).__name__))
            coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
        return "task " + " > ".join(names)
    protocol = getattr(task, "_protocol", None)
    name = getattr(callback, "__qualname__", repr(callback)[:200])
    return name if protocol is None else f"{name} for {type(getattr(protocol, '_app_protocol', protocol)).__qualname__}"


_OF_TESTS: Final = ("tests", "_pytest", "pytest_asyncio", "httpx", "httpcore", "anyio", "asyncio", "asyncio.streams")


def of_the_product(callback: Any) -> bool:
    """Whether a callback in the process of a test is one of the node that runs there."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        code = getattr(owner.get_coro(), "cr_code", None)
        return code is not None and "/tests/" not in code.co_filename and "pytest" not in code.co_filename
    protocol = getattr(owner, "_protocol", None) or owner
    protocol = getattr(protocol, "_app_protocol", None) or protocol
    module = type(protocol).__module__ if protocol is not None else getattr(callback, "__module__", None) or ""
    return module.partition(".")[0] in ("qmnode", "mqenterprise", "uvicorn")


# In the process of a node


def watch_process() -> None:
    """Watch this process to its end, if the environment says where to write."""
    # What is deprecated fails at a node as in the process of the tests.
    warnings.filterwarnings("error", category=DeprecationWarning, module=r"(qmnode|mqenterprise)\b")
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    Watch(lambda turn: os.write(file, json.dumps(asdict(turn)).encode() + b"\n")).start()
    sys.addaudithook(_hear)


# In the process of the tests


class Record:
    """What the watch of one node process has written; the turns before it is ready are its start."""

    def __init__(self, path: Path) -> None:
        self.path, self._read, self.ready = path, 0, float("inf")

    def fresh(self) -> list[Turn]:
        """The turns that were noted since the last look, without those of the start."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        turns = [Turn(**json.loads(line)) for line in whole.splitlines()]
        return [turn for turn in turns if turn.when > self.ready]


_records: Final[dict[Path, Record]] = {}


def record_of(log: Path) -> Record:
    """The record of the node that writes this log."""
    path = log.with_name(f"{log.name}.turns")
    return _records.setdefault(path, Record(path))


def fresh_turns() -> list[Turn]:
    """What all node processes noted since the last look."""
    return [turn for record in tuple(_records.values()) for turn in record.fresh()]


def fails(item: pytest.Item) -> bool:
    """Whether a long turn fails a test."""
    return os.environ.get(STRICT) == "1" or item.get_closest_marker("loop_watch") is not None


def too_long(turns: Sequence[Turn]) -> list[str]:
    """Sentences about the turns that were too long, and about blocking calls."""
    return [str(turn) for turn in turns if turn.is_too_long]
