"""``mqenterprise analyze all`` over 100,000, a million and ten million messages: each on two cores and in 4 GiB.

Ten million messages are those of the million, sent again and again by the same machines on later days. Every run is
counted against the truth of the simulation. ``QMNODE_MESSAGES`` names other numbers, such as ``100000 3000000``.

``python -m tests.bench.analysis SEGMENTS TABLES`` is the run: the command, from its start to the report.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import compute, parquet

from mqenterprise.pipeline.simulation.run import simulate
from mqenterprise.pipeline.simulation.writing import TRUTH, write
from mqenterprise.pipeline.tables import Tables
from qmnode.export.places import Place
from qmnode.export.segment import SUFFIX, Origin, read_footer, read_segment, write_segment
from tests.bench import Comparison, bench
from tests.bench.limits import measured
from tests.pipeline.enterprises import DAY, RING, ring_traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGES: Final = "QMNODE_MESSAGES"
SIZES: Final = (100_000, 1_000_000, 10_000_000)
SIMULATED: Final = 1_000_000
"""Messages of one simulation at most."""
DAYS: Final = 2
MEMORY: Final = 4 << 30
DRIVER: Final = "2g"
GROWTH: Final = 1.2
"""Of a message's cost from the second run to the last one, at most."""
_NUMBERS: Final = 1 << 32
"""Between the numbers of messages of two days."""
_TIMES: Final = ("time", "sent_time")
_COUNTED: Final = ("sent", "reached", "received", "status", "size", "message_number")


def write_segments(folder: str, messages: int) -> int:
    """Write segments with so many messages; how often those of one simulation are in them."""
    times = -(-messages // SIMULATED)
    write(simulate(RING, ring_traffic(messages // times, days=DAYS, rows=1 << 17)), folder)
    place = Place.open(folder)
    files = [(file.path, read_footer(place, file.path)) for file in place.files(SUFFIX)] if times > 1 else []
    last: dict[str, int] = {}
    for _, footer in files:
        last[footer.name.node_id] = max(footer.name.last, last.get(footer.name.node_id, 0))
    for path, footer in files:
        table, origin = read_segment(place, path), Origin(footer.name.node, footer.name.node_id, footer.site)
        for number in range(1, times):
            write_segment(place, _later(table, number, last[origin.node_id]), origin)
    return times


def _later(events: pa.Table, number: int, offsets: int) -> pa.Table:
    """The same events some days later, about other messages."""
    added: dict[str, Any] = {
        "offset": number * offsets,
        "message_number": number * _NUMBERS,
        "about_message_number": number * _NUMBERS,
        **dict.fromkeys(_TIMES, pa.scalar(number * DAYS * DAY * 1_000_000, pa.duration("us"))),
    }
    for name, value in added.items():
        place = events.schema.get_field_index(name)
        later = compute.add(events.column(name), value).cast(events.schema.field(name).type)
        events = events.set_column(place, events.schema.field(name), later)
    return events


def check(segments: str, tables: str, times: int) -> int:
    """The messages in the table, each status and queue as often as the simulation says. AssertionError."""
    truth = parquet.read_table(f"{segments}/{TRUTH}", columns=list(_COUNTED))
    life = Tables(tables)["message_life"].arrow(columns=_COUNTED)
    assert life is not None
    wanted, found = _counted(truth), _counted(life)
    assert {status: _told(row, times) for status, row in wanted.items()} == found, (wanted, found)
    numbers = compute.sum(truth.column("message_number")).as_py() * times
    numbers += truth.num_rows * _NUMBERS * sum(range(times))
    assert compute.sum(life.column("message_number")).as_py() == numbers, "each message once"
    return life.num_rows


def _counted(rows: pa.Table) -> dict[str, tuple[int | None, ...]]:
    """By status: messages, bytes, and the microseconds until they were reached and received."""
    columns = {
        name: compute.subtract(rows.column(end).cast(pa.int64()), rows.column(begin).cast(pa.int64()))
        for name, begin, end in (("latency", "sent", "reached"), ("waiting", "reached", "received"))
    }
    table = pa.table({"status": rows.column("status"), "size": rows.column("size"), **columns})
    sums = table.group_by("status").aggregate([("size", "count"), *((name, "sum") for name in ("size", *columns))])
    return {row["status"]: tuple(value for name, value in row.items() if name != "status") for row in sums.to_pylist()}


def _told(row: Sequence[int | None], times: int) -> tuple[int | None, ...]:
    return tuple(None if value is None else value * times for value in row)


@bench("analysis")
def analysis() -> list[Comparison]:
    """Seconds for each message and in all, and memory as if bytes were microseconds."""
    found: list[tuple[int, dict[str, float]]] = []
    for messages in map(int, os.environ.get(MESSAGES, " ".join(map(str, SIZES))).split()):
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as name:
            times = write_segments(f"{name}/segments", messages)
            one = measured("tests.bench.analysis", f"{name}/segments", f"{name}/tables", most=MEMORY)
            found.append((check(f"{name}/segments", f"{name}/tables", times), one))
            print(f"{messages:,} messages: {one}", flush=True)
    lines = [
        line
        for messages, one in found
        for line in (
            Comparison(f"{messages:,} messages, seconds", one["seconds"], "one second", 1.0),
            Comparison(f"{messages:,} messages, memory", one["memory"] / 1e6, "4 GiB", MEMORY / 1e6, 1.0),
        )
    ]
    each = [one["seconds"] / messages for messages, one in found[-2:]]
    return [*lines, Comparison("one of the most", each[-1], "one of the fewer", each[0], GROWTH)]


def run(segments: str, tables: str) -> float:
    """The seconds of the command."""
    from mqenterprise.cli import main

    words = ["--from", segments, "--to", tables, "--master", "local[2]", "--memory", DRIVER]
    sys.argv = ["mqenterprise", "analyze", "all", *words]
    start = perf_counter()
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    return perf_counter() - start


if __name__ == "__main__":
    seconds = run(*sys.argv[1:3])
    print(json.dumps({"seconds": seconds}))
