"""Threads for calls that block: few, bounded in number and in what waits for them, and given up after a time limit."""

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from mqenterprise.directory.errors import DirectoryUnavailable

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Call:
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Workers:
    """A fixed number of daemon threads.

    Unlike a ThreadPoolExecutor's they do not keep the process alive: a server that never answers holds a thread until
    its socket times out, and stopping a node must not wait for that.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._calls: queue.Queue[_Call | None] = queue.Queue(maxsize=waiting)
        self._threads = [
            threading.Thread(target=self._work, name=f"directory-{number}", daemon=True) for number in range(threads)
        ]
        self._closed = False
        for thread in self._threads:
            thread.start()

    async def call(self, function: Callable[[], Answer], limit: float) -> Answer:
        """The function's answer. ``DirectoryUnavailable`` after ``limit`` seconds, or at once when too many wait.

        A function that was not begun when its time was up is not called any more.
        """
        if self._closed:
            raise DirectoryUnavailable("this directory was closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        try:
            self._calls.put_nowait(_Call(function, loop, future))
        except queue.Full:
            raise DirectoryUnavailable("too many calls wait for the directory already") from None
        try:
            async with asyncio.timeout(limit):
                return await future
        except TimeoutError:
            raise DirectoryUnavailable(f"the directory did not answer within {limit:g} s") from None

    def close(self) -> None:
        """Let the threads end when they come back. Waiting work is refused."""
        self._closed = True
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                break
            if call is not None:
                _finish(call, None, DirectoryUnavailable("this directory was closed"))
        for _ in self._threads:
            try:
                self._calls.put_nowait(None)
            except queue.Full:
                break

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.future.done():
                continue
            try:
                answer = call.function()
            except BaseException as error:
                _finish(call, None, error)
            else:
                _finish(call, answer, None)


def _finish(call: _Call, answer: Any, error: BaseException | None) -> None:
    def settle() -> None:
        if call.future.done():
            return
        if error is not None:
            call.future.set_exception(error)
        else:
            call.future.set_result(answer)

    try:
        call.loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return  # the loop is closed: nobody waits any more
