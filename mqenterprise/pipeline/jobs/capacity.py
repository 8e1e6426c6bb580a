"""Capacity: the growth of queues and nodes against their quotas, and the day on which they will be full."""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mqenterprise.pipeline.jobs.message_life import UNKNOWN
from qmnode.export.events import EventKind

KINDS: Final = (EventKind.SAMPLE,)
COLUMNS: Final = ("time", "kind", "node", "site", "queue", "count", "bytes", "quota")
KEY: Final = ("date", "site", "node", "queue", "hour")
WHOLE_NODE: Final = ""
"""The ``queue`` of rows about all queues of a node together."""
_DAY: Final = 86_400


def within(events: DataFrame, since: datetime, until: datetime | None = None) -> DataFrame:
    """Return the samples that were taken at ``since`` or later, and before ``until``."""
    time = F.col("time")
    later = events.where(time >= F.lit(since))
    return later if until is None else later.where(time < F.lit(until))


def sizes_of(events: DataFrame) -> DataFrame:
    """Samples by queue and hour, in rows that ``join_sizes`` joins."""
    last = F.struct("time", "count", "bytes", "quota")
    rows = events.where(F.col("kind") == EventKind.SAMPLE).select(
        F.date_format("time", "yyyy-MM-dd").alias("date"),
        F.coalesce(F.nullif(F.col("site"), F.lit("")), F.lit(UNKNOWN)).alias("site"),
        "node",
        F.coalesce("queue", F.lit(WHOLE_NODE)).alias("queue"),
        F.date_trunc("hour", "time").alias("hour"),
        last.alias("last"),
        F.col("bytes").alias("peak_bytes"),
        F.lit(1).cast("long").alias("samples"),
    )
    return join_sizes(rows)


def join_sizes(rows: DataFrame) -> DataFrame:
    """The table ``queue_sizes``: one row for each queue and hour, with the hour's last sample and its peak."""
    return rows.groupBy(*KEY).agg(
        F.max("last").alias("last"), F.max("peak_bytes").alias("peak_bytes"), F.sum("samples").alias("samples")
    )


def capacity(sizes: DataFrame) -> DataFrame:
    """One row for each queue and node: its size now, its growth (least squares over the hours), the day it is full.

    ``full_on`` of a queue that is already full is the day of the last sample. It is null without a quota, without
    growth, and beyond a hundred years.
    """
    seconds = F.unix_seconds(F.col("last")["time"])
    size, quota = F.col("last")["bytes"], F.col("last")["quota"]
    rows = sizes.groupBy("site", "node", "queue").agg(
        F.max("last").alias("last"),
        F.max("peak_bytes").alias("peak_bytes"),
        (_slope(size, seconds) * _DAY).alias("growth_bytes_a_day"),
        F.count(F.lit(1)).alias("hours"),
    )
    left = F.try_divide(quota - size, F.col("growth_bytes_a_day"))
    days = F.when(size >= quota, 0).when((F.col("growth_bytes_a_day") > 0) & (left < 36_525), F.ceil(left))
    return rows.select(
        F.date_format(F.col("last")["time"], "yyyy-MM-dd").alias("date"),
        "site",
        "node",
        "queue",
        F.col("last")["time"].alias("as_of"),
        F.col("last")["count"].alias("messages"),
        size.alias("bytes"),
        "peak_bytes",
        quota.alias("quota"),
        F.try_divide(size, quota).alias("used"),
        "growth_bytes_a_day",
        "hours",
        F.date_add(F.to_date(F.col("last")["time"]), days.cast("int")).alias("full_on"),
    )


def _slope(y: Column, x: Column) -> Column:
    """Least squares, null for a single point. Exact until the last step, so the order of rows is irrelevant."""
    y, x = y.cast("decimal(19,0)"), x.cast("decimal(19,0)")
    count = F.count(y)
    above = count * F.sum(x * y) - F.sum(x) * F.sum(y)
    below = count * F.sum(x * x) - F.sum(x) * F.sum(x)
    return above.cast("double") / F.nullif(below.cast("double"), F.lit(0.0))
