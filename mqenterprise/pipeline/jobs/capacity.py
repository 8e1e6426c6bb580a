"""Capacity: how fast queues and nodes fill up against their quotas, and the day they will be full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from mqenterprise.pipeline.jobs.message_life import UNKNOWN
from qmnode.export.events import EventKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS: Final = (EventKind.SAMPLE,)
COLUMNS: Final = ("time", "kind", "node", "site", "queue", "count", "bytes", "quota")
KEY: Final = ("date", "site", "node", "queue", "hour")
WHOLE_NODE: Final = ""
"""The ``queue`` of rows about all queues of a node together."""
_DAY: Final = 86_400


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

    ``full_on`` is null without a quota, when it does not grow, and beyond a hundred years.
    """
    seconds = F.unix_seconds(F.col("last")["time"])
    size, quota = F.col("last")["bytes"], F.col("last")["quota"]
    rows = sizes.groupBy("site", "node", "queue").agg(
        F.max("last").alias("last"),
        F.max("peak_bytes").alias("peak_bytes"),
        (F.regr_slope(size.cast("double"), (seconds / _DAY)).alias("growth_bytes_a_day")),
        F.count(F.lit(1)).alias("hours"),
    )
    left = (quota - size) / F.col("growth_bytes_a_day")
    days = F.when((F.col("growth_bytes_a_day") > 0) & (left < 36_525), F.greatest(F.ceil(left), F.lit(0)))
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
        (size / quota).alias("used"),
        "growth_bytes_a_day",
        "hours",
        F.date_add(F.to_date(F.col("last")["time"]), days.cast("int")).alias("full_on"),
    )
