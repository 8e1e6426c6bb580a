"""A node whose segments mean no good to those who read them. An analysis of some is in ``tests/pipeline``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from qmnode.export.events import REQUIRED
from qmnode.export.places import Place
from qmnode.export.segment import SCHEMA, SegmentError, SegmentName, read_footer, read_segment, table_of, write_segment
from tests.adversary.attacks import Area, attack
from tests.lab.nodes import PROJECT
from tests.pipeline.segments import DAY, origin, put


def written(folder: Path, node: int, rows: int = 10, **columns: Any) -> Path:
    """A segment of sent messages, with some columns of other values."""
    values = {
        "offset": list(range(1, rows + 1)),
        "time": [DAY + one for one in range(rows)],
        "kind": ["sent"] * rows,
        "source_id": [f"source-{node}"] * rows,
        "message_number": list(range(rows)),
        "destination": [r"DIRECT=OS:a\private$\q"] * rows,
        "sent_time": [DAY] * rows,
        "size": [100] * rows,
    }
    place = Place.open(str(folder))
    name = write_segment(place, table_of(values | columns, origin(node), rows), origin(node))
    (path,) = [file.path for file in place.files() if file.name == str(name)]
    return Path(path)


def again(path: Path, table: pa.Table | None = None, **options: Any) -> None:
    """Write a segment again, with other values or by other means, and with the footer that it had."""
    metadata = parquet.read_schema(path).metadata
    table = parquet.read_table(path) if table is None else table
    parquet.write_table(table.replace_schema_metadata(metadata), path, **options)


def with_values(table: pa.Table, column: str, values: list[Any]) -> pa.Table:
    """The table with other values in a column."""
    field = SCHEMA.field(column)
    return table.set_column(table.column_names.index(column), field, pa.array(values).cast(field.type))


def reason(path: Path) -> str:
    """Why a segment is set aside when it is read."""
    with pytest.raises(SegmentError) as raised:
        read_segment(Place.open(str(path.parent)), str(path))
    return raised.value.reason


@attack(
    Area.PIPELINE,
    can="as a node, export messages that claim 2^62 bytes, or times beyond the calendar",
    promised="the analysis sets the segment aside by its name and the name of its node, and counts all others",
)
def test_impossible_values_are_no_events(tmp_path: Path) -> None:
    for node, (column, value) in enumerate(
        [("size", 1 << 62), ("time", 1 << 62), ("sent_time", -1), ("quota", -1), ("count", 1 << 60), ("bytes", 1 << 60)]
    ):
        path = written(tmp_path, node)
        again(path, with_values(parquet.read_table(path), column, [value] * 10))
        with pytest.raises(SegmentError, match=f"node NODE{node} says {column} {value:,}") as raised:
            read_segment(Place.open(str(tmp_path)), str(path))
        assert raised.value.reason == "out-of-range"


READER = """
import resource, sys
from pathlib import Path
from qmnode.export.places import Place
from qmnode.export.segment import SegmentError, read_segment
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        read_segment(Place.open(str(Path(path).parent)), path)
    except SegmentError as error:
        print(error.reason)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@attack(
    Area.PIPELINE,
    can="as a node, export a small segment whose texts take gigabytes when they are read",
    promised="its size in memory is known before it is read; it is set aside, and takes no memory",
)
def test_a_small_segment_takes_no_gigabytes(tmp_path: Path) -> None:
    rows = 1 << 20
    once = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), ["x" * 4096])
    path = written(tmp_path, 1)
    name = SegmentName.parse(path.name)
    assert name is not None
    small = parquet.read_table(path, columns=[*REQUIRED, "label"])
    columns = [once if one == "label" else pa.repeat(small[one][0], rows) for one in small.column_names]
    columns[0] = pa.array(range(1, rows + 1))
    facts = parquet.read_schema(path).metadata | {b"qmnode.segment.last_offset": b"%d" % rows}
    facts |= {b"qmnode.segment.rows": b"%d" % rows}
    path = path.with_name(str(SegmentName(name.node_id, 1, rows, name.node)))
    table = pa.Table.from_arrays(columns, small.column_names).replace_schema_metadata(facts)
    parquet.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 16 << 20

    done = subprocess.run(
        [sys.executable, "-c", READER, str(path)], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=300
    )

    why, memory = done.stdout.split()
    assert why == "too-large"
    assert int(memory) < 300, "MiB; written out it is 4,096"


@attack(
    Area.PIPELINE,
    can="as a node, export segments with pages that decompress to far more, encodings that repeat values, lists in "
    "place of values, texts that are no UTF-8, and ranges beyond all numbers",
    promised="each is set aside with its reason, before it is read",
)
def test_no_form_of_a_segment_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"use_dictionary": False, "compression": "zstd"}
    bomb = written(tmp_path, 1, 4_000, label=["x" * 5_000] * 4_000)
    again(bomb, **plain)
    assert bomb.stat().st_size < 200_000
    with monkeypatch.context() as limited:
        limited.setattr("qmnode.export.segment.EXPANDED_LIMIT", 16 << 20)
        assert reason(bomb) == "too-large"
        with pytest.raises(SegmentError, match="in memory"):
            read_footer(Place.open(str(tmp_path)), str(bomb), ["label"])

    repeats = written(tmp_path, 2, 100, label=["x" * 1_000] * 100)
    again(repeats, use_dictionary=False, column_encoding={"label": "DELTA_BYTE_ARRAY"})
    assert reason(repeats) == "schema"

    lists = written(tmp_path, 3)
    table = parquet.read_table(lists)
    again(lists, table.set_column(table.column_names.index("label"), "label", pa.array([["x"] * 1_000] * 10)))
    assert reason(lists) == "schema"

    broken = written(tmp_path, 4)
    table = parquet.read_table(broken)
    wrong = pa.array([b"\xff\xfe"] * 10, pa.binary()).view(pa.string())
    again(broken, table.set_column(table.column_names.index("label"), "label", wrong))
    assert reason(broken) == "corrupt"

    outside = written(tmp_path, 5)
    table = parquet.read_table(outside)
    again(outside, table.set_column(0, SCHEMA.field("offset"), pa.array([1] * 9 + [1 << 40])))
    assert reason(outside) == "out-of-range"

    honest = written(tmp_path, 6)
    assert SegmentName.parse(honest.name.replace(f"{10:020}", "9" * 20)) is None
    assert read_segment(Place.open(str(tmp_path)), str(honest)).num_rows == 10
    assert put(str(tmp_path), range(1, 4), node=7)
