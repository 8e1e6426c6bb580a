"""Events of exported segments for Spark: at once, and as a stream that resumes exactly where it stopped.

The offset of a stream is the set of events that it has delivered, node by node, as ranges of their sequential
identifiers. Late segments therefore count as new, duplicates do not, and a restarted query gets the same rows again.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructField, StructType

from mqenterprise.pipeline.sources.filters import expression
from mqenterprise.pipeline.sources.quarantine import Quarantine, Record
from mqenterprise.pipeline.sources.ranges import Ranges
from mqenterprise.pipeline.sources.segments import (
    Piece,
    Pieces,
    Segment,
    Stray,
    check_places,
    fair_share,
    find_segments,
    partitions_of,
    pieces_of,
    read_pieces,
)
from qmnode.errors import ConfigurationError
from qmnode.export.events import FORMAT
from qmnode.export.segment import SCHEMA

EVENTS: Final = StructType([StructField(field.name, from_arrow_type(field.type), field.nullable) for field in SCHEMA])
"""The columns of events as Spark's types."""


class EventOptions(NamedTuple):
    """The values given with ``option``."""

    addresses: tuple[str, ...]
    quarantine: str
    partition_bytes: int
    files_per_trigger: int
    bytes_per_trigger: int

    def divided(self, pieces: Sequence[Piece]) -> list[Pieces]:
        """Divide pieces into work for tasks."""
        return partitions_of(pieces, fair_share(pieces, self.partition_bytes))


def check_schema(schema: StructType, known: StructType) -> pa.Schema:
    """Return the schema of the batches for a requested schema. ConfigurationError for unknown columns."""
    types = {field.name: field.dataType for field in known}
    for field in schema:
        if types.get(field.name) != field.dataType:
            expected = types[field.name].simpleString() if field.name in types else f"one of {', '.join(types)}"
            raise ConfigurationError(f"column {field.name} {field.dataType.simpleString()}: expected {expected}")
    return to_arrow_schema(schema, timezone="UTC")


