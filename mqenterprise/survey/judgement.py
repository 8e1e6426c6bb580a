"""Judges an estate: features that nodes do not have, the risk and effort of each queue, and the order of moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from mqenterprise.survey.estate import Answer, Certificate, Estate, Machine, Queue
from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import Kind

_DAY: Final = 86_400.0
STALE: Final = _DAY
"""Seconds: if the first message of a queue has waited longer, nobody seems to read the queue."""
SOON: Final = 60
"""Days within which the end of a certificate is reported."""
_MANY: Final = 10_000


class Level(IntEnum):
    """A degree of risk or of effort."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3

    @property
    def word(self) -> str:
        """The level in small letters."""
        return self.name.lower()


class Feature(NamedTuple):
    """Something in use that nodes do not have, or that cannot follow a move."""

    name: str
    where: str
    evidence: str
    instead: str


class Step(NamedTuple):
    """A step in the order of moves."""

    what: str
    """``queue``, ``machine`` or ``later``."""
    name: str
    queues: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Verdict:
    """The conclusions about one queue."""

    queue: Queue
    risk: Level = Level.LOW
    effort: Level = Level.LOW
    reasons: list[str] = field(default_factory=list)
    blocked: bool = False
    """Whether nodes lack something that the queue needs."""
    reader: str = "unknown"
    """``yes``, ``no`` or ``unknown``."""
    reader_reason: str = ""


@dataclass(slots=True)
class Judgement:
    """Everything that a survey concludes."""

    verdicts: list[Verdict]
    features: list[Feature]
    order: list[Step]
    ending: list[tuple[Certificate, float | None]]
    """Certificates that end soon, have ended or cannot be read, with the days that are left."""


def judge(estate: Estate, now: float | None = None) -> Judgement:
    """Judge an estate. ``now`` is in seconds since 1970."""
    now = time.time() if now is None else now
    verdicts = [_verdict(estate, queue, now) for _, queue in sorted(estate.queues.items())]
    return Judgement(verdicts, list(_features(estate)), _order(estate, verdicts), [*_ending(estate.certificates, now)])


# One queue


def _reader(queue: Queue, now: float) -> tuple[str, str]:
    if queue.hints.get("reader"):
        return "yes", queue.hints["reader"]
    if queue.active is None:
        return "unknown", queue.problem or "its queue manager did not say"
    if not queue.active:
        return "no", "it is empty, and no program has it open"
    if not queue.messages:
        return "yes", "it is empty, and a program has it open"
    if queue.later is not None and queue.later < queue.messages:
        return "yes", "it had fewer messages at the second look"
    if queue.sample is not None and queue.sample.oldest is not None and now - queue.sample.oldest > STALE:
        return "no", f"its first message has waited for {(now - queue.sample.oldest) / _DAY:,.0f} days"
    return "unknown", "messages wait, and MS-MQMR does not show who has it open"


def _is_yes(text: str | None) -> bool:
    return bool(text) and fold(str(text)) not in ("no", "false", "0", "none", "nein")


def _is_http(queue: Queue) -> bool:
    sample = queue.sample
    return sample is not None and any("HTTP" in kind for kind in (*sample.addressed_by, *sample.replies_to))


def _uses(queue: Queue, *kinds: str) -> int:
    return 0 if queue.sample is None else sum(queue.sample.addressed_by[kind] for kind in kinds)


def _named_accounts(queue: Queue) -> bool:
    everybody = {"everyone", "anonymous"}
    senders = [
        entry for entry in queue.access or () if {"send", "generic_all", "generic_write"} & {*entry.get("allow", ())}
    ]
    return bool(senders) and not any(fold(str(entry["to"])) in everybody for entry in senders)


class _Rule(NamedTuple):
    holds: Callable[[Queue, Machine], Any]
    risk: Level
    effort: Level
    sentence: str
    blocks: bool = False


