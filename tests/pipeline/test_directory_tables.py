"""The directory's tables as the jobs want them, from those that ``mqdirectory`` reads."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.pipeline.directory import SCHEMAS, ask, tables_of
from mqenterprise.pipeline.sources.directory_source import TABLES
from qmnode.directory.port import Site
from tests.lab.directory_objects import create

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ROWS: dict[str, list[dict[str, Any]]] = {
    "sites": [{"site": "Aarhus", "is_foreign": False}, {"site": "Mainframe", "is_foreign": True}],
    "links": [
        {"site1": "Aarhus", "site2": "Mainframe", "cost": 7},
        {"site1": "Aarhus", "site2": None, "cost": 1},  # half replicated
    ],
    "queue_managers": [
        {"node_id": "1", "node": "SHOP", "sites": ["Aarhus", "Bern"], "quota": 1024},
        {"node_id": "2", "node": "NOWHERE", "sites": [], "quota": None},
    ],
    "queues": [{"queue_id": "3", "pathname": "SHOP\\orders", "node": "SHOP", "quota": None}],
    "keys": [
        {"node": "SHOP", "provider": "AES", "key_fingerprint": "f"},
        {"node": "SHOP", "fault": "cannot be read"},
    ],
    "certificates": [{"user": "Anna", "digest": "d", "subject": "CN=Anna", "not_before": NOW, "not_after": NOW}],
}


def rows(table: str) -> list[dict[str, Any]]:
    names = TABLES[table].schema.names
    assert all(set(row) <= set(names) for row in ROWS[table])
    return [dict.fromkeys(names) | row for row in ROWS[table]]


def test_every_table_has_its_columns() -> None:
    found = tables_of(rows)

    assert {name: found.arrow(name).schema for name in SCHEMAS} == SCHEMAS


def test_what_can_be_used_is_taken() -> None:
    found = tables_of(rows)

    assert found.arrow("links").to_pylist() == [
        {"site1": "Aarhus", "site2": "Mainframe", "cost": 7, "foreign1": False, "foreign2": True}
    ]
    assert [row["site"] for row in found.arrow("machines").to_pylist()] == ["Aarhus", ""]
    assert found.arrow("queues").to_pylist()[0]["queue"] == "SHOP\\orders"
    assert found.arrow("keys").column("key_fingerprint").to_pylist() == ["f"]
    assert found.arrow("certificates").column("fingerprint").to_pylist() == ["d"]


def test_times_are_the_same_in_every_time_zone(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(table: str) -> Any:
        return spark.createDataFrame(pa.Table.from_pylist(rows(table), TABLES[table].schema))

    chosen: list[str] = []
    source = SimpleNamespace(load=lambda: load(chosen[-2]))
    source.format = source.option = lambda *words: chosen.append(words[-1]) or source
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        found = ask(SimpleNamespace(read=source), "directory.yaml")  # type: ignore[arg-type]
    finally:
        monkeypatch.undo()
        time.tzset()

    assert found.arrow("certificates").column("not_after").to_pylist() == [NOW]


def test_a_digest_tells_whether_a_table_changed() -> None:
    one, same = tables_of(rows), tables_of(lambda table: rows(table)[::-1])
    other = tables_of(lambda table: [] if table == "links" else rows(table))

    assert one.digest(["links", "keys"]) == same.digest(["links", "keys"])
    assert one.digest(["links"]) != other.digest(["links"])
    assert one.digest(["keys"]) == other.digest(["keys"])


@pytest.mark.servers
def test_spark_reads_the_directory_of_the_file_that_mqenterprise_uses(
    slapd: EmbeddedDirectory, fresh_name: Callable[[str], str], spark: SparkSession
) -> None:
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        site = create(directory, Site(name=fresh_name("Spark"), foreign_site=True))

    frame = spark.read.format("mqdirectory").option("directory", str(slapd.write_client_settings())).load("sites")

    assert (site.name,) in [tuple(row) for row in frame.where("is_foreign").select("site").collect()]
