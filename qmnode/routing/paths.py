"""Whole journeys: the path of a message if every queue manager on its way routes by the same snapshot."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from qmnode.routing.router import NextHops, NoRouteError, Router, Rule
from qmnode.routing.snapshot import TopologySnapshot
from qmnode.routing.table import RoutingTable
from qmnode.structures.guid import Guid

CIRCLE_HINT: Final = "check the in- and out-routing servers, and that every link names a site gate on each side"


@dataclass(frozen=True, slots=True)
class Journey:
    """The queue managers that a message passes, source and destination included, and the decision of each."""

    path: tuple[Guid, ...]
    decisions: tuple[NextHops, ...]

    @property
    def cost(self) -> int:
        """The total cost of the journey's links between sites."""
        return max((decision.cost for decision in self.decisions), default=0)


def follow(
    snapshot: TopologySnapshot,
    source: Guid,
    destination: Guid,
    *,
    away: Set[Guid] = frozenset(),
    tables: dict[Guid, RoutingTable] | None = None,
) -> Journey:
    """Route from hop to hop until the destination or a connector queue is reached.

    ``away`` holds queue managers that are down: each hop then tries its next possible hop. ``tables`` keeps routing
    tables between calls. Raises :class:`NoRouteError` when a hop has no route or a message would loop.
    """
    tables = {} if tables is None else tables
    path, decisions = [source], []
    while True:
        decision, hop = step(snapshot, Router(snapshot, path[-1], tables=tables), destination, away)
        decisions.append(decision)
        if hop is None:
            return Journey(tuple(path), tuple(decisions))
        if hop in path:
            names = " to ".join(snapshot.machines[at].name for at in (*path, hop))
            raise NoRouteError(f"messages would go in a circle: {names}; {CIRCLE_HINT}")
        path.append(hop)


def step(
    snapshot: TopologySnapshot, router: Router, destination: Guid, away: Set[Guid] = frozenset()
) -> tuple[NextHops, Guid | None]:
    """Return one queue manager's decision, and the first of its next hops that is up (None where the message has
    arrived).

    Raises :class:`NoRouteError` when there is no route, or every next hop is down.
    """
    decision = router.next_hops(destination)
    if decision.rule in (Rule.LOCAL, Rule.CONNECTOR):
        return decision, None
    for hop in (*decision.hops, *decision.fall_back):
        if hop not in away:
            return decision, hop
    names = ", ".join(snapshot.machines[hop].name for hop in decision.hops if hop in snapshot.machines)
    raise NoRouteError(f"{router.name} waits: no next hop answers ({names})")
