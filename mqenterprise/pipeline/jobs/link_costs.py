"""Link costs: the observed delay and loss of routing links, and costs with which routing would prefer fast paths.

A message crosses a link from a queue manager of one site to a queue manager of the next. Its delay includes the wait
for the link, which is what routing can avoid. A message is lost on a link when it dies while it waits for the link.

The effect of the suggested costs is computed for all pairs of sites: Dijkstra's algorithm from each site under both
costs, in scipy, with the sites spread over Spark's tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mqenterprise.pipeline.graph import Link, SiteGraph, Tree, least_cost_trees
from mqenterprise.pipeline.jobs.ways import with_ways

if TYPE_CHECKING:
    from mqenterprise.pipeline.graph import Floats, Integers

LOWEST_COST, HIGHEST_COST = 1, 999_999
UNIT_US: Final = 1_000
"""The delay in microseconds for a cost of one; more when the slowest link would otherwise cost too much."""
_COSTS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("site1", "site2")),
        *((name, pa.int64()) for name in ("crossings", "lost", "bytes")),
        *((name, pa.float64()) for name in ("delay_us", "loss")),
        *((name, pa.int64()) for name in ("cost", "suggested_cost", "pairs", "suggested_pairs")),
    ]
)
"""The columns of ``link_costs``."""
_AT_ONCE: Final = 16
_DEEP: Final = 64


def link_use(lives: DataFrame, machines: DataFrame) -> DataFrame:
    """Count messages that crossed from site to site, with their delays and the deaths while waiting, by day of sending.

    ``machines`` says the site of each ``node``, for next hops that were never reached.
    """
    lives = with_ways(lives)
    crossings = lives.select("date", "site", "size", F.inline("steps")).select(
        "date",
        "site",
        "from_site",
        "to_site",
        (F.unix_micros("arrived") - F.unix_micros("came")).alias("delay"),
        "size",
        F.lit(0).alias("lost"),
    )
    places = machines.select(F.col("node").alias("peer"), F.col("site").alias("to_site")).where("site <> ''")
    deaths = (
        lives.where("status = 'died' and death.peer is not null")
        .select(
            "date",
            "site",
            "death.peer",
            "size",
            F.col("last_site").alias("from_site"),
        )
        .join(F.broadcast(places.dropDuplicates(["peer"])), "peer")
        .select(
            "date",
            "site",
            "from_site",
            "to_site",
            F.lit(None).cast("long").alias("delay"),
            "size",
            F.lit(1).alias("lost"),
        )
    )
    return (
        crossings.unionByName(deaths)
        .where("from_site <> to_site and from_site <> '' and to_site <> ''")
        .groupBy("date", "site", "from_site", "to_site")
        .agg(
            F.count("delay").alias("crossings"),
            F.sum(F.when(F.col("delay").isNotNull(), F.col("size"))).alias("bytes"),
            F.sum("lost").alias("lost"),
            F.try_sum("delay").alias("delay_us_sum"),
            F.min("delay").alias("delay_us_min"),
            F.max("delay").alias("delay_us_max"),
        )
    )


def link_costs(use: DataFrame, links: DataFrame) -> DataFrame:
    """Return one row for each routing link: its traffic, its cost, the suggested cost, and the effect of that.

    ``use`` is the table ``link_use``, ``links`` the directory's. ``pairs`` counts the ordered pairs of sites whose
    least-cost path passes the link now, ``suggested_pairs`` under the suggested costs. A link that no message used gets
    no suggestion; for these counts its cost keeps its proportion to the others.
    """
    seen = (
        use.withColumns({"site1": F.least("from_site", "to_site"), "site2": F.greatest("from_site", "to_site")})
        .groupBy("site1", "site2")
        .agg(*(F.try_sum(name).alias(name) for name in ("crossings", "lost", "bytes", "delay_us_sum")))
    )
    graph = _graph(links)
    measured = {(row["site1"], row["site2"]): row for row in seen.collect()}
    delays, losses = _observed(graph, measured)
    expected = expected_delays(graph.costs, delays, losses)
    costs = suggested_costs(expected)
    spark = use.sparkSession
    pairs = all_pairs(spark.range(len(graph.sites)), graph, costs, np.where(np.isfinite(expected), expected, 0.0))
    used = {row["link"]: row for row in pairs.where("link >= 0").collect()}
    rows = []
    for number, link in enumerate(graph.links):
        row = measured.get(_pair(link))
        count = used.get(number)
        rows.append(
            (
                *_pair(link),
                int(row["crossings"]) if row else 0,
                int(row["lost"]) if row else 0,
                int(row["bytes"] or 0) if row else 0,
                float(delays[number]) if np.isfinite(delays[number]) else None,
                float(losses[number]),
                link.cost,
                int(costs[number]) if row else None,
                int(count["pairs"]) if count else 0,
                int(count["suggested_pairs"]) if count else 0,
            )
        )
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(_COSTS)]
    return spark.createDataFrame(pa.Table.from_arrays(columns, schema=_COSTS))


def _graph(links: DataFrame) -> SiteGraph:
    return SiteGraph.of(Link(**row.asDict()) for row in links.collect())


def _pair(link: Link) -> tuple[str, str]:
    return min(link.site1, link.site2), max(link.site1, link.site2)


def _observed(graph: SiteGraph, measured: dict[tuple[str, str], Any]) -> tuple[Floats, Floats]:
    """Return the mean delay in microseconds (NaN: never crossed) and the share of lost messages for each link."""
    delays, losses = np.full(len(graph.links), np.nan), np.zeros(len(graph.links))
    for number, link in enumerate(graph.links):
        row = measured.get(_pair(link))
        if row is None:
            continue
        if row["crossings"] and row["delay_us_sum"] is not None:  # a sum that is too large for a number
            delays[number] = row["delay_us_sum"] / row["crossings"]
        losses[number] = row["lost"] / (row["crossings"] + row["lost"])
    return delays, losses


def expected_delays(costs: Floats, delays: Floats, losses: Floats) -> Floats:
    """Return the expected delay on each link in microseconds, where a lost message counts as sent again.

    The delay of a link that was never crossed is estimated from its cost, by the ratio of delay to cost of the others.
    A link that loses everything has an infinite delay.
    """
    expected = delays / np.where(losses < 1, 1 - losses, np.nan)
    known = np.isfinite(expected)
    unit = float(expected[known].sum() / costs[known].sum()) if known.any() else float(UNIT_US)
    filled: Floats = np.where(known, expected, np.where(losses < 1, costs * unit, np.inf))
    return filled


def suggested_costs(expected: Floats) -> Integers:
    """Return costs in proportion to the expected delays, within the limits of MS-MQDMPR 3.1.1.8."""
    finite = np.isfinite(expected)
    scale = max(float(UNIT_US), float(expected[finite].max(initial=0.0)) / HIGHEST_COST)
    wanted = np.where(finite, np.ceil(expected / scale), HIGHEST_COST)
    costs: Integers = np.clip(wanted, LOWEST_COST, HIGHEST_COST).astype(np.int64)
    return costs


def all_pairs(roots: DataFrame, graph: SiteGraph, suggested: Integers, delays: Floats) -> DataFrame:
    """Compare all pairs of sites now and under the ``suggested`` costs.

    Rows with ``link`` count the pairs that pass the link; rows with ``site`` sum the links' ``delays`` over the site's
    destinations."""
    compared = _comparing(_Arrays(graph, suggested, delays))
    most = 4 * roots.sparkSession.sparkContext.defaultParallelism
    tasks = roots.repartition(min(most, -(-len(graph.sites) // _AT_ONCE) or 1))
    found = tasks.mapInArrow(compared, _COMPARED_TEXT)
    return found.groupBy("link", "site").agg(*(F.sum(name).alias(name) for name in _SUMS))


_SUMS: Final = ("pairs", "suggested_pairs", "delay_us", "suggested_delay_us")
_COMPARED_TEXT: Final = (
    "link long, site long, pairs long, suggested_pairs long, delay_us double, suggested_delay_us double"
)
_COMPARED: Final = pa.schema(
    [(name, pa.int64()) for name in ("link", "site", "pairs", "suggested_pairs")]
    + [(name, pa.float64()) for name in ("delay_us", "suggested_delay_us")]
)


class _Arrays:
    """The parts of a graph that the tasks need: only arrays, which are sent fast."""

    def __init__(self, graph: SiteGraph, suggested: Integers, delays: Floats) -> None:
        self.count, self.links = len(graph.sites), len(graph.links)
        costs = (graph.costs, suggested.astype(np.float64))
        self.matrices = [graph.matrix(cost) for cost in costs]
        self.delays = delays
        keys = graph.tails * self.count + graph.heads
        order = np.argsort(keys)
        self.keys, self.numbers = keys[order], graph.number[order]

    def links_to(self, tree: Tree, sites: Integers) -> Integers:
        """Return the link by which the tree reaches each site."""
        found: Integers = self.numbers[np.searchsorted(self.keys, tree.before[sites] * self.count + sites)]
        return found


def _comparing(arrays: _Arrays) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        passed = np.zeros((2, arrays.links), dtype=np.int64)
        sites: list[int] = []
        delays: list[tuple[float, float]] = []
        for batch in batches:
            roots = batch.column(0).to_pylist()
            for begin in range(0, len(roots), _AT_ONCE):
                some = roots[begin : begin + _AT_ONCE]
                trees = [least_cost_trees(matrix, some) for matrix in arrays.matrices]
                for place, root in enumerate(some):
                    sums = [_add(arrays, kind[place], passed[index]) for index, kind in enumerate(trees)]
                    sites.append(root)
                    delays.append((sums[0], sums[1]))
        links = np.flatnonzero(passed.any(axis=0))
        none, zero = np.full(len(links), -1), np.zeros(len(links))
        yield pa.RecordBatch.from_arrays(
            [pa.array(column) for column in (links, none, passed[0][links], passed[1][links], zero, zero)],
            schema=_COMPARED,
        )
        count = len(sites)
        gone, nothing = np.full(count, -1), np.zeros(count, dtype=np.int64)
        sums_of = np.array(delays, dtype=np.float64).reshape(-1, 2).T
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(column)
                for column in (gone, np.array(sites, np.int64), nothing, nothing, sums_of[0], sums_of[1])
            ],
            schema=_COMPARED,
        )

    return compare


def _add(arrays: _Arrays, tree: Tree, passed: Integers) -> float:
    """Add the destinations behind each link of a tree to ``passed``. Return the sum of the delays to all of them."""
    sites = np.flatnonzero(np.isfinite(tree.distance))
    sites = sites[sites != tree.root]
    if not len(sites):
        return 0.0
    links = arrays.links_to(tree, sites)
    behind = destinations_behind(tree, sites)
    np.add.at(passed, links, behind)
    return float((arrays.delays[links] * behind).sum())


def destinations_behind(tree: Tree, sites: Integers) -> Integers:
    """Return, for each of ``sites`` (all that the tree reaches but its root), the number at or behind it."""
    before = np.where(tree.before < 0, tree.root, tree.before)
    # Depths by doubling: each round, every site looks twice as far up.
    up, depth = before.copy(), np.zeros(len(before), dtype=np.int64)
    depth[sites] = 1
    up[tree.root] = tree.root
    while (up[sites] != tree.root).any():
        depth += depth[up]
        up = up[up]
    behind = np.zeros(len(before), dtype=np.int64)
    behind[sites] = 1
    deepest = int(depth[sites].max())
    if deepest > _DEEP:
        for site in sites[np.argsort(-depth[sites], kind="stable")].tolist():
            if before[site] != tree.root:
                behind[before[site]] += behind[site]
        return behind[sites]
    by_depth = sites[np.argsort(depth[sites], kind="stable")]
    bounds = np.searchsorted(depth[by_depth], np.arange(2, deepest + 2))
    for begin, end in reversed(list(pairwise(bounds))):
        level = by_depth[begin:end]
        np.add.at(behind, before[level], behind[level])
    return behind[sites]
