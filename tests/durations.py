"""Where the time of a run went, as its end prints it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

SLOWEST = 20
SHORT = 1.0
"""Folders that took less, in seconds, are not listed."""


def folder_of(nodeid: str) -> str:
    return nodeid.split("::", 1)[0].rpartition("/")[0]


def seconds_by_test(reports: Iterable[pytest.TestReport]) -> Counter[str]:
    """Set-up, call and teardown of each test together."""
    found: Counter[str] = Counter()
    for report in reports:
        found[report.nodeid] += report.duration  # type: ignore[assignment]
    return found


def summary(reports: Iterable[pytest.TestReport]) -> list[str]:
    """The slowest tests and the time of each folder, longest first; empty after a short run."""
    tests = seconds_by_test(reports)
    total = sum(tests.values())
    if total < SLOWEST:
        return []
    folders: Counter[str] = Counter()
    for test, seconds in tests.items():
        folders[folder_of(test)] += seconds
    lines = [f"{seconds:8.1f} s  {test}" for test, seconds in tests.most_common(SLOWEST)]
    lines += ["", f"{total:8.1f} s  all of {len(tests)} tests"]
    return lines + [f"{seconds:8.1f} s  {folder}" for folder, seconds in folders.most_common() if seconds >= SHORT]
