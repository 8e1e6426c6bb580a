"""JSON documents of explained ways and simulated outages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mqenterprise.routes.explanation import SECTIONS, Explanation
from qmnode.structures.guid import guid_to_text

if TYPE_CHECKING:
    from mqenterprise.operations.tracing import Present
    from mqenterprise.routes.enterprise import NamedTopology
    from mqenterprise.routes.simulation import ChangedJourney, FoundJourney, Simulation


def explained(
    topology: NamedTopology, found: Explanation, state: Mapping[str, Present] | None = None
) -> dict[str, Any]:
    """The JSON document of a way that was explained; ``state`` adds what messages wait for at present."""

    def now(machine: str) -> dict[str, Any]:
        present = (state or {}).get(machine)
        if present is None:
            return {}
        waiting = [one.model_dump(mode="json") for one in present.waiting]
        return {"now": {"waiting": waiting, "unknown": present.unknown or None}}

    return {
        "path": [topology.machine_name(hop.machine) for hop in found.hops],
        "arrives": found.arrives,
        "cost": found.cost,
        "hops": [
            {
                "machine": topology.machine_name(hop.machine),
                "identifier": guid_to_text(hop.machine),
                "sites": [topology.site_name(site) for site in topology.snapshot.machines[hop.machine].sites],
                "next": None if hop.next is None else topology.machine_name(hop.next),
                "rule": hop.considered[-1].rule.name.lower(),
                "section": f"MS-MQBR {SECTIONS[hop.considered[-1].rule]}",
                "considered": [
                    {"rule": each.rule.name.lower(), "applies": each.applies, "why": each.why}
                    for each in hop.considered
                ],
                "cost_left": None if hop.decision is None else hop.decision.cost,
                "link": None if hop.link is None else list(topology.ends(hop.link)),
                "cost_without_link": hop.detour,
                "alternatives": [topology.machine_name(each) for each in hop.alternatives],
                "problem": hop.problem or None,
            }
            | now(topology.machine_name(hop.machine))
            for hop in found.hops
        ],
    }


def gates(topology: NamedTopology, found: Simulation) -> list[dict[str, Any]]:
    """The rows of the site gates, with their journeys before and after an outage."""
    return [
        {
            "gate": topology.machine_name(load.gate),
            "before": load.before,
            "after": load.after,
            "overloaded": load.overloaded,
        }
        for load in sorted(found.gates, key=lambda each: topology.machine_name(each.gate).casefold())
    ]


def simulated(topology: NamedTopology, found: Simulation) -> dict[str, Any]:
    """The JSON document of a simulated outage."""

    def way(way: FoundJourney) -> dict[str, Any]:
        path = [topology.machine_name(each) for each in way.path]
        return {"path": path, "cost": way.cost, "problem": way.problem or None}

    def journey(each: ChangedJourney) -> dict[str, Any]:
        return {
            "from": topology.machine_name(each.source),
            "to": topology.machine_name(each.destination),
            "before": way(each.before),
            "after": way(each.after),
        }

    return {
        "journeys": found.journeys,
        "of": found.of,
        "changed": [journey(each) for each in found.changed],
        "waiting": [journey(each) for each in found.waiting],
        "cut_off": sorted(topology.site_name(site) for site in found.cut_off),
        "gates": gates(topology, found),
        "overloaded": [topology.machine_name(load.gate) for load in found.overloaded],
    }
