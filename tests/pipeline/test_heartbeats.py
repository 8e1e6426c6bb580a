"""Heartbeats of probes, from their events to the table: what each probe says, whenever its events come."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from mqenterprise.pipeline.analysis import Analysis
from mqenterprise.pipeline.directory import DirectoryTables
from qmnode.export.places import Place
from qmnode.export.segment import table_of, write_segment
from tests.pipeline.segments import DAY, origin

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

QUEUE = "DIRECT=OS:b\\private$\\q"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
Beat = tuple[str, int, str]
"""Probe, seconds that it took, and the reason if it was missed."""


def put(address: str, node: int, beats: list[Beat], first: int) -> None:
    """Write heartbeats of a node, one each minute."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for offset, (probe, took, reason) in enumerate(beats, first):
        columns["offset"].append(offset)
        columns["kind"].append("heartbeat")
        columns["label"].append(probe)
        columns["queue"].append(QUEUE)
        columns["sent_time"].append(DAY + 60 * SECOND * offset)
        columns["time"].append(DAY + (60 * offset + took) * SECOND)
        columns["cause"].append(reason or None)
        columns["detail"].append(f"sentence about {reason}" if reason else None)
    write_segment(Place.open(address), table_of(columns, origin(node), len(beats)), origin(node))


def at(minute: int, seconds: int) -> datetime:
    return BEGIN + timedelta(minutes=minute, seconds=seconds)


def test_each_probe_says_since_when_it_misses_its_deadline(spark: SparkSession, tmp_path: Path) -> None:
    source = str(tmp_path / "segments")
    first = [("a", 1, ""), ("b", 5, "receiver"), ("a", 3, ""), ("b", 5, "window")]
    later = [("a", 5, "dns"), ("b", 2, ""), ("a", 5, "window")]
    analysis = Analysis(spark, [source], str(tmp_path / "tables"), DirectoryTables(), at(60, 0))
    put(source, 1, later, 5)  # the beginning comes later, and again with the rest
    analysis.run("heartbeats")
    put(source, 1, first, 1)
    put(source, 1, [*first, *later], 1)
    put(source, 2, [("a", 5, "receiver")], 1)
    summed = analysis.run("heartbeats")

    rows = analysis.tables["probes"].arrow()
    assert rows is not None
    found = {(row["node"], row["probe"]): row for row in rows.to_pylist()}
    told = {
        key: (row["reason"], row["missing_since"], row["last_success"], row["last"], row["sent"], row["missed"])
        for key, row in found.items()
    }
    assert told == {
        ("NODE1", "a"): ("window", at(5, 5), at(3, 3), at(7, 5), 4, 2),
        ("NODE1", "b"): (None, None, at(6, 2), at(6, 2), 3, 2),
        ("NODE2", "a"): ("receiver", at(1, 5), None, at(1, 5), 1, 1),
    }
    assert found["NODE1", "a"]["detail"] == "sentence about window"
    assert (found["NODE1", "a"]["mean_us"], found["NODE1", "a"]["worst_us"]) == (2.0 * SECOND, 3 * SECOND)
    assert found["NODE2", "a"]["mean_us"] is None
    assert {row["queue"] for row in found.values()} == {QUEUE}
    assert summed.as_of == at(7, 5)
    assert analysis.run("heartbeats").tables == {}, "nothing is counted twice"
