"""The parts of a shuffle follow its rows."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from mqenterprise.pipeline.session import fit_shuffles, shuffle_parts

SHUFFLES = "spark.sql.shuffle.partitions"
ADAPTIVE = "spark.sql.adaptive.enabled"
"""Off, a plan shows its parts before it runs."""


@pytest.fixture
def unset(spark: SparkSession) -> Iterator[SparkSession]:
    """The session as if it had been started without a number of parts."""
    context = spark.sparkContext
    number = context.getConf().get(SHUFFLES)
    assert number is not None
    assert context._jvm is not None
    properties = context._jvm.System
    context._conf._jconf.remove(SHUFFLES)  # type: ignore[union-attr]
    properties.clearProperty(SHUFFLES)
    spark.conf.set(ADAPTIVE, "false")
    yield spark
    spark.conf.unset(ADAPTIVE)
    spark.conf.set(SHUFFLES, number)
    properties.setProperty(SHUFFLES, number)
    context._conf.set(SHUFFLES, number)


@pytest.mark.parametrize(
    ("rows", "parts"),
    [(0, 1), (1, 1), (100_000, 1), (100_001, 2), (5_000_000, 50), (1_000_000_000, 10_000), (10**12, 10_000)],
)
def test_parts_of_so_many_rows(rows: int, parts: int) -> None:
    assert shuffle_parts(rows) == parts


def test_plans_have_the_parts_that_their_rows_are_worth_not_two_hundred(unset: SparkSession) -> None:
    parts = []
    for rows in (1_000, 250_000, 0):
        fit_shuffles(unset, rows)
        parts.append(unset.range(10).repartition("id").rdd.getNumPartitions())
    assert parts == [1, 3, 1]


def test_what_whoever_started_spark_says_stays(spark: SparkSession) -> None:
    fit_shuffles(spark, 5_000_000)
    assert spark.conf.get(SHUFFLES) == "2"
