"""The tables that analysis writes: Delta tables, one directory each, partitioned by date and site.

Spark's tasks write the data files through pyarrow, to a directory or a bucket alike. One commit to the table's log then
makes them visible, together with the table's own record of its progress (``state``). A reader sees all of a commit or
nothing; files of a killed run are in no log.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction
from pyarrow import compute, parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from qmnode.errors import ConfigurationError
from qmnode.export.events import shown
from qmnode.export.places import Place, below

PARTITION: Final = ("date", "site")
_STATE: Final = "mqenterprise"
_CLEANED_EVERY: Final = 20
"""Commits between cleanings, which delete the files that no commit needs and those of killed runs."""
_KEPT_HOURS: Final = 168
"""Hours for which an old version stays readable: the default of Delta tables."""
_WRITER: Final = "mqenterprise"
_WRITTEN: Final = "date string, site string, path string, size long, rows long"
_WRONG: Final = re.compile(r"[][%^|\\]")
"""Characters that delta-rs cannot have in the path of a local table."""
_BATCH: Final = 1 << 14
"""The number of rows that are read at a time."""
_WORTH_A_TASK: Final = 50_000
"""Rows that are read by a task of their own, where each processor has one: each table made from them has as many."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.-]")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a table: the dates that it wrote, and the table's state."""

    version: int
    dates: frozenset[str]
    state: Mapping[str, Any]


class Tables:
    """The tables in a directory or bucket."""

    def __init__(self, address: str) -> None:
        if Place.open(address).is_local and (wrong := _WRONG.search(address)):  # a wrong address fails at once
            raise ConfigurationError(f"{address}: delta-rs reads no tables below a name with {wrong[0]}: use another")
        self.address = address

    def __getitem__(self, name: str) -> StoredTable:
        return StoredTable(name, below(self.address, name))


def as_they_are(rows: pa.Table) -> pa.Table:
    """Change nothing about the rows."""
    return rows


