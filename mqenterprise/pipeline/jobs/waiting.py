"""Why messages waited: the intervals in which an outgoing queue had no session, each with its reason.

A node exports each change of the state of an outgoing queue. The changes are kept as they are (``queue_states``), so
segments may come late or twice. The intervals are made of all of them.
"""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from mqenterprise.pipeline.jobs.journals import partition
from qmnode.export.events import EventKind
from qmnode.structures.enumerations import OutgoingQueueState

KINDS: Final = (EventKind.QUEUE_STATE, EventKind.STARTED, EventKind.STOPPED)
COLUMNS: Final = ("offset", "time", "kind", "node_id", "node", "site", "queue", "peer", "state", "cause", "detail")
_LONGEST: Final = 200
"""Characters of a sentence, as a node writes it, and of every name that a table takes from one."""
CONNECTING: Final = "connecting"
"""The reason until the first attempt has failed."""
UNRECORDED: Final = "not recorded"
"""The reason in events of nodes that do not export it."""
_BY_STATE: Final = {
    OutgoingQueueState.ON_HOLD: "paused",
    OutgoingQueueState.LOCKED: "hardened mode",
}
"""States that are reasons themselves."""
_TRYING: Final = (OutgoingQueueState.NEED_VALIDATION, OutgoingQueueState.WAITING)
_NOT_WAITING: Final = (
    OutgoingQueueState.CONNECTED,
    OutgoingQueueState.INACTIVE,
    OutgoingQueueState.DISCONNECTING,  # its session goes on until the messages have another way
)
_NONE: Final = ""


def queue_states(events: DataFrame) -> DataFrame:
    """The table ``queue_states``: one row for each change of the state of an outgoing queue, start and end of a node.

    Start and end of a node end the intervals of all its queues, so their rows have no queue.
    """
    return events.where(F.col("kind").isin(*KINDS)).select(
        *partition(),
        "time",
        "kind",
        "node",
        F.substring("queue", 1, 1 << 10).alias("queue"),
        "peer",
        "state",
        F.substring("cause", 1, _LONGEST).alias("cause"),
        F.substring("detail", 1, _LONGEST).alias("detail"),
        "node_id",
        "offset",
    )


def waiting(states: DataFrame, now: datetime) -> DataFrame:
    """The table ``waiting``, from ``queue_states``. An interval that goes on has no ``end``, and lasts until ``now``.

    Attempts between two failures with one reason do not end its interval.
    """
    of_node = Window.partitionBy("node_id").orderBy("offset")
    runs = F.sum(F.when(F.col("kind") == EventKind.STARTED, 1).otherwise(0)).over(of_node)
    # A node writes its last events in order, so a run ends with its last event, also if it was killed.
    whole = Window.partitionBy("node_id", "run")
    ends = F.when(F.max("run").over(Window.partitionBy("node_id")) > F.col("run"), F.max("time").over(whole))
    stopped = F.max(F.when(F.col("kind") == EventKind.STOPPED, F.col("time"))).over(whole)
    changes = (
        states.withColumn("run", runs)
        .withColumn("run_end", F.coalesce(stopped, ends))
        .where(F.col("kind") == EventKind.QUEUE_STATE)
        .withColumn("said", _reason())
    )
    in_run = Window.partitionBy("node_id", "queue", "run").orderBy("offset")
    told = changes.withColumn("reason", _carried(F.col("said"), in_run))
    before = F.lag("reason").over(in_run)
    begun = told.withColumn("is_first", ~F.col("reason").eqNullSafe(before)).withColumn(
        "number", F.sum(F.col("is_first").cast("long")).over(in_run)
    )
    folded = begun.groupBy("node_id", "node", "queue", "run", "number").agg(
        F.min_by("site", "offset").alias("site"),
        F.min_by("reason", "offset").alias("reason"),
        F.max_by("detail", F.when(F.col("detail").isNotNull(), F.col("offset"))).alias("detail"),
        F.max_by("peer", F.when(F.col("peer").isNotNull(), F.col("offset"))).alias("peer"),
        F.min_by("time", "offset").alias("begin"),
        F.min("run_end").alias("run_end"),
        F.sum(F.when(F.col("state") == OutgoingQueueState.DISCONNECTED, 1).otherwise(0)).alias("failures"),
    )
    after = F.lead("begin").over(Window.partitionBy("node_id", "queue", "run").orderBy("number"))
    return (
        folded.withColumn("end", F.coalesce(after, "run_end"))
        .where(F.col("reason") != _NONE)
        .select(
            F.date_format("begin", "yyyy-MM-dd").alias("date"),
            "site",
            "node",
            "queue",
            "peer",
            "reason",
            "detail",
            "begin",
            "end",
            F.greatest(F.unix_micros(F.coalesce("end", F.lit(now))) - F.unix_micros("begin"), F.lit(0)).alias(
                "wait_us"
            ),
            "failures",
            "node_id",
        )
    )


def _reason() -> Column:
    state = F.col("state")
    said = F.when(state.isin(*_NOT_WAITING) | state.isNull(), _NONE).when(state.isin(*_TRYING), CONNECTING)
    for one, reason in _BY_STATE.items():
        said = said.when(state == one, reason)
    return said.otherwise(F.coalesce(F.nullif(F.col("cause"), F.lit("")), F.lit(UNRECORDED)))


def _carried(said: Column, earlier: WindowSpec) -> Column:
    """The reason of a queue that tries again: that of the attempt before, if this failed."""
    decided = F.when(
        said != CONNECTING,
        F.struct(said.alias("said"), (F.col("state") == OutgoingQueueState.DISCONNECTED).alias("failed")),
    )
    last = F.last(decided, ignorenulls=True).over(earlier)
    return F.when(said != CONNECTING, said).when(last["failed"], last["said"]).otherwise(CONNECTING)
