"""Segments as jobs read them: by Spark itself where that can be, and the same rows and the same list in any case."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from mqenterprise.pipeline.sources.quarantine import Quarantine, Record
from mqenterprise.pipeline.sources.reading import Wanted, with_events
from mqenterprise.pipeline.sources.segments import find_segments, pieces_of
from tests.pipeline.segments import put

COLUMNS = ("node", "offset", "kind", "label")


class Read:
    """What is read of some places, and how."""

    def __init__(self, spark: SparkSession, *places: Path, kinds: tuple[str, ...] = ()) -> None:
        self.tried: list[int] = []
        """Files that Spark read itself, of each try."""
        pieces = pieces_of(find_segments(map(str, places))[0])
        quarantine = Quarantine(str(places[0] / "_quarantine"))
        self.rows = with_events(spark, Wanted(pieces, COLUMNS, kinds), quarantine, self._use)
        self.aside: list[Record] = list(quarantine.records().values())

    def _use(self, events: DataFrame) -> list[tuple[str, int]]:
        assert events.columns == list(COLUMNS)
        self.tried.append(len(events.inputFiles()))
        return sorted((row.node, row.offset) for row in events.collect())

    def reasons(self) -> list[tuple[str, str, bool]]:
        return [(Path(one.path).name[:5], one.reason, one.lost) for one in self.aside]


def told(node: int, first: int, last: int) -> list[tuple[str, int]]:
    return [(f"NODE{node}", one) for one in range(first, last + 1)]


def damage(path: Path) -> None:
    """The last page of a column that is read, where neither the footer nor the form of its values tell."""
    column = parquet.read_metadata(path).row_group(0).column(21)
    assert column.path_in_schema == "label"
    content = bytearray(path.read_bytes())
    content[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 5] ^= 0x10
    path.write_bytes(content)


def test_whole_segments_are_read_by_spark_itself(spark: SparkSession, tmp_path: Path) -> None:
    put(str(tmp_path), range(1, 4))
    put(str(tmp_path), range(1, 3), node=2)
    read = Read(spark, tmp_path)
    assert read.rows == [*told(1, 1, 3), *told(2, 1, 2)]
    assert (read.tried, read.aside) == ([2], [])


def test_only_the_kinds_that_are_wanted_come(spark: SparkSession, tmp_path: Path) -> None:
    put(str(tmp_path), range(1, 4))
    put(str(tmp_path), range(4, 6), kind="died")
    put(str(tmp_path), range(5, 8), kind="sample")
    assert Read(spark, tmp_path, kinds=("died", "sample")).rows == told(1, 4, 7)


def test_nothing_is_no_failure(spark: SparkSession, tmp_path: Path) -> None:
    assert Read(spark, tmp_path).rows == []


def test_a_page_that_is_broken_is_found_and_everything_else_is_read(spark: SparkSession, tmp_path: Path) -> None:
    put(str(tmp_path), range(1, 4))
    damage(Path(put(str(tmp_path), range(1, 1001), node=2)))
    put(str(tmp_path), range(1, 4), node=3)
    read = Read(spark, tmp_path)
    assert read.rows == [*told(1, 1, 3), *told(3, 1, 3)]
    assert (len(read.tried), read.reasons()) == (2, [("NODE2", "corrupt", True)])


def test_what_its_footer_gives_away_is_set_aside_before_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    put(str(tmp_path), range(1, 4))
    half = Path(put(str(tmp_path), range(1, 4), node=2))
    half.write_bytes(half.read_bytes()[:-100])
    Path(put(str(tmp_path), range(4, 6), node=3)).write_bytes(b"")
    read = Read(spark, tmp_path)
    assert (read.rows, read.tried) == (told(1, 1, 3), [1])
    assert sorted(read.reasons()) == [("NODE2", "corrupt", True), ("NODE3", "corrupt", True)]


def test_a_good_copy_is_read_in_the_place_of_a_broken_one(spark: SparkSession, tmp_path: Path) -> None:
    for name, break_it in (("end", lambda path: path.write_bytes(path.read_bytes()[:300])), ("middle", damage)):
        one, other = tmp_path / name / "one", tmp_path / name / "other"
        broken = Path(put(str(one), range(1, 1001)))
        other.mkdir()
        shutil.copy(broken, other)
        break_it(broken)
        read = Read(spark, one, other)
        assert (read.rows, read.reasons()) == (told(1, 1, 1000), [("NODE1", "corrupt", False)])


def test_segments_that_overlap_give_each_event_once(spark: SparkSession, tmp_path: Path) -> None:
    put(str(tmp_path), range(1, 6))
    put(str(tmp_path), range(4, 8))
    read = Read(spark, tmp_path)
    assert (read.rows, read.tried) == (told(1, 1, 7), [1])


@pytest.mark.parametrize("folder", ["[a]*", "a b", "date=1", "ä%20:,"])
def test_a_directory_may_have_any_name(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    put(str(tmp_path / folder), range(1, 4))
    assert Read(spark, tmp_path / folder).rows == told(1, 1, 3)


def test_columns_of_older_and_newer_nodes_are_what_they_are_here(spark: SparkSession, tmp_path: Path) -> None:
    older, newer, other = (Path(put(str(tmp_path), range(1, 4), node=node)) for node in (1, 2, 3))
    parquet.write_table(parquet.read_table(older).drop_columns(["label"]), older)
    parquet.write_table(parquet.read_table(newer).append_column("mood", pa.array(["good"] * 3)), newer)
    table = parquet.read_table(other)
    parquet.write_table(table.set_column(0, "offset", table["offset"].cast(pa.int32())), other)
    read = Read(spark, tmp_path)
    assert read.rows == [row for node in (1, 2, 3) for row in told(node, 1, 3)]
    assert (read.tried, read.aside) == ([2], [])


def test_a_segment_that_goes_while_it_is_read_is_named(spark: SparkSession, tmp_path: Path) -> None:
    put(str(tmp_path), range(1, 4))
    gone = Path(put(str(tmp_path), range(1, 4), node=2))
    quarantine = Quarantine(str(tmp_path / "_quarantine"))
    pieces = pieces_of(find_segments([str(tmp_path)])[0])

    def use(events: DataFrame) -> list[int]:
        gone.unlink(missing_ok=True)
        return sorted(row.offset for row in events.collect())

    assert with_events(spark, Wanted(pieces, COLUMNS), quarantine, use) == [1, 2, 3]
    assert [(one.path, one.reason) for one in quarantine.records().values()] == [(str(gone), "gone")]


def test_segments_that_ended_long_before_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    put(str(tmp_path), range(1, 4))
    put(str(tmp_path), range(86_400_000, 86_400_003))  # a day later
    pieces = pieces_of(find_segments([str(tmp_path)])[0])
    quarantine = Quarantine(str(tmp_path / "_quarantine"))

    def read(since: datetime) -> int:
        return with_events(spark, Wanted(pieces, COLUMNS, (), since), quarantine, lambda rows: len(rows.inputFiles()))

    assert [read(datetime(2026, 1, day, tzinfo=UTC)) for day in (2, 3, 4)] == [2, 1, 0], "clocks may differ by a day"


def test_what_fails_for_another_reason_fails(spark: SparkSession, tmp_path: Path) -> None:
    put(str(tmp_path), range(1, 4))
    pieces = pieces_of(find_segments([str(tmp_path)])[0])
    with pytest.raises(Exception, match="no_such_column"):
        with_events(
            spark, Wanted(pieces), Quarantine(str(tmp_path / "_quarantine")), lambda rows: rows.select("no_such_column")
        )
