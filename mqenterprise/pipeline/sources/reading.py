"""Events of segments for jobs, read by Spark's own Parquet reader where possible, and otherwise in Python.

Rows that Python tasks read cost Spark one more copy of each batch. Spark therefore reads whole segments in directories
after their footers were checked here, and checks the pages itself. Python reads parts of segments, segments in buckets,
and segments with other column types. When Spark meets a broken page, Python reads everything again and sets the segment
aside.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from mqenterprise.pipeline.sources.quarantine import Quarantine
from mqenterprise.pipeline.sources.segments import Piece, Pieces, check_footer, fair_share, partitions_of, read_pieces
from qmnode.export.events import RANGES
from qmnode.export.places import Place
from qmnode.export.segment import SCHEMA, Footer

_PARTITION: Final = 16 << 20
"""The most bytes of segments for one Python task."""
_CHECKED_AT_ONCE: Final = 8
_WHOLE_OR_NOTHING: Final = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
"""Options that keep any session's settings from leaving out rows silently."""
_CLOCKS: Final = timedelta(days=1)
"""The greatest difference between the clocks of nodes."""
_PATTERN: Final = frozenset("*?[]{}\\")
"""Characters with which Spark takes a path for a pattern."""
_CANCELLED: Final = "SPARK_JOB_CANCELLED"
"""Spark's name of the error that ends cancelled jobs."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The events to read: some columns and kinds, by default all."""

    pieces: Sequence[Piece]
    columns: Sequence[str] = tuple(SCHEMA.names)
    kinds: Sequence[str] = ()
    since: datetime | None = None
    """Segments with only much earlier events are not read. ``use`` selects among the rows of the others."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([SCHEMA.field(name).with_nullable(True) for name in self.columns])

    def is_over(self, footer: Footer) -> bool:
        """Return whether all events of a segment are much earlier than ``since``."""
        return self.since is not None and footer.last_time < (self.since - _CLOCKS).timestamp() * 1e6


def with_events(
    spark: SparkSession,
    wanted: Wanted,
    quarantine: Quarantine,
    use: Callable[[DataFrame], _T],
    is_ended: Callable[[], bool] = lambda: False,
) -> _T:
    """Return the result of ``use`` on the events. Unreadable segments are set aside while it reads them.

    When Spark fails to read a file, ``use`` is called again with events that Python reads, so it must be repeatable.
    Not so if ``is_ended``: then Spark failed because its jobs were cancelled.
    """
    paths, rest = _divided(wanted, quarantine)
    if not paths:
        return use(_by_python(spark, wanted, rest, quarantine))
    try:
        events = _by_spark(spark, wanted, paths)
        return use(events.unionByName(_by_python(spark, wanted, rest, quarantine)) if rest else events)
    except (PySparkException, Py4JError) as error:
        if is_ended() or _CANCELLED in str(error):
            raise
        return use(_by_python(spark, wanted, wanted.pieces, quarantine))


def _divided(wanted: Wanted, quarantine: Quarantine) -> tuple[list[str], list[Piece]]:
    """Return the files that Spark can read, and the pieces that it cannot, if they have a footer and are new."""
    types = {field.name: field.type for field in wanted.schema}

    def look(piece: Piece) -> str | Piece | None:
        readable = piece.whole and all(_is_readable(one.address, one.path) for one in piece.copies)
        if not readable and wanted.since is None:
            return piece
        good = check_footer(piece, quarantine, wanted.columns if readable else ())
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
    events = events.where(F.col("kind").isin(list(wanted.kinds))) if wanted.kinds else events
    return events.withColumns({name: _checked(name) for name in wanted.columns if name in RANGES})


def _checked(name: str) -> Column:
    """Return a column that fails the query at a value out of its range. Python then finds the segment that has it."""
    least, greatest = RANGES[name]
    number = F.unix_micros(name) if SCHEMA.field(name).type == pa.timestamp("us", tz="UTC") else F.col(name)
    error = F.raise_error(f"{name} is not {least} to {greatest}")
    return F.when(number.isNull() | number.between(least, greatest), F.col(name)).otherwise(error)


def _by_python(spark: SparkSession, wanted: Wanted, pieces: Sequence[Piece], quarantine: Quarantine) -> DataFrame:
    """Read pieces in Python, in as many tasks as there is work for."""
    parts, schema = partitions_of(pieces, fair_share(pieces, _PARTITION)), wanted.schema
    rows = from_arrow_schema(schema)
    if not parts:
        return spark.createDataFrame(schema.empty_table(), rows)
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
