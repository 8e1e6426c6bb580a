"""Choose segments and read them: every event exactly once, whatever other files are in the place.

The plan is made from file names alone. A file that does not hold what its name promises is found when it is read. It is
set aside then, and a copy of the same segment is read in its place if there is one.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyarrow import compute, fs
from pyspark.sql.datasource import InputPartition

from mqenterprise.pipeline.sources.quarantine import Quarantine, Record
from mqenterprise.pipeline.sources.ranges import Ranges
from qmnode.errors import ConfigurationError
from qmnode.export.events import shown
from qmnode.export.places import Place, StoredFile
from qmnode.export.segment import SUFFIX, Footer, SegmentError, SegmentName, read_footer, read_segment

_BATCH: Final = 1 << 14
"""The number of rows that go to Spark at a time."""
_WORTH_A_TASK: Final = 1 << 20
"""The fewest bytes for a task: with less, its start takes longer than its reading."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment's file, as a listing shows it."""

    address: str
    """The address of its place."""
    path: str
    name: SegmentName
    size: int
    modified: int
    """Microseconds since 1970 (UTC)."""

    @property
    def signature(self) -> str:
        """A signature that changes when the file is replaced."""
        return f"{self.size}-{self.modified}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Events of one node to be read from a segment, or from a copy of it."""

    copies: tuple[Segment, ...]
    ranges: tuple[tuple[int, int], ...]
    """The offsets to read."""

    @property
    def whole(self) -> bool:
        """Return whether these are all offsets of the segment."""
        name = self.copies[0].name
        return self.ranges == ((name.first, name.last),)


class Pieces(InputPartition):
    """The pieces that one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(pieces)


@dataclass(frozen=True, slots=True)
class Stray:
    """A file that is no segment by its name."""

    path: str
    signature: str

    def record(self) -> Record:
        sentence = "its name is no segment's: NODE_GUID_FIRST_LAST.parquet"
        return Record(self.path, "misnamed", sentence, self.signature)


def find_segments(addresses: Iterable[str]) -> tuple[list[Segment], list[Stray]]:
    """Return segments in these places, oldest first, and other files with their suffix. OSError, ConfigurationError."""
    segments: list[Segment] = []
    strays: list[Stray] = []
    for address in addresses:
        for file in Place.open(address).files(SUFFIX):
            name = SegmentName.parse(file.name)
            if name is None:
                strays.append(Stray(file.path, f"{file.size}-{_microseconds(file)}"))
            else:
                segments.append(Segment(address, file.path, name, file.size, _microseconds(file)))
    segments.sort(key=lambda segment: (segment.modified, segment.name, segment.path))
    return segments, strays


def events_of(segments: Iterable[Segment]) -> int:
    """Return the number of events in these segments by their names, copies included."""
    return sum(segment.name.last - segment.name.first + 1 for segment in segments)


def _microseconds(file: StoredFile) -> int:
    return int(file.modified.timestamp() * 1e6)


def pieces_of(segments: Iterable[Segment], wanted: Mapping[str, Ranges] | None = None) -> list[Piece]:
    """Return the pieces that give every offset once; with ``wanted`` (by node) only those offsets."""
    taken: dict[str, Ranges] = {}
    pieces: dict[SegmentName, Piece] = {}
    # The longest come first, so that overlaps are cut into as few pieces as possible.
    for segment in sorted(segments, key=lambda one: (one.name.node_id, one.name.first, -one.name.last, one.path)):
        name = segment.name
        if (same := pieces.get(name)) is not None:
            pieces[name] = replace(same, copies=(*same.copies, segment))
            continue
        known = taken.setdefault(name.node_id, Ranges())
        ranges = known.missing(name.first, name.last)
        if wanted is not None:
            asked = wanted.get(name.node_id, Ranges())
            ranges = [part for one in ranges for part in asked.within(*one)]
        for first, last in ranges:
            known.add(first, last)
        if ranges:
            pieces[name] = Piece((segment,), tuple(ranges))
    return list(pieces.values())


def check_places(addresses: Iterable[str]) -> None:
    """Raise ConfigurationError for a missing directory or bucket, whose name is probably wrong. OSError.

    A bucket has no directories: a prefix without objects is simply empty.
    """
    for address in addresses:
        place = Place.open(address)
        if place.is_local and not Path(place.root).exists():
            raise ConfigurationError(
                f"there is no {place.root}: name the directory or bucket that nodes export to (setting export.target)"
            )
        check_bucket(address)


def check_bucket(address: str) -> None:
    """Raise ConfigurationError if a place is in a bucket that does not exist. OSError."""
    place = Place.open(address)
    bucket = place.root.partition("/")[0]
    if not place.is_local and place.file_system.get_file_info(bucket).type == fs.FileType.NotFound:
        raise ConfigurationError(f"there is no bucket {bucket}: create it, or correct {shown(address)}")


def fair_share(pieces: Sequence[Piece], most: int) -> int:
    """Return the bytes of segments for a task, at most ``most``, so that all processors of this machine have work."""
    whole = sum(piece.copies[0].size for piece in pieces)
    return min(most, max(whole // (os.cpu_count() or 1) + 1, _WORTH_A_TASK))


def partitions_of(pieces: Sequence[Piece], size: int) -> list[Pieces]:
    """Divide segments into partitions of about ``size`` bytes each."""
    partitions: list[Pieces] = []
    gathered: list[Piece] = []
    filled = 0
    for piece in pieces:
        length = piece.copies[0].size
        if gathered and filled + length > size:
            partitions.append(Pieces(gathered))
            gathered, filled = [], 0
        gathered.append(piece)
        filled += length
    if gathered:
        partitions.append(Pieces(gathered))
    return partitions


def read_pieces(
    pieces: Iterable[Piece], schema: pa.Schema, quarantine: Quarantine, condition: Any = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of these pieces as record batches of this schema. A broken segment is set aside and gives none.

    While Spark takes the rows of one piece, a thread reads the next: Arrow and the file system do not block Python.
    """

    def read(piece: Piece) -> pa.Table | None:
        table = _read(piece, schema, quarantine)
        if table is not None and condition is not None:
            table = table.filter(condition)
        return table if table is not None and table.num_rows else None

    waiting = iter(pieces)
    with ThreadPoolExecutor(1, "segments") as reader:
        ahead = deque(reader.submit(read, piece) for piece in islice(waiting, 1))
        while ahead:
            table = ahead.popleft().result()
            ahead.extend(reader.submit(read, piece) for piece in islice(waiting, 1))
            if table is not None:
                columns = [table.column(name) for name in schema.names]
                yield from pa.Table.from_arrays(columns, schema=schema).to_batches(max_chunksize=_BATCH)


