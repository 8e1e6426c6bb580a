"""``analyze all`` on the least that there can be: each has its tables and its report, and a second run is as good."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.pipeline import directory
from mqenterprise.pipeline.catalogue import needed
from mqenterprise.pipeline.tables import Tables
from qmnode.export.places import Place
from qmnode.export.segment import table_of, write_segment
from tests.pipeline.segments import DAY, origin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

RUNNER = CliRunner()
SECOND = 1_000_000
ORDERS = "00000000-0000-0000-0000-0000000000aa"
Event = dict[str, Any]


def told(node: int, kind: str, seconds: float, number: int = 1, **facts: object) -> tuple[int, Event]:
    """An event of a node about message ``number``, which node 1 sent to the queue orders at second 0."""
    message = {
        "source_id": origin(1).node_id,
        "message_number": number,
        "destination": f"PUBLIC={ORDERS}",
        "message_class": 0,
        "size": 100,
        "sent_time": DAY,
        "hop_count": node - 1,
    }
    return node, message | {"time": int(DAY + seconds * SECOND), "kind": kind} | facts


def fact(node: int, kind: str, **facts: object) -> tuple[int, Event]:
    """An event of a node that is about no message."""
    return node, {"time": DAY, "kind": kind} | facts


SENT = told(1, "sent", 0)
ACKNOWLEDGED = {
    "source_id": origin(2).node_id,
    "about_source_id": origin(1).node_id,
    "about_message_number": 1,
    "response_queue": f"PUBLIC={ORDERS}",
    "destination": "PUBLIC=admin",
    "message_class": 2,
    "reason": 2,
    "sent_time": None,
}
TWO_SITES = {
    "sites": [{"site": "Site1", "foreign": False}, {"site": "Site2", "foreign": False}],
    "links": [{"site1": "Site1", "site2": "Site2", "cost": 1, "foreign1": False, "foreign2": False}],
    "machines": [
        {"node_id": origin(number).node_id, "node": f"NODE{number}", "site": f"Site{number}", "quota": None}
        for number in (1, 2)
    ],
    "queues": [{"queue_id": ORDERS, "queue": "NODE2\\orders", "node": "NODE2", "quota": None}],
}


@dataclass(frozen=True)
class Small:
    """An enterprise: what its nodes tell, what its directory has, and the report's first numbers."""

    events: Sequence[tuple[int, Event]] = ()
    directory: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    sent: int = 0
    died: int = 0
    received: int = 0


CASES = {
    "no segments": Small(),
    "only a sample": Small([fact(1, "sample", queue="NODE1\\private$\\a", count=0, bytes=0, quota=0)]),
    "one message received, one site, no key": Small(
        [SENT, told(1, "reached", 0, queue="NODE1\\orders"), told(1, "received", 1, queue="NODE1\\orders")],
        {"sites": TWO_SITES["sites"][:1]},
        sent=1,
        received=1,
    ),
    "a link that nobody used": Small([SENT, told(1, "reached", 0, queue="NODE1\\a")], TWO_SITES, sent=1),
    "nothing lost on the only link": Small(
        [SENT, told(1, "transferred", 1, peer="NODE2"), told(2, "reached", 1, queue="NODE2\\orders")], TWO_SITES, sent=1
    ),
    "everything lost on the only link": Small([SENT, told(1, "died", 5, peer="NODE2", reason=0x8002)], TWO_SITES, 1, 1),
    "only an arrival that does not say when it was sent": Small(
        [told(2, "reached", 1, queue="NODE2\\orders", sent_time=None)], sent=1
    ),
    "only an acknowledgment": Small([told(1, "acknowledgment", 1, **ACKNOWLEDGED)], sent=1),
    "only a refusal without a reason": Small([told(2, "refused", 1, reason=None)], sent=1, died=1),
}


ALWAYS = {"no segments", "everything lost on the only link"}
"""Those of every run of the tests; the others are tried in long runs."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.soak) for name in CASES]
)
def test_the_least_enterprise_has_tables_and_a_report(name: str, spark: SparkSession, tmp_path: Path) -> None:
    del spark  # the command uses the session that runs
    case, source, target = CASES[name], tmp_path / "segments", tmp_path / "tables"
    source.mkdir()
    put(case, str(source))
    command = ["analyze", "all", "--from", str(source), "--to", str(target)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = RUNNER.invoke(app, command, catch_exceptions=False)

    assert done.exit_code == 0, done.output
    assert {one for one in needed("all") if Tables(str(target))[one].last() is None} == set()
    text = (target / "report.html").read_text(encoding="utf-8")
    numbers = {
        what.partition(" (")[0]: value for value, what in re.findall(r"<b>([^<]*)</b><span>([^<]*)</span>", text)
    }
    assert (numbers["messages sent"], numbers["received"], numbers["died"]) == (
        str(case.sent),
        str(case.received),
        str(case.died),
    )


def put(case: Small, address: str) -> None:
    """Write what the enterprise's nodes tell, and its directory."""
    place = Place.open(address)
    for node in sorted({node for node, _ in case.events}):
        events = [event for teller, event in case.events if teller == node]
        columns = {name: [event.get(name) for event in events] for name in {key for event in events for key in event}}
        table = table_of(columns | {"offset": list(range(1, len(events) + 1))}, origin(node), len(events))
        write_segment(place, table, origin(node))
    if case.directory:
        directory.write(place, case.directory)
