"""The names of queues in the tables: also of messages that never got there, and in tables of an earlier version."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mqenterprise.pipeline import directory
from mqenterprise.pipeline.analysis import Analysis
from mqenterprise.pipeline.catalogue import needed
from mqenterprise.pipeline.directory import SCHEMAS, DirectoryTables
from mqenterprise.pipeline.jobs.queue_names import lookup
from qmnode.export.places import Place
from tests.pipeline.earlier import ORDERS, PRIVATE, QUEUES, TABLES, event, put, put_earlier, put_later

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STOCK = "node2\\private$\\stock"


def queues(analysis: Analysis) -> dict[int, str | None]:
    """The queue of each message."""
    found = analysis.tables["message_life"].arrow()
    assert found is not None
    return {row["message_number"]: row["queue"] for row in found.to_pylist()}


def deaths(analysis: Analysis) -> dict[str, int]:
    """As an operator asks in SQL: deaths by queue."""
    found = analysis.tables["service_levels"].arrow()
    assert found is not None
    return {row["queue"]: row["died_sum"] for row in found.group_by("queue").aggregate([("died", "sum")]).to_pylist()}


def of(*named: tuple[str, str]) -> DirectoryTables:
    """A directory with these queues."""
    rows = [{"queue_id": identifier, "queue": name} for identifier, name in named]
    return DirectoryTables({"queues": pa.Table.from_pylist(rows, schema=SCHEMAS["queues"])})


def test_the_dead_are_counted_under_the_name_of_their_queue(spark: SparkSession, tmp_path: Path) -> None:
    put_earlier(str(tmp_path / "in"))
    analysis = Analysis(spark, [str(tmp_path / "in")], str(tmp_path / "out"), of((QUEUES[0]["queue_id"].upper(), "Q")))
    analysis.run("service-levels")

    assert queues(analysis) == {1: "NODE2\\orders", 2: "NODE2\\orders", 3: None}, "as the node has it"
    assert deaths(analysis) == {"NODE2\\orders": 1, PRIVATE: 1}

    put(str(tmp_path / "in"), 2, 2, [event("reached", 5, PRIVATE, 9, queue=STOCK)])
    analysis.run("service-levels")

    assert deaths(analysis) == {"NODE2\\orders": 1, STOCK: 1}, "a name that is known at last"


def test_names_that_only_the_directory_has_follow_it_and_stay_when_it_forgets_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    identifier = ORDERS.partition("=")[2]
    put(str(tmp_path / "in"), 1, 1, [event("sent", 1, ORDERS, 1), event("died", 1, ORDERS, 2, reason=0x8002)])
    first = Analysis(spark, [str(tmp_path / "in")], str(tmp_path / "out"), DirectoryTables())
    told = []
    for tables in (DirectoryTables(), of((identifier, "B\\q")), of((identifier, "C\\q")), DirectoryTables()):
        analysis = replace(first, directory=tables)
        analysis.run("service-levels")
        told.append(deaths(analysis))

    assert told == [{ORDERS: 1}, {"B\\q": 1}, {"C\\q": 1}, {"C\\q": 1}]
    assert replace(first, directory=DirectoryTables()).run("service-levels").tables == {}


def test_a_direct_name_is_that_of_the_queue_in_the_spelling_that_is_known() -> None:
    names = lookup([("direct=os:b\\stock", "B\\Stock")], [("GUID-1", "A\\Orders")])

    assert names["public=guid-1"] == "A\\Orders"
    assert names["direct=os:a\\orders"] == "A\\Orders"
    assert names["direct=os:b\\stock"] == "B\\Stock"


@pytest.mark.parametrize(
    ("job", "most"),
    [
        ("service-levels", 0),
        pytest.param("all", 0, marks=pytest.mark.soak),
        pytest.param("service-levels", 1, marks=pytest.mark.soak),
    ],
    ids=["batch", "all", "stream"],
)
def test_tables_of_the_version_before_go_on_and_get_their_names(
    spark: SparkSession, tmp_path: Path, job: str, most: int
) -> None:
    source, target = str(tmp_path / "segments"), str(tmp_path / "tables")
    with tarfile.open(TABLES) as packed:
        packed.extractall(tmp_path, filter="data")
    put_earlier(source)
    known = directory.read([Place.open(source)])
    analysis = Analysis(spark, [source], target, known, most=most)
    assert queues(analysis) == {1: "NODE2\\orders", 2: None, 3: None}, "as that version had it"

    analysis.run(job)
    assert queues(analysis) == {1: "NODE2\\orders", 2: "NODE2\\orders", 3: None}
    put_later(source)
    while analysis.run(job).segments:
        pass

    whole = Analysis(spark, [source], str(tmp_path / "whole"), known)
    whole.run("service-levels")
    named = {1: "NODE2\\orders", 2: "NODE2\\orders", 3: STOCK, 4: "NODE2\\orders", 5: STOCK}
    assert queues(analysis) == queues(whole) == named
    assert deaths(analysis) == deaths(whole) == {"NODE2\\orders": 2, STOCK: 1}
    assert {name for name in needed(job) if analysis.tables[name].last() is None} == set()
    life = analysis.tables["message_life"].arrow(columns=["message_number", "death_class"])
    assert life is not None
    late = "MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT"
    assert {(row["message_number"], row["death_class"]) for row in life.to_pylist()} >= {(4, late), (5, None)}
