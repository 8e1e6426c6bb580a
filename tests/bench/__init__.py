"""Speeds with ratios taken in one run: ``python -m tests.bench [NAME]`` (``make bench``) prints the tables.

A machine is noisy and machines differ, so a speed is compared with a baseline measured in the same run, the two in
turns, and the ratio of medians is what has a bar. A module of this package registers its benches by being imported.
"""

from __future__ import annotations

import gc
import statistics
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of a table: seconds per call of what is measured and of its baseline; ``bar`` is the highest ratio."""

    name: str
    seconds: float
    baseline: str
    baseline_seconds: float
    bar: float | None = None

    @property
    def ratio(self) -> float:
        """How many times as long as the baseline it takes."""
        return self.seconds / self.baseline_seconds

    @property
    def holds(self) -> bool:
        """Whether the ratio is within the bar."""
        return self.bar is None or self.ratio <= self.bar


def absolute(name: str, seconds: float, goal: str, goal_seconds: float, bare_seconds: float) -> Comparison:
    """A line against a goal in seconds, which is a bar only if this machine could reach it: ``bare_seconds`` is what
    the baseline of the same run needs, times what its ratio may be.
    """
    return Comparison(name, seconds, goal, goal_seconds, 1.0 if bare_seconds <= goal_seconds else None)


BENCHES: dict[str, Callable[[], list[Comparison]]] = {}


def bench(name: str) -> Callable[[Callable[[], list[Comparison]]], Callable[[], list[Comparison]]]:
    """Register a function that measures; its table is printed under ``name``."""

    def register(measure: Callable[[], list[Comparison]]) -> Callable[[], list[Comparison]]:
        BENCHES[name] = measure
        return measure

    return register


def medians(candidates: list[Callable[[], object]], *, calls: int = 50, rounds: int = 400) -> list[float]:
    """Median seconds per call of each, measured in turns so that a slow moment of the machine hits all alike.

    A turn is short, well under a millisecond for what takes microseconds: in a long one, a busy machine would take the
    processor away from the slower candidate more often, and the ratio would say more of the machine than of the code.
    """
    times: list[list[float]] = [[] for _ in candidates]
    loop = range(calls)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for candidate, taken in zip(candidates, times, strict=True):
                start = perf_counter()
                for _ in loop:
                    candidate()
                taken.append((perf_counter() - start) / calls)
    finally:
        if collecting:
            gc.enable()
    return [statistics.median(taken) for taken in times]
