"""A small enterprise with two ways around, and traffic on it in which everything happens that can."""

from __future__ import annotations

from mqenterprise.pipeline.simulation.traffic import (
    Load,
    Outage,
    Receiver,
    Rotation,
    SimulatedLink,
    Traffic,
)
from mqenterprise.topology.declaration import Declaration

DAY = 86_400
RING = Declaration.model_validate(
    {
        "enterprise": {"name": "Ring"},
        "sites": [{"name": name} for name in ("Aarhus", "Bern", "Cádiz", "Dublin")],
        "routing_links": [
            {"sites": ["Aarhus", "Bern"], "cost": 1, "site_gates": ["router-a", "router-b"]},
            {"sites": ["Bern", "Cádiz"], "cost": 1, "site_gates": ["router-b", "router-c"]},
            {"sites": ["Cádiz", "Dublin"], "cost": 2, "site_gates": ["router-c", "router-d"]},
            {"sites": ["Dublin", "Aarhus"], "cost": 5, "site_gates": ["router-d", "router-a"]},
        ],
        "machines": [
            {"name": f"{kind}-{letter}", "sites": [site], "roles": roles, "quota": 1 << 20}
            for letter, site in (("a", "Aarhus"), ("b", "Bern"), ("c", "Cádiz"), ("d", "Dublin"))
            for kind, roles in (("router", ["routing_server"]), ("shop", ["client"]))
        ],
        "queues": [
            {"machine": "shop-a", "name": "orders"},
            {"machine": "shop-c", "name": "stock", "quota": 300},
            {"machine": "shop-d", "name": "bills"},
            {"machine": "shop-b", "name": "audit"},
        ],
        "users": [{"name": "Order Desk"}, {"name": "Warehouse"}],
    }
)


def ring_traffic(messages: int = 3_000, *, seed: int = 7, days: int = 2, rows: int = 2_000) -> Traffic:
    """Detours, losses, refusals of every kind, full and expiring queues, retired keys, acknowledgments."""
    rate = messages / (days * DAY)
    return Traffic(
        seconds=days * DAY,
        messages=messages,
        seed=seed,
        rows_in_segment=rows,
        links=(
            SimulatedLink(
                sites=("Bern", "Cádiz"),
                delay=0.3,
                loss=0.1,
                outages=(Outage(begins=10_000, ends=30_000), Outage(begins=DAY + 2_000, ends=DAY + 22_000)),
            ),
            SimulatedLink(sites=("Dublin", "Aarhus"), delay=0.05, outages=(Outage(begins=20_000, ends=26_000),)),
        ),
        loads=(
            Load(queue=r"shop-a\orders", acknowledged=True, weight=2),
            Load(queue=r"shop-c\stock", time_to_reach_queue=900, encrypted=True, weight=2),
            Load(queue=r"shop-d\bills", time_to_be_received=4_000, refused=0.05, acknowledged=True),
            Load(queue=r"shop-b\audit"),
            Load(queue=r"shop-b\gone", weight=0.05, senders=("shop-a", "shop-d")),
        ),
        receivers=(
            Receiver(queue=r"shop-d\bills", per_second=rate / 6.3),
            Receiver(queue=r"shop-b\audit", per_second=0),
            Receiver(queue=r"shop-c\stock", per_second=rate / 4),
        ),
        rotations=(Rotation(machine="shop-c", at=DAY, unaware=("shop-b",)),),
        sample_every=1_800,
    )
