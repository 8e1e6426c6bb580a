"""The tables of the analysis and the columns of exported events, from the catalogue."""

from __future__ import annotations

import inspect
from typing import Any, Final

from tests.docs.reference.markdown import prose, table

MEANINGS: Final = {
    "queue_names": "The name that each queue had, and since when.",
    "message_life": "One row for each message: when it was sent, its hops, and how it ended.",
    "journal": "One row for each copy that a node kept in a journal or a dead-letter queue, or removed.",
    "traces": "One row for each trace report: who sent or took the message, and the next hop.",
    "queue_states": "Changes of the state of outgoing queues, with the cause.",
    "waiting": "One row for each interval in which an outgoing queue had no session, with the reason.",
    "heartbeats": "One row for each heartbeat that a probe sent, with the reason if it was missed.",
    "probes": "One row for each probe: its last result and since when, heartbeats sent and missed, and their times.",
    "queue_sizes": "Samples of the size of each queue and node.",
    "link_costs": "One row for each routing link: delay, loss, cost and the cost that these suggest.",
    "keys": "One row for each encryption key: age, state, and the senders that still use an old one.",
    "certificates": "One row for each certificate, with the days until it expires.",
    "capacity": "One row for each queue and node: its growth, and the day on which it will be full.",
}
"""What the tables hold that no function alone makes."""


def page() -> str:
    """Tables by kind, jobs, and columns of events."""
    from mqenterprise.pipeline.catalogue import DERIVED, GATHERED, JOBS, SUMMARIES
    from qmnode.export.events import COLUMNS

    lines = [
        "# Tables",
        "",
        "`mqenterprise analyze` writes them; [Analysis](../pipeline.md) explains them and shows queries. Each is",
        "a Delta table, partitioned by",
        "`date` and `site`.",
        "",
        "## Jobs",
        "",
        *table(["job", "its tables"], [[f"`{job}`", _names(made)] for job, made in JOBS.items()]),
        "",
        "## Gathered tables",
        "",
        "They grow with the events.",
        "",
        *table(
            ["table", "from events", "meaning"],
            [[f"`{one.name}`", _names(one.kinds), MEANINGS[one.name]] for one in GATHERED],
        ),
        "",
        "## Derived tables",
        "",
        "They follow from another table, date by date.",
        "",
        *table(
            ["table", "from", "meaning"], [[f"`{one.name}`", f"`{one.source}`", _meaning(one.make)] for one in DERIVED]
        ),
        "",
        "## Summaries",
        "",
        "They are made anew in each run.",
        "",
        *table(
            ["table", "from", "meaning"],
            [[f"`{one.name}`", _names((*one.sources, *one.directory)), MEANINGS[one.name]] for one in SUMMARIES],
        ),
        "",
        "## Columns of exported events",
        "",
        "A node writes its events as Parquet segments with these columns; see [Exported events](../export.md).",
        "",
        *table(["column", "type"], [[f"`{name}`", f"`{kind}`"] for name, kind in COLUMNS.items()]),
    ]
    return "\n".join(lines) + "\n"


def _names(found: Any) -> str:
    return ", ".join(f"`{one}`" for one in found)


def _meaning(function: Any) -> str:
    meaning = prose((inspect.getdoc(function) or "").split("\n\n")[0]).removeprefix("Return ")
    return meaning[:1].upper() + meaning[1:]
