"""Runs of the analysis: late, duplicate, broken and newer segments, runs that are cut, runs that go on."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import compute, parquet

from mqenterprise.pipeline import catalogue, directory
from mqenterprise.pipeline.analysis import Analysis, Step, Summed
from mqenterprise.pipeline.simulation.run import simulate
from mqenterprise.pipeline.simulation.writing import TRUTH, write
from mqenterprise.pipeline.sources.reading import Wanted, with_events
from mqenterprise.pipeline.sources.segments import find_segments, pieces_of
from mqenterprise.pipeline.tables import StoredTable, Tables
from qmnode.errors import ConfigurationError
from qmnode.export.places import Place
from qmnode.export.segment import SCHEMA, Origin, write_segment
from tests.adversary.test_segments import again, with_values, written
from tests.lab.waiting import wait_until
from tests.pipeline import truth as known
from tests.pipeline.enterprises import RING, ring_traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

NAMES = ("message_life", "service_levels", "backlog")
JOB = "service-levels"


@dataclass(frozen=True)
class Simulated:
    """Segments of a simulation, and the tables that one run over all of them makes."""

    segments: Path
    files: tuple[Path, ...]
    whole: dict[str, list[str]]
    directory: directory.DirectoryTables


@pytest.fixture(scope="module")
def simulated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    root = tmp_path_factory.mktemp("simulated")
    write(simulate(RING, ring_traffic(500, rows=300)), str(root / "segments"))
    tables = directory.read([Place.open(str(root / "segments"))])
    Analysis(spark, [str(root / "segments")], str(root / "tables"), tables).run(JOB)
    files = tuple(sorted(path for path in (root / "segments").rglob("*.parquet") if "_0" in path.name))
    assert len(files) > 12, "segments enough to come late"
    truth = parquet.read_table(root / "segments" / TRUTH).to_pandas()
    known.check_message_life(Tables(str(root / "tables")), truth, tables)
    return Simulated(root / "segments", files, contents(root / "tables"), tables)


def contents(tables: Path) -> dict[str, list[str]]:
    """All rows of all tables, in an order of their own."""
    found = {}
    for name in NAMES:
        table = Tables(str(tables))[name].arrow()
        assert table is not None
        found[name] = sorted(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())
    return found


def bring(files: list[Path], place: Path, folder: str = "") -> None:
    """As nodes do: whole under the final name."""
    for file in files:
        target = place / folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target.with_name(f".{file.name}.tmp"))
        target.with_name(f".{file.name}.tmp").rename(target)


class Cut(BaseException):
    """The run ends here."""


def test_a_run_that_is_cut_anywhere_is_run_again_and_nothing_is_counted_twice(
    spark: SparkSession, simulated: Simulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a table's rows are written, between them and the commit, and after it; three segments a commit."""
    plan = iter(["between", "after", "before", "after", "between", *["never"] * 100])
    original = StoredTable.replace

    def replacing(self: StoredTable, frame: Any, dates: Any, state: Callable[[], Any]) -> Any:
        moment = next(plan)
        if moment == "before":
            raise Cut

        def cut() -> Any:
            raise Cut

        commit = original(self, frame, dates, cut if moment == "between" else state)
        if moment == "after":
            raise Cut
        return commit

    monkeypatch.setattr(StoredTable, "replace", replacing)
    most = len(simulated.files) // 2
    analysis = Analysis(spark, [str(simulated.segments)], str(tmp_path / "out"), simulated.directory, most=most)
    cuts = runs = 0
    while runs < 10:
        try:
            if not analysis.run(JOB).tables:
                break
            runs += 1
        except Cut:
            cuts += 1

    assert (cuts, runs < 10) == (5, True)
    assert contents(tmp_path / "out") == simulated.whole


