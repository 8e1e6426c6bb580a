"""One segment: its schema, its name and its footer, written whole and read back.

A segment is a Parquet file of events of one node, in the order of their offsets. Its name identifies the node and the
range, its footer the format: a reader lists a place and finds new segments without opening known ones.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

import pyarrow as pa
from pyarrow import compute, parquet

from qmnode.export.events import COLUMNS, FORMAT, RANGES, REQUIRED
from qmnode.export.expansion import ExpansionError, expansion
from qmnode.export.places import Place

ROW_LIMIT: Final = 1 << 20
"""The most rows of a segment: a reader loads one whole."""
EXPANDED_LIMIT: Final = 512 << 20
"""The most bytes of a segment, as a file and in memory, with every value written out."""
_COMPACT: Final = 8 << 20
"""Bytes of a column in memory above which its values are counted before they are written out."""
_LARGEST_OFFSET: Final = (1 << 63) - 1
SUFFIX: Final = ".parquet"
_ROW_GROUP: Final = 1 << 17
_TAIL: Final = 8
"""Bytes at the end of a Parquet file: the length of the preceding metadata, and ``PAR1``."""
_META: Final = "qmnode.segment."
_TYPES: Final = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
SCHEMA: Final = pa.schema([pa.field(name, _TYPES[kind], name not in REQUIRED) for name, kind in COLUMNS.items()])
"""The schema of every segment of this format."""

_NAME: Final = re.compile(
    r"(?P<node>.+)_(?P<node_id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})_(?P<first>\d{20})_(?P<last>\d{20})\.parquet"
)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.-]")


class SegmentError(Exception):
    """A segment cannot be used; the sentence explains why. ``reason`` is one word for a table."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Origin:
    """The node that recorded the events: values that are the same in all its rows."""

    node: str
    """ComputerName of the node."""
    node_id: str
    """GUID of the queue manager, lower case, without braces."""
    site: str = ""
    """Name of its site; empty without a directory."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """The contents of a segment's name."""

    node_id: str
    first: int
    last: int
    node: str = ""

    def __str__(self) -> str:
        return f"{_UNSAFE.sub('-', self.node)}_{self.node_id}_{self.first:020d}_{self.last:020d}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parse a file's name, without directories; None if it is not the name of a segment."""
        match = _NAME.fullmatch(name)
        if match is None or not (first := int(match["first"])) <= (last := int(match["last"])) <= _LARGEST_OFFSET:
            return None
        return cls(match["node_id"], first, last, match["node"])


@dataclass(frozen=True, slots=True)
class Footer:
    """The contents of a segment's footer."""

    name: SegmentName
    rows: int
    first_time: int
    """Microseconds since 1970 (UTC), of the earliest event."""
    last_time: int
    site: str
    schema: pa.Schema
    """The schema of the segment's rows."""


