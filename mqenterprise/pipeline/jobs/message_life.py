"""Message life: one row for each message, from the events that all nodes export about it.

A life combines its events: earliest times, the set of hops, the best name. Every column is defined so that partial
lives of a message join to a life again, in any order (``join_lives``). The job is therefore incremental, and a late
segment gives the same result as an early one.

A message is one copy of a sent message. It is identified by ``source_id``, ``message_number`` and ``destination``,
because a message that is sent to several destinations has one identifier.
"""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mqenterprise.pipeline.jobs.dead_letters import class_of
from qmnode.export.events import EventKind
from qmnode.structures.enumerations import MessageClass

KEY: Final = ("source_id", "message_number", "destination")
"""The columns that identify a message."""
UNKNOWN: Final = "unknown"
"""The date or site of a message whose sending has not been reported yet."""

HOPS: Final = (EventKind.SENT, EventKind.ACCEPTED, EventKind.TRANSFERRED, EventKind.REACHED)
KINDS: Final = (
    *HOPS,
    EventKind.RECEIVED,
    EventKind.DIED,
    EventKind.REFUSED,
    EventKind.DEAD_LETTER,
    EventKind.ACKNOWLEDGMENT,
    EventKind.KEY_USED,
)
"""The kinds of events that a life is made of."""
COLUMNS: Final = (
    "time",
    "kind",
    "node",
    "site",
    *KEY,
    "queue",
    "reason",
    "message_class",
    "priority",
    "recoverable",
    "transactional",
    "hop_count",
    "size",
    "sent_time",
    "sender",
    "response_queue",
    "about_source_id",
    "about_message_number",
    "peer",
    "key_fingerprint",
)
"""The columns of events that the job reads."""

_OWN: Final = [int(one) for one in MessageClass if one is not MessageClass.MQMSG_CLASS_NORMAL]
"""Classes of the packets between queue managers, such as acknowledgments, which do not count as messages."""
_NEGATIVE: Final = 0x8000
_OF_RECEIVING: Final = 0x4000

_EARLIEST: Final = ("sent_time", "sent", "reached", "received")
_ANY: Final = (
    "origin",
    "origin_site",
    "queue",
    "sender",
    "priority",
    "recoverable",
    "transactional",
    "size",
    "key_fingerprint",
)


def within(events: DataFrame, since: datetime, until: datetime | None = None) -> DataFrame:
    """Return the events of messages that were sent at ``since`` or later, and before ``until``.

    An acknowledgment does not say when its message was sent, so all acknowledgments from ``since`` on are included,
    whatever ``until`` is. A repeated one changes no life.
    """
    sent, time = F.col("sent_time"), F.col("time")
    later = events.where((sent >= F.lit(since)) | (sent.isNull() & (time >= F.lit(since))))
    if until is None:
        return later
    return later.where((F.coalesce(sent, time) < F.lit(until)) | (F.col("kind") == EventKind.ACKNOWLEDGMENT))


