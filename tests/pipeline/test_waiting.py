"""Why queues waited: the intervals that Spark makes of changes, against a walk through the same changes by hand."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyarrow import parquet

from mqenterprise.pipeline.analysis import Analysis
from mqenterprise.pipeline.directory import DirectoryTables
from mqenterprise.pipeline.report.figures import figures_of
from qmnode.export.places import Place
from qmnode.export.segment import table_of, write_segment
from tests.pipeline.segments import DAY, origin

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

Change = dict[str, Any]
SECOND = 1_000_000
SECONDS = 7_200
CAUSES = ("socket connect failure", "dns failure", "offline")
QUEUES = ("DIRECT=OS:b\\private$\\q", "DIRECT=OS:c\\private$\\q")


def changes(seed: int) -> list[Change]:
    """What a node exports in two hours in which anything happens, killed at times."""
    chance = random.Random(seed)
    found: list[Change] = [{"kind": "started", "second": 0}]
    for second in sorted(chance.sample(range(1, SECONDS), 120)):
        state = chance.choice(
            ["need validation", "waiting", "disconnected", "disconnected", "disconnected", "connected", "inactive",
             "on hold", "started", "stopped"]
        )  # fmt: skip
        if state in ("started", "stopped"):
            found += [{"kind": one, "second": second} for one in dict.fromkeys((state, "started"))]
            continue
        cause = chance.choice(CAUSES) if state == "disconnected" else None
        found.append(
            {"kind": "queue_state", "second": second, "queue": chance.choice(QUEUES), "state": state, "cause": cause}
        )
    return found


def walked(told: list[Change]) -> set[tuple[str, str, int, int | None]]:
    """The intervals (queue, reason, begin, end): second by second, as an operator would have seen them."""
    current: dict[str, tuple[str, int]] = {}
    failed: dict[str, str | None] = {}
    found: set[tuple[str, str, int, int | None]] = set()
    last = 0

    def finish(queue: str, second: int) -> None:
        reason, begin = current.pop(queue)
        found.add((queue, reason, begin, second))

    for one in told:
        second = one["second"]
        if one["kind"] == "queue_state":
            queue, state = one["queue"], one["state"]
            if state == "disconnected":
                failed[queue] = reason = one["cause"]
            elif state in ("need validation", "waiting"):
                reason = failed.get(queue) or "connecting"
            else:
                failed[queue] = None
                reason = "paused" if state == "on hold" else ""
            if queue in current and current[queue][0] != reason:
                finish(queue, second)
            if reason and queue not in current:
                current[queue] = (reason, second)
        else:
            # A killed node says nothing: what it said last is its end.
            for queue in list(current):
                finish(queue, second if one["kind"] == "stopped" else last)
            failed.clear()
        last = second
    return found | {(queue, reason, begin, None) for queue, (reason, begin) in current.items()}


def put(address: str, node: int, told: list[Change], first: int = 1) -> None:
    columns: dict[str, list[Any]] = defaultdict(list)
    for offset, one in enumerate(told, first):
        for name in ("kind", "queue", "state", "cause"):
            columns[name].append(one.get(name))
        columns["offset"].append(offset)
        columns["time"].append(DAY + one["second"] * SECOND)
    write_segment(Place.open(address), table_of(columns, origin(node), len(told)), origin(node))


def waited(analysis: Analysis) -> dict[str, set[tuple[str, str, int, int | None]]]:
    found: dict[str, set[tuple[str, str, int, int | None]]] = defaultdict(set)
    rows = analysis.tables["waiting"].arrow()
    assert rows is not None
    for row in rows.to_pylist():
        ends = [None if one is None else round(one.timestamp() - DAY / SECOND) for one in (row["begin"], row["end"])]
        assert ends[0] is not None
        found[row["node"]].add((row["queue"], row["reason"], ends[0], ends[1]))
    assert rows.num_rows == sum(map(len, found.values())), "no interval twice"
    return found


def without_empty(found: set[tuple[str, str, int, int | None]]) -> set[tuple[str, str, int, int | None]]:
    return {one for one in found if one[2] != one[3]}


def test_each_interval_has_its_reason_whenever_its_events_come(spark: SparkSession, tmp_path: Path) -> None:
    told = {node: changes(node) for node in (1, 2)}
    source = str(tmp_path / "segments")
    now = datetime.fromtimestamp(DAY / SECOND + SECONDS, UTC)
    analysis = Analysis(spark, [source], str(tmp_path / "tables"), DirectoryTables(), now)
    for node, some in told.items():
        put(source, node, some[60:], 61)  # the beginning comes later, and again with the rest
    analysis.run("waiting")
    for node, some in told.items():
        put(source, node, some[:70])
    analysis.run("waiting")

    found = waited(analysis)

    for node, some in told.items():
        expected = walked(some)
        assert without_empty(found[f"NODE{node}"]) == without_empty(expected)
    assert analysis.run("waiting").tables == {}, "nothing is counted twice"
    figures = figures_of(analysis.target, DirectoryTables(), now)
    hours = figures.waiting_by_hour()
    every = [one for some in told.values() for one in walked(some)]
    for hour, counted in enumerate(hours.to_dict("records")):
        for reason, average in counted.items():
            seen = sum(
                max(0, min(SECONDS if end is None else end, 3600 * (hour + 1)) - max(begin, 3600 * hour))
                for _, why, begin, end in every
                if why == reason
            )
            assert abs(average * 3600 - seen) < 1, (hour, reason)
    assert set(hours.columns) == {reason for _, reason, begin, end in every if begin != end}


def test_segments_without_causes_are_read_as_before(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "segments"
    put(str(source), 1, [{"kind": "queue_state", "second": 5, "queue": QUEUES[0], "state": "disconnected"}])
    (path,) = source.rglob("*.parquet")
    earlier = parquet.read_table(path).drop_columns(["cause", "detail"])
    parquet.write_table(earlier, path, compression="zstd", write_page_checksum=True)
    now = datetime.fromtimestamp(DAY / SECOND + 60, UTC)
    analysis = Analysis(spark, [str(source)], str(tmp_path / "tables"), DirectoryTables(), now)

    assert analysis.run("waiting").aside == []
    assert waited(analysis) == {"NODE1": {(QUEUES[0], "not recorded", 5, None)}}
    kept = analysis.tables["waiting"].arrow()
    assert kept is not None
    assert pd.Series(kept["wait_us"].to_pylist()).eq(0).all(), "nothing is known after the last event"
