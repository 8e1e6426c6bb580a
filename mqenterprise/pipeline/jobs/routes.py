"""Routes: the path each message took against the least-cost path over the directory's routing links.

Paths are compared by sites, since that is what routing links join. A detour is a path that costs more than the
cheapest; a tie is none.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mqenterprise.pipeline.graph import Link, SiteGraph, least_cost_trees
from mqenterprise.pipeline.jobs.ways import with_ways

INPUT: Final = ("source_id", "message_number", "destination", "date", "site", "origin", "status")
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
    ways = with_ways(lives).where(F.size("path") > 0)  # one known only by its end or an acknowledgment has no stop yet
    taken = ways.select(*INPUT, "path", "sites", (F.size("path") - 1).alias("hops"), "hop_us")
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