def test_what_cannot_be_read_is_set_aside_and_read_when_it_is_repaired(
    spark: SparkSession, simulated: Simulated, tmp_path: Path
) -> None:
    files = list(simulated.files)
    broken, half, newer = files[:3]
    place = tmp_path / "in"
    bring(files, place)
    damage(place / broken.name)
    (place / half.name).write_bytes(half.read_bytes()[:-200])
    renumber(newer, place / newer.name)
    (place / "notes.parquet").write_bytes(b"no segment")
    analysis = Analysis(spark, [str(place)], str(tmp_path / "out"), simulated.directory)

    summed = analysis.run(JOB)

    aside = {Path(record.path).name: record.reason for record in summed.aside}
    expected = {broken.name: "corrupt", half.name: "corrupt", newer.name: "newer-format", "notes.parquet": "misnamed"}
    assert aside == expected
    read = [parquet.read_metadata(file).num_rows for file in files[3:]]
    assert (summed.segments, summed.events, summed.unreadable) == (len(read), sum(read), 3)
    assert any("segment format 99" in record.sentence for record in summed.aside)
    assert contents(tmp_path / "out") != simulated.whole

    again = analysis.run(JOB)
    assert (again.segments, again.unreadable) == (0, 0)
    assert (again.tables, len(again.aside)) == ({}, 4), "what is known to be broken is not read again, and still told"

    bring([broken, half, newer], place)
    repaired = analysis.run(JOB)
    assert [Path(record.path).name for record in repaired.aside] == ["notes.parquet"]
    assert contents(tmp_path / "out") == simulated.whole


DAY = "2026-01-02"


def test_a_day_to_begin_with_leaves_out_what_was_sent_before_and_can_be_set_earlier(
    spark: SparkSession, simulated: Simulated, tmp_path: Path
) -> None:
    """Segments that come late and twice are folded in, and going back to the beginning gives the tables of one run."""
    files = random.Random(4).sample(simulated.files, len(simulated.files))
    half = len(files) // 2
    place, out = tmp_path / "in", tmp_path / "out"
    since = Analysis(spark, [str(place)], str(out), simulated.directory, since=DAY)

    bring(files[:half], place)
    since.run(JOB)
    bring(files[half:], place)
    bring(files[:3], place, "again")
    since.run(JOB)

    later = {name: [row for row in rows if json.loads(row)["date"] >= DAY] for name, rows in simulated.whole.items()}
    assert contents(out) == later
    assert 0 < len(later["message_life"]) < len(simulated.whole["message_life"])
    assert replace(since, since="2026-01-03").run(JOB).tables == {}, "tables never lose what they have"

    replace(since, since=None).run(JOB)
    assert contents(out) == simulated.whole
    assert since.run(JOB).tables == {}


def test_tables_below_the_segments_are_no_segments(spark: SparkSession, simulated: Simulated, tmp_path: Path) -> None:
    bring([simulated.files[0]], tmp_path)
    below = Analysis(spark, [str(tmp_path)], str(tmp_path / "tables"), simulated.directory)
    below.run("message-life")

    assert below.run("message-life").aside == []
    with pytest.raises(ConfigurationError, match="write the tables to a place of their own"):
        Analysis(spark, [str(tmp_path)], str(tmp_path), simulated.directory).run("message-life")


