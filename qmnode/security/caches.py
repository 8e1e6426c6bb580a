"""Caches: entries up to a number and an age, and one question to the directory for all who wait for its answer.

The caches of session keys and of user certificates are of this kind (MS-MQQB 3.1.1.3, 3.1.2.10 to 3.1.2.13, 3.1.6.10 to
3.1.6.13). Times are seconds since 1970 and come from the caller. Old versions kept SendBaseSymmetricKeyCache and
ReceiveBaseSymmetricKeyCache apart. Here they are one with the others: the provider is part of the key of an entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar

CLOCK_TOLERANCE: Final = 60.0
"""Seconds that an entry may be from the future: callers read the clock before they wait for their turn."""
CLEANUP_MARGIN: Final = 60.0
"""Seconds that the cleanup timers add to the time when the oldest entry expires (3.1.6.10)."""


class Aged(Protocol):
    """An entry of a cache: anything with the time when it was made."""

    @property
    def cached_time(self) -> float:
        """The time when it was made, in seconds since 1970."""


KeyType = TypeVar("KeyType")
Entry = TypeVar("Entry", bound=Aged)


class AgedCache(Generic[KeyType, Entry]):
    """Entries up to a number and an age. May be used from several threads.

    ``lifetime`` is in milliseconds, as in the ADM. The specification lets an expired entry live until its timer fires;
    here it is no longer found, so that a lifetime means what it says for a revoked certificate and a rotated key.
    """

    def __init__(self, size: int, lifetime: int) -> None:
        self._entries: dict[KeyType, Entry] = {}
        self._size = size
        self._lifetime = lifetime / 1000
        self._lock = Lock()
        self.cleanup_due: float | None = None
        """When the cleanup timer fires; None while it is stopped."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: KeyType, now: float) -> Entry | None:
        """The entry, unless it has expired. One from the future expired too: the clock was set back."""
        entry = self._entries.get(key)
        return entry if entry is not None and self._is_fresh(entry, now) else None

    def add(self, key: KeyType, entry: Entry) -> None:
        """Keep an entry; a full cache first discards the oldest half of its size. Starts the cleanup timer."""
        with self._lock:
            if key not in self._entries and len(self._entries) >= self._size:
                oldest = sorted(self._entries, key=lambda each: self._entries[each].cached_time)
                for each in oldest[: self._size // 2]:
                    del self._entries[each]
            self._entries[key] = entry
            if self.cleanup_due is None:
                self.cleanup_due = entry.cached_time + self._lifetime

    def clean_up(self, now: float) -> float | None:
        """The cleanup timer event: delete what has expired. Returns when to come back, or None if nothing is left."""
        with self._lock:
            kept = {
                key: entry for key, entry in self._entries.items() if 0 <= now - entry.cached_time <= self._lifetime
            }
            self._entries = kept
            oldest = min((entry.cached_time for entry in kept.values()), default=None)
            self.cleanup_due = None if oldest is None else oldest + self._lifetime + CLEANUP_MARGIN
            return self.cleanup_due

    def _is_fresh(self, entry: Entry, now: float) -> bool:
        return -CLOCK_TOLERANCE <= now - entry.cached_time <= self._lifetime

    def forget(self, condition: Callable[[KeyType, Entry], bool]) -> int:
        """Delete the entries that satisfy a condition; returns how many: a key was rotated or destroyed."""
        with self._lock:
            kept = {key: entry for key, entry in self._entries.items() if not condition(key, entry)}
            forgotten = len(self._entries) - len(kept)
            self._entries = kept
            return forgotten


Question = TypeVar("Question")
Answer = TypeVar("Answer")


class SharedReads(Generic[Question, Answer]):
    """Questions that are under way, by what they ask for. One who stops waiting takes nothing from the others."""

    def __init__(self) -> None:
        self._running: dict[Question, asyncio.Task[Answer]] = {}

    async def share(self, place: Question, ask: Callable[[], Coroutine[None, None, Answer]]) -> Answer:
        """The answer to the question at ``place``, which ``ask`` puts unless someone has put it already."""
        task = self._running.get(place)
        if task is None:
            task = asyncio.create_task(ask())
            self._running[place] = task
            task.add_done_callback(lambda done: self._finished(place, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End the questions that still run; those who wait are cancelled."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _finished(self, place: Question, task: asyncio.Task[Answer]) -> None:
        del self._running[place]
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio logs nothing if all waiters have left
