"""Routes: the path each message took against the least-cost path over the directory's routing links.

Paths are compared by sites, since that is what routing links join. A detour is a path that costs more than the
cheapest; a tie is none.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mqenterprise.pipeline.graph import Link, SiteGraph, least_cost_trees
from qmnode.export.events import EventKind

INPUT: Final = ("source_id", "message_number", "destination", "date", "site", "origin", "hops", "status")
PRICED: Final = "sites array<string>, expected array<string>, cost long, least_cost long"
_PRICED: Final = pa.schema(
    [
        ("sites", pa.list_(pa.string())),
        ("expected", pa.list_(pa.string())),
        ("cost", pa.int64()),
        ("least_cost", pa.int64()),
    ]
)


def routes(lives: DataFrame, links: DataFrame) -> DataFrame:
    """Return one row for each message that reached a queue manager.

    ``lives`` is the table ``message_life``; ``links`` has the routing links: ``site1``, ``site2``, ``cost``, and
    ``foreign`` sites end a path (``foreign1``, ``foreign2``). ``expected`` and ``least_cost`` are null where
    the directory knows no way, ``cost`` where it does not know a link that was taken. ``hop_us`` has microseconds from
    queue manager to queue manager, waiting included.
    """
    taken = (
        lives.select(*(name for name in INPUT if name != "hops"), stops_of(F.col("hops")).alias("stops"))
        # A message known only by its end or by an acknowledgment has no stop yet.
        .where(F.size("stops") > 0)
        .withColumn("path", F.col("stops")["node"])
        .withColumn("sites", _without_repeats(F.col("stops")["site"]))
        .withColumn("hops", F.size("path") - 1)
        .withColumn("hop_us", _differences(F.col("stops")["time"]))
        .drop("stops")
    )
    graph = SiteGraph.of(Link(**row.asDict()) for row in links.collect())
    journeys = taken.select("sites").distinct().repartition(F.get("sites", 0))
    priced = journeys.mapInArrow(_pricing(graph), PRICED)
    return taken.join(F.broadcast(priced), "sites", "left").withColumn("detour", F.col("cost") > F.col("least_cost"))


def _pricing(graph: SiteGraph) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Add the costs and the least-cost path to journeys. Each root's tree is made once per batch."""

    def price(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matrix = graph.matrix(graph.costs)
        costs = {(link.site1, link.site2): link.cost for link in graph.links}
        for batch in batches:
            journeys = batch.column("sites").to_pylist()
            known = [sites for sites in journeys if {sites[0], sites[-1]} <= graph.position.keys()]
            roots = sorted({graph.position[sites[0]] for sites in known})
            trees = dict(zip(roots, least_cost_trees(matrix, roots), strict=True))
            rows = []
            for sites in journeys:
                tree, end = trees.get(graph.position.get(sites[0], -1)), graph.position.get(sites[-1])
                expected = tree.path(end) if tree is not None and end is not None else []
                rows.append(
                    {
                        "sites": sites,
                        "expected": [graph.sites[site] for site in expected] if expected else None,
                        "cost": graph.cost(sites, costs),
                        "least_cost": int(tree.distance[end]) if tree is not None and expected else None,
                    }
                )
            yield pa.RecordBatch.from_pylist(rows, schema=_PRICED)

    return price


def stops_of(hops: Column) -> Column:
    """Return the queue managers that a message passed, in order: time of arrival, ``node`` and ``site``."""
    there = F.filter(hops, lambda hop: hop["kind"].isin(EventKind.SENT, EventKind.ACCEPTED, EventKind.REACHED))
    # By the count that travels in the message, then by the clocks, which may differ.
    stops = F.array_sort(
        F.transform(
            there,
            lambda hop: F.struct(
                F.when(hop["kind"] == EventKind.SENT, -1).otherwise(hop["hop_count"]).alias("count"),
                hop["time"].alias("time"),
                hop["node"].alias("node"),
                hop["site"].alias("site"),
            ),
        )
    )
    # A queue manager may report several stops, such as sent and reached: take the first.
    return F.filter(
        stops,
        lambda stop, place: (place == 0) | (stop["node"] != F.get(stops, place - 1)["node"]),
    )


def _without_repeats(sites: Column) -> Column:
    return F.filter(sites, lambda site, place: (place == 0) | (site != F.get(sites, place - 1)))


def _differences(times: Column) -> Column:
    micros = F.transform(times, F.unix_micros)
    return F.transform(
        F.slice(micros, 2, F.greatest(F.size(micros) - 1, F.lit(0))),
        lambda time, place: time - F.get(micros, place),
    )