_RULES: Final = (
    _Rule(
        lambda q, _: q.values.get("multicast_address"),
        Level.HIGH,
        Level.HIGH,
        "it belongs to a multicast group, and nodes do not speak multicast",
        True,
    ),
    _Rule(
        lambda q, _: _is_http(q),
        Level.HIGH,
        Level.HIGH,
        "messages were sent, or are answered, over HTTP, which nodes do not speak",
        True,
    ),
    _Rule(
        lambda q, _: _is_yes(q.hints.get("dtc")),
        Level.HIGH,
        Level.HIGH,
        ("its program receives in a distributed transaction (DTC), which nodes do not take part in"),
        True,
    ),
    _Rule(
        lambda q, _: _is_yes(q.hints.get("triggers")),
        Level.HIGH,
        Level.MEDIUM,
        "a trigger starts a program for its messages, and nodes have no triggers",
        True,
    ),
    _Rule(
        lambda _, m: m.answer in (Answer.UNAVAILABLE, Answer.DENIED),
        Level.HIGH,
        Level.LOW,
        "its machine did not answer, so nobody knows what is in it",
    ),
    _Rule(
        lambda q, _: q.endpoint and "dtc" not in q.hints,
        Level.MEDIUM,
        Level.MEDIUM,
        ("NServiceBus receives in a distributed transaction (DTC) unless its endpoint says otherwise: look there"),
    ),
    _Rule(
        lambda q, _: q.unknown, Level.MEDIUM, Level.LOW, "some of its properties are unknown: export them from Windows"
    ),
    _Rule(
        lambda q, _: _uses(q, "PRIVATE"),
        Level.MEDIUM,
        Level.MEDIUM,
        ("senders use its PRIVATE= name, which cannot follow: change their configuration"),
    ),
    _Rule(
        lambda q, _: _uses(q, "DIRECT=OS", "DIRECT=TCP"),
        Level.MEDIUM,
        Level.LOW,
        "senders use DIRECT= names, which follow only if the whole machine moves",
    ),
    _Rule(
        lambda q, _: q.values.get("authentication"),
        Level.MEDIUM,
        Level.MEDIUM,
        "it takes only signed messages: senders need certificates in the directory",
    ),
    _Rule(
        lambda q, _: q.values.get("privacy_level") == "body",
        Level.LOW,
        Level.MEDIUM,
        "it takes only encrypted messages: the node has to publish its keys first",
    ),
    _Rule(
        lambda q, _: _named_accounts(q),
        Level.MEDIUM,
        Level.MEDIUM,
        ("only named accounts may send to it: nodes refuse unsigned messages of these by default"),
    ),
    _Rule(lambda q, _: (q.messages or 0) > _MANY, Level.LOW, Level.MEDIUM, f"more than {_MANY:,} messages wait in it"),
    _Rule(
        lambda q, _: q.journal_messages, Level.LOW, Level.LOW, "its journal has messages: decide whether they move too"
    ),
    _Rule(
        lambda q, _: q.sample and q.sample.formats["unknown"] + q.sample.formats["unreadable"],
        Level.LOW,
        Level.LOW,
        "some bodies have a format that nothing here recognises",
    ),
)
"""Reasons for more risk and effort of a queue, worst first."""


def _verdict(estate: Estate, queue: Queue, now: float) -> Verdict:
    machine = estate.machine(queue.machine)
    verdict = Verdict(queue)
    verdict.reader, verdict.reader_reason = _reader(queue, now)
    for rule in _RULES:
        if rule.holds(queue, machine):
            verdict.risk, verdict.effort = max(verdict.risk, rule.risk), max(verdict.effort, rule.effort)
            verdict.blocked |= rule.blocks
            verdict.reasons.append(rule.sentence)
    if verdict.reader == "no":
        verdict.reasons.append("nobody seems to read it: ask whether it is still needed")
    return verdict


# Features

_INSTEAD: Final = {
    "multicast": "send to a distribution list, or to several queues",
    "HTTP": "send over the binary protocol (DIRECT=OS:), or over AMQP",
    "DTC": "receive in a transaction of the node, and make the program's work repeatable",
    "triggers": "a program, or a systemd unit, that receives",
    "foreign sites": "a bridge to the other message system",
    "dependent clients": "clients use the node over its socket, AMQP or RemoteRead",
}


