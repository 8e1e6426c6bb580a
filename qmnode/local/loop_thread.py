"""An event loop in a thread of its own, for callers that have none: scripts, threads, notebooks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode

T = TypeVar("T")

_REPEAT_INTERRUPT: Final = 0.05


class BackgroundLoop:
    """The event loop of this process that every connection of :mod:`qmnode.sync` shares."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="qmnode.sync", daemon=True)
        self._thread.start()

    @property
    def inherited(self) -> bool:
        """Whether it belongs to the process that this one was forked from; its thread is not here."""
        return os.getpid() != self._process

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Call ``work`` in the loop, and wait for what it returns or raises.

        An exception that interrupts the wait, as Ctrl-C does, cancels the work first. If a message had left its queue
        before the node heard of it, the message is returned and KeyboardInterrupt follows at once.
        """
        if self.inherited:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
                "the connection was made before this process was forked, and belongs to the parent: "
                "call qmnode.sync.connect() in the child",
            )
        if threading.current_thread() is self._thread:
            raise RuntimeError("the thread of qmnode.sync cannot wait for itself")
        outcome: Future[T] = Future()
        started: list[asyncio.Task[T]] = []

        def start() -> None:
            try:
                coroutine = work()
            except Exception as error:  # such as the TypeError of wrong arguments
                outcome.set_exception(error)
                return
            task = self._loop.create_task(coroutine)
            started.append(task)
            task.add_done_callback(lambda done: _copy(done, outcome))

        def cancel() -> None:
            if started:
                started[0].cancel()
            elif not outcome.done():  # interrupted before the work was handed over
                outcome.set_exception(MessageQueuingError(ErrorCode.MQ_ERROR_OPERATION_CANCELLED))

        try:
            self._loop.call_soon_threadsafe(start)
            outcome.exception()
        except BaseException as interruption:
            self._loop.call_soon_threadsafe(cancel)
            if outcome.exception() is not None or not isinstance(interruption, KeyboardInterrupt):
                raise
            self._loop.call_soon_threadsafe(self._interrupt_soon)
        return outcome.result()

    def post(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Call ``work`` in the loop at some time, without waiting; its MQ_ERROR is nobody's concern. For finalizers."""

        async def quiet() -> None:
            with contextlib.suppress(MessageQueuingError):
                await work()

        if not self.inherited:
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(quiet()))

    def _interrupt_soon(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        self._loop.call_later(_REPEAT_INTERRUPT, signal.pthread_kill, main, signal.SIGINT)


def _copy(task: asyncio.Task[T], outcome: Future[T]) -> None:
    if task.cancelled():
        outcome.set_exception(MessageQueuingError(ErrorCode.MQ_ERROR_OPERATION_CANCELLED))
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


_lock = threading.Lock()
_loops: list[BackgroundLoop] = []
"""The last one is this process's. Those before it came with forks: they are kept, since closing a selector that is
shared with the parent would deafen the parent's loop."""


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_renew_lock)


def background_loop() -> BackgroundLoop:
    """The loop of this process, started by its first caller."""
    with _lock:
        if not _loops or _loops[-1].inherited:
            _loops.append(BackgroundLoop())
        return _loops[-1]