def test_a_segment_that_one_table_cannot_read_is_counted_once_by_the_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table has read it, the other sets it aside for a column of its own, and then the first one commits."""
    place, count = tmp_path / "in", 4
    sizes = {"kind": ["sample"] * count, "count": [1] * count, "bytes": [10] * count, "queue": ["orders"] * count}
    path = written(place, 1, count, **sizes)
    again(path, with_values(parquet.read_table(path), "sent_time", [-1] * count))
    analysis = Analysis(spark, [str(place)], str(tmp_path / "out"), directory.read([Place.open(str(place))]))
    pieces = pieces_of(find_segments([str(place)])[0])
    original = StoredTable.replace
    one, other = (Wanted(pieces, columns, ("sample",)) for columns in (("time", "kind"), ("sent_time", "kind")))

    def replacing(self: StoredTable, frame: Any, dates: Any, state: Callable[[], Any]) -> Any:
        def late() -> Any:
            with_events(spark, other, analysis._quarantine_of("message_life"), lambda rows: rows.collect())
            return state()

        return original(self, frame, dates, late)

    assert len(with_events(spark, one, analysis._quarantine_of("queue_sizes"), lambda rows: rows.collect())) == count
    monkeypatch.setattr(StoredTable, "replace", replacing)
    (gathered,) = (one for one in catalogue.GATHERED if one.name == "queue_sizes")
    analysis._gather(gathered, find_segments([str(place)])[0], Summed())
    monkeypatch.undo()
    assert [record.reason for record in analysis.quarantine.records().values()] == ["out-of-range"]

    def samples() -> list[int]:
        table = Tables(str(tmp_path / "out"))["queue_sizes"].arrow()
        assert table is not None
        return table.column("samples").to_pylist()

    before = samples()
    assert sum(before) == count
    again(path, with_values(parquet.read_table(path), "sent_time", [1] * count))
    analysis.run("capacity")
    assert samples() == before
    assert analysis.quarantine.records() == {}, "the file is repaired"


def test_an_interrupt_ends_the_jobs_and_nothing_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "in"
    written(place, 1)
    analysis = Analysis(spark, [str(place)], str(tmp_path / "out"), directory.read([Place.open(str(place))]))
    wanted = Wanted(pieces_of(find_segments([str(place)])[0]))
    tried: list[int] = []

    def use(events: DataFrame) -> int:
        tried.append(len(events.inputFiles()))
        if len(tried) == 1:
            spark.sparkContext.parallelize([1], 1).foreach(lambda _: time.sleep(60))
        return 0

    def interrupt() -> None:
        wait_until(spark.sparkContext.statusTracker().getActiveJobsIds, 60, "the job")
        os.kill(os.getpid(), signal.SIGINT)

    watch = threading.Thread(target=interrupt)

    def make(_: Summed) -> None:
        watch.start()
        with_events(spark, wanted, analysis.quarantine, use, analysis._interrupted.is_set)

    with pytest.raises(KeyboardInterrupt):
        analysis._side_by_side(Summed(), [Step("table", make)])
    watch.join()
    assert tried == [1]
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


def damage(path: Path) -> None:
    """Change a byte in the middle of the data, which the footer says nothing of."""
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)


def renumber(source: Path, target: Path) -> None:
    """The same segment in a format of the future."""
    table = parquet.read_table(source)
    said = {**table.schema.metadata, b"qmnode.segment.format": b"99"}
    parquet.write_table(table.replace_schema_metadata(said), target)


def test_a_message_that_only_its_acknowledgment_tells_of_is_joined_when_its_source_is_heard(
    spark: SparkSession, simulated: Simulated, tmp_path: Path
) -> None:
    """Acknowledgments do not say when the message was sent, and so not in which partition it is: in either order."""
    for order in ((True, False), (False, True)):
        place, out = tmp_path / f"in{order[0]}", tmp_path / f"out{order[0]}"
        analysis = Analysis(spark, [str(place)], str(out), simulated.directory)
        for acknowledgments in order:
            part_of(simulated, place, acknowledgments=acknowledgments)
            analysis.run("message-life")
            if acknowledgments and order[0]:
                alone = Tables(str(out))["message_life"].arrow()
                assert alone is not None
                assert set(alone.column("date").to_pylist()) == {"unknown"}
                assert alone.num_rows > 10

        joined = Tables(str(out))["message_life"].arrow()
        assert joined is not None
        rows = sorted(json.dumps(row, default=str, sort_keys=True) for row in joined.to_pylist())
        assert rows == simulated.whole["message_life"]


def part_of(simulated: Simulated, place: Path, *, acknowledgments: bool) -> None:
    """A segment of each node with its acknowledgments, or with everything else; numbered anew, not to overlap."""
    nodes: dict[str, list[pa.Table]] = {}
    for file in simulated.files:
        table = parquet.read_table(file).replace_schema_metadata()
        told = compute.equal(table.column("kind"), "acknowledgment")
        nodes.setdefault(file.name.partition("_")[0], []).append(
            table.filter(told if acknowledgments else compute.invert(told))
        )
    for tables in nodes.values():
        table = pa.concat_tables(tables)
        if not table.num_rows:
            continue
        first = 1 << 41 if acknowledgments else 1
        table = table.set_column(0, SCHEMA.field(0), pa.array(range(first, first + table.num_rows), pa.int64()))
        row = table.slice(0, 1).to_pylist()[0]
        write_segment(Place.open(str(place)), table, Origin(row["node"], row["node_id"], row["site"]))
