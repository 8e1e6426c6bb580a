"""Journals and traces: one row for each copy that a node kept or removed, and for each trace report."""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mqenterprise.pipeline.jobs.dead_letters import cause_of, class_of
from mqenterprise.pipeline.jobs.message_life import UNKNOWN
from qmnode.export.events import EventKind

KINDS: Final = (EventKind.JOURNALED, EventKind.DEAD_LETTER, EventKind.REMOVED)
TRACE_KINDS: Final = (EventKind.REPORT,)
_EVENT: Final = ("offset", "time", "kind", "node_id", "node", "site", "source_id", "queue")
COLUMNS: Final = (*_EVENT, "message_number", "destination", "reason", "size")
TRACE_COLUMNS: Final = (*_EVENT, "sent_time", "hop_count", "state", "about_source_id", "about_message_number")


def within(events: DataFrame, since: datetime, until: datetime | None = None) -> DataFrame:
    """Return the events that happened at ``since`` or later, and before ``until``."""
    time = F.col("time")
    later = events.where(time >= F.lit(since))
    return later if until is None else later.where(time < F.lit(until))


def partition() -> tuple[Column, Column]:
    """The partition of a row about an event: its day (UTC), and the site of its node."""
    return (
        F.date_format("time", "yyyy-MM-dd").alias("date"),
        F.coalesce(F.nullif(F.col("site"), F.lit("")), F.lit(UNKNOWN)).alias("site"),
    )


def journal(events: DataFrame) -> DataFrame:
    """The table ``journal``: copies that went to a journal or a dead-letter queue, and those that left one."""
    reason = F.col("reason")
    return events.where(F.col("kind").isin(*KINDS)).select(
        *partition(),
        "time",
        "kind",
        "node",
        "queue",
        "source_id",
        "message_number",
        "destination",
        class_of(reason).alias("class"),
        F.when(reason.isNotNull(), cause_of(reason)).alias("cause"),
        "size",
        "node_id",
        "offset",
    )


def traces(events: DataFrame) -> DataFrame:
    """The table ``traces``: what each trace report says about a message (MS-MQQB 3.1.5.8.9).

    ``reporter_id`` is the queue manager that sent or took the message at ``reported``, to the second. ``next_hop`` is
    null where the message arrived. ``node`` and ``queue`` are where the report is.
    """
    return events.where(F.col("kind") == EventKind.REPORT).select(
        *partition(),
        F.col("about_source_id").alias("source_id"),
        F.col("about_message_number").alias("message_number"),
        "hop_count",
        F.col("source_id").alias("reporter_id"),
        F.when(F.col("state").isNull(), "arrived").otherwise("sent").alias("step"),
        F.col("state").alias("next_hop"),
        F.col("sent_time").alias("reported"),
        "time",
        "node",
        "queue",
        "node_id",
        "offset",
    )


def join(rows: DataFrame) -> DataFrame:
    """Join stored and new rows: an event is one row, however often it is read."""
    return rows.dropDuplicates(["node_id", "offset"])
