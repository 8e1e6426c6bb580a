"""The way of a message, from hops that can be followed on paper."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from mqenterprise.pipeline.jobs.ways import ways_of

HOP = pa.struct(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        *((name, pa.string()) for name in ("kind", "node", "site", "peer")),
        ("hop_count", pa.int32()),
    ]
)
LIVES = pa.schema([("message_number", pa.int64()), ("hops", pa.list_(HOP))])


def at(seconds: float) -> datetime:
    return datetime(2026, 1, 5, 12, tzinfo=UTC) + timedelta(seconds=seconds)


def hop(kind: str, node: str, seconds: float, count: int | None, peer: str | None = None) -> dict[str, Any]:
    site = "North" if node in "AB" else "South"
    return {"time": at(seconds), "kind": kind, "node": node, "site": site, "peer": peer, "hop_count": count}


def ways(*messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lives = [{"message_number": number, "hops": hops} for number, hops in enumerate(messages)]
    found = ways_of(pa.Table.from_pylist(lives, schema=LIVES))
    assert found.column_names == ["message_number", "path", "sites", "last_site", "hop_us", "steps"]
    assert found.column("message_number").to_pylist() == [*range(len(messages))]
    return list(found.to_pylist())


def steps(way: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("hop", "from_node", "to_node", "came", "left", "arrived")
    return [tuple(step[name] for name in names) for step in way["steps"]]


def test_stops_are_ordered_by_the_count_in_the_message_and_not_by_clocks() -> None:
    slow = [hop("sent", "A", 9, 0), hop("accepted", "B", 2, 1), hop("reached", "C", 1, 2)]
    (way,) = ways(slow)

    assert (way["path"], way["sites"], way["last_site"]) == (["A", "B", "C"], ["North", "South"], "South")
    assert way["hop_us"] == [-7_000_000, -1_000_000]


def test_messages_without_stops_are_among_others() -> None:
    journey = [hop("sent", "A", 1, 0), hop("transferred", "A", 2, 0, "C"), hop("reached", "C", 2, 1)]
    nothing, one, departure, other = ways([], journey, [hop("transferred", "B", 3, 1, "C")], [hop("sent", "A", 4, 0)])

    for way in (nothing, departure):
        assert (way["path"], way["sites"], way["last_site"], way["hop_us"], way["steps"]) == ([], [], None, [], [])
    assert steps(one) == [(1, "A", "C", at(1), at(2), at(2))]
    assert (other["path"], other["last_site"], other["steps"]) == (["A"], "North", [])


def test_a_departure_belongs_to_the_visit_with_its_count_or_to_the_first_without_one() -> None:
    around = [
        hop("sent", "A", 1, 0),
        hop("transferred", "A", 2, 0, "B"),
        hop("accepted", "B", 2, 1),
        hop("accepted", "A", 3, 2),
        hop("transferred", "B", 3, None, "A"),
        hop("transferred", "A", 9, 2, "C"),
    ]
    (way,) = ways(around)

    assert steps(way) == [
        (1, "A", "B", at(1), at(2), at(2)),
        (2, "B", "A", at(2), at(3), at(3)),
        (3, "A", "C", at(3), at(9), None),
    ]
    assert way["sites"] == ["North"]


def test_a_node_that_reports_several_stops_is_one() -> None:
    (way,) = ways([hop("sent", "A", 1, 0), hop("reached", "A", 1, 0)])

    assert (way["path"], way["hop_us"], way["steps"]) == (["A"], [], [])


def test_no_message_has_no_way() -> None:
    assert ways() == []
