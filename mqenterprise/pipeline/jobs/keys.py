"""Keys and certificates: their age, their end, and the senders that still encrypt to a retired key."""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def key_use(lives: DataFrame, keys: DataFrame) -> DataFrame:
    """Count messages by sender, key and day of sending; ``late`` counts those sent after the key was retired.

    ``keys`` is the directory's: ``node``, ``key_fingerprint``, ``published``, ``retired``, ``expires``.
    """
    retired = keys.select(F.col("node").alias("key_node"), F.col("key_fingerprint").alias("key"), "retired")
    sent = F.coalesce("sent", "sent_time")
    rows = lives.where("key_fingerprint is not null").select(
        "date",
        "site",
        F.col("end")["node"].alias("node"),
        "key_fingerprint",
        "origin",
        "source_id",
        sent.alias("time"),
    )
    matched = rows.join(
        F.broadcast(retired), (F.col("key") == F.col("key_fingerprint")) & (F.col("key_node") == F.col("node")), "left"
    )
    late = F.col("time") >= F.col("retired")
    return matched.groupBy("date", "site", "node", "key_fingerprint", "origin", "source_id").agg(
        F.count(F.lit(1)).alias("messages"),
        F.count_if(late).alias("late"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.max(F.when(late, F.col("time"))).alias("last_late"),
    )


def keys(use: DataFrame, published: DataFrame, now: datetime) -> DataFrame:
    """Return one row for each key: its age, its state, its use, and its senders after it was retired.

    A used key that the directory does not (or no longer) hold is ``unlisted``, and all its users count as late. It is
    ``unknown`` when the directory has no key of the machine at all.
    """
    late = F.when(F.col("state") == "unlisted", F.col("messages")).otherwise(F.col("late"))
    moment = F.lit(now)
    state = (
        F.when(F.col("listed").isNull(), F.when(F.col("known"), "unlisted").otherwise("unknown"))
        .when(F.col("retired") <= moment, "retired")
        .when(F.col("expires") <= moment, "expired")
        .otherwise("current")
    )
    by_origin = use.groupBy("node", "key_fingerprint", "origin").agg(
        F.sum("messages").alias("messages"), F.sum("late").alias("late"), F.max("last").alias("last")
    )
    return (
        published.withColumn("listed", F.lit(True))
        .join(by_origin, ["node", "key_fingerprint"], "full")
        .join(F.broadcast(published.select("node", F.lit(True).alias("known")).distinct()), "node", "left")
        .withColumn("state", state)
        .withColumn("late", late)
        .groupBy("node", "key_fingerprint", "provider", "published", "retired", "expires", "state")
        .agg(
            F.coalesce(F.sum("messages"), F.lit(0)).alias("messages"),
            F.coalesce(F.sum("late"), F.lit(0)).alias("late"),
            F.max("last").alias("last_used"),
            F.sort_array(F.collect_set(F.when(F.col("late") > 0, F.col("origin")))).alias("late_senders"),
        )
        .withColumn("age_days", _days(F.col("published"), moment))
        .withColumn("days_left", _days(moment, F.col("expires")))
    )


def certificates(registered: DataFrame, now: datetime) -> DataFrame:
    """Return one row for each user certificate: its age and its remaining validity."""
    moment = F.lit(now)
    state = (
        F.when(F.col("not_after") <= moment, "expired").when(F.col("not_before") > moment, "not yet").otherwise("good")
    )
    return (
        registered.withColumn("state", state)
        .withColumn("age_days", _days(F.col("not_before"), moment))
        .withColumn("days_left", _days(moment, F.col("not_after")))
    )


def _days(since: Column, until: Column) -> Column:
    return F.floor((F.unix_seconds(until) - F.unix_seconds(since)) / 86_400).cast("long")
