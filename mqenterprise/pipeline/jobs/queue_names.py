"""Names of queues: the queue of a destination, even for messages that never arrived there.

A node that holds a message in its queue reports that queue's name. Of a message that died on its way, only the format
name of the destination is known. Its queue's name is the first of these: the name that a node last reported for the
same destination, the name in the directory, the name inside a direct format name.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mqenterprise.pipeline.jobs.message_life import UNKNOWN
from qmnode.export.events import EventKind

KINDS: Final = (EventKind.REACHED,)
COLUMNS: Final = ("time", "kind", "destination", "queue")
_DIRECT: Final = "direct=os:"
"""The prefix in lower case, like all destinations in a look-up."""
_LONGEST: Final = 1 << 16


def within(events: DataFrame, since: datetime, until: datetime | None = None) -> DataFrame:
    """The events of ``since`` or later, and before ``until``."""
    later = events.where(F.col("time") >= F.lit(since))
    return later if until is None else later.where(F.col("time") < F.lit(until))


def told_names(events: DataFrame) -> DataFrame:
    """Return the names that nodes reported, in rows that ``join_names`` joins."""
    arrived = (F.col("kind") == EventKind.REACHED) & F.col("queue").isNotNull() & F.col("destination").isNotNull()
    rows = events.where(arrived).select(
        F.lit(UNKNOWN).alias("date"),
        F.lit(UNKNOWN).alias("site"),
        F.lower("destination").alias("destination"),
        F.struct("time", "queue").alias("last"),
    )
    return join_names(rows)


def join_names(rows: DataFrame) -> DataFrame:
    """Return the table ``queue_names``: one row for each destination, with the name that was reported last."""
    # The one of an array, because Spark sorts all rows for the greatest struct of each group.
    last = F.max_by("last", "last", 1)[0]
    return rows.groupBy("date", "site", "destination").agg(last.alias("last"))


def lookup(told: Iterable[tuple[str, str]], published: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the name for each destination (in lower case): from nodes, and of published queues by identifier."""
    names = {f"public={identifier.lower()}": name for identifier, name in published} | dict(told)
    direct = {f"{_DIRECT}{name.lower()}": name for name in names.values()}
    return direct | names


def named(lives: DataFrame, names: DataFrame) -> DataFrame:
    """Lives with the queue's name also where no node told it: ``names`` has ``key`` (as ``lookup`` has) and ``name``.

    A name that is no longer known stays as it was found.
    """
    return _with_name(lives, names).withColumn("queue", F.col("now")).select(*lives.columns)


def misnamed(lives: DataFrame, names: DataFrame) -> DataFrame:
    """Return the dates with lives whose queue's name has changed or become known since."""
    return _with_name(lives, names).where(~F.col("queue").eqNullSafe(F.col("now"))).select("date").distinct()


def _with_name(lives: DataFrame, names: DataFrame) -> DataFrame:
    key = F.lower("destination")
    direct = F.when(key.startswith(_DIRECT), F.substring("destination", len(_DIRECT) + 1, _LONGEST))
    told = F.when(F.col("end").isNotNull(), F.col("queue"))
    joined = lives.join(F.broadcast(names), key == F.col("key"), "left")
    return joined.withColumn("now", F.coalesce(told, "name", "queue", direct))
