"""One tree's own bench, a run for each line asked: a process of ``tests.bench.turns``.

Needs nothing but ``PYTHONPATH``, which names the tree: earlier trees have the same benches over modules of other
names. ``python -P turn_party.py TREE BENCH``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from time import process_time


def main(tree: Path, name: str) -> None:
    """Say "ready", and then the lines of the table, or nothing but processor seconds for an empty question."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the product logs is no answer
    os.chdir(tree)  # the bench starts its own processes with ``-m``, and writes its stores here
    benches = importlib.import_module("tests.bench")
    module = importlib.import_module(f"tests.bench.{name}")
    assert Path(module.__file__ or "").is_relative_to(tree), module.__file__
    if hasattr(module, "ROUNDS"):
        module.ROUNDS = 1  # the rounds are those of the two trees
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        if line.strip():
            lines = [(found.name, found.seconds) for found in benches.BENCHES[name]()]
            print(json.dumps(lines), file=answers, flush=True)
        else:
            print(process_time(), file=answers, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