class StoredTable:
    """One table. Everything is read from its log on demand."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    def _delta(self) -> DeltaTable | None:
        uri, options = _location(self.address)
        try:
            return DeltaTable(uri, storage_options=options)
        except TableNotFoundError:
            return None

    def last(self) -> Commit | None:
        """The last commit; None when there is no table yet."""
        # Nearly always the very last one, but the table may have been optimized since.
        return next(self.commits(3), None) or next(self.commits(), None)

    def commits(self, most: int | None = None) -> Iterator[Commit]:
        """Return those of the last ``most`` commits that the log still has, the last one first."""
        delta = self._delta()
        for entry in delta.history(most) if delta else ():
            if _STATE in entry:
                said = json.loads(entry[_STATE])
                yield Commit(entry["version"], frozenset(said["dates"]), said["state"])

    def changed_since(self, version: int) -> frozenset[str] | None:
        """Return the dates written after ``version``; None (possibly all) when the log does not reach back that far."""
        dates: set[str] = set()
        for commit in self.commits():
            if commit.version <= version:
                return frozenset(dates)
            dates |= commit.dates
        return None

    def arrow(self, dates: Collection[str] | None = None, columns: Sequence[str] | None = None) -> pa.Table | None:
        """The rows, those of some dates or all, in memory; None when there is no table yet."""
        delta = self._delta()
        if delta is None:
            return None
        return delta.to_pyarrow_table(filters=_dated(dates), columns=None if columns is None else list(columns))

    def matching(self, condition: compute.Expression, dates: Collection[str], columns: Sequence[str]) -> pa.Table:
        """Return the rows of some dates for which a condition holds, in memory; others are skipped on reading."""
        delta = self._delta()
        assert delta is not None, "asked of a table that is there"
        within = compute.field("date").isin(pa.array(sorted(dates), pa.string()))
        return delta.to_pyarrow_dataset().to_table(columns=list(columns), filter=within & condition)

    def latest(self, times: Mapping[str, compute.Expression]) -> datetime | None:
        """Return the latest time of these expressions over all rows, or None. Reads batch by batch."""
        delta = self._delta()
        if delta is None:
            return None
        batches = delta.to_pyarrow_dataset().to_batches(columns=dict(times))
        found = [compute.max(column).as_py() for batch in batches if batch.num_rows for column in batch.columns]
        return max((time for time in found if time is not None), default=None)

    def count(self, dates: Collection[str] | None = None) -> int:
        """Count the rows of some dates, or all, from the table's log."""
        delta = self._delta()
        return sum(action["num_records"] or 0 for action in _files(delta, dates)) if delta else 0

    def dates(self) -> frozenset[str]:
        delta = self._delta()
        return frozenset(part["date"] for part in delta.partitions()) if delta else frozenset()

    def read(
        self,
        spark: SparkSession,
        dates: Collection[str] | None = None,
        change: Callable[[pa.Table], pa.Table] = as_they_are,
    ) -> DataFrame:
        """The rows, those of some dates or all, read in parallel and changed by ``change``. TableNotFoundError."""
        delta = self._delta()
        if delta is None:
            raise TableNotFoundError(f"{shown(self.address)} is not there")
        schema = to_arrow_schema(StructType.fromJson(json.loads(delta.schema().to_json())), timezone="UTC")
        nothing = change(schema.empty_table())
        changed = from_arrow_schema(nothing.schema)
        actions = _files(delta, dates)
        files = [
            {"path": action["path"], **{name: action[f"partition.{name}"] for name in PARTITION}} for action in actions
        ]
        if not files:
            return spark.createDataFrame(nothing, changed)
        rows, processors = sum(action["num_records"] or 0 for action in actions), spark.sparkContext.defaultParallelism
        parallel = min(len(files), max(processors, min(4 * processors, rows // _WORTH_A_TASK)))
        numbers = spark.range(0, parallel, 1, parallel)
        shares = [files[number::parallel] for number in range(parallel)]
        return numbers.mapInArrow(_reader(self.address, shares, schema, change), changed)

    def replace(
        self, frame: DataFrame, dates: Collection[str] | None, state: Callable[[], Mapping[str, Any]]
    ) -> Commit:
        """Replace all rows, or those of some ``dates``, by ``frame``, and commit ``state`` with it.

        ``state`` is called when the rows are written, just before the commit. The table gets new columns of ``frame``;
        rows that it keeps have nulls there. Raises deltalake's CommitFailedError when another run has written
        meanwhile.
        """
        before = self._delta()
        schema = _nullable(to_arrow_schema(frame.schema, timezone="UTC"))
        delta = before or self._create(schema)
        version = delta.version()
        stored = pa.schema(delta.schema().to_arrow())
        if not set(stored.names) <= set(schema.names):
            raise ConfigurationError(
                f"{shown(self.address)} has other columns, of another version of this program: write to a new place"
            )
        written = self._write(frame, schema)
        touched = {row["date"] for row in written} | set(dates if dates is not None else self.dates())
        saying = dict(state())
        said = json.dumps({"dates": sorted(touched), "state": saying}, separators=(",", ":"))
        delta.create_write_transaction(
            [_add(row) for row in written],
            "overwrite",
            Schema.from_arrow(
                _nullable(pa.schema([*stored, *(one for one in schema if one.name not in stored.names)]))
            ),
            partition_by=list(PARTITION),
            partition_filters=_dated(dates),
            commit_properties=CommitProperties(
                custom_metadata={_STATE: said},
                max_commit_retries=0,
                app_transactions=[Transaction(_WRITER, version + 1)],
            ),
        )
        if (version + 1) % _CLEANED_EVERY == 0:
            delta.update_incremental()
            delta.vacuum(retention_hours=_KEPT_HOURS, dry_run=False, full=True)
        return Commit(version + 1, frozenset(touched), saying)

    def _create(self, schema: pa.Schema) -> DeltaTable:
        uri, options = _location(self.address)
        place = Place.open(self.address)
        if place.is_local:
            place.file_system.create_dir(place.root, recursive=True)
        return DeltaTable.create(
            uri, Schema.from_arrow(schema), partition_by=list(PARTITION), name=self.name, storage_options=options
        )

    def _write(self, frame: DataFrame, schema: pa.Schema) -> list[Any]:
        is_one = frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1"  # few rows: save their shuffle
        gathered = frame.coalesce(1) if is_one else frame.hint("rebalance", *PARTITION)
        balanced = gathered.sortWithinPartitions(*PARTITION)
        return balanced.mapInArrow(_writer(self.address, schema), _WRITTEN).collect()


def _files(delta: DeltaTable, dates: Collection[str] | None) -> list[dict[str, Any]]:
    """Return the log's entries for the table's files, those of some dates or all."""
    actions = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    return [action for action in actions if dates is None or action["partition.date"] in dates]


def _dated(dates: Collection[str] | None) -> list[tuple[str, str, list[str]]] | None:
    """Return a filter of delta-rs for these dates. It needs a value to infer the type, so the empty one is added."""
    return None if dates is None else [("date", "in", sorted(dates) or [""])]


def _location(address: str) -> tuple[str, dict[str, str]]:
    """Return a place's address for delta-rs, with options instead of a query."""
    parts = urlsplit(address)
    if parts.scheme != "s3":
        return address, {}
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    options: dict[str, str] = {}
    if parts.username and parts.password:
        options |= {"AWS_ACCESS_KEY_ID": unquote(parts.username), "AWS_SECRET_ACCESS_KEY": unquote(parts.password)}
    if endpoint := query.get("endpoint_override"):
        if "://" not in endpoint:
            endpoint = f"{query.get('scheme', 'https')}://{endpoint}"
        options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http:")).lower()}
    if region := query.get("region"):
        options["AWS_REGION"] = region
    return f"s3://{parts.hostname}{parts.path}", options


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with nulls allowed everywhere: the job decides what is never null, not the table."""

    def of(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([pa.field(field.name, of(field.type)) for field in kind])
        return pa.list_(of(kind.value_type)) if pa.types.is_list(kind) else kind

    return pa.schema([pa.field(field.name, of(field.type)) for field in schema])


def _add(row: Any) -> AddAction:
    return AddAction(
        path=row["path"],
        size=row["size"],
        partition_values={name: row[name] for name in PARTITION},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": row["rows"]}),
    )


def _reader(
    address: str,
    shares: Sequence[Sequence[Mapping[str, str]]],
    schema: pa.Schema,
    change: Callable[[pa.Table], pa.Table],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = Place.open(address)
        for batch in batches:
            for file in (file for number in batch.column(0).to_pylist() for file in shares[number]):
                table = parquet.read_table(
                    f"{place.root}/{file['path']}", filesystem=place.file_system, partitioning=None
                )
                columns = [
                    pa.repeat(pa.scalar(file[field.name], field.type), len(table))
                    if field.name in PARTITION
                    else table.column(field.name).cast(field.type)
                    if field.name in table.column_names
                    else pa.nulls(len(table), field.type)  # the file is older than the column
                    for field in schema
                ]
                for some in pa.Table.from_arrays(columns, schema=schema).to_batches(max_chunksize=_BATCH):
                    yield from change(pa.Table.from_batches([some])).to_batches()

    return read


def _writer(address: str, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that writes sorted rows, one file for each partition, and yields the files."""
    kept = pa.schema([field for field in schema if field.name not in PARTITION])

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = _Files(Place.open(address), kept)
        for batch in batches:
            files.take(batch)
        yield pa.RecordBatch.from_pylist(
            files.close(),
            schema=pa.schema(
                [
                    ("date", pa.string()),
                    ("site", pa.string()),
                    ("path", pa.string()),
                    ("size", pa.int64()),
                    ("rows", pa.int64()),
                ]
            ),
        )

    return write


class _Files:
    """Data files of a table, one open at a time."""

    def __init__(self, place: Place, schema: pa.Schema) -> None:
        self._place, self._schema = place, schema
        self._done: list[dict[str, Any]] = []
        self._writer: parquet.ParquetWriter | None = None

    def take(self, batch: pa.RecordBatch) -> None:
        """Write sorted rows, the first of which may belong to the partition of the last ones."""
        if not batch.num_rows:
            return
        keys = pa.StructArray.from_arrays([batch.column(name).cast(pa.string()) for name in PARTITION], list(PARTITION))
        runs = compute.run_end_encode(compute.binary_join_element_wise(*keys.flatten(), "\0"))
        begin = 0
        for end in runs.run_ends.to_pylist():
            self._write(keys[begin].as_py(), batch.slice(begin, end - begin))
            begin = end

    def _write(self, key: dict[str, str], batch: pa.RecordBatch) -> None:
        if self._writer is None or {name: self._done[-1][name] for name in PARTITION} != key:
            self._end()
            folder = "/".join(f"{name}={_UNSAFE.sub('_', key[name])}" for name in PARTITION)
            path = f"{folder}/{uuid4()}.parquet"
            full = f"{self._place.root}/{path}"
            if self._place.is_local:
                self._place.file_system.create_dir(full.rpartition("/")[0], recursive=True)
            self._writer = parquet.ParquetWriter(
                full, self._schema, filesystem=self._place.file_system, compression="zstd"
            )
            self._done.append({**key, "path": path, "rows": 0})
        self._writer.write_batch(batch.select(self._schema.names).cast(self._schema))
        self._done[-1]["rows"] += batch.num_rows

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
            info = self._place.file_system.get_file_info(f"{self._place.root}/{self._done[-1]['path']}")
            self._done[-1]["size"] = info.size
            self._writer = None

    def close(self) -> list[dict[str, Any]]:
        """Close the last file, and return all files."""
        self._end()
        return self._done
