"""Events of segments for jobs: by Spark's own Parquet reader what that can read, and the rest in Python.

Rows that Python's tasks read cost Spark one more copy of each batch. So a whole segment in a directory, whose footer
has been checked here, is read by Spark, which checks the pages. Parts of segments, buckets, and segments with other
types of columns are read in Python, and so is everything once more when Spark comes upon a page that is broken: then
the segment is set aside where it is read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from mqenterprise.pipeline.sources.segments import check_footer, fair_share, partitions_of, read_pieces
from qmnode.export.places import Place
from qmnode.export.segment import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from mqenterprise.pipeline.sources.quarantine import Quarantine
    from mqenterprise.pipeline.sources.segments import Piece, Pieces
    from qmnode.export.segment import Footer

_PARTITION: Final = 16 << 20
"""Bytes of segments for one of Python's tasks at most."""
_CHECKED_AT_ONCE: Final = 8
_WHOLE_OR_NOTHING: Final = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
"""However the session is set: no row is left out silently."""
_CLOCKS: Final = timedelta(days=1)
"""By so much the clocks of nodes may differ."""
_PATTERN: Final = frozenset("*?[]{}\\")
"""Spark takes a path with one of these for a pattern."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read: columns of events of some kinds, all columns and kinds if nothing is said."""

    pieces: Sequence[Piece]
    columns: Sequence[str] = tuple(SCHEMA.names)
    kinds: Sequence[str] = ()
    since: datetime | None = None
    """Segments whose events are all from long before need not be read; ``use`` chooses among the others' rows."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""
        return pa.schema([SCHEMA.field(name).with_nullable(True) for name in self.columns])

    def is_over(self, footer: Footer) -> bool:
        """Whether everything in a segment is from long before ``since``."""
        return self.since is not None and footer.last_time < (self.since - _CLOCKS).timestamp() * 1e6


def with_events(spark: SparkSession, wanted: Wanted, quarantine: Quarantine, use: Callable[[DataFrame], _T]) -> _T:
    """What ``use`` makes of the events. What cannot be read is set aside by the time that it has read all of them.

    ``use`` is called again, with events that Python reads, when Spark has failed to read a file: it must not mind.
    """
    paths, rest = _divided(wanted, quarantine)
    if not paths:
        return use(_by_python(spark, wanted, rest, quarantine))
    try:
        events = _by_spark(spark, wanted, paths)
        return use(events.unionByName(_by_python(spark, wanted, rest, quarantine)) if rest else events)
    except (PySparkException, Py4JError):
        return use(_by_python(spark, wanted, wanted.pieces, quarantine))


def _divided(wanted: Wanted, quarantine: Quarantine) -> tuple[list[str], list[Piece]]:
    """The files that Spark can read, and the pieces that it cannot.

    A piece without a good footer is in neither, and one that is too old.
    """
    types = {field.name: field.type for field in wanted.schema}

    def look(piece: Piece) -> str | Piece | None:
        readable = piece.whole and all(_is_readable(one.address, one.path) for one in piece.copies)
        if not readable and wanted.since is None:
            return piece
        good = check_footer(piece, quarantine)
        if good is None or wanted.is_over(good[1]):
            return None
        segment, footer = good
        same = readable and all(types.get(field.name, field.type) == field.type for field in footer.schema)
        return f"file://{segment.path}" if same else piece

    with ThreadPoolExecutor(_CHECKED_AT_ONCE, "footers") as checkers:
        looked = list(checkers.map(look, wanted.pieces))
    return [one for one in looked if isinstance(one, str)], [one for one in looked if one and not isinstance(one, str)]


def _is_readable(address: str, path: str) -> bool:
    return Place.open(address).is_local and _PATTERN.isdisjoint(path)


def _by_spark(spark: SparkSession, wanted: Wanted, paths: Sequence[str]) -> DataFrame:
    events = spark.read.schema(from_arrow_schema(wanted.schema)).options(**_WHOLE_OR_NOTHING).parquet(*paths)
    return events.where(F.col("kind").isin(list(wanted.kinds))) if wanted.kinds else events


def _by_python(spark: SparkSession, wanted: Wanted, pieces: Sequence[Piece], quarantine: Quarantine) -> DataFrame:
    """By as many tasks as there is work for."""
    parts, schema = partitions_of(pieces, fair_share(pieces, _PARTITION)), wanted.schema
    rows = from_arrow_schema(schema)
    if not parts:
        return spark.createDataFrame([], rows)
    numbers = spark.range(0, len(parts), 1, len(parts))
    return numbers.mapInArrow(_reader(parts, schema, wanted.kinds, quarantine), rows)


def _reader(
    parts: Sequence[Pieces], schema: pa.Schema, kinds: Sequence[str], quarantine: Quarantine
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    condition = pa.compute.field("kind").isin(list(kinds)) if kinds else None

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_pieces(parts[number].pieces, schema, quarantine, condition)

    return read
