"""The parts of a shuffle, and what Spark makes of a plan, follow its rows."""

import re
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mqenterprise.pipeline.jobs.message_life import lives_of
from mqenterprise.pipeline.session import fit_plans, java_options, shuffle_parts
from mqenterprise.pipeline.sources.reading import Wanted

SHUFFLES = "spark.sql.shuffle.partitions"
GENERATED = "spark.sql.codegen.wholeStage"


@pytest.fixture
def unset(spark: SparkSession) -> Iterator[SparkSession]:
    """The session as if it had been started without these settings."""
    context = spark.sparkContext
    before = {name: str(context.getConf().get(name)) for name in (SHUFFLES, GENERATED)}
    assert context._jvm is not None
    properties = context._jvm.System
    for name in before:
        context._conf._jconf.remove(name)  # type: ignore[union-attr]
        properties.clearProperty(name)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
        properties.setProperty(name, value)
        context._conf.set(name, value)
    spark.conf.unset("spark.sql.adaptive.enabled")


def plan(spark: SparkSession) -> str:
    """What Spark would run."""
    return str(spark.range(10).repartition("id")._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize(
    ("rows", "parts"),
    [(0, 1), (1, 1), (100_000, 1), (100_001, 2), (5_000_000, 50), (1_000_000_000, 10_000), (10**12, 10_000)],
)
def test_parts_of_so_many_rows(rows: int, parts: int) -> None:
    assert shuffle_parts(rows) == parts


def test_plans_have_the_parts_that_their_rows_are_worth_not_two_hundred(unset: SparkSession) -> None:
    plans = []
    for rows in (1_000, 250_000, 0):
        fit_plans(unset, rows)
        plans.append(plan(unset))
    found = [re.findall(r"Exchange (SinglePartition|hashpartitioning\(id)(?:#\w+, (\d+))?", one) for one in plans]
    assert found == [[("SinglePartition", "")], [("hashpartitioning(id", "3")], [("SinglePartition", "")]]


def test_few_rows_need_no_plan_that_adapts_and_no_generated_code(unset: SparkSession) -> None:
    found = []
    for rows in (100_000, 250_000, 250_001):
        fit_plans(unset, rows)
        text = plan(unset)
        found.append(("AdaptiveSparkPlan" in text, unset.conf.get(GENERATED)))
    assert found == [(False, "false"), (True, "false"), (True, "true")]


def test_what_whoever_started_spark_says_stays(spark: SparkSession) -> None:
    fit_plans(spark, 5_000_000)
    assert (spark.conf.get(SHUFFLES), spark.conf.get(GENERATED)) == ("2", "false")
    spark.conf.unset("spark.sql.adaptive.enabled")


def test_few_of_many_rows_need_few_parts_and_generated_code(unset: SparkSession) -> None:
    fit_plans(unset, 100, read=1_000_000)
    assert (unset.conf.get(SHUFFLES), unset.conf.get(GENERATED)) == ("1", "true")


def test_the_events_of_a_message_come_together_before_they_are_joined_once(unset: SparkSession) -> None:
    fit_plans(unset, 300_000)
    events = pa.Table.from_pylist([{"source_id": "a", "kind": "sent"}], schema=Wanted(()).schema)
    lives = lives_of(unset.createDataFrame(events).repartition(2))
    text = str(lives._jdf.queryExecution().executedPlan().toString())
    found = [len(re.findall(part, text)) for part in ("ObjectHashAggregate", r"hashpartitioning\(source_id")]
    assert found == [1, 1]


@pytest.mark.parametrize(
    ("master", "events", "is_short"),
    [
        ("local[2]", 0, True),
        ("local[*]", 2_000_000, True),
        ("local[2]", 2_000_001, False),
        ("local[2]", None, False),
        ("spark://master:7077", 10, False),
    ],
)
def test_java_optimizes_no_code_for_few_events_on_this_machine(master: str, events: int | None, is_short: bool) -> None:
    assert ("-XX:TieredStopAtLevel=1" in java_options(master, events)) is is_short
