"""The counts of a run: what is new is counted once, and what could not be read is named and not counted."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from mqenterprise.pipeline import directory
from mqenterprise.pipeline.analysis import Analysis, Kinds
from mqenterprise.pipeline.sources import reading
from mqenterprise.pipeline.sources.segments import find_segments, pieces_of
from tests.adversary.test_segments import again, with_values, written
from tests.pipeline.segments import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "message-life"


def cut(path: str) -> None:
    Path(path).write_bytes(Path(path).read_bytes()[:300])


def test_segments_are_counted_once_by_what_was_read_of_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    other.mkdir()
    copied = put(str(one), range(1, 11))  # its copy is whole
    shutil.copy(copied, other)
    cut(copied)
    cut(put(str(one), range(1, 21), node=2))  # others have a part of its events
    put(str(other), range(3, 6), node=2)
    put(str(other), range(9, 13), node=2)
    wrong = written(one, 3)  # only one of the tables reads the wrong column
    again(wrong, with_values(parquet.read_table(wrong), "size", [-1] * 10))
    gone = Path(put(str(other), range(1, 41), node=4))  # somebody tidies up during the run
    divided = reading._divided

    def after_tidying(*arguments: object) -> object:
        gone.unlink(missing_ok=True)
        return divided(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "_divided", after_tidying)
    analysis = Analysis(spark, [str(one), str(other)], str(tmp_path / "tables"), directory.read([]))

    summed = analysis.run(JOB)

    assert (summed.segments, summed.events, summed.unreadable) == (3, 10 + 3 + 4, 3)
    assert {Path(record.path).name[:5]: (record.reason, record.lost) for record in summed.aside} == {
        "NODE1": ("corrupt", False),
        "NODE2": ("corrupt", True),
        "NODE3": ("out-of-range", True),
        "NODE4": ("gone", True),
    }
    next_run = analysis.run(JOB)
    assert (next_run.segments, next_run.events, next_run.unreadable) == (0, 0, 0)
    assert [Path(record.path).name[:5] for record in next_run.aside] == ["NODE1", "NODE2", "NODE3"]


def test_events_of_a_kind_are_counted_before_they_are_read_where_that_is_cheap(tmp_path: Path) -> None:
    for node, kind in ((1, "sent"), (2, "heartbeat"), (3, "sent")):
        put(str(tmp_path), range(1, 5), node, kind)
    pieces = pieces_of(find_segments([str(tmp_path)])[0])
    counted = [Kinds().count(pieces, kinds) for kinds in (["sent"], ["heartbeat", "sent"], ["journaled"])]
    assert counted == [8, 12, 0]
    part = [replace(piece, ranges=((1, 2),)) for piece in pieces]
    assert Kinds().count(part, ["sent"]) == 6, "of six events, no more than all"
    cut(pieces[0].copies[0].path)
    assert Kinds().count(pieces, ["journaled"]) == 12, "what cannot be read may have any kind"
