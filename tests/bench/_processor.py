"""Processor time of a process and its children."""

from __future__ import annotations

import os
from pathlib import Path


def processor_seconds(root: int) -> float:
    """Of a process and everything that it has started."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        number = int(entry.name)
        parents[number] = int(fields[1])
        spent[number] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    family = {root}
    while more := {one for one, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(spent.get(one, 0.0) for one in family)
