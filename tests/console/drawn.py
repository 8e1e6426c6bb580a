"""Enterprises of many sites for the map: hubs in a mesh, and branches at each of them."""

from __future__ import annotations

from typing import Any


def overview(sites: int) -> dict[str, Any]:
    """The document of the console's API. A few nodes are down, one link too."""
    hubs = max(3, sites // 12)
    names = [f"Hub {number:02}" for number in range(hubs)]
    names += [f"Branch {number:03}" for number in range(hubs, sites)]
    ends = [(number, number + 1) for number in range(hubs - 1)] + [(0, hubs - 1)]
    ends += [(number % hubs, number) for number in range(hubs, sites)]
    down = {f"B{sites // 2}-1", f"B{sites - 3}-1", f"B{sites - 3}-2"}
    nodes: list[dict[str, Any]] = [
        {
            "machine": machine, "identifier": None, "site": name, "gate": part == 1, "routing_server": part == 1,
            "state": "down" if machine in down else "up", "reason": "no connection" if machine in down else "",
            "as_of": "2026-01-01T00:00:00+00:00", "version": "1", "message_count": 10, "queue_count": 7,
            "dead_letter_count": 0, "arrived_rate": 0.0, "left_rate": 0.0, "warnings": [], "bridges": [],
        }
        for number, name in enumerate(names)
        for part in (1, 2)
        for machine in [f"B{number}-{part}"]
    ]  # fmt: skip
    links = [
        {
            "first": names[first], "second": names[second], "cost": 5, "gates": [f"B{first}-1", f"B{second}-1"],
            "state": "down" if f"B{second}-1" in down else "up", "reason": "", "rate": float(number % 40), "waiting": 0,
        }
        for number, (first, second) in enumerate(ends)
    ]  # fmt: skip
    found = [{"name": name, "foreign": False} for name in names]
    directory = {"as_of": "2026-01-01T00:00:00+00:00", "reason": ""}
    return {"sites": found, "nodes": nodes, "links": links, "directory": directory}
