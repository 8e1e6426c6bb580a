"""Sites and routing links as a sparse matrix, for least-cost paths over very many of them.

scipy is loaded by the first path that is asked for: it takes longer than the start of a job.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Link:
    """A routing link with its cost; a foreign site ends every path and continues none (MS-MQDMPR 3.1.1.7)."""

    site1: str
    site2: str
    cost: int
    foreign1: bool = False
    foreign2: bool = False


@dataclass(frozen=True)
class SiteGraph:
    """The sites in order of their names, and the links both ways as parallel arrays."""

    sites: tuple[str, ...]
    position: Mapping[str, int]
    links: tuple[Link, ...]
    tails: Integers
    heads: Integers
    number: Integers
    """The index in ``links`` for each direction."""

    @classmethod
    def of(cls, links: Iterable[Link]) -> SiteGraph:
        """Make the graph. Of several links between two sites, the cheapest counts."""
        cheapest: dict[tuple[str, str], Link] = {}
        for link in sorted(links, key=lambda one: (one.cost, one.site1, one.site2)):
            cheapest.setdefault((min(link.site1, link.site2), max(link.site1, link.site2)), link)
        kept = tuple(cheapest[pair] for pair in sorted(cheapest))
        sites = tuple(sorted({site for link in kept for site in (link.site1, link.site2)}))
        position = {site: index for index, site in enumerate(sites)}
        directions = [
            (position[tail], position[head], number)
            for number, link in enumerate(kept)
            for tail, head, foreign in (
                (link.site1, link.site2, link.foreign1),
                (link.site2, link.site1, link.foreign2),
            )
            if not foreign
        ]
        columns = np.array(directions, dtype=np.int64).reshape(-1, 3).T
        return cls(sites, position, kept, *columns)

    @property
    def costs(self) -> Floats:
        """The declared costs of the links."""
        return np.array([link.cost for link in self.links], dtype=np.float64)

    def matrix(self, costs: Floats) -> Any:
        """The graph under the costs of the links."""
        from scipy.sparse import csr_array

        count = len(self.sites)
        return csr_array((costs[self.number], (self.tails, self.heads)), shape=(count, count))

    def cost(self, path: Sequence[str], costs: Mapping[tuple[str, str], int]) -> int | None:
        """Return the cost of a path of sites, or None if a step of it is no link."""
        total = 0
        for step in pairwise(path):
            cost = costs.get(step) or costs.get((step[1], step[0]))
            if cost is None:
                return None
            total += cost
        return total


@dataclass(frozen=True, slots=True)
class Tree:
    """Least-cost paths from one site: for every site its cost and the site before it (-1: none)."""

    root: int
    distance: Floats
    before: Integers

    def path(self, site: int) -> list[int]:
        """Return the sites from the root to ``site``; empty if there is no way."""
        if not np.isfinite(self.distance[site]):
            return []
        path = [site]
        while path[-1] != self.root:
            path.append(int(self.before[path[-1]]))
        return path[::-1]


def least_cost_trees(matrix: Any, roots: Sequence[int]) -> list[Tree]:
    """Dijkstra's algorithm from each root."""
    if not len(roots):
        return []
    from scipy.sparse.csgraph import dijkstra

    distances, before = dijkstra(matrix, indices=list(roots), return_predecessors=True)
    return [Tree(root, distances[row], before[row].astype(np.int64)) for row, root in enumerate(roots)]
