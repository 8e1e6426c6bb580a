"""Dead letters: the causes, ranked, by queue, sender and site, with the first, the last and a sample."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qmnode.structures.enumerations import MessageClass

CAUSES: Final[dict[int, str]] = {
    MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q: "no such queue",
    MessageClass.MQMSG_CLASS_NACK_DELETED: "purged on its way",
    MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT: "did not reach its queue in time",
    MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA: "queue full",
    MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED: "access denied",
    MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED: "too many hops",
    MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE: "bad signature",
    MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION: "cannot be decrypted",
    MessageClass.MQMSG_CLASS_NACK_COULD_NOT_ENCRYPT: "cannot be encrypted",
    MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q: "queue is not transactional",
    MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG: "message is not transactional",
    MessageClass.MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER: "unsupported encryption",
    MessageClass.MQMSG_CLASS_NACK_Q_DELETED: "queue deleted",
    MessageClass.MQMSG_CLASS_NACK_Q_PURGED: "queue purged",
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT: "was not received in time",
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED: "rejected by its receiver",
}
"""The classes of MS-MQMQ 2.2.18.1.6 in an operator's words."""


def cause_of(reason: Column) -> Column:
    """Return the cause in words: the class's number if it has no words, ``unknown`` if no class was reported."""
    return F.coalesce(
        _map_of(CAUSES)[reason], F.concat(F.lit("class 0x"), F.lpad(F.hex(reason), 4, "0")), F.lit("unknown")
    )


def class_of(reason: Column) -> Column:
    """Return the specification's name of a class: its number if it has none, null without one."""
    return F.coalesce(
        _map_of({one: one.name for one in MessageClass})[reason], F.concat(F.lit("0x"), F.lpad(F.hex(reason), 4, "0"))
    )


def _map_of(names: Mapping[int, str]) -> Column:
    """Return the map as one expression: each of a hundred columns would be a call of Java."""
    pairs = ", ".join(f"{number:d}, '{name}'" for number, name in names.items())
    return F.expr(f"map({pairs})")


def dead_letters(lives: DataFrame) -> DataFrame:
    """One row for each cause, queue, sender, sending machine, hour of death and dead-letter queue.

    ``lives`` is the table ``message_life``. ``rank`` orders the causes of a date by how many messages they killed, most
    first. ``kept`` counts the messages with a copy in a dead-letter queue; ``kept_at`` and ``kept_in`` name its node
    and the queue, and are null without a copy.
    """
    key = [
        "date",
        "site",
        "cause",
        "reason",
        "class",
        "queue",
        "sender",
        "origin",
        "node",
        "kept_at",
        "kept_in",
        "hour",
    ]
    death = F.col("death")
    # Tables of earlier versions do not have it until the next event.
    copy = (
        F.col("dead_letter") if "dead_letter" in lives.columns else F.lit(None).cast("struct<node:string,queue:string>")
    )
    dead = lives.where("status = 'died'").select(
        "date",
        "site",
        cause_of(death["reason"]).alias("cause"),
        death["reason"].alias("reason"),
        class_of(death["reason"]).alias("class"),
        F.coalesce("queue", "destination").alias("queue"),
        "sender",
        "origin",
        death["node"].alias("node"),
        F.date_trunc("hour", death["time"]).alias("hour"),
        death["time"].alias("time"),
        copy.isNotNull().alias("is_kept"),
        copy["node"].alias("kept_at"),
        copy["queue"].alias("kept_in"),
        F.struct(
            death["time"].alias("time"),
            F.concat_ws("\\", "source_id", F.col("message_number").cast("string")).alias("message"),
        ).alias("one"),
    )
    counted = dead.groupBy(*key).agg(
        F.count(F.lit(1)).alias("messages"),
        F.count_if("is_kept").alias("kept"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.min("one").alias("one"),
    )
    ranks = counted.groupBy("date", "cause").agg(F.sum("messages").alias("killed"))
    ranks = ranks.select(
        "date",
        "cause",
        F.row_number().over(Window.partitionBy("date").orderBy(F.desc("killed"), "cause")).alias("rank"),
    )
    return counted.withColumn("sample", F.col("one")["message"]).drop("one").join(F.broadcast(ranks), ["date", "cause"])
