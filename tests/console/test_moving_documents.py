"""The document of a move, from files alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mqenterprise.console import moving
from mqenterprise.console.moving import Moving
from mqenterprise.operations.errors import OperationsError
from mqenterprise.operations.switching import FORWARD, Plan
from mqenterprise.survey.report import VERSION
from mqenterprise.survey.run import REPORT
from mqenterprise.topology.names import fold

if TYPE_CHECKING:
    from pathlib import Path

MACHINES, QUEUES = 40, 5
PLAN = {"queue": r"m0\q0", "identifier": "i", "source": "m0", "target": "node", "done": list(FORWARD)}


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    """The report of a survey of some machines with some queues each."""
    names = [f"m{number}" for number in range(MACHINES)]
    report = {
        "version": VERSION,
        "taken": "2026-01-31",
        "machines": [{"name": name, "host": name, "sites": ["A"], "reason": ""} for name in names],
        "queues": [
            {"path": rf"{name}\q{number}", "machine": name.upper(), "messages": 2}
            for name in names
            for number in range(QUEUES)
        ],
        "order": [{"position": 1, "what": "queue", "name": "q", "queues": [r"m0\q0"], "reasons": []}],
    }
    (tmp_path / REPORT).write_text(json.dumps(report))
    return tmp_path


@pytest.mark.parametrize(
    "wrong",
    [{"queue": 7}, {"target": None}, {"done": "check"}, {"done": [["check"]]}, {"taken_back": "no"}, {"source": {}}],
    ids=str,
)
def test_a_plan_with_a_value_of_another_type_is_named_and_the_others_are_shown(
    survey: Path, wrong: dict[str, Any]
) -> None:
    (survey / "one.switch.json").write_text(json.dumps(PLAN))
    broken = survey / "two.switch.json"
    broken.write_text(json.dumps(PLAN | wrong))

    document = Moving(survey, survey).document({}, None)

    assert [str(broken) in sentence and next(iter(wrong)) in sentence for sentence in document["unread"]] == [True]
    assert document["order"][0]["place"] == "node"
    with pytest.raises(OperationsError, match="is no plan of a switch"):
        Plan.read(broken)


def test_the_work_grows_with_machines_and_queues_and_not_with_their_product(
    survey: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[str] = []

    def counted(name: str) -> str:
        folded.append(name)
        return fold(name)

    monkeypatch.setattr(moving, "fold", counted)

    document = Moving(survey).document({}, None)

    assert [(machine["queues"], machine["messages"]) for machine in document["machines"]] == [(5, 10)] * MACHINES
    assert len(folded) < 8 * (MACHINES + MACHINES * QUEUES)
