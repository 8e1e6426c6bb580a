"""Exported segments as Spark reads them: every event once, whatever else lies in the place."""

import json
import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles

from mqenterprise.pipeline.sources.events import EVENTS, EventOptions, EventStreamReader
from mqenterprise.pipeline.sources.qmnode_source import QmnodeSource
from mqenterprise.pipeline.sources.quarantine import Quarantine
from mqenterprise.pipeline.sources.segments import Piece, Pieces, Segment
from qmnode.errors import ConfigurationError
from qmnode.export import segment
from qmnode.export.segment import SegmentName
from tests.pipeline.segments import put

COLUMNS = "node string, offset long, kind string"


def offsets(frame: DataFrame) -> list[tuple[str, int]]:
    return sorted((row.node, row.offset) for row in frame.collect())


def read(spark: SparkSession, *places: Path) -> list[tuple[str, int]]:
    return offsets(spark.read.format("qmnode").schema(COLUMNS).load(",".join(map(str, places))))


def told(node: int, first: int, last: int) -> list[tuple[str, int]]:
    return [(f"NODE{node}", one) for one in range(first, last + 1)]


def lines(place: Path) -> list[tuple[str, str, bool]]:
    records = Quarantine(str(place / "_quarantine")).records().values()
    return [(Path(one.path).name[:5], one.reason, one.lost) for one in records]


def test_all_columns_are_read_with_their_types(spark: SparkSession, tmp_path: Path) -> None:
    put(str(tmp_path), range(1, 4))
    frame = spark.read.format("qmnode").load(str(tmp_path))
    assert frame.schema == EVENTS
    row = frame.orderBy("offset").first()
    assert row is not None
    assert (row.offset, row.kind, row.node, row.site, row.label, row.peer) == (
        1, "sent", "NODE1", "Site1", "order 1", None,
    )  # fmt: skip
    assert frame.where("kind = 'sent' and offset > 2").select("label").collect() == [("order 3",)]
    assert frame.where("time >= timestamp'2026-01-01 00:00:00.002Z'").count() == 2