def kinds_of(segment: Segment) -> dict[str, int]:
    """Return the number of events of each kind in a segment. SegmentError if it is broken, OSError."""
    counts = compute.value_counts(read_segment(_place_of(segment), segment.path, ["kind"])["kind"])
    return dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))


def check_footer(piece: Piece, quarantine: Quarantine, columns: Sequence[str]) -> tuple[Segment, Footer] | None:
    """Return the first copy of a segment with a readable footer, and columns of a bounded size. Other copies are set
    aside.
    """
    return _first_good(
        piece, quarantine, lambda segment: (segment, read_footer(_place_of(segment), segment.path, columns))
    )


def _read(piece: Piece, schema: pa.Schema, quarantine: Quarantine) -> pa.Table | None:
    names = schema.names
    needed = names if piece.whole or "offset" in names else [*names, "offset"]
    found = _first_good(piece, quarantine, lambda segment: read_segment(_place_of(segment), segment.path, needed))
    if found is None or piece.whole:
        return found
    return _only(found, piece.ranges)


def _first_good(piece: Piece, quarantine: Quarantine, read: Callable[[Segment], _T]) -> _T | None:
    failed: list[Record] = []
    found: _T | None = None
    for segment in piece.copies:
        try:
            found = read(segment)
            break
        except SegmentError as error:
            failed.append(Record(segment.path, error.reason, str(error), segment.signature))
    for record in failed:
        quarantine.add(replace(record, lost=found is None))
    return found


def _place_of(segment: Segment) -> Place:
    return Place.open(segment.address)


def _only(table: pa.Table, ranges: Iterable[tuple[int, int]]) -> pa.Table:
    offset = compute.field("offset")
    condition = None
    for first, last in ranges:
        inside = (offset >= first) & (offset <= last)
        condition = inside if condition is None else condition | inside
    return table.filter(condition)
