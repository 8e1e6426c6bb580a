"""The counts of a run: what is new is counted once, and what could not be read is named and not counted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from mqenterprise.pipeline import directory
from mqenterprise.pipeline.analysis import Analysis
from mqenterprise.pipeline.sources import reading
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
