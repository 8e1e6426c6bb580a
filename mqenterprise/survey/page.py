"""The report of a survey as one page, from its JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mqenterprise.markup import Element
from mqenterprise.pipeline.report.cells import Cell, Column, number, size, table, text
from mqenterprise.pipeline.report.shell import framed, section, tiled

MOST_ROWS: Final = 5_000
_CSS: Final = {"high": "alarm", "medium": "warn", "low": "good", "no": "warn", "yes": "good"}
Document = Mapping[str, Any]


def page(found: Document) -> str:
    """Return the page. Every text in it is escaped where it is written."""
    title = f"{found['enterprise']}: survey of Message Queuing"
    sections = [(name, short, content) for name, short, made in _SECTIONS if (content := made(found))]
    took = f"Taken {found['taken']} in {found['seconds']:,} s"
    domains = ", ".join(found["domains"]) or "no directory"
    return framed(title, title, f"{took}: {domains}. Nothing was changed.", _tiles(found["totals"]), sections)


def _tiles(totals: Document) -> Element:
    silent = totals["machines_silent"]
    return tiled(
        [
            (f"{totals['machines']:,}", "queue managers", False),
            (f"{silent:,}", "did not answer", silent > 0),
            (f"{totals['queues']:,}", f"queues ({totals['private_queues']:,} private)", False),
            (f"{totals['messages']:,}", "messages wait", False),
            (f"{totals['messages_looked_at']:,}", "were looked at", False),
            (f"{totals['dead_letters']:,}", "dead letters", totals["dead_letters"] > 0),
        ]
    )


def _rows(rows: Sequence[Any], columns: Sequence[Column], cells: Any, name: str) -> list[Element]:
    return table(columns, [cells(row) for row in rows[:MOST_ROWS]], name, len(rows))


def _word(value: str) -> Cell:
    return text(value, _CSS.get(value, ""))


def _list(values: Sequence[str] | None) -> Cell:
    return text("; ".join(values or ()))


def _order(found: Document) -> list[Element]:
    columns = (Column("Step"), Column("Move"), Column("Queues"), Column("Why here"))
    what = {"queue": "queue {}", "machine": "machine {}", "later": "not yet: {}"}
    made = _rows(
        found["order"],
        columns,
        lambda one: [
            number(one["position"]),
            text(what[one["what"]].format(one["name"])),
            _list(one["queues"]),
            _list(one["reasons"]),
        ],
        "steps",
    )
    return section(
        "order", "Order of moves", "Public queues one by one, the easiest first; then whole machines.", *made
    )


def _queues(found: Document) -> list[Element]:
    columns = (
        Column("Queue"),
        Column("Messages"),
        Column("Size"),
        Column("Formats of bodies", "Of the messages that were looked at"),
        Column("Largest"),
        Column("Arrivals an hour", "By the arrival times of the last messages"),
        Column("Senders", "Machines that sent the messages that were looked at"),
        Column("Named by", "The format names that senders used"),
        Column("Reader"),
        Column("Risk"),
        Column("Effort"),
        Column("Unknown", "Properties that nobody gave"),
        Column("Because"),
    )

    def cells(one: Document) -> list[Cell]:
        sample = one["sample"] or {}
        return [
            text(one["path"]),
            number(one["messages"]),
            size(one["bytes"]),
            text(_counted(sample.get("formats"))),
            size(sample.get("largest")),
            number(sample.get("arrivals_an_hour")),
            text(_counted(sample.get("senders"))),
            text(_counted(sample.get("addressed_by"))),
            _word(one["reader"]),
            _word(one["risk"]),
            _word(one["effort"]),
            text(", ".join(one["unknown"])),
            _list([*one["reasons"], *filter(None, (one["problem"], one["not_sampled"]))]),
        ]

    made = _rows(found["queues"], columns, cells, "queues")
    return section("queues", "Queues", "Numbers are those of MS-MQMR; a dash means that nobody gave the value.", *made)


def _counted(counts: Mapping[str, int] | None) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in (counts or {}).items())


def _machines(found: Document) -> list[Element]:
    columns = tuple(
        Column(title)
        for title in ("Machine", "Domain", "Sites", "Answer", "Version", "Dead letters", "Outgoing", "Remarks")
    )

    def cells(one: Document) -> list[Cell]:
        letters = (one["dead_letters"], one["transactional_dead_letters"])
        known = [count for count in letters if count is not None]
        outgoing = ", ".join(f"{each['name']} ({each['messages']:,}, {each['state']})" for each in one["outgoing"])
        return [
            text(one["name"]),
            text(one["domain"]),
            text(", ".join(one["sites"])),
            text(one["answer"], "good" if one["answer"] == "answered" else "alarm"),
            text(one["version"]),
            number(sum(known) if known else None),
            text(outgoing),
            _list([*filter(None, (one["reason"], one["remote_read"])), *one["notes"]]),
        ]

    made = _rows(found["machines"], columns, cells, "machines")
    return section("machines", "Queue managers", "What each said over MS-MQMR, or why it said nothing.", *made)


def _formats(found: Document) -> list[Element]:
    if not found["formats"]:
        return []
    rows = list(found["formats"].items())
    made = _rows(
        rows, (Column("Format"), Column("Messages")), lambda one: [text(one[0]), number(one[1])], "formats of bodies"
    )
    return section("formats", "Formats of bodies", "Of all messages that were looked at.", *made)


def _features(found: Document) -> list[Element]:
    if not found["features"]:
        return []
    columns = (Column("Feature"), Column("Where"), Column("Evidence"), Column("Instead"))
    names = ("name", "where", "evidence", "instead")
    made = _rows(found["features"], columns, lambda one: [text(one[name]) for name in names], "features")
    return section("features", "What nodes do not have", "In use now; replace it before its queue moves.", *made)


def _certificates(found: Document) -> list[Element]:
    if not found["certificates"]:
        return []
    columns = (Column("User"), Column("Certificate"), Column("Ends"), Column("Days left"))
    made = _rows(
        found["certificates"],
        columns,
        lambda one: [
            text(one["user"]),
            text(one["subject"]),
            text(one["not_after"]),
            number(one["days_left"], css="alarm"),
        ],
        "certificates",
    )
    return section("certificates", "Certificates that end", "Within 60 days, or already.", *made)


def _unread(found: Document) -> list[Element]:
    lines = [f"the domain {name} was not surveyed" for name in found["domains_not_surveyed"]] + list(found["unread"])
    if not lines:
        return []
    made = _rows(lines, (Column("What"),), lambda one: [text(one)], "entries")
    return section("unread", "Not read", "What could not be read, and why.", *made)


_SECTIONS: Final = (
    ("order", "Order of moves", _order),
    ("queues", "Queues", _queues),
    ("machines", "Queue managers", _machines),
    ("formats", "Formats of bodies", _formats),
    ("features", "What nodes do not have", _features),
    ("certificates", "Certificates", _certificates),
    ("unread", "Not read", _unread),
)