def _features(estate: Estate) -> Iterator[Feature]:
    def feature(name: str, where: str, evidence: str) -> Feature:
        return Feature(name, where, evidence, _INSTEAD[name])

    for table in estate.tables:
        for row in sorted(table, key=lambda one: one.reference.key):
            if row.kind is Kind.SITE and row.values.get("foreign"):
                yield feature("foreign sites", row.name[0], "the directory declares it")
    for _, machine in sorted(estate.machines.items()):
        if "supporting_server" in machine.roles:
            yield feature("dependent clients", machine.name, "the directory says that it serves them")
        if machine.foreign:
            yield feature("foreign sites", machine.name, "the directory says that it is a foreign system")
        if machine.triggers:
            yield feature("triggers", machine.name, "it has the queue of the Triggers service")
        for one in machine.outgoing:
            upper = one.name.upper()
            if upper.startswith("MULTICAST="):
                yield feature("multicast", machine.name, f"it sends to {one.name}")
            elif upper.startswith(("DIRECT=HTTP:", "DIRECT=HTTPS:")):
                yield feature("HTTP", machine.name, f"it sends to {one.name}")
    for _, queue in sorted(estate.queues.items()):
        if queue.values.get("multicast_address"):
            yield feature("multicast", queue.path, f"its multicast address is {queue.values['multicast_address']}")
        if _is_http(queue):
            yield feature("HTTP", queue.path, "messages in it were sent, or are answered, over HTTP")
        if _is_yes(queue.hints.get("dtc")):
            yield feature("DTC", queue.path, f"a file says: {queue.hints['dtc']}")
        elif queue.endpoint and "dtc" not in queue.hints:
            yield feature("DTC", queue.path, "likely: NServiceBus uses it unless its endpoint says otherwise")
        if _is_yes(queue.hints.get("triggers")):
            yield feature("triggers", queue.path, f"a file says: {queue.hints['triggers']}")


# Certificates


def _ending(certificates: list[Certificate], now: float) -> Iterator[tuple[Certificate, float | None]]:
    for one in sorted(certificates, key=lambda one: (one.not_after or 0.0, one.user)):
        left = None if one.not_after is None else (one.not_after - now) / _DAY
        if left is None or left < SOON:
            yield one, left


# The order


def _order(estate: Estate, verdicts: list[Verdict]) -> list[Step]:
    """Public queues first, easiest first; then whole machines; routing servers after what they route for."""
    steps: list[Step] = []
    public = [one for one in verdicts if not one.queue.private and not one.blocked]
    for one in sorted(public, key=lambda one: (_is_silent(estate, one.queue), *_weight(one))):
        reasons = ["public: senders that look it up in the directory follow it alone", *_reasons(one)]
        steps.append(Step("queue", one.queue.path, (one.queue.path,), tuple(reasons)))
    machines: dict[str, list[Verdict]] = {}
    for one in verdicts:
        if one.queue.private and not one.blocked:
            machines.setdefault(one.queue.machine, []).append(one)
    gates = {fold(gate) for table in estate.tables for row in table for gate in _gates(row.values)}

    def weight(item: tuple[str, list[Verdict]]) -> tuple[Any, ...]:
        machine = estate.machine(item[0])
        routes = "routing_server" in machine.roles or fold(machine.name) in gates
        risks = [one.risk for one in item[1]]
        return (
            _is_silent(estate, item[1][0].queue),
            routes,
            max(risks),
            sum(risks),
            sum(one.queue.messages or 0 for one in item[1]),
            fold(item[0]),
        )

    for name, found in sorted(machines.items(), key=weight):
        machine = estate.machine(name)
        reasons = ["private queues are named by their machine: they move with it"]
        if "routing_server" in machine.roles or fold(name) in gates:
            reasons.append("it routes for others: move it after the machines that need it")
        if _is_silent(estate, found[0].queue):
            reasons.append(f"it did not answer ({machine.reason}): survey it again first")
        risk = max(one.risk for one in found)
        reasons.append(f"its highest risk is {risk.word}")
        steps.append(Step("machine", machine.name, tuple(one.queue.path for one in found), tuple(reasons)))
    later = [one for one in verdicts if one.blocked]
    return [*steps, *(Step("later", one.queue.path, (one.queue.path,), tuple(one.reasons)) for one in later)]


def _gates(values: Any) -> tuple[str, ...]:
    found = values.get("site_gates")
    return found if isinstance(found, tuple) else ()


def _is_silent(estate: Estate, queue: Queue) -> bool:
    return estate.machine(queue.machine).answer in (Answer.UNAVAILABLE, Answer.DENIED)


def _weight(one: Verdict) -> tuple[Any, ...]:
    return one.risk, one.effort, one.queue.messages or 0, fold(one.queue.path)


def _reasons(one: Verdict) -> list[str]:
    return [f"risk {one.risk.word}, effort {one.effort.word}", *one.reasons]
