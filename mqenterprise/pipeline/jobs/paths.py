"""The way of each message, hop by hop, and how long hops take."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mqenterprise.pipeline.jobs.message_life import KEY
from mqenterprise.pipeline.jobs.ways import with_ways


def message_path(lives: DataFrame) -> DataFrame:
    """One row for each hop of a message, over the table ``message_life``, with its times.

    ``came`` is when the message was at ``from_node``, ``left`` when that queue manager knew that the next one has it,
    ``arrived`` when it was at ``to_node``; each is null where no node reported it. ``wait_us`` is the time from
    ``came`` to ``arrived``, the wait for the link included. The last hop of a message under way has no ``arrived``. A
    message that was sent to a queue of its own machine has no hop.
    """
    hops = with_ways(lives).select("date", "site", *KEY, "queue", F.inline("steps"))
    return hops.withColumn("wait_us", F.unix_micros("arrived") - F.unix_micros("came"))


def hops(lives: DataFrame) -> DataFrame:
    """One row for each pair of queue managers and hour of leaving: how many messages took this hop, and how long.

    ``slowest`` is the message that took the longest.
    """
    path = message_path(lives).where(F.col("wait_us").isNotNull())
    message = F.concat_ws("\\", "source_id", F.col("message_number").cast("string"))
    return path.groupBy(
        "date", "site", "from_node", "from_site", "to_node", "to_site", F.date_trunc("hour", "came").alias("hour")
    ).agg(
        F.count(F.lit(1)).alias("messages"),
        F.try_sum("wait_us").alias("wait_us_sum"),
        F.max("wait_us").alias("wait_us_max"),
        # The one of an array, because Spark sorts all rows for the greatest text or struct of each group.
        F.max_by(message, F.struct("wait_us", message), 1)[0].alias("slowest"),
    )
