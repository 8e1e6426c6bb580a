"""The state of routing links: what their gates say, and what the outgoing queues of all nodes have for them."""

from collections.abc import Mapping, Sequence
from typing import Any

from qmnode.console.port import Enterprise
from qmnode.console.view import Seen
from qmnode.model.api import QueueType

Ends = frozenset[str]


def link_states(
    enterprise: Enterprise, links: Sequence[Mapping[str, Any]], nodes: Sequence[Seen], states: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The links with their states. ``states`` are the documents of the nodes."""
    traffic = _traffic(enterprise, nodes)
    of_machine = {state["machine"]: state for state in states}
    seen = {state["site"] for state in states if state["as_of"] is not None}
    return [
        dict(link)
        | _health([of_machine[gate] for gate in link["gates"] if gate in of_machine], link)
        | _numbers(traffic.get(frozenset((link["first"], link["second"])), (0, 0.0)), seen, link)
        for link in links
    ]


def _traffic(enterprise: Enterprise, nodes: Sequence[Seen]) -> dict[Ends, tuple[int, float]]:
    """Messages that wait to cross each link, and those that crossed it a second, by the ends of the link."""
    found: dict[Ends, tuple[int, float]] = {}
    for seen in nodes:
        kinds = seen.columns.get("queue_type", [])
        if QueueType.OUTGOING.value not in kinds:
            continue
        counts, names, left = seen.columns["message_count"], seen.columns["pathname"], seen.rates[1]
        for number, kind in enumerate(kinds):
            if kind != QueueType.OUTGOING.value:
                continue
            rate = left[number] if left else 0.0
            if not counts[number] and not rate:
                continue
            ends = enterprise.crossing(seen.machine.name, names[number])
            if ends is not None:
                waiting, crossed = found.get(frozenset(ends), (0, 0.0))
                found[frozenset(ends)] = waiting + counts[number], crossed + rate
    return found


def _numbers(traffic: tuple[int, float], seen: set[str], link: Mapping[str, Any]) -> dict[str, Any]:
    """Unknown as long as no node at either end of the link has ever answered."""
    if not seen & {link["first"], link["second"]}:
        return {"rate": None, "waiting": None}
    return {"rate": round(traffic[1], 1), "waiting": traffic[0]}


def _health(gates: Sequence[Mapping[str, Any]], link: Mapping[str, Any]) -> dict[str, Any]:
    """A link works as long as each site that has gates on it has one that is up."""
    down, unknown = [], []
    for site in (link["first"], link["second"]):
        of_site = [gate for gate in gates if gate["site"] == site]
        names = ", ".join(gate["machine"] for gate in of_site)
        states = {gate["state"] for gate in of_site}
        if states == {"down"}:
            down.append(f"no gate of {site} answers: {names}")
        elif states and states <= {"down", "unknown"}:
            unknown.append(f"no gate of {site} has answered lately: {names}")
    if down or unknown:
        return {"state": "down" if down else "unknown", "reason": "; ".join(down or unknown)}
    if any(gate["state"] in ("down", "trouble") for gate in gates):
        return {"state": "trouble", "reason": "a gate of it is down or in trouble"}
    return {"state": "up", "reason": ""}