def lives_of(events: DataFrame) -> DataFrame:
    """Make lives from ``events`` alone. A life that is known only from acknowledgments has no ``sent_time``."""
    kind, time, reason = F.col("kind"), F.col("time"), F.col("reason")
    told = kind == EventKind.ACKNOWLEDGMENT

    def of(*kinds: str) -> Column:
        return kind.isin(*kinds)

    def about(own: str, other: str) -> Column:
        return F.when(told, F.col(other)).otherwise(F.col(own)).alias(own)

    negative = told & (reason.bitwiseAND(_NEGATIVE) != 0)
    received = told & (reason == MessageClass.MQMSG_CLASS_ACK_RECEIVE)
    reached = told & (reason.bitwiseAND(_OF_RECEIVING) != 0) | (reason == MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE)
    arrived = of(EventKind.REACHED, EventKind.RECEIVED)
    hop = F.struct("time", "kind", "node", "site", "peer", "hop_count")
    rows = events.where(
        kind.isin(*KINDS) & (told | F.coalesce(~F.col("message_class").isin(_OWN), F.lit(True)))
    ).select(
        about("source_id", "about_source_id"),
        about("message_number", "about_message_number"),
        about("destination", "response_queue"),
        F.when(~told, F.col("sent_time")).alias("sent_time"),
        F.when(of(EventKind.SENT), time).alias("sent"),
        F.when(of(EventKind.REACHED) | told & reached, time).alias("reached"),
        F.when(of(EventKind.RECEIVED) | received, time).alias("received"),
        F.when(of(EventKind.SENT), F.col("node")).alias("origin"),
        F.when(of(EventKind.SENT), F.col("site")).alias("origin_site"),
        F.when(arrived, F.struct("node", "site")).alias("end"),
        F.when(arrived, F.col("queue")).alias("queue"),
        F.when(
            of(EventKind.DIED, EventKind.REFUSED, EventKind.DEAD_LETTER) | negative,
            F.struct(
                "time",
                # The event of the death itself takes precedence over the event of a copy.
                F.when(of(EventKind.DEAD_LETTER), 1).when(told, 2).when(kind.isNotNull(), 0).alias("from_afar"),
                "reason",
                F.when(~of(EventKind.DEAD_LETTER, EventKind.ACKNOWLEDGMENT), F.col("node")).alias("node"),
                "peer",
            ),
        ).alias("death"),
        F.when(of(EventKind.DEAD_LETTER), F.struct("time", "node", "queue")).alias("dead_letter"),
        F.when(of(*HOPS), hop).alias("hop"),
        *(F.when(~told, F.col(name)).alias(name) for name in ("sender", "priority", "recoverable", "transactional")),
        F.when(~told, F.col("size")).alias("size"),
        "key_fingerprint",
    )
    return _joined(rows.where(F.col("source_id").isNotNull()), F.sort_array(F.collect_list("hop")))


def join_lives(lives: DataFrame) -> DataFrame:
    """Join the partial lives of each message, such as an old and a new one."""
    return _joined(lives, F.sort_array(F.flatten(F.collect_list("hops"))))


def _joined(rows: DataFrame, hops: Column) -> DataFrame:
    # The rows of a message come together first. They are in the segments of several nodes, so joining those of each
    # task before the shuffle makes them hardly fewer, and needs room for all messages at once.
    parts = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    together = rows.repartition(parts, *KEY)
    return together.groupBy(*KEY).agg(
        *(F.min(name).alias(name) for name in _EARLIEST),
        *(F.min(name).alias(name) for name in _ANY),
        F.min("end").alias("end"),
        F.min("death").alias("death"),
        F.min("dead_letter").alias("dead_letter"),
        hops.alias("hops"),
    )


def with_dates(lives: DataFrame) -> DataFrame:
    """Add the partition of each life: the day on which (UTC) and the site from which it was sent."""
    date = F.date_format(F.coalesce("sent_time", "sent"), "yyyy-MM-dd")
    return lives.withColumns(
        {
            "date": F.coalesce(date, F.lit(UNKNOWN)),
            "site": F.coalesce(F.nullif(F.col("origin_site"), F.lit("")), F.lit(UNKNOWN)),
        }
    )


def dated_by(lives: DataFrame, known: DataFrame) -> DataFrame:
    """Give lives that are known only from acknowledgments the ``sent_time`` of the same messages in ``known``.

    They then join those lives in their partition. A life that is not found stays as it is.
    """
    dates = known.where("sent_time is not null").select(*KEY, F.col("sent_time").alias("known_time"))
    found = lives.where("sent_time is null").join(dates, list(KEY), "left")
    found = found.withColumn("sent_time", F.col("known_time")).drop("known_time")
    return lives.where("sent_time is not null").unionByName(found)


def finished(lives: DataFrame) -> DataFrame:
    """Return the table ``message_life``: lives and the columns derived from them.

    ``status`` is what the message is now: ``received`` even if a copy died elsewhere; ``died`` unless it is in its
    queue and only another copy died; ``reached``; or ``under way``. ``death_class`` is the specification's name of the
    reason of a death, and ``dead_letter`` the copy that a dead-letter queue got.
    """
    death = F.col("death")
    died = death.isNotNull() & (
        F.col("reached").isNull() | death["node"].isNull() | (death["node"] == F.col("end")["node"])
    )
    status = (
        F.when(F.col("received").isNotNull(), "received")
        .when(died, "died")
        .when(F.col("reached").isNotNull(), "reached")
        .otherwise("under way")
    )
    return with_dates(lives).withColumns({"status": status, "death_class": class_of(death["reason"])})
