"""Prints the tables of all benches, or of those named; exits 1 when a bar does not hold.

With ``QMNODE_BASELINE``, another tree of the sources, some compare the two trees: see ``tests.bench.turns``.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

from rich.console import Console
from rich.table import Table

import tests.bench
from tests.bench import BENCHES, Comparison, turns


def table_of(name: str, lines: list[Comparison]) -> Table:
    """One bench as a table."""
    table = Table("what", "µs", "baseline", "baseline µs", "ratio", "bar", title=name)
    for line in lines:
        bar = "" if line.bar is None else f"{line.bar:.2f} {'holds' if line.holds else 'BROKEN'}"
        micro, baseline = f"{line.seconds * 1e6:.2f}", f"{line.baseline_seconds * 1e6:.2f}"
        table.add_row(line.name, micro, line.baseline, baseline, f"{line.ratio:.2f}", bar)
    return table


def main(names: list[str]) -> int:
    """Run the benches named, or all."""
    for module in pkgutil.iter_modules(tests.bench.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"tests.bench.{module.name}")
    turns.replace_benches()
    unknown = sorted(set(names) - set(BENCHES))
    if unknown:
        print(f"no such bench: {', '.join(unknown)}; there are: {', '.join(sorted(BENCHES))}", file=sys.stderr)
        return 2
    broken = False
    for name in names or sorted(BENCHES):
        lines = BENCHES[name]()
        broken |= not all(line.holds for line in lines)
        Console().print(table_of(name, lines))
    return int(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
