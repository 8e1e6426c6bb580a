"""Plan and apply against a directory in memory: order, idempotence, cuts, rollback."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mqenterprise.topology.apply import (
    ApplyError,
    LeaseLost,
    Record,
    acquire,
    apply,
    latest_record,
    record,
    remaining,
    state_directory,
)
from mqenterprise.topology.check import load
from mqenterprise.topology.declared_table import declared_table
from mqenterprise.topology.normal_form import Kind, Reference, resource
from mqenterprise.topology.plan import (
    Action,
    FixedError,
    Note,
    Plan,
    PlanFileError,
    from_json,
    make_plan,
    to_json,
)
from tests.topology.memory import MemoryTarget

SAMPLE = Path(__file__).parents[2] / "inventory" / "contoso.yaml"


@pytest.fixture
def target():
    return MemoryTarget()


def plan_for(target, checked=None, *, prune=False) -> Plan:
    snapshot = target.snapshot()
    table = declared_table(checked or load(SAMPLE), snapshot.canonical)
    return make_plan(snapshot.directory, table, snapshot.table, prune=prune)


def carry_out(plan, target, **options):
    with acquire(target.lease_entry()) as lease:
        return apply(plan, target, lease, **options)


def without(checked, section, *names):
    kept = tuple(item for item in getattr(checked.declaration, section) if item.name not in names)
    return replace(checked, declaration=checked.declaration.model_copy(update={section: kept}))


def changed(target, kind, *name, **values):
    row = target.rows.get(resource(kind, name, {}).reference)
    target.put(replace(row, values={**row.values, **values}))


def test_an_empty_directory_gets_everything_in_an_order_that_it_accepts(target):
    plan = plan_for(target)

    outcome = carry_out(plan, target)

    assert outcome.done == len(plan.steps) == 4 + 2 + 6 + 3 + 3
    assert {step.action for step in plan.steps} == {Action.CREATE}
    assert plan_for(target).steps == ()


def test_a_second_apply_writes_nothing(target):
    carry_out(plan_for(target), target)
    written = target.writes

    carry_out(plan_for(target), target)

    assert target.writes == written


def test_a_change_by_hand_is_the_one_step_of_the_next_plan(target):
    carry_out(plan_for(target), target)
    changed(target, Kind.ROUTING_LINK, "Bremen", "Amsterdam", cost=7)

    plan = plan_for(target)

    assert [(s.action, s.title, s.before, s.after) for s in plan.steps] == [
        (Action.UPDATE, "routing link Amsterdam - Bremen", {"cost": 7}, {"cost": 1})
    ]
    carry_out(plan, target)
    assert plan_for(target).steps == ()


def test_names_that_differ_in_case_are_no_change(target):
    carry_out(plan_for(target), target)
    changed(target, Kind.MACHINE, "ams-shop", sites=("AMSTERDAM",), out_routing_servers=("AMS-Router",))

    assert plan_for(target).steps == ()


def test_what_is_not_declared_any_more_is_deleted_only_with_prune(target):
    carry_out(plan_for(target), target)
    less = without(without(load(SAMPLE), "queues", "picking", "prices"), "machines", "cor-warehouse")

    kept = plan_for(target, less)
    pruned = plan_for(target, less, prune=True)

    assert kept.steps == ()
    assert {(remark.note, remark.title) for remark in kept.remarks} == {
        (Note.PRUNABLE, "machine cor-warehouse"),
        (Note.PRUNABLE, "queue cor-warehouse\\picking"),
        (Note.PRUNABLE, "queue cor-warehouse\\prices"),
    }
    assert [step.title for step in pruned.steps] == [
        "queue cor-warehouse\\picking",
        "queue cor-warehouse\\prices",
        "machine cor-warehouse",
    ]
    carry_out(pruned, target)
    assert plan_for(target, less, prune=True) == Plan("memory", ())


def test_what_others_made_is_never_deleted_nor_what_holds_it(target):
    carry_out(plan_for(target), target)
    target.put(resource(Kind.QUEUE, ("cor-warehouse", "by hand"), {}))
    less = without(without(load(SAMPLE), "queues", "picking", "prices"), "machines", "cor-warehouse")

    plan = plan_for(target, less, prune=True)

    assert [step.title for step in plan.steps] == ["queue cor-warehouse\\picking", "queue cor-warehouse\\prices"]
    assert {(remark.note, remark.title) for remark in plan.remarks} == {
        (Note.HOLDS_OTHERS, "machine cor-warehouse"),
        (Note.UNMANAGED, "queue cor-warehouse\\by hand"),
    }


def test_what_others_made_of_the_same_name_is_brought_in_line_but_stays_theirs(target):
    target.put(resource(Kind.SITE, ("amsterdam",), {"foreign": False, "intra_site_replication_interval": 99}))

    carry_out(plan_for(target), target)

    row = target.rows.get(Reference(Kind.SITE, ("amsterdam",)))
    assert row.values["intra_site_replication_interval"] == 2
    assert not row.owned


def test_a_change_of_services_that_was_cut_before_its_settings_goes_on_from_the_saved_plan(target):
    carry_out(plan_for(target), target)
    changed(target, Kind.MACHINE, "cor-router", supporting_server=False)
    plan = plan_for(target)
    changed(target, Kind.MACHINE, "cor-router", supporting_server=True, settings=("Córdoba (differs)",))

    left, _ = remaining(plan, target.snapshot())
    carry_out(left, target)

    assert [step.title for step in left.steps] == ["machine cor-router"]
    assert plan_for(target).steps == ()


def test_a_queue_cannot_become_transactional(target):
    carry_out(plan_for(target), target)
    changed(target, Kind.QUEUE, "ams-shop", "orders", transactional=False)

    with pytest.raises(FixedError, match="stays transactional or not as it was created"):
        plan_for(target)


@pytest.mark.parametrize("writes", range(24))
def test_an_apply_that_was_cut_anywhere_is_finished_by_the_next(target, writes):
    whole = MemoryTarget()
    carry_out(plan_for(whole), whole)
    target.writes_left = writes

    with pytest.raises(ApplyError, match=r"the directory went away at .* run again to go on"):
        carry_out(plan_for(target), target)
    target.writes_left = None
    carry_out(plan_for(target), target)

    assert target.rows.rows == whole.rows.rows


@pytest.mark.parametrize("writes", range(0, 24, 3))
def test_a_saved_plan_that_was_cut_can_be_applied_again(target, writes):
    plan = from_json(json.dumps(to_json(plan_for(target))))
    target.writes_left = writes
    with pytest.raises(ApplyError):
        carry_out(plan, target, workers=1)
    target.writes_left = None

    left, before = remaining(plan, target.snapshot())
    carry_out(left, target)

    assert before + len(left.steps) == len(plan.steps)
    assert plan_for(target).steps == ()


@pytest.mark.parametrize("writes", range(0, 24, 3))
def test_a_cut_apply_can_be_rolled_back(target, writes):
    empty = dict(target.rows.rows)
    plan = plan_for(target)
    target.writes_left = writes
    with pytest.raises(ApplyError):
        carry_out(plan, target)
    target.writes_left = None

    left, _ = remaining(plan.inverse(), target.snapshot())
    carry_out(left, target)

    assert target.rows.rows == empty


def test_a_rollback_brings_changes_and_deletions_back(target):
    carry_out(plan_for(target), target)
    before = dict(target.rows.rows)
    changed(target, Kind.ROUTING_LINK, "Amsterdam", "Bremen", cost=7)
    less = without(load(SAMPLE), "queues", "picking")
    plan = plan_for(target, less, prune=True)
    carry_out(plan, target)

    carry_out(remaining(plan.inverse(), target.snapshot())[0], target)

    changed(target, Kind.ROUTING_LINK, "Amsterdam", "Bremen", cost=1)
    assert target.rows.rows == before


def test_a_saved_plan_is_refused_when_the_directory_has_moved_on(target):
    plan = plan_for(target)
    target.put(resource(Kind.SITE, ("Bremen",), {"foreign": True}))

    with pytest.raises(ApplyError, match="moved on since the plan was made: site Bremen; plan anew"):
        remaining(plan, target.snapshot())


def test_a_plan_for_another_directory_is_refused(target):
    with pytest.raises(ApplyError, match="for the directory elsewhere"):
        remaining(replace(plan_for(target), directory="elsewhere"), target.snapshot())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "directory": "d", "steps": [{}]}'])
def test_a_file_that_is_no_plan_is_refused(text):
    with pytest.raises(PlanFileError, match="not a plan"):
        from_json(text)


def test_a_plan_of_messages_is_refused():
    step = {"action": "create", "kind": "message", "name": ["x"], "rank": 0, "before": {}, "after": {}}
    with pytest.raises(PlanFileError, match="not a plan"):
        from_json(json.dumps({"format": 1, "directory": "d", "steps": [step]}))


@pytest.mark.parametrize(
    ("field", "value"), [("cost", "1"), ("cost", True), ("site_gates", "r"), ("description", None), ("nonsense", 1)]
)
def test_a_plan_file_with_a_value_that_cannot_be_is_refused(target, field, value):
    data = to_json(plan_for(target))
    link = next(step for step in data["steps"] if step["kind"] == "routing link")
    link["after"] = {**link["after"], field: value}

    with pytest.raises(PlanFileError, match=f"is no {field} of a routing link"):
        from_json(json.dumps(data))


def test_a_lost_lease_stops_the_apply_before_its_next_write(target):
    plan = plan_for(target)
    with acquire(target.lease_entry()) as lease:

        def steal(step):
            if target.writes == 5:
                target.lease.text = Record(99, holder="someone").text()
                lease.renew()

        target.before_write = steal
        with pytest.raises(ApplyError) as caught:
            apply(plan, target, lease, workers=1)

    assert isinstance(caught.value.__cause__, LeaseLost)
    assert target.writes == 6


def test_an_apply_that_woke_up_late_does_not_touch_what_a_later_one_wrote(target):
    carry_out(plan_for(target), target)
    changed(target, Kind.ROUTING_LINK, "Amsterdam", "Bremen", cost=7)
    plan = plan_for(target)
    target.tokens[plan.steps[0].reference] = 99

    with pytest.raises(ApplyError, match="was changed by someone else meanwhile"):
        carry_out(plan, target)


def test_progress_is_told_of_every_step(target):
    plan, seen = plan_for(target), []

    carry_out(plan, target, progress=seen.append)

    assert sorted(seen, key=plan.steps.index) == list(plan.steps)


def test_the_latest_record_of_a_directory_is_found(target, tmp_path):
    plan = plan_for(target)
    record(plan, 7, tmp_path)
    latest = record(plan, 12, tmp_path)
    record(replace(plan, directory="other"), 13, tmp_path)

    assert latest_record(tmp_path.iterdir(), "memory") == latest
    assert latest_record(tmp_path.iterdir(), "none") is None
    assert from_json(latest.read_text()).steps == plan.steps


def test_a_relative_state_home_means_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert state_directory() == tmp_path / ".local/state/mqenterprise/applied"
    monkeypatch.setenv("XDG_STATE_HOME", "/srv/state")
    assert state_directory() == Path("/srv/state/mqenterprise/applied")
