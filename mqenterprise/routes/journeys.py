"""All journeys to one destination. Every machine has one next hop for it, so they form a tree that is walked once."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qmnode.routing import NoRouteError, Router, RoutingTable, follow, step
from qmnode.structures.guid import Guid

if TYPE_CHECKING:
    from mqenterprise.routes.least_costs import LeastCosts


@dataclass(frozen=True, slots=True)
class FoundJourney:
    """A journey: its path, or the reason why there is none."""

    path: tuple[Guid, ...] = ()
    cost: int = 0
    problem: str = ""


class Journeys:
    """Journeys in one state of the enterprise, in which the machines in ``away`` are down."""

    def __init__(self, costs: LeastCosts, away: Set[Guid]) -> None:
        self.snapshot = costs.snapshot
        self.costs = costs
        self.away = away
        self.tables: dict[Guid, RoutingTable] = costs.tables()
        self._routers: dict[Guid, Router] = {}

    def router(self, machine: Guid) -> Router:
        """Return the router of a machine. It remembers a single decision, because each is needed only once."""
        router = self._routers.get(machine)
        if router is None:
            router = self._routers[machine] = Router(self.snapshot, machine, tables=self.tables, remember=1)
        return router

    def to(self, destination: Guid) -> JourneysTo:
        return JourneysTo(self, destination)


class JourneysTo:
    """The journeys to one destination."""

    def __init__(self, journeys: Journeys, destination: Guid) -> None:
        self._journeys = journeys
        self._destination = destination
        self._known: dict[Guid, FoundJourney] = {}

    @property
    def passed(self) -> Mapping[Guid, FoundJourney]:
        """The machines on the ways asked for so far, with the remaining way from each."""
        return self._known

    def way(self, source: Guid) -> FoundJourney:
        """Return the same way as ``follow``."""
        journeys, known = self._journeys, self._known
        trail: dict[Guid, int] = {}
        at: Guid | None = source
        end = FoundJourney()
        while at is not None:
            if at in known:
                end = known[at]
                break
            if at in trail:
                return self._followed(source)
            trail[at] = 0
            try:
                decision, at_next = step(journeys.snapshot, journeys.router(at), self._destination, journeys.away)
            except NoRouteError as error:
                end = FoundJourney(problem=error.reason)
                break
            trail[at] = decision.cost
            at = at_next
        for passed, cost in reversed(trail.items()):
            if not end.problem:
                end = FoundJourney((passed, *end.path), max(cost, end.cost))
            known[passed] = end
        return end

    def _followed(self, source: Guid) -> FoundJourney:
        """Return a way that runs into a circle, with all machines that it passes before."""
        journeys = self._journeys
        try:
            found = follow(
                journeys.snapshot, source, self._destination, away=journeys.away, tables=dict(journeys.tables)
            )
        except NoRouteError as error:
            return FoundJourney(problem=error.reason)
        return FoundJourney(found.path, found.cost)