def test_every_event_comes_once(spark: SparkSession, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    first = put(str(one), range(1, 6))
    put(str(one), range(6, 9))
    put(str(one), range(1, 3), node=2)
    put(str(one), range(4, 8))  # overlaps both
    other.mkdir()
    shutil.copy(first, other)  # a duplicate, in another place
    assert read(spark, one, other) == [*told(1, 1, 8), *told(2, 1, 2)]
    assert lines(one) == []


def test_what_is_broken_is_set_aside_and_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(str(tmp_path), range(1, 4))
    half = Path(put(str(tmp_path), range(4, 9), node=2))
    half.write_bytes(half.read_bytes()[:700])
    Path(put(str(tmp_path), range(9, 12), node=3)).write_bytes(b"")
    (tmp_path / "notes.parquet").write_bytes(b"not a segment")
    monkeypatch.setattr(segment, "FORMAT", 9)
    put(str(tmp_path), range(1, 4), node=4)
    monkeypatch.undo()
    for _ in range(2):  # a second run finds, and says, the same
        assert read(spark, tmp_path) == told(1, 1, 3)
        assert sorted(lines(tmp_path)) == [
            ("NODE2", "corrupt", True),
            ("NODE3", "corrupt", True),
            ("NODE4", "newer-format", True),
            ("notes", "misnamed", True),
        ]


def test_a_good_copy_is_read_in_the_place_of_a_broken_one(spark: SparkSession, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    broken = Path(put(str(one), range(1, 4)))
    other.mkdir()
    shutil.copy(broken, other)
    broken.write_bytes(broken.read_bytes()[:300])
    assert read(spark, one, other) == told(1, 1, 3)
    assert lines(one) == [("NODE1", "corrupt", False)]


def test_places_may_be_a_list(spark: SparkSession, tmp_path: Path) -> None:
    places = [str(tmp_path / name) for name in ("one", "a, b")]
    for node, place in enumerate(places, 1):
        put(place, range(1, 3), node=node)
    assert offsets(spark.read.format("qmnode").schema(COLUMNS).load(places)) == [*told(1, 1, 2), *told(2, 1, 2)]


def test_all_processors_have_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def piece(first: int, size: int) -> Piece:
        name = SegmentName("0", first, first)
        return Piece((Segment("", "", name, size, 0),), ((first, first),))

    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    options = EventOptions((str(tmp_path),), "", 32 << 20, 0, 0)
    for size, tasks in ((1 << 10, 1), (1 << 20, 4), (64 << 20, 8)):
        assert len(options.divided([piece(first, size) for first in range(8)])) == tasks


def test_a_directory_that_is_not_there_is_no_empty_one(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert read(spark, tmp_path / "empty") == []
    with pytest.raises(Exception, match=r"there is no .*/mistaken: name the directory or bucket"):
        read(spark, tmp_path / "empty", tmp_path / "mistaken")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rows": "event"}, "rows='event': expected events or messages"),
        ({"partition_bytes": "1k"}, "partition_bytes='1k': expected a whole number"),
        ({"rows": "messages", "body": "yes"}, "body='yes': expected true or false"),
        ({"path": "s3://bucket/copy", "rows": "messages"}, "a store is read from a directory"),
        ({"path": ""}, "say what to read"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path: Path, options: dict[str, str], sentence: str) -> None:
    source = QmnodeSource({"path": str(tmp_path)} | options)
    with pytest.raises(ConfigurationError, match=sentence):
        source.reader(source.schema())


def test_an_unknown_column_is_refused_with_the_known_ones(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="column lable string: expected one of offset, time"):
        spark.read.format("qmnode").schema("lable string").load(str(tmp_path)).collect()


# The stream's reader by itself: what it plans, and that a plan stands.


def stream_reader(place: Path) -> EventStreamReader:
    return EventStreamReader(EventOptions((str(place),), str(place / "_quarantine"), 1 << 25, 0, 0), EVENTS)


def batch(reader: EventStreamReader, start: dict[str, object], end: dict[str, object]) -> list[int]:
    found: list[int] = []
    for partition in reader.partitions(start, end):
        assert isinstance(partition, Pieces)
        for rows in reader.read(partition):
            found += rows.column("offset").to_pylist()
    return sorted(found)


class Follower:
    """Takes one batch after the other, as Spark does, and plans each anew from the offsets as they are on disk."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.offset = stream_reader(place).initialOffset()

    def next(self, limit: ReadLimit | None = None) -> list[int]:
        reader = stream_reader(self.place)
        start = self.offset
        self.offset = json.loads(json.dumps(reader.latestOffset(start, limit or ReadAllAvailable())))
        first = batch(reader, start, self.offset)
        assert batch(stream_reader(self.place), start, self.offset) == first, "a batch made again is the same"
        return first


def test_a_stream_takes_each_event_once_also_late_ones(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    assert follower.next() == []
    put(str(tmp_path), range(1, 4))
    put(str(tmp_path), range(7, 9))
    assert follower.next() == [1, 2, 3, 7, 8]
    late = put(str(tmp_path), range(4, 7))
    assert follower.next() == [4, 5, 6]
    shutil.copy(late, tmp_path)
    before = follower.offset
    assert follower.next() == []
    assert follower.offset == before, "a duplicate is no progress: no batch is made for it"


def test_a_batch_that_was_planned_takes_nothing_that_came_since(tmp_path: Path) -> None:
    put(str(tmp_path), range(1, 4))
    reader = stream_reader(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    put(str(tmp_path), range(4, 9))
    put(str(tmp_path), range(2, 9))
    assert batch(reader, start, end) == [1, 2, 3]


def test_a_limit_leaves_the_rest_for_the_next_batch(tmp_path: Path) -> None:
    for first in (1, 4, 7):
        put(str(tmp_path), range(first, first + 3))
    follower = Follower(tmp_path)
    assert [follower.next(ReadMaxFiles(2)), follower.next(ReadMaxFiles(2)), follower.next(ReadMaxFiles(2))] == [
        [1, 2, 3, 4, 5, 6], [7, 8, 9], [],
    ]  # fmt: skip


def test_available_now_ends_although_more_comes(tmp_path: Path) -> None:
    put(str(tmp_path), range(1, 4))
    reader = stream_reader(tmp_path)
    reader.prepareForTriggerAvailableNow()
    put(str(tmp_path), range(4, 9))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert batch(reader, reader.initialOffset(), end) == [1, 2, 3]


def test_a_broken_segment_is_folded_in_when_it_was_repaired(tmp_path: Path) -> None:
    path = Path(put(str(tmp_path), range(1, 4)))
    whole = path.read_bytes()
    path.write_bytes(whole[:300])
    follower = Follower(tmp_path)
    assert follower.next() == []
    put(str(tmp_path), range(4, 6))
    assert follower.next() == [4, 5]
    path.write_bytes(whole)
    assert follower.next() == [1, 2, 3]
    assert follower.next() == []


def test_segments_that_were_deleted_before_they_were_read_are_named(tmp_path: Path) -> None:
    path = Path(put(str(tmp_path), range(1, 4)))
    reader = stream_reader(tmp_path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    path.unlink()
    assert batch(reader, reader.initialOffset(), end) == []
    (record,) = Quarantine(str(tmp_path / "_quarantine")).records().values()
    assert (record.reason, record.lost) == ("gone", True)
