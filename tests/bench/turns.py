"""The benches of this tree against the same benches of an earlier one, which ``QMNODE_BASELINE`` names.

Each tree runs its own bench, in a process of its own that sees no other sources, and the two take turns: first one,
then the other, and the next time the other way round, so that neither always has the warmer processor. Both have the
same interpreter, libraries and disk. A line of the table is what both benches call the same; its ratio is the median
of the ratios of the turns, because a machine that is slow for a while is slow for both of a turn. The time that
a helper of the bench takes counts for its tree: see with a profiler before a ratio is blamed on the product.

Lines that count processor time have a bar, and so has what calls one function again and again. Others, such as
seconds of two processes that wait for a disk, are there to be read.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Final

from tests.bench import BENCHES, Comparison
from tests.bench.way import BASELINE, Party

ROUNDS: Final = {"protocol": 9, "structures": 15, "local": 7, "transport": 5}
"""Turns of each bench, after one that only warms up."""
BAR: Final = 1.03
"""The most processor that a message may cost, in that of the other tree."""
WHOLLY_PROCESSOR: Final = ("protocol", "structures")
PARTY: Final = Path(__file__).parent / "turn_party.py"


def _turns(name: str, trees: list[Path]) -> list[list[dict[str, float]]]:
    """What each tree measured in each turn, by line."""
    turns = []
    with contextlib.ExitStack() as stack:
        parties = []
        for tree in trees:
            command = [sys.executable, "-P", str(PARTY), str(tree), name]
            parties.append(Party(command, PYTHONPATH=str(tree)))
            stack.callback(parties[-1].stop)
        for number in range(ROUNDS[name] + 1):
            found: list[dict[str, float]] = [{} for _ in trees]
            order = list(enumerate(parties))
            for place, party in order if number % 2 else reversed(order):
                party.ask("run")
                for line, seconds in json.loads(party.line()):
                    found[place].setdefault(line, seconds)
            if number:
                turns.append(found)
    return turns


def against_baseline(name: str, baseline: Path) -> list[Comparison]:
    """The lines that both trees have."""
    turns = _turns(name, [Path(__file__).parents[2], baseline.absolute()])
    lines = []
    for line in turns[0][0]:
        if line not in turns[0][1]:
            continue
        before = statistics.median(found[1][line] for found in turns)
        ratio = statistics.median(found[0][line] / found[1][line] for found in turns)
        counted = name in WHOLLY_PROCESSOR or "processor" in line
        lines.append(Comparison(line, ratio * before, "the other tree", before, BAR if counted else None))
    return lines


def replace_benches() -> None:
    """Let the benches compare two trees, if another is named."""
    if baseline := os.environ.get(BASELINE):
        for name in ROUNDS:
            BENCHES[name] = lambda name=name: against_baseline(name, Path(baseline))  # type: ignore[misc]
