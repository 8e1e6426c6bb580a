"""Costs of routing links from all pairs of 10,000 sites with 100,000 links, on two cores and in 8 GiB.

``python -m tests.bench.link_costs`` is the run: Spark's session is started before anything is measured.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from time import perf_counter
from typing import Final

import pandas as pd
import pyarrow as pa

from mqenterprise.pipeline.directory import DirectoryTables
from mqenterprise.pipeline.graph import Link, SiteGraph, least_cost_trees
from mqenterprise.pipeline.jobs.link_costs import link_costs
from mqenterprise.pipeline.session import open_session
from tests.bench import Comparison, bench
from tests.bench.limits import DRIVER, MEMORY, measured

SITES: Final = 10_000
LINKS: Final = 100_000
SAMPLE: Final = 32
"""Sites from which the baseline looks."""
CORES: Final = 2


def directory(chance: random.Random) -> list[Link]:
    """Every site has a way to every other, and any of them may be linked."""
    pairs = {(site, site + 1) for site in range(SITES - 1)}
    while len(pairs) < LINKS:
        one, other = chance.randrange(SITES), chance.randrange(SITES)
        if one != other:
            pairs.add((min(one, other), max(one, other)))
    return [Link(f"S{one:05d}", f"S{other:05d}", chance.randint(1, 100)) for one, other in sorted(pairs)]


def run() -> dict[str, float]:
    """Delays on nine links of ten, and all pairs over all of them."""
    chance = random.Random(9)
    links = directory(chance)
    crossed = [link for link in links if chance.random() < 0.9]
    spark = open_session("local[2]", memory=DRIVER)
    spark.range(1).count()
    use = spark.createDataFrame(
        pd.DataFrame(
            {
                "from_site": [link.site1 for link in crossed],
                "to_site": [link.site2 for link in crossed],
                "crossings": 100,
                "lost": [chance.randrange(5) for _ in crossed],
                "bytes": 100_000,
                "delay_us_sum": [100 * chance.randint(1_000, 200_000) for _ in crossed],
            }
        )
    )
    declared = DirectoryTables({"links": pa.Table.from_pylist([asdict(link) for link in links])}).frame(spark, "links")
    start = perf_counter()
    rows = (
        link_costs(use, declared)
        .selectExpr("count(*)", "count_if(pairs > 0)", "count_if(suggested_pairs > 0)")
        .collect()
    )
    seconds = perf_counter() - start
    assert rows[0][0] == LINKS
    graph = SiteGraph.of(links)
    start = perf_counter()
    least_cost_trees(graph.matrix(graph.costs), range(SAMPLE))
    each = (perf_counter() - start) / SAMPLE
    return {"seconds": seconds, "alone": 2 * SITES * each / CORES, "used": rows[0][1], "then": rows[0][2]}


@bench("link costs")
def link_costs_of_all_pairs() -> list[Comparison]:
    """Seconds of all, and memory as if bytes were microseconds."""
    found = measured("tests.bench.link_costs")
    what = f"{SITES:,} sites, {LINKS:,} links"
    return [
        Comparison(what, found["seconds"], "Dijkstra alone, under both costs", found["alone"]),
        Comparison("their memory, bytes", found["memory"] / 1e6, "the bar", MEMORY / 1e6, 1.0),
    ]


if __name__ == "__main__":
    print(json.dumps(run()), flush=True)
