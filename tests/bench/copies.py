"""Bytes copied for each byte of a large message, on its way from ``send`` to ``receive``: ``python -m
tests.bench.copies``.

``copies.c`` is preloaded into the four processes of ``tests.bench.way`` and counts what goes through the C library.
The kernel's own copies are those between it and the processes. What is under RocksDB's log and its files counts too.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from tests.bench.way import LARGE, PARTIES, Way
from tests.bench.way_parties import EXPRESS

_SOURCE: Final = Path(__file__).with_suffix(".c")
_COUNTS: Final = struct.Struct("=QQQ")
_ROUND_BYTES: Final = 64_000_000
_ROUNDS: Final = 5


class Copied(NamedTuple):
    """Bytes for each byte of the messages."""

    memory: float
    """Copied from one place in memory to another."""
    taken: float
    """From the kernel: read from sockets and files."""
    given: float
    """To the kernel: written to sockets and files."""


class Counters:
    """The counts of each process, by its name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = folder / "copies.so"
        options = ("-O2", "-fno-builtin", "-Wall", "-Werror", "-shared", "-fPIC")
        subprocess.run(["gcc", *options, "-o", str(self._library), str(_SOURCE), "-ldl"], check=True)

    def environment(self, name: str) -> dict[str, str]:
        """What makes a process count."""
        file = self._folder / name.replace(", ", "-")
        file.write_bytes(bytes(_COUNTS.size))
        return {"LD_PRELOAD": str(self._library), "COPIES_FILE": str(file)}

    def read(self) -> list[tuple[int, ...]]:
        """The counts so far, in the order of PARTIES."""
        return [_COUNTS.unpack((self._folder / name.replace(", ", "-")).read_bytes()) for name in PARTIES]


def copied(sizes: dict[str, int], round_bytes: int = _ROUND_BYTES, kind: str = "") -> dict[str, list[Copied]]:
    """What each process copies for recoverable messages of these sizes, four at a time: the least of several rounds, as
    messages are copied once more while they wait for a receiver. With ``express-`` as the kind, no disk is involved.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Path(folder)
        counters = Counters(place)
        way = Way(Path(__file__).parents[2], place / "way", stack, environment=counters.environment)
        found = {}
        for name, size in sizes.items():
            count = round_bytes // size
            way.run("large", f"{kind}{size}", count)  # warms up
            rounds = []
            for _ in range(_ROUNDS):
                before = counters.read()
                way.run("large", f"{kind}{size}", count)
                rounds.append(
                    [
                        Copied(*((b - a) / count / size for a, b in zip(*both, strict=True)))
                        for both in zip(before, counters.read(), strict=True)
                    ]
                )
            found[name] = [min(party) for party in zip(*rounds, strict=True)]
        return found


if __name__ == "__main__":
    for chosen in ("", EXPRESS):
        title = f"{chosen.strip('-') or 'recoverable'}: bytes copied in memory + from the kernel + to it, for each byte"
        table, measured = Table("process", *LARGE, title=title), copied(LARGE, kind=chosen)
        for place, party in enumerate(PARTIES):
            table.add_row(party, *(" + ".join(f"{one:.1f}" for one in measured[name][place]) for name in LARGE))
        Console().print(table)
