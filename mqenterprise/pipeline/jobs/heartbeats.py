"""Heartbeats: whether the messages of declared probes came through, and what each probe says now."""

from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mqenterprise.pipeline.jobs.journals import partition
from qmnode.export.events import EventKind

KINDS: Final = (EventKind.HEARTBEAT,)
COLUMNS: Final = (
    "offset", "time", "kind", "node_id", "node", "site", "queue", "label", "sent_time", "cause", "detail",
)  # fmt: skip


def heartbeats(events: DataFrame) -> DataFrame:
    """The table ``heartbeats``: one row for each that ended at ``time``. One that came through has no ``reason``."""
    return events.where(F.col("kind") == EventKind.HEARTBEAT).select(
        *partition(),
        "time",
        "node",
        F.col("label").alias("probe"),
        "queue",
        F.col("sent_time").alias("sent"),
        F.col("cause").alias("reason"),
        "detail",
        "node_id",
        "offset",
    )


def probes(rows: DataFrame, now: datetime) -> DataFrame:
    """The table ``probes``, from ``heartbeats``: one row for each probe of a node.

    ``missing_since`` is when it missed the first heartbeat after the last that came through; null if that is the last.
    """
    del now  # it is as of the last heartbeat
    came = F.col("reason").isNull()
    took = F.when(came, F.unix_micros("time") - F.unix_micros("sent"))
    known = rows.withColumn(
        "last_success", F.max(F.when(came, F.col("offset"))).over(Window.partitionBy("node_id", "probe"))
    )
    is_after = F.coalesce(F.col("offset") > F.col("last_success"), F.lit(True))
    return known.groupBy("node_id", "probe").agg(
        F.max_by("site", "offset").alias("site"),
        F.max_by("node", "offset").alias("node"),
        F.max_by("queue", "offset").alias("queue"),
        F.max_by("reason", "offset").alias("reason"),
        F.max_by("detail", "offset").alias("detail"),
        F.min(F.when(is_after, F.col("time"))).alias("missing_since"),
        F.max(F.when(came, F.col("time"))).alias("last_success"),
        F.max("time").alias("last"),
        F.count("*").alias("sent"),
        F.count(F.when(~came, 1)).alias("missed"),
        F.avg(took).alias("mean_us"),
        F.max(took).alias("worst_us"),
    )
