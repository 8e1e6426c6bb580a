"""Message life over 1 and 10 million events, each in a process of its own, on two cores and in 8 GiB.

Spark's session is started before anything is measured.

``python -m tests.bench.message_life PLACE`` is the run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import UTC, datetime
from time import perf_counter
from typing import Final

from mqenterprise.pipeline.analysis import Analysis
from mqenterprise.pipeline.directory import DirectoryTables
from mqenterprise.pipeline.session import open_session
from mqenterprise.pipeline.simulation.run import simulate
from mqenterprise.pipeline.simulation.writing import write
from tests.bench import Comparison, bench
from tests.bench.limits import DRIVER, MEMORY, measured
from tests.pipeline.enterprises import RING, ring_traffic

EVENTS: Final = (1_000_000, 10_000_000)
EVENTS_OF_A_MESSAGE: Final = 8.5
"""At least: some more than are needed are simulated."""
SECONDS: Final = 300.0
GROWTH: Final = 1.2
"""Of an event's cost from the small run to the large one, at most."""


def run(place: str) -> dict[str, float]:
    """Message life, once."""
    spark = open_session("local[2]", memory=DRIVER)
    spark.range(1).count()
    start = perf_counter()
    with tempfile.TemporaryDirectory(prefix="qmnode-bench-") as target:
        summed = Analysis(spark, [place], target, DirectoryTables(), now=datetime(2026, 2, 1, tzinfo=UTC)).run(
            "message-life"
        )
        return {"events": summed.events, "seconds": perf_counter() - start}


@bench("message life")
def message_life() -> list[Comparison]:
    """Seconds for each event and in all, and memory as if bytes were microseconds."""
    found = []
    for events in EVENTS:
        with tempfile.TemporaryDirectory(prefix="qmnode-bench-") as name:
            traffic = ring_traffic(int(events / EVENTS_OF_A_MESSAGE), rows=1 << 17)
            write(simulate(RING, traffic), name)
            found.append(measured("tests.bench.message_life", name))
    small, large = found
    each = [one["seconds"] / one["events"] for one in found]
    return [
        Comparison(f"{large['events']:,} events", large["seconds"], "the bar", SECONDS, 1.0),
        Comparison("their memory, bytes", large["memory"] / 1e6, "the bar", MEMORY / 1e6, 1.0),
        Comparison("one of them", each[1], f"one of {small['events']:,}", each[0], GROWTH),
    ]


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])), flush=True)