def table_of(columns: Mapping[str, Sequence[object]], origin: Origin, rows: int) -> pa.Table:
    """A table of one node's events from columns of values. Missing columns are null, and the origin is filled in."""
    told = {"node_id": origin.node_id, "node": origin.node, "site": origin.site}
    arrays = []
    for field in SCHEMA:
        if field.name in told:
            arrays.append(pa.repeat(pa.scalar(told[field.name], field.type), rows))
        elif field.name in columns:
            arrays.append(pa.array(columns[field.name], field.type))
        else:
            arrays.append(pa.nulls(rows, field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def write_segment(place: Place, table: pa.Table, origin: Origin) -> SegmentName:
    """Write events of one node, in the order of their offsets, as one segment. Raises OSError."""
    offsets, times = table.column("offset"), table.column("time").cast(pa.int64())
    name = SegmentName(origin.node_id, offsets[0].as_py(), offsets[-1].as_py(), origin.node)
    ends = compute.min_max(times).as_py()
    facts = {
        "format": FORMAT,
        "node": origin.node,
        "node_id": origin.node_id,
        "site": origin.site,
        "first_offset": name.first,
        "last_offset": name.last,
        "first_time": ends["min"],
        "last_time": ends["max"],
        "rows": table.num_rows,
    }
    sink = pa.BufferOutputStream()
    parquet.write_table(
        table.replace_schema_metadata({_META + key: str(value) for key, value in facts.items()}),
        sink,
        row_group_size=_ROW_GROUP,
        compression="zstd",
        write_page_checksum=True,
        coerce_timestamps="us",
    )
    place.put(segment_path(name, ends["min"]), sink.getvalue())
    return name


def segment_path(name: SegmentName, first_time: int) -> str:
    """The path of a segment in its place; ``first_time`` in microseconds since 1970."""
    file = str(name)
    day = datetime.fromtimestamp(first_time // 1_000_000, UTC).date()
    return f"{file.partition('_')[0]}/{day}/{file}"


def read_footer(place: Place, path: str, columns: Sequence[str] = ()) -> Footer:
    """Read and check only the footer of a segment, and how large these columns become in memory. Raises SegmentError if
    the segment is broken, too large, of a newer format, another node's or missing, and OSError if its place does not
    answer, which is no fault of the segment.
    """
    with _opened(place, path) as file:
        size = file.size()
        if size > EXPANDED_LIMIT:
            raise SegmentError("too-large", f"it has {size:,} bytes, and a segment has at most {EXPANDED_LIMIT:,}")
        length = int.from_bytes(file.read_at(_TAIL, max(size - _TAIL, 0))[:4], "little") + _TAIL
        content = file.read_at(min(length, size), max(size - length, 0))
        try:
            metadata = parquet.read_metadata(pa.BufferReader(content))
            footer = _footer(metadata, path)
        except (pa.ArrowException, OSError) as error:
            raise SegmentError("corrupt", f"its end cannot be read: {error}") from error
        _check_expansion(metadata, columns, lambda place, most: bytes(file.read_at(most, place)))
        return footer


def read_segment(place: Place, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a segment, or some of its columns, and check it. Raises SegmentError if it is broken, newer or missing, and
    OSError if its place does not answer, which is no fault of the segment.

    Missing columns are null: an older node did not record them. Unknown columns are left out.
    """
    wanted = pa.schema([SCHEMA.field(name) for name in columns]) if columns is not None else SCHEMA
    with _opened(place, path) as stored:
        if (size := stored.size()) > EXPANDED_LIMIT:
            raise SegmentError("too-large", f"it has {size:,} bytes, and a segment has at most {EXPANDED_LIMIT:,}")
        content = stored.read_buffer()  # any later error is in the bytes themselves
    try:
        metadata = parquet.read_metadata(pa.BufferReader(content))
        footer = _footer(metadata, path)
        there = set(metadata.schema.to_arrow_schema().names) - _empty_columns(metadata)
        read = [name for name in wanted.names if name in there]
        compact = _check_expansion(metadata, read, lambda place, most: bytes(content[place : place + most]))
        with parquet.ParquetFile(
            pa.BufferReader(content), metadata=metadata, page_checksum_verification=True, read_dictionary=compact
        ) as file:
            table = file.read(read, use_threads=False)
        _check_texts(table)
    except (pa.ArrowException, OSError) as error:
        raise SegmentError("corrupt", f"it cannot be read: {error}") from error
    if not table.schema.equals(wanted):
        try:
            table = pa.Table.from_arrays(
                [
                    table.column(name).cast(kind) if name in there else pa.nulls(len(table), kind)
                    for name, kind in zip(wanted.names, wanted.types, strict=True)
                ],
                schema=wanted,
            )
        except pa.ArrowException as error:
            raise SegmentError("schema", f"a column has an unexpected type: {error}") from error
    _check_ranges(table, footer)
    return table.replace_schema_metadata()


def _check_expansion(
    metadata: parquet.FileMetaData, columns: Sequence[str], read: Callable[[int, int], bytes]
) -> list[str]:
    """Check the bytes that columns have in memory before they are read, whatever the footer says. Return the columns of
    texts to read with each distinct text once, because written out they may be too large. Raises SegmentError.
    """
    try:
        sizes = expansion(metadata, columns, read)
    except ExpansionError as error:
        raise SegmentError(error.reason, str(error)) from error
    total = sum(size.pages for size in sizes.values())
    if total > EXPANDED_LIMIT:
        raise SegmentError("too-large", f"it has {total:,} bytes in memory, and may have {EXPANDED_LIMIT:,}")
    return [name for name, size in sizes.items() if size.most > _COMPACT]


def _check_texts(table: pa.Table) -> None:
    """Check that texts are UTF-8, and not too large when each is written out. SegmentError, pyarrow.ArrowException."""
    total = 0
    for column in table.columns:
        for chunk in column.chunks:
            if pa.types.is_dictionary(chunk.type) and len(chunk):
                chunk.dictionary.validate(full=True)
                lengths = compute.binary_length(chunk.dictionary).cast(pa.int64())
                total += compute.sum(lengths.take(chunk.indices)).as_py() or 0
            elif pa.types.is_string(chunk.type):
                chunk.validate(full=True)
    if total > EXPANDED_LIMIT:
        raise SegmentError("too-large", f"its texts have {total:,} bytes in memory, and may have {EXPANDED_LIMIT:,}")


def _check_ranges(table: pa.Table, footer: Footer) -> None:
    """Check that each value is in the range of its column. Raises SegmentError."""
    name = footer.name
    for column, (least, greatest) in (RANGES | {"offset": (name.first, name.last)}).items():
        if column in table.column_names:
            ends = compute.min_max(table.column(column).cast(pa.int64()))
            low, high = ends["min"].as_py(), ends["max"].as_py()
            if low is not None and not least <= low <= high <= greatest:
                wrong = low if low < least else high
                raise SegmentError(
                    "out-of-range",
                    f"node {name.node or name.node_id} says {column} {wrong:,}, which is not {least:,} to {greatest:,}",
                )


def _empty_columns(metadata: parquet.FileMetaData) -> set[str]:
    """Columns with only nulls, which need not be read; most segments have many."""
    filled: set[str] = set()
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for place in range(group.num_columns):
            column = group.column(place)
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count < group.num_rows:
                filled.add(column.path_in_schema.partition(".")[0])
    return set(metadata.schema.to_arrow_schema().names) - filled


def _opened(place: Place, path: str) -> Any:
    try:
        return place.file_system.open_input_file(path)
    except FileNotFoundError:
        raise SegmentError("gone", "it was deleted before it was read") from None


def _footer(metadata: parquet.FileMetaData, path: str) -> Footer:
    facts = {
        key.decode().removeprefix(_META): value.decode("utf-8", "replace")
        for key, value in (metadata.metadata or {}).items()
        if key.startswith(_META.encode())
    }
    try:
        version = int(facts["format"])
        if version > FORMAT:
            raise SegmentError(
                "newer-format", f"it has segment format {version}, and this program reads up to {FORMAT}: upgrade it"
            )
        name = SegmentName(facts["node_id"], int(facts["first_offset"]), int(facts["last_offset"]), facts["node"])
        times = int(facts["first_time"]), int(facts["last_time"])
        footer = Footer(name, int(facts["rows"]), *times, facts["site"], metadata.schema.to_arrow_schema())
    except (KeyError, ValueError) as error:
        raise SegmentError("foreign", "it is a Parquet file, but no segment of a node") from error
    said = SegmentName.parse(path.rpartition("/")[2])
    if said is None or (said.node_id, said.first, said.last) != (name.node_id, name.first, name.last):
        raise SegmentError("misnamed", f"its name is not its own, which is {name}")
    if footer.rows != metadata.num_rows:
        raise SegmentError("corrupt", f"it has {metadata.num_rows} rows, but its footer says {footer.rows}")
    if footer.rows > min(ROW_LIMIT, name.last - name.first + 1):
        raise SegmentError("too-large", f"it has {footer.rows:,} rows, more than its name or {ROW_LIMIT:,} allow")
    return footer
