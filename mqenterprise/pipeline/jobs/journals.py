"""Journals and traces: one row for each copy that a node kept or removed, and for each trace report."""

from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mqenterprise.pipeline.jobs.dead_letters import class_of
from mqenterprise.pipeline.jobs.message_life import UNKNOWN
from qmnode.export.events import EventKind

KINDS: Final = (EventKind.JOURNALED, EventKind.DEAD_LETTER, EventKind.REMOVED, EventKind.REPORT)
COLUMNS: Final = (
    "offset",
    "time",
    "kind",
    "node_id",
    "node",
    "site",
    "source_id",
    "message_number",
    "destination",
    "queue",
    "reason",
    "hop_count",
    "state",
    "about_source_id",
    "about_message_number",
)


def within(events: DataFrame, since: datetime, until: datetime | None = None) -> DataFrame:
    """Return the events that happened at ``since`` or later, and before ``until``."""
    time = F.col("time")
    later = events.where(time >= F.lit(since))
    return later if until is None else later.where(time < F.lit(until))


def journals_and_traces(events: DataFrame) -> DataFrame:
    """The table ``journals_and_traces``. A trace report is a row of the message that it is about, with the next hop."""
    is_report = F.col("kind") == EventKind.REPORT
    return events.where(F.col("kind").isin(*KINDS)).select(
        F.date_format("time", "yyyy-MM-dd").alias("date"),
        F.coalesce(F.nullif(F.col("site"), F.lit("")), F.lit(UNKNOWN)).alias("site"),
        "time",
        "kind",
        "node",
        "queue",
        F.when(is_report, F.col("about_source_id")).otherwise(F.col("source_id")).alias("source_id"),
        F.when(is_report, F.col("about_message_number")).otherwise(F.col("message_number")).alias("message_number"),
        F.when(~is_report, F.col("destination")).alias("destination"),
        class_of(F.col("reason")).alias("class"),
        "hop_count",
        F.when(is_report, F.col("state")).alias("next_hop"),
        "node_id",
        "offset",
    )


def join(rows: DataFrame) -> DataFrame:
    """Join stored and new rows: an event is one row, however often it is read."""
    return rows.dropDuplicates(["node_id", "offset"])
