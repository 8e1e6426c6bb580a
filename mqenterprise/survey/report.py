"""The report of a survey as one JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from mqenterprise.markup import Element
from mqenterprise.pipeline.report.cells import Cell, Column, number, size, table, text
from mqenterprise.pipeline.report.shell import framed, section, tiled
from mqenterprise.survey.estate import Answer, Estate, Machine, Sample, shown
from mqenterprise.survey.judgement import Judgement, Verdict
from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import Kind

VERSION: Final = 1
_SILENT: Final = (Answer.DENIED, Answer.UNAVAILABLE)


def document(estate: Estate, judgement: Judgement, began: float, seconds: float) -> dict[str, Any]:
    """Return everything that was found. A value that nobody gave is null."""
    machines = sorted(estate.machines.values(), key=lambda one: fold(one.name))
    names = {machine.identifier: machine.name for machine in machines if machine.identifier}
    queues = [_queue(verdict, names) for verdict in judgement.verdicts]
    return {
        "version": VERSION,
        "enterprise": estate.name,
        "taken": _date(began),
        "seconds": round(seconds, 1),
        "domains": estate.domains,
        "domains_not_surveyed": estate.other_domains,
        "files": estate.files,
        "totals": _totals(estate, judgement, machines),
        "formats": _formats(judgement),
        "machines": [_machine(machine) for machine in machines],
        "queues": queues,
        "without_reader": [one["path"] for one in queues if one["reader"] == "no"],
        "features": [feature._asdict() for feature in judgement.features],
        "certificates": [
            {
                "user": one.user,
                "domain": one.domain,
                "subject": one.subject,
                "not_after": _date(one.not_after),
                "days_left": None if left is None else int(left // 1),
            }
            for one, left in judgement.ending
        ],
        "order": [{"position": place, **step._asdict()} for place, step in enumerate(judgement.order, 1)],
        "unread": [shown(one) for one in estate.unread],
    }


def _totals(estate: Estate, judgement: Judgement, machines: list[Machine]) -> dict[str, int]:
    rows = [row for table in estate.tables for row in table if not row.partial]
    kinds = Counter({row.kind: 0 for row in rows})
    seen = set()
    for row in rows:
        if row.reference not in seen:
            seen.add(row.reference)
            kinds[row.kind] += 1
    queues = [one.queue for one in judgement.verdicts]
    return {
        "sites": kinds[Kind.SITE],
        "routing_links": kinds[Kind.ROUTING_LINK],
        "machines": len(machines),
        "machines_silent": sum(one.answer in _SILENT for one in machines),
        "queues": len(queues),
        "private_queues": sum(one.private for one in queues),
        "public_queues": sum(not one.private for one in queues),
        "queue_aliases": kinds[Kind.QUEUE_ALIAS],
        "distribution_lists": kinds[Kind.DISTRIBUTION_LIST],
        "certificates": len(estate.certificates),
        "messages": sum(one.messages or 0 for one in queues),
        "bytes": sum(one.bytes or 0 for one in queues),
        "journal_messages": sum(one.journal_messages or 0 for one in queues),
        "dead_letters": sum((one.dead_letters or 0) + (one.transactional_dead_letters or 0) for one in machines),
        "outgoing_messages": sum(each.messages for one in machines for each in one.outgoing),
        "messages_looked_at": sum(one.sample.looked_at for one in queues if one.sample),
        "queues_unknown": sum(one.messages is None for one in queues),
    }


def _formats(judgement: Judgement) -> dict[str, int]:
    found: Counter[str] = Counter()
    for one in judgement.verdicts:
        if one.queue.sample:
            found.update(one.queue.sample.formats)
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def _machine(machine: Machine) -> dict[str, Any]:
    values = asdict(machine)
    values["outgoing"] = [one | {"next_hops": list(one["next_hops"])} for one in values["outgoing"]]
    return values | {"answer": str(machine.answer), "sites": list(machine.sites), "roles": list(machine.roles)}


def _queue(verdict: Verdict, names: dict[str, str]) -> dict[str, Any]:
    queue = verdict.queue
    return {
        "path": queue.path,
        "machine": queue.machine,
        "domain": queue.domain,
        "private": queue.private,
        "messages": queue.messages,
        "bytes": queue.bytes,
        "journal_messages": queue.journal_messages,
        "journal_bytes": queue.journal_bytes,
        "messages_later": queue.later,
        "active": queue.active,
        "properties": dict(sorted((name, _plain(value)) for name, value in queue.values.items())),
        "access": queue.access,
        "sources": dict(sorted(queue.sources.items())),
        "unknown": queue.unknown,
        "endpoint": queue.endpoint or None,
        "hints": queue.hints,
        "problem": queue.problem or None,
        "sample": None if queue.sample is None else _sample(queue.sample, names),
        "not_sampled": queue.not_sampled or None,
        "reader": verdict.reader,
        "reader_reason": verdict.reader_reason,
        "risk": verdict.risk.word,
        "effort": verdict.effort.word,
        "reasons": verdict.reasons,
        "blocked": verdict.blocked,
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _sample(sample: Sample, names: dict[str, str]) -> dict[str, Any]:
    return {
        "looked_at": sample.looked_at,
        "bytes": sample.bytes,
        "largest": sample.largest,
        "formats": dict(sample.formats.most_common()),
        "senders": {names.get(sender, sender): count for sender, count in sample.senders.most_common(50)},
        "addressed_by": dict(sample.addressed_by.most_common()),
        "replies_to": dict(sample.replies_to.most_common()),
        "signed": sample.signed,
        "encrypted": sample.encrypted,
        "oldest": _date(sample.oldest),
        "newest": _date(sample.newest),
        "arrivals_an_hour": sample.arrivals_an_hour,
        "incomplete": sample.incomplete or None,
    }


def _date(moment: float | None) -> str | None:
    if moment is None:
        return None
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return None


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


def _format_rows(found: Document) -> list[Element]:
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
    ("formats", "Formats of bodies", _format_rows),
    ("features", "What nodes do not have", _features),
    ("certificates", "Certificates", _certificates),
    ("unread", "Not read", _unread),
)