class EventReader(DataSourceReader):
    """Read every event of the places once."""

    def __init__(self, options: EventOptions, schema: StructType) -> None:
        self._options = options
        self._schema = check_schema(schema, EVENTS)
        self._condition: Any = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Leave out rows that the query does not want where they are read. Spark filters again afterwards."""
        self._condition = expression(filters, self._schema)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Combine segments into partitions of a suitable size."""
        check_places(self._options.addresses)
        segments, strays = find_segments(self._options.addresses)
        note_strays(Quarantine(self._options.quarantine), strays)
        return self._options.divided(pieces_of(segments)) or [Pieces(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Pieces)
        return read_pieces(partition.pieces, self._schema, Quarantine(self._options.quarantine), self._condition)


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Read every event of the places once, as it arrives."""

    def __init__(self, options: EventOptions, schema: StructType) -> None:
        self._options = options
        self._schema = check_schema(schema, EVENTS)
        self._frozen: list[Segment] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a stream that has delivered nothing."""
        return _offset({}, {})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options set."""
        if self._options.files_per_trigger:
            return ReadMaxFiles(self._options.files_per_trigger)
        if self._options.bytes_per_trigger:
            return ReadMaxBytes(self._options.bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Leave segments that arrive from now on to the next run."""
        self._frozen = self._find()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the known events with those that are new in the places, oldest files first, up to the limit."""
        known, again = _parsed(start)
        segments = self._frozen if self._frozen is not None else self._find()
        files, size = _room(limit)
        for segment in segments:
            name = segment.name
            ranges = known.setdefault(name.node_id, Ranges())
            if not ranges.missing(name.first, name.last):
                continue
            if files <= 0 or size <= 0:
                break
            files, size = files - 1, size - segment.size
            ranges.add(name.first, name.last)
        again |= self._repaired(segments, again, known)
        return _offset(known, again)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the events in ``end`` that are not in ``start``: the same rows for every call."""
        known, known_again = _parsed(start)
        target, again = _parsed(end)
        wanted = {node: ranges.without(known.get(node, Ranges())) for node, ranges in target.items()}
        segments = self._find()
        chosen = [one for one in segments if one.name.node_id in wanted and _overlaps(wanted[one.name.node_id], one)]
        repaired = [one for one in segments if again.get(one.path, "") not in ("", known_again.get(one.path))]
        pieces = pieces_of(chosen, wanted)
        self._note_missing(wanted, chosen)
        pieces += pieces_of(repaired, _had(repaired, wanted))
        return self._options.divided(pieces)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Pieces)
        return read_pieces(partition.pieces, self._schema, Quarantine(self._options.quarantine))

    def _find(self) -> list[Segment]:
        segments, strays = find_segments(self._options.addresses)
        note_strays(Quarantine(self._options.quarantine), strays)
        return segments

    def _repaired(self, segments: Iterable[Segment], again: dict[str, str], known: dict[str, Ranges]) -> dict[str, str]:
        """Return segments with lost events whose file was replaced since, or whose format is known by now."""
        records = Quarantine(self._options.quarantine).records()
        found: dict[str, str] = {}
        for segment in segments:
            record = records.get(segment.path)
            if record is None or not record.lost or known[segment.name.node_id].missing(*_ends(segment)):
                continue
            readable = record.reason == "newer-format" and record.reader < FORMAT
            signature = f"{segment.signature}@{FORMAT}" if readable else segment.signature
            if (readable or segment.signature != record.signature) and again.get(segment.path) != signature:
                found[segment.path] = signature
        return found

    def _note_missing(self, wanted: dict[str, Ranges], chosen: Iterable[Segment]) -> None:
        """Report segments that existed when the batch was planned and are missing when it is made again."""
        there: dict[str, Ranges] = {}
        for segment in chosen:
            there.setdefault(segment.name.node_id, Ranges()).add(*_ends(segment))
        quarantine = Quarantine(self._options.quarantine)
        for node, ranges in wanted.items():
            if gone := ranges.without(there.get(node, Ranges())):
                sentence = f"events {gone} of node {node} were deleted before they were read"
                quarantine.add(Record(f"{node}:{gone}", "gone", sentence))


def note_strays(quarantine: Quarantine, strays: Sequence[Stray]) -> None:
    """Put files that are no segments on the list, once."""
    if not strays:
        return
    records = quarantine.records()
    for stray in strays:
        known = records.get(stray.path)
        if known is None or known.signature != stray.signature:
            quarantine.add(stray.record())


def _ends(segment: Segment) -> tuple[int, int]:
    return segment.name.first, segment.name.last


def _overlaps(wanted: Ranges, segment: Segment) -> bool:
    return bool(wanted.within(*_ends(segment)))


def _had(repaired: Iterable[Segment], wanted: dict[str, Ranges]) -> dict[str, Ranges]:
    """Return the offsets of repaired segments, without those that the same batch reads as new."""
    ranges: dict[str, Ranges] = {}
    for segment in repaired:
        ranges.setdefault(segment.name.node_id, Ranges()).add(*_ends(segment))
    return {node: had.without(wanted.get(node, Ranges())) for node, had in ranges.items()}


def _offset(known: dict[str, Ranges], again: dict[str, str]) -> dict[str, Any]:
    return {
        "nodes": {node: str(ranges) for node, ranges in sorted(known.items()) if ranges},
        "again": dict(sorted(again.items())),
    }


def _parsed(offset: dict[str, Any]) -> tuple[dict[str, Ranges], dict[str, str]]:
    return {node: Ranges.parse(text) for node, text in offset["nodes"].items()}, dict(offset["again"])


def _room(limit: ReadLimit) -> tuple[float, float]:
    match limit:
        case ReadMaxFiles(files):
            return files, float("inf")
        case ReadMaxBytes(size):
            return float("inf"), size
    return float("inf"), float("inf")
