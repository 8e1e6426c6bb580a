"""The way of each message, hop by hop, and how long hops take."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mqenterprise.pipeline.jobs.message_life import KEY
from mqenterprise.pipeline.jobs.routes import stops_of
from qmnode.export.events import EventKind


def message_path(lives: DataFrame) -> DataFrame:
    """One row for each hop of a message, over the table ``message_life``, with its times.

    ``came`` is when the message was at ``from_node``, ``left`` when that queue manager knew that the next one has it,
    ``arrived`` when it was at ``to_node``; each is null where no node reported it. ``wait_us`` is the time from
    ``came`` to ``arrived``, the wait for the link included. The last hop of a message under way has no ``arrived``. A
    message that was sent to a queue of its own machine has no hop.
    """
    ways = lives.select(
        "date",
        "site",
        *KEY,
        "queue",
        stops_of(F.col("hops")).alias("stops"),
        F.filter("hops", lambda hop: hop["kind"] == EventKind.TRANSFERRED).alias("departures"),
    )
    hops = ways.where(F.size("stops") > 0).select(
        "date",
        "site",
        *KEY,
        "queue",
        F.explode(_steps(F.col("stops"), F.col("departures"))).alias("step"),
    )
    step = F.col("step")
    came, arrived = step["tail"]["time"], step["head"]["time"]
    return hops.select(
        "date",
        "site",
        *KEY,
        "queue",
        step["hop"].alias("hop"),
        step["tail"]["node"].alias("from_node"),
        step["tail"]["site"].alias("from_site"),
        F.coalesce(step["head"]["node"], step["departure"]["peer"]).alias("to_node"),
        step["head"]["site"].alias("to_site"),
        came.alias("came"),
        step["departure"]["time"].alias("left"),
        arrived.alias("arrived"),
        (F.unix_micros(arrived) - F.unix_micros(came)).alias("wait_us"),
    )


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
        F.max_by(message, F.struct("wait_us", message)).alias("slowest"),
    )


def _steps(stops: Column, departures: Column) -> Column:
    """The hops from stop to stop, and one without an arrival if a message left its last stop."""

    def departure(stop: Column) -> Column:
        # A message that comes by twice has another count the second time.
        count = F.greatest(stop["count"], F.lit(0))
        same = F.filter(
            departures,
            lambda hop: (
                (hop["node"] == stop["node"])
                & (F.coalesce(hop["hop_count"], count, F.lit(0)) == F.coalesce(count, hop["hop_count"], F.lit(0)))
            ),
        )
        return F.get(same, F.lit(0))

    def step(stop: Column, place: Column) -> Column:
        return F.struct(
            (place + 1).alias("hop"),
            stop.alias("tail"),
            F.get(stops, place + 1).alias("head"),
            departure(stop).alias("departure"),
        )

    return F.filter(
        F.transform(stops, step),
        lambda one: one["head"].isNotNull() | one["departure"].isNotNull(),
    )
