"""Random enterprises one after the other on both real servers."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from mqenterprise.topology.check import load
from mqenterprise.topology.export import export
from tests.topology.enterprises import enterprises

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(900)]

FEW = settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MANY = settings(FEW, max_examples=30)


def bring_about(bench, data):
    checked = bench.declare(data)
    bench.apply(checked, prune=True)
    assert bench.plan(checked, prune=True).steps == ()


def bring_about_and_export(bench, enterprise):
    bring_about(bench, enterprise)

    file = bench.folder / "exported.yaml"
    file.write_text(export(bench.target.snapshot().table, "E"), "utf-8")
    assert bench.plan(load(file), prune=True).steps == ()


def change_and_change_back(bench, before, after):
    bring_about(bench, before)
    start = bench.ours()
    bring_about(bench, after)

    bring_about(bench, before)

    assert bench.ours() == start


@FEW
@given(enterprise=enterprises())
def test_any_enterprise_is_brought_about_and_exported(bench, enterprise):
    bring_about_and_export(bench, enterprise)


@FEW
@given(before=enterprises(alike=True), after=enterprises(alike=True))
def test_any_enterprise_becomes_any_other_and_back(bench, before, after):
    change_and_change_back(bench, before, after)


@pytest.mark.soak
@MANY
@given(enterprise=enterprises())
def test_many_enterprises_are_brought_about_and_exported(bench, enterprise):
    bring_about_and_export(bench, enterprise)


@pytest.mark.soak
@MANY
@given(before=enterprises(alike=True), after=enterprises(alike=True))
def test_many_enterprises_become_others_and_back(bench, before, after):
    change_and_change_back(bench, before, after)
