"""The directory's tables for the jobs: read once, and small enough to be sent along with every task."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs, parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from qmnode.export.places import Place

FOLDER: Final = "_directory"
"""The folder of these tables in a place of segments."""
_TIME: Final = pa.timestamp("us", tz="UTC")
_TEXT, _NUMBER, _FLAG = pa.string(), pa.int64(), pa.bool_()
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "sites": pa.schema([("site", _TEXT), ("foreign", _FLAG)]),
    "links": pa.schema(
        [("site1", _TEXT), ("site2", _TEXT), ("cost", _NUMBER), ("foreign1", _FLAG), ("foreign2", _FLAG)]
    ),
    "machines": pa.schema([("node_id", _TEXT), ("node", _TEXT), ("site", _TEXT), ("quota", _NUMBER)]),
    "queues": pa.schema([("queue_id", _TEXT), ("queue", _TEXT), ("node", _TEXT), ("quota", _NUMBER)]),
    "keys": pa.schema(
        [
            ("node", _TEXT),
            ("key_fingerprint", _TEXT),
            ("provider", _TEXT),
            ("published", _TIME),
            ("retired", _TIME),
            ("expires", _TIME),
        ]
    ),
    "certificates": pa.schema(
        [("user", _TEXT), ("fingerprint", _TEXT), ("subject", _TEXT), ("not_before", _TIME), ("not_after", _TIME)]
    ),
}
"""The tables. Quotas are in bytes, null: none."""


@dataclass(frozen=True)
class DirectoryTables:
    """The directory at one moment. A missing table is empty."""

    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def arrow(self, name: str) -> pa.Table:
        """Return a table in memory, as Arrow."""
        found = self.tables.get(name)
        return SCHEMAS[name].empty_table() if found is None else found

    def frame(self, spark: SparkSession, name: str) -> DataFrame:
        return spark.createDataFrame(self.arrow(name))

    def digest(self, names: Iterable[str]) -> str:
        """Return a digest that changes when one of these tables changes."""
        whole = hashlib.sha256()
        for name in names:
            rows = sorted(map(repr, self.arrow(name).to_pylist()))
            whole.update("\n".join([name, *rows]).encode())
        return whole.hexdigest()


def ask(spark: SparkSession, settings: str) -> DirectoryTables:
    """Read the tables of a running directory with the settings of a file. PySparkException has the source's message."""

    def rows(table: str) -> list[dict[str, Any]]:
        found = spark.read.format("mqdirectory").option("table", table).option("directory", settings).load()
        told: list[dict[str, Any]] = found.toArrow().to_pylist()  # collect() gives times of this machine's zone
        return told

    return tables_of(rows)


def tables_of(rows: Callable[[str], list[dict[str, Any]]]) -> DirectoryTables:
    """Make the tables from those of ``mqdirectory``.

    A directory holds only the keys that are published now, without the time of publication. A key that was used and is
    no longer there was retired at some time.
    """
    sites = [{"site": row["site"], "foreign": row["is_foreign"]} for row in rows("sites")]
    foreign = {row["site"] for row in sites if row["foreign"]}
    links = [
        {**row, "foreign1": row["site1"] in foreign, "foreign2": row["site2"] in foreign}
        for row in rows("links")
        if row["site1"] is not None and row["site2"] is not None
    ]
    return DirectoryTables(
        {
            name: pa.Table.from_pylist(found, schema=SCHEMAS[name])
            for name, found in {
                "sites": sites,
                "links": links,
                "machines": [{**row, "site": next(iter(row["sites"]), "")} for row in rows("queue_managers")],
                "queues": [{**row, "queue": row["pathname"]} for row in rows("queues")],
                "keys": [row for row in rows("keys") if row["fault"] is None],
                "certificates": [
                    {**row, "fingerprint": row["digest"]} for row in rows("certificates") if row["fault"] is None
                ],
            }.items()
        }
    )


def write(place: Place, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Put tables into a place of segments. OSError."""
    for name, rows in tables.items():
        sink = pa.BufferOutputStream()
        parquet.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMAS[name]), sink)
        place.put(f"{FOLDER}/{name}.parquet", sink.getvalue())


def read(places: Iterable[Place]) -> DirectoryTables:
    """Read the tables of the first place of segments that has any. OSError."""
    for place in places:
        found = {}
        for name, schema in SCHEMAS.items():
            path = f"{place.root}/{FOLDER}/{name}.parquet"
            if place.file_system.get_file_info(path).type == fs.FileType.File:
                found[name] = parquet.read_table(path, filesystem=place.file_system).cast(schema)
        if found:
            return DirectoryTables(found)
    return DirectoryTables()
