"""Service levels: latency and number of messages, growth of queues; by queue, pair of sites and hour.

``latency`` is the time from sending to arrival in the destination queue, ``waiting`` from there to reception, both in
microseconds. A sum of them that does not fit a number is null. Percentiles are observed values (no interpolation), so
they are exact.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mqenterprise.pipeline.jobs.message_life import UNKNOWN

_DIGITS: Final = 3
PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def service_levels(lives: DataFrame) -> DataFrame:
    """One row for each queue, pair of sites and hour of sending (UTC), over the table ``message_life``.

    ``last_received`` is when one of these messages was last received, ``oldest_waiting`` when the first of those that
    are still in the queue arrived there.
    """
    sent, reached, received = (F.unix_micros(name) for name in ("sent", "reached", "received"))
    rows = lives.select(
        "date",
        "site",
        F.coalesce(F.col("end")["site"], F.lit(UNKNOWN)).alias("destination_site"),
        F.coalesce("queue", "destination").alias("queue"),
        F.date_trunc("hour", F.coalesce("sent", "sent_time")).alias("hour"),
        F.when(sent.isNotNull(), reached - sent).alias("latency"),
        (received - reached).alias("waiting"),
        "size",
        "status",
        "reached",
        "received",
    )
    return rows.groupBy("date", "site", "destination_site", "queue", "hour").agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("size").alias("bytes"),
        F.count("reached").alias("reached"),
        F.count("received").alias("received"),
        F.count_if(F.col("status") == "died").alias("died"),
        F.max("received").alias("last_received"),
        F.min(F.when(F.col("status") == "reached", F.col("reached"))).alias("oldest_waiting"),
        F.try_sum("latency").alias("latency_us_sum"),
        F.max("latency").alias("latency_us_max"),
        *_percentiles("latency"),
        F.try_sum("waiting").alias("waiting_us_sum"),
        F.max("waiting").alias("waiting_us_max"),
        *_percentiles("waiting"),
    )


def latencies(lives: DataFrame) -> DataFrame:
    """Count messages by latency, day, pair of sites and queue. The counts add up to the percentiles of any window.

    ``latency_us`` is rounded to three digits, so that there are at most some thousand rows for each.
    """
    latency = F.unix_micros("reached") - F.unix_micros("sent")
    digits = F.floor(F.log10(F.abs(latency)))
    step = F.when(digits > _DIGITS - 1, F.pow(F.lit(10.0), digits - (_DIGITS - 1)).cast("long")).otherwise(1)
    rounded = (F.floor((latency + F.floor(step / 2)) / step) * step).cast("long")
    rows = lives.where("sent is not null and reached is not null").select(
        "date",
        "site",
        F.coalesce(F.col("end")["site"], F.lit(UNKNOWN)).alias("destination_site"),
        F.coalesce("queue", "destination").alias("queue"),
        rounded.alias("latency_us"),
    )
    return rows.groupBy("date", "site", "destination_site", "queue", "latency_us").agg(
        F.count(F.lit(1)).alias("messages")
    )


def _percentiles(name: str) -> list[Column]:
    """Nearest rank: the smallest value that at least this share of the values does not exceed."""
    return [
        F.expr(f"percentile_disc({share}) within group (order by {name})").cast("long").alias(f"{name}_us_{title}")
        for title, share in PERCENTILES.items()
    ]


def backlog(lives: DataFrame) -> DataFrame:
    """Count the messages that entered and left each queue, by hour; ``growth`` is the difference.

    ``date`` is the day on which the messages were sent, as in every table. An hour may have rows of two days, which
    have to be added.
    """
    left = F.coalesce("received", F.when((F.col("status") == "died"), F.col("death")["time"]))
    reached = F.col("reached").isNotNull()
    rows = lives.where(reached).select(
        "date",
        "site",
        F.coalesce("queue", "destination").alias("queue"),
        F.explode(
            F.array(
                F.struct(F.col("reached").alias("time"), F.lit(1).alias("came"), F.lit(0).alias("left")),
                F.struct(left.alias("time"), F.lit(0).alias("came"), F.lit(1).alias("left")),
            )
        ).alias("change"),
    )
    return (
        rows.where("change.time is not null")
        .groupBy("date", "site", "queue", F.date_trunc("hour", F.col("change")["time"]).alias("hour"))
        .agg(F.sum("change.came").alias("came"), F.sum("change.left").alias("left"))
        .withColumn("growth", F.col("came") - F.col("left"))
    )
