"""From any enterprise to any other: with prune, cut anywhere, and back again."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mqenterprise.topology.apply import ApplyError, acquire, apply, remaining, written
from mqenterprise.topology.check import load
from mqenterprise.topology.declared_table import declared_table
from mqenterprise.topology.normal_form import Table
from mqenterprise.topology.plan import Action, FixedError, Note, from_json, make_plan, plan_lines
from tests.topology.enterprises import enterprises
from tests.topology.memory import MemoryTarget


def checked(data):
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "e.yaml"
        file.write_text(yaml.safe_dump(data, allow_unicode=True), "utf-8")
        return load(file)


def plan_for(target, declared, *, prune=True):
    snapshot = target.snapshot()
    try:
        return make_plan("memory", declared_table(declared, snapshot.canonical), snapshot.table, prune=prune)
    except FixedError:
        assume(False)


def carry_out(plan, target, workers=2):
    with acquire(target.lease_entry()) as lease:
        apply(plan, target, lease, workers=workers)


def values(target):
    """What is there, names as they are known whatever their case."""
    return {reference: (dict(row.values), row.partial) for reference, row in target.rows.rows.items()}


def brought_about(declared):
    target = MemoryTarget()
    carry_out(plan_for(target, declared), target)
    return target


@settings(max_examples=25, deadline=None)
@given(enterprises(alike=True), enterprises(alike=True), st.integers(0, 60))
def test_any_change_can_be_cut_and_gone_on_with(before, after, writes):
    first, second = checked(before), checked(after)
    target = brought_about(first)
    plan = plan_for(target, second)
    target.writes_left = writes
    try:
        carry_out(plan, target)
    except ApplyError as error:
        assert "run again to go on" in str(error)
    target.writes_left = None

    carry_out(plan_for(target, second), target)

    assert plan_for(target, second).steps == ()
    assert values(target) == values(brought_about(second))


@settings(max_examples=25, deadline=None)
@given(enterprises(alike=True), enterprises(alike=True), st.integers(0, 60))
def test_any_change_that_was_cut_can_be_rolled_back(before, after, writes):
    target = brought_about(checked(before))
    start = values(target)
    plan = from_json(written(plan_for(target, checked(after))))
    target.writes_left = writes
    with contextlib.suppress(ApplyError):
        carry_out(plan, target)
    target.writes_left = None

    left, _ = remaining(plan.inverse(), target.snapshot())
    carry_out(left, target)

    assert values(target) == start


def test_a_plan_of_the_release_before_has_the_names_and_quotas_of_this_one():
    step = {"action": "update", "kind": "queue", "name": ["m", "q"], "rank": 10}
    before, after = {"journal": False, "quota": 4294967295}, {"journal": True, "quota": 7}
    text = json.dumps({"format": 1, "directory": "d", "steps": [step | {"before": before, "after": after}]})

    (step,) = from_json(text).steps

    assert (step.before, step.after) == ({"journaling": False, "quota": None}, {"journaling": True, "quota": 7})
    assert "4294967295" not in "".join(line.plain for line in plan_lines(from_json(text).inverse()))


def test_a_machine_that_became_a_routing_server_refers_to_another_again():
    """Its way back waits for the routing server that the plan deleted."""
    router = {"name": "R2", "roles": ["routing_server"], "sites": ["a"]}
    ordinary = {"name": "r1", "out_routing_servers": ["R2"], "sites": ["a"]}
    parts = {"enterprise": {"name": "E"}, "sites": [{"name": "a"}]}
    target = brought_about(checked({**parts, "machines": [router, ordinary]}))
    start = values(target)
    plan = plan_for(target, checked({**parts, "machines": [{**router, "name": "r1"}]}))
    carry_out(plan, target, workers=1)

    carry_out(plan.inverse(), target, workers=1)

    assert values(target) == start


@settings(max_examples=25, deadline=None)
@given(enterprises(alike=True), enterprises(alike=True))
def test_nothing_that_others_made_is_lost(theirs, ours):
    target = brought_about(checked(theirs))
    for row in list(target.rows):
        target.put(replace(row, owned=False))
    before = set(target.rows.rows)

    plan = plan_for(target, checked(ours))
    carry_out(plan, target)

    assert not any(step.action is Action.DELETE for step in plan.steps)
    assert before <= set(target.rows.rows)
    assert plan_for(target, checked(ours)).steps == ()


def test_a_denial_of_an_unknown_sid_is_a_remark_at_every_plan():
    nobody, group = "S-1-5-21-1-2-3-4711", "S-1-5-32-544"
    entries = [{"to": nobody, "deny": ["send"]}, {"to": group, "deny": ["send"]}, {"to": nobody, "allow": ["send"]}]
    queues = [{"machine": "m", "name": f"q{n}", "access": [entry]} for n, entry in enumerate(entries)]
    declared = checked(
        {"enterprise": {"name": "E"}, "sites": [{"name": "S"}], "machines": [{"name": "m", "sites": ["S"]}]}
        | {"queues": queues}
    )
    table = declared_table(declared, lambda name: name)

    for actual in (Table(), table):
        remarks = [f"{one.title}: {one.note}" for one in make_plan("lab", table, actual).remarks]
        assert remarks == [f"queue m\\q0, {nobody}: {Note.DENIES_NOBODY}"]
