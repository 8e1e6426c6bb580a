"""Segments of nodes that mean no good, in an analysis of the whole enterprise; ``tests/adversary`` has their forms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow import parquet

from mqenterprise.pipeline.jobs import message_life
from mqenterprise.pipeline.jobs.service_levels import service_levels
from mqenterprise.pipeline.sources.quarantine import Quarantine
from mqenterprise.pipeline.sources.reading import Wanted, with_events
from mqenterprise.pipeline.sources.segments import find_segments, pieces_of
from qmnode.export.events import RANGES
from tests.adversary.test_segments import again, with_values, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

WRONG = {
    2: ("size", 1 << 62, True),
    3: ("time", 1 << 62, True),
    4: ("sent_time", -1, True),
    5: ("size", 1 << 62, False),
}
"""A value of each hostile node, and whether the footer tells it."""
LATE = 1_400
"""Messages whose times to the queue together do not fit a number."""


def test_nodes_with_impossible_values_stop_no_analysis(spark: SparkSession, tmp_path: Path) -> None:
    segments, tables = tmp_path / "segments", tmp_path / "tables"
    written(segments, 1)
    for node, (column, value, told) in WRONG.items():
        path = written(segments, node)
        again(path, with_values(parquet.read_table(path), column, [value] * 10), write_statistics=told)
    latest = RANGES["time"][1]
    late = {"kind": ["sent", "reached"] * LATE, "time": [0, latest] * LATE, "destination": ["late"] * 2 * LATE}
    written(segments, 6, 2 * LATE, **late, message_number=[number // 2 for number in range(2 * LATE)])
    quarantine = Quarantine(str(tables / "_quarantine"))
    wanted = Wanted(pieces_of(find_segments([str(segments)])[0]), message_life.COLUMNS, message_life.KINDS)

    def levels(events: DataFrame) -> dict[str, Row]:
        lives = message_life.finished(message_life.lives_of(events))
        return {row["queue"]: row for row in service_levels(lives).collect()}

    found = with_events(spark, wanted, quarantine, levels)

    aside = quarantine.records().values()
    assert {Path(one.path).name[:5]: (one.reason, one.sentence.partition(", which")[0]) for one in aside} == {
        f"NODE{node}": ("out-of-range", f"node NODE{node} says {column} {value:,}")
        for node, (column, value, _) in WRONG.items()
    }
    slow, honest = found.pop("late"), list(found.values())
    assert [(row["messages"], row["bytes"]) for row in honest] == [(10, 1_000)]
    assert (slow["messages"], slow["latency_us_sum"], slow["latency_us_max"]) == (LATE, None, latest)
