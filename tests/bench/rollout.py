"""The demo's roll-out, from six bare hosts to nodes that serve: by the clock, and processor of controller and hosts.

``QMNODE_BASELINE`` names another tree with an environment of its own (``.venv``): the two take turns. Without another
tree there are no ratios but that of the clock and its bar, which is for two processors with nothing beside.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.bench import Comparison, bench
from tests.bench.way import BASELINE

ROUNDS: Final = 2
SECONDS: Final = 35.0
"""That the roll-out may take on a machine where it took 64 at commit 50ba033."""
PROCESSOR: Final = 0.6
"""The most processor of all parties, in that of the other tree: the bar is for commit 50ba033."""
CLOCK: Final = 35 / 64
TREE: Final = Path(__file__).parents[2]
PARTY: Final = Path(__file__).parent / "rollout_party.py"
LINES: Final = ("by the clock", "processor of all", "processor of the controller", "processor of the hosts")


def rolled_out(tree: Path) -> dict[str, float]:
    """Seconds of one roll-out by a tree, by line."""
    python = tree / ".venv/bin/python"
    command = [str(python if python.exists() else sys.executable), "-P", str(PARTY)]
    done = subprocess.run(
        command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@bench("rollout")
def rollout() -> list[Comparison]:
    """This tree's roll-out, and the other's."""
    other = os.environ.get(BASELINE)
    trees = [*([Path(other).absolute()] if other else []), TREE]
    turns = [[rolled_out(tree) for tree in trees] for _ in range(ROUNDS)]
    own = {line: statistics.median(turn[-1][line] for turn in turns) for line in LINES}
    lines = [Comparison("by the clock", own[LINES[0]], "the bar", SECONDS, 1.0)]
    if not other:
        return lines
    bars = {LINES[0]: CLOCK, LINES[1]: PROCESSOR}
    for line in LINES:
        before = statistics.median(turn[0][line] for turn in turns)
        ratio = statistics.median(turn[1][line] / turn[0][line] for turn in turns)
        lines.append(Comparison(line, ratio * before, "the other tree", before, bars.get(line)))
    return lines
