"""The report of a survey as one JSON document."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from mqenterprise.survey.estate import Answer, Estate, Machine, Sample, shown
from mqenterprise.survey.judgement import Judgement, Verdict
from mqenterprise.topology.names import fold
from mqenterprise.topology.resources import Kind

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
