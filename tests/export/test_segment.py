"""One segment: written whole, named for what it has, and refused when it is not what it says."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from qmnode.export import segment
from qmnode.export.events import shown
from qmnode.export.places import Place
from qmnode.export.segment import SCHEMA, Origin, SegmentError, SegmentName, read_footer, read_segment, write_segment

ORIGIN = Origin("NODE_1", "01234567-89ab-cdef-0123-456789abcdef", "Hamburg")
DAY = 1_767_225_600_000_000
"""2026-01-01."""


def events(first: int = 1, rows: int = 3) -> pa.Table:
    columns = {
        "offset": list(range(first, first + rows)),
        "time": [DAY + one for one in range(rows)],
        "kind": ["sent"] * rows,
        "label": ["Bestellung ä"] * rows,
    }
    return segment.table_of(columns, ORIGIN, rows)


def only_file(place: Place) -> str:
    (file,) = place.files(segment.SUFFIX)
    return file.path


def test_a_segment_reads_back_as_it_was_written(tmp_path: Path) -> None:
    place = Place.open(str(tmp_path))
    name = write_segment(place, events(), ORIGIN)
    assert read_segment(place, only_file(place)).equals(events())
    footer = read_footer(place, only_file(place))
    assert (footer.name, footer.rows, footer.site) == (name, 3, "Hamburg")
    assert (footer.first_time, footer.last_time) == (DAY, DAY + 2)


def test_its_name_says_whose_and_which(tmp_path: Path) -> None:
    place = Place.open(str(tmp_path))
    write_segment(place, events(first=7), ORIGIN)
    path = Path(only_file(place)).relative_to(tmp_path)
    name = f"NODE-1_{ORIGIN.node_id}_00000000000000000007_00000000000000000009.parquet"
    assert path == Path("NODE-1", "2026-01-01", name)
    assert SegmentName.parse(name) == SegmentName(ORIGIN.node_id, 7, 9, "NODE-1")


@pytest.mark.parametrize("name", ["x.parquet", f"A_{ORIGIN.node_id}_{9:020d}_{7:020d}.parquet", ".A_B.parquet.tmp"])
def test_other_files_are_no_segments(name: str) -> None:
    assert SegmentName.parse(name) is None


def test_a_reader_takes_the_columns_that_it_wants(tmp_path: Path) -> None:
    place = Place.open(str(tmp_path))
    write_segment(place, events(), ORIGIN)
    assert read_segment(place, only_file(place), ["label", "offset"]).column_names == ["label", "offset"]


def test_a_column_that_an_older_node_did_not_have_is_null(tmp_path: Path) -> None:
    place = Place.open(str(tmp_path))
    write_segment(place, events(), ORIGIN)
    path = only_file(place)
    table = parquet.read_table(path).drop_columns(["label", "state"])
    parquet.write_table(table, path)
    read = read_segment(place, path)
    assert read.schema.equals(SCHEMA)
    assert read["label"].null_count == 3


def test_a_column_of_a_newer_node_is_left(tmp_path: Path) -> None:
    place = Place.open(str(tmp_path))
    write_segment(place, events(), ORIGIN)
    path = only_file(place)
    parquet.write_table(parquet.read_table(path).append_column("mood", pa.array(["good"] * 3)), path)
    assert read_segment(place, path).equals(events())


@pytest.mark.parametrize("kept", [0, 3, 200, -1])
def test_half_a_segment_is_corrupt(tmp_path: Path, kept: int) -> None:
    place = Place.open(str(tmp_path))
    write_segment(place, events(), ORIGIN)
    path = Path(only_file(place))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(SegmentError) as failure:
        read_footer(place, str(path))
    assert failure.value.reason == "corrupt"


def test_a_flipped_byte_in_the_rows_is_found(tmp_path: Path) -> None:
    place = Place.open(str(tmp_path))
    write_segment(place, events(rows=1000), ORIGIN)
    path = Path(only_file(place))
    content = bytearray(path.read_bytes())
    content[100] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(SegmentError) as failure:
        read_segment(place, str(path))
    assert failure.value.reason == "corrupt"


def test_a_newer_format_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place.open(str(tmp_path))
    monkeypatch.setattr(segment, "FORMAT", 7)
    write_segment(place, events(), ORIGIN)
    monkeypatch.undo()
    with pytest.raises(SegmentError, match="segment format 7, and this program reads up to 1") as failure:
        read_footer(place, only_file(place))
    assert failure.value.reason == "newer-format"


def test_a_parquet_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    place = Place.open(str(tmp_path))
    path = tmp_path / str(SegmentName(ORIGIN.node_id, 1, 3, "A"))
    parquet.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(SegmentError) as failure:
        read_segment(place, str(path))
    assert failure.value.reason == "foreign"


def test_a_segment_under_another_name_is_refused(tmp_path: Path) -> None:
    place = Place.open(str(tmp_path))
    write_segment(place, events(), ORIGIN)
    path = Path(only_file(place))
    wrong = path.with_name(str(SegmentName(ORIGIN.node_id, 4, 6, "NODE-1")))
    path.rename(wrong)
    with pytest.raises(SegmentError) as failure:
        read_footer(place, str(wrong))
    assert failure.value.reason == "misnamed"


def test_a_temporary_file_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".A.parquet.tmp").touch()
    (tmp_path / "_quarantine").mkdir()
    (tmp_path / "_quarantine" / "a.parquet").touch()
    assert list(Place.open(str(tmp_path)).files()) == []


def test_an_address_is_shown_without_its_credentials() -> None:
    assert shown("s3://key:secret@bucket/prefix?region=x") == "s3://bucket/prefix?region=x"
    assert shown("/var/lib/segments@home") == "/var/lib/segments@home"


def test_a_place_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert list(Place.open(str(tmp_path / "none")).files()) == []
