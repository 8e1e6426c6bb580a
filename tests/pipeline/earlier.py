"""What nodes told of three messages when the tables in ``earlier_tables.tar.gz`` were made by version 0.1 (338d108).

The tables were written by ``mqenterprise analyze all`` of that version over the segments that ``put_earlier`` writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from mqenterprise.pipeline import directory
from qmnode.export.places import Place
from qmnode.export.segment import table_of, write_segment
from tests.pipeline.segments import DAY, origin

TABLES: Final = Path(__file__).with_name("earlier_tables.tar.gz")
ORDERS, PRIVATE = "PUBLIC=00000000-0000-0000-0000-0000000000aa", f"PRIVATE={origin(2).node_id}\\00000007"
QUEUES: Final = [
    {"queue_id": ORDERS.partition("=")[2], "queue": "NODE2\\orders", "node": "NODE2", "quota": None},
]


def event(kind: str, number: int, destination: str, seconds: int, **facts: Any) -> dict[str, Any]:
    """Of a message that node 1 sent in the second that it is counted by."""
    about = {"source_id": origin(1).node_id, "message_number": number, "destination": destination}
    times = {"time": DAY + seconds * 1_000_000, "sent_time": DAY + number * 1_000_000}
    return about | times | {"kind": kind, "message_class": 0, "size": 100, "hop_count": 0} | facts


def put(place: str, node: int, first: int, events: list[dict[str, Any]]) -> None:
    """A segment of a node, with offsets from ``first`` on."""
    names = {name for one in events for name in one}
    columns = {name: [one.get(name) for one in events] for name in names}
    columns["offset"] = list(range(first, first + len(events)))
    write_segment(Place.open(place), table_of(columns, origin(node), len(events)), origin(node))


def put_earlier(place: str) -> None:
    """A message that arrived, and two that died on their way: to the same queue, and to a private one."""
    sent = [event("sent", number, to, number) for number, to in ((1, ORDERS), (2, ORDERS), (3, PRIVATE))]
    died = [event("died", number, to, 9, peer="NODE2", reason=0x8002) for number, to in ((2, ORDERS), (3, PRIVATE))]
    put(place, 1, 1, [*sent, *died])
    put(place, 2, 1, [event("reached", 1, ORDERS, 5, queue="NODE2\\orders")])
    directory.write(Place.open(place), {"queues": QUEUES})


def put_later(place: str) -> None:
    """The next day: one message dies before the public queue, and one arrives in the private one."""
    day = 86_400
    put(place, 1, 6, [event("sent", number, to, day) for number, to in ((4, ORDERS), (5, PRIVATE))])
    put(place, 1, 8, [event("died", 4, ORDERS, day + 9, peer="NODE2", reason=0x8002)])
    put(place, 2, 2, [event("reached", 5, PRIVATE, day + 9, queue="node2\\private$\\stock")])
