"""Messages in a queue: received in order at a steady pace, refused when it is full, expired after a long wait."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from mqenterprise.pipeline.simulation.journeys import NEVER

if TYPE_CHECKING:
    from mqenterprise.pipeline.graph import Flags, Integers


@dataclass(slots=True)
class Stay:
    """The end of each arrival, in order: the time of its reception or expiry, or its refusal (``full``)."""

    received: Integers
    expired: Integers
    full: Flags


def stay(arrivals: Integers, sizes: Integers, patience: Integers, pause: int | None, quota: int | None) -> Stay:
    """``arrivals`` in order of time, with their sizes and how long they may wait (NEVER: for ever), microseconds.

    A receiver takes the first message as soon as it is there and ``pause`` has passed since the message before; None:
    no receiver. ``quota`` is in bytes; None: no limit.
    """
    if quota is not None or (patience < NEVER).any():
        return _one_by_one(arrivals, sizes, patience, pause, quota)
    count = len(arrivals)
    never, none = np.full(count, NEVER), np.zeros(count, dtype=bool)
    if pause is None:
        return Stay(never, never, none)
    turns = pause * np.arange(count, dtype=np.int64)
    return Stay(np.maximum.accumulate(arrivals - turns) + turns, never, none)


def _one_by_one(arrivals: Integers, sizes: Integers, patience: Integers, pause: int | None, quota: int | None) -> Stay:
    count, never = len(arrivals), int(NEVER)
    received, expired, full = [never] * count, [never] * count, [False] * count
    inside: list[tuple[int, int]] = []
    filled = 0
    free = -never
    for index, (time, size, most) in enumerate(zip(arrivals.tolist(), sizes.tolist(), patience.tolist(), strict=True)):
        if quota is not None:
            while inside and inside[0][0] <= time:
                filled -= heappop(inside)[1]
            if filled + size > quota:
                full[index] = True
                continue
        turn = never if pause is None else max(time, free)
        last = min(time + most, never)
        if turn <= last and turn < never:
            received[index] = turn
            free = turn + (pause or 0)
        elif most < never:
            expired[index] = last
        if quota is not None:
            filled += size
            heappush(inside, (min(received[index], expired[index]), size))
    return Stay(np.array(received), np.array(expired), np.array(full))
