"""Readers, risks and the order of moves, judged from facts alone."""

from __future__ import annotations

from typing import Any

import pytest

from mqenterprise.survey.declaring import declaration_of
from mqenterprise.survey.estate import Answer, Estate, Queue, Sample
from mqenterprise.survey.judgement import Level, judge
from mqenterprise.survey.report import document

NOW = 1_800_000_000.0
DAY = 86_400.0
KNOWN = dict.fromkeys(
    ("label", "type", "journaling", "quota", "journal_quota", "authentication", "privacy_level", "multicast_address")
)


def estate_with(**facts: Any) -> tuple[Estate, Queue]:
    """An estate with one private queue of which everything is known, but for these facts."""
    estate = Estate("Contoso")
    estate.machine("SHOP").answer = facts.pop("answer", Answer.ANSWERED)
    queue = estate.queue("SHOP", "orders", private=True)
    queue.values = {**KNOWN, "transactional": False} | facts.pop("values", {})
    queue.access = facts.pop("access", [{"to": "everyone", "allow": ["send"]}])
    for name, value in facts.items():
        setattr(queue, name, value)
    return estate, queue


def sample(**facts: Any) -> Sample:
    found = Sample(looked_at=1)
    for name, value in facts.items():
        getattr(found, name).update(value) if isinstance(value, dict) else setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("facts", "reader"),
    [
        ({"active": None}, "unknown"),
        ({"active": False, "messages": 0}, "no"),
        ({"active": True, "messages": 0}, "yes"),
        ({"active": True, "messages": 5}, "unknown"),
        ({"active": True, "messages": 5, "later": 3}, "yes"),
        ({"active": True, "messages": 5, "later": 9}, "unknown"),
        ({"active": True, "messages": 5, "sample": sample(oldest=NOW - 3 * DAY)}, "no"),
        ({"active": True, "messages": 5, "sample": sample(oldest=NOW - 60)}, "unknown"),
        ({"active": False, "messages": 0, "hints": {"reader": "billing.exe"}}, "yes"),
    ],
)
def test_a_reader_is_claimed_only_where_something_shows_it(facts: dict[str, Any], reader: str) -> None:
    estate, _ = estate_with(**facts)
    (verdict,) = judge(estate, NOW).verdicts
    assert verdict.reader == reader


@pytest.mark.parametrize(
    ("facts", "risk", "words"),
    [
        ({}, Level.LOW, ""),
        ({"access": None}, Level.MEDIUM, "properties are unknown"),
        ({"answer": Answer.UNAVAILABLE}, Level.HIGH, "did not answer"),
        ({"values": {"authentication": True}}, Level.MEDIUM, "only signed messages"),
        ({"access": [{"to": "S-1-5-21-1-2-3-4", "allow": ["send"]}]}, Level.MEDIUM, "only named accounts"),
        ({"sample": sample(addressed_by={"PRIVATE": 1})}, Level.MEDIUM, "PRIVATE= name, which cannot follow"),
        ({"sample": sample(addressed_by={"DIRECT=OS": 1})}, Level.MEDIUM, "only if the whole machine moves"),
        ({"messages": 20_000}, Level.LOW, "more than 10,000 messages"),
    ],
)
def test_each_risk_has_its_reason(facts: dict[str, Any], risk: Level, words: str) -> None:
    estate, _ = estate_with(**facts)
    (verdict,) = judge(estate, NOW).verdicts
    assert verdict.risk is risk
    assert words in "; ".join(verdict.reasons)
    assert not verdict.blocked
    assert bool(words) is bool(verdict.reasons)


@pytest.mark.parametrize(
    ("facts", "feature"),
    [
        ({"values": {"multicast_address": "234.1.1.1:80"}}, "multicast"),
        ({"sample": sample(replies_to={"DIRECT=HTTP": 1})}, "HTTP"),
        ({"hints": {"dtc": "yes"}}, "DTC"),
        ({"hints": {"triggers": "print.exe"}}, "triggers"),
    ],
)
def test_a_queue_that_needs_what_nodes_do_not_have_moves_last(facts: dict[str, Any], feature: str) -> None:
    estate, _ = estate_with(**facts)
    estate.queue("SHOP", "other", private=True)
    found = judge(estate, NOW)
    assert [one.name for one in found.features] == [feature]
    assert found.features[0].instead
    assert [(step.what, step.name) for step in found.order] == [
        ("machine", "SHOP"), ("later", r"SHOP\private$\orders"),
    ]  # fmt: skip


def test_a_journal_with_messages_makes_the_declaration_guess_journaling() -> None:
    estate, queue = estate_with(journal_messages=4)
    del queue.values["journaling"]
    text = declaration_of(estate)
    assert "# guessed: journaling, because its journal has messages\n- machine: SHOP\n" in text
    assert "  journaling: true\n" in text


def test_a_date_that_no_calendar_has_is_no_date() -> None:
    estate, _ = estate_with(messages=1, active=True, sample=sample(oldest=-1e300, newest=1e300))
    (queue,) = document(estate, judge(estate, NOW), NOW, 1.0)["queues"]
    assert (queue["sample"]["oldest"], queue["sample"]["newest"]) == (None, None)
