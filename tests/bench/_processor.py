"""Processor time of a process and its children."""

from __future__ import annotations

import os
import time
from pathlib import Path


def _clock(process: int) -> float:
    """Its processor clock as of clock_getcpuclockid(3), which counts nanoseconds where ``/proc`` counts ticks."""
    try:
        return time.clock_gettime(~process << 3 | 2)
    except OSError:
        return 0.0  # it has ended meanwhile


def processor_seconds(root: int) -> float:
    """Of a process and everything that it has started."""
    parents: dict[int, int] = {}
    children: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        number = int(entry.name)
        parents[number] = int(fields[1])
        children[number] = sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")
    family = {root}
    while more := {one for one, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(_clock(one) + children.get(one, 0.0) for one in family)
