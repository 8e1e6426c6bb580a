"""Distribution lists and queue aliases in declarations and plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from mqenterprise.topology.check import load
from mqenterprise.topology.declared_table import declared_table
from mqenterprise.topology.export import export
from mqenterprise.topology.normal_form import Table
from mqenterprise.topology.plan import make_plan
from mqenterprise.topology.problems import DeclarationError

COMMON = {
    "enterprise": {"name": "E"},
    "sites": [{"name": "A"}],
    "machines": [{"name": "m1", "sites": ["A"]}],
    "queues": [{"machine": "m1", "name": "orders"}],
    "users": [{"name": "ann"}],
    "queue_aliases": [{"name": "old", "format_name": r"DIRECT=OS:m1\private$\x"}],
}


def test_an_export_leaves_out_a_member_that_is_gone_with_a_note(tmp_path):
    found = table(tmp_path, lists(all=[r"m1\orders", "old"]))
    gone = "CN=lost,CN=Users,DC=e"
    members = (r"m1\orders", gone, "old")
    rows = [replace(row, values={"members": members}) if "members" in row.values else row for row in found]

    text = export(Table({row.reference: row for row in rows}), "E")

    assert f"# left out: distribution_lists all: its member {gone}, which is gone\n" in text
    assert yaml.safe_load(text)["distribution_lists"] == [{"name": "all", "members": [r"m1\orders", "old"]}]


def lists(**members):
    return {"distribution_lists": [{"name": name, "members": each} for name, each in members.items()]}


def table(folder, data):
    file = folder / "enterprise.yaml"
    file.write_text(yaml.safe_dump(COMMON | data), "utf-8")
    return declared_table(load(file), lambda name: name)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (lists(all=[r"m1\order"]), r"did you mean m1\orders?"),
        (lists(all=["olld"]), "did you mean old?"),
        (lists(all=["orders"]), r"there is no queue alias or distribution list 'orders' (did you mean m1\orders?)"),
        (lists(all=["old", "Old"]), "stands here 2 times"),
        (lists(all=[r"DIRECT=OS:m1\orders"]), "declare a queue alias for it"),
        (lists(all=[r"m1\PRIVATE$\x"]), "declare a queue alias for it"),
        (lists(all=["ALL"]), "the list contains itself, by ALL"),
        (lists(all=["inner"], inner=["most"], most=["all"]), "by inner which contains most which contains all"),
        (lists(ANN=[]), "a user has this name"),
        (lists(old=[]), "a queue alias has this name"),
        (lists(**{r"m1\orders": []}), "would be the path of a queue"),
        (
            lists(all=["Copies"])
            | {"queue_aliases": [{"name": "copies", "format_name": r"DIRECT=OS:m1\private$\x;journal"}]},
            "nodes would refuse every message to the list",
        ),
        ({"queue_aliases": [{"name": "a"}]}, "'format_name' is missing"),
        ({"queue_aliases": [{"name": "a", "format_name": r"m1\orders"}]}, "no format name"),
        (
            {"queue_aliases": [{"name": "a", "format_name": "DL=" + "1" * 8 + "-1111" * 3 + "-" + "1" * 12}]},
            "one queue",
        ),
        ({"queue_aliases": [{"name": "a", "format_name": r"DIRECT=OS:a\b,DIRECT=OS:c\d"}]}, "one queue"),
        ({"queue_aliases": [{"name": "a", "format_name": rf"DIRECT=OS:{'a.' * 80}a\{'b' * 99}"}]}, "255"),
    ],
)
def test_a_wrong_list_or_alias_is_refused_with_a_remedy(tmp_path, data, expected):
    with pytest.raises(DeclarationError) as told:
        table(tmp_path, data)

    assert any(expected in problem.sentence for problem in told.value.problems), told.value.problems


def test_lists_come_after_the_lists_in_them_and_go_before_them(tmp_path):
    declared = table(tmp_path, lists(all=["middle", r"m1\orders"], middle=["inner"], inner=["old"]))
    order = ["queue alias old", *(f"distribution list {name}" for name in ("inner", "middle", "all"))]

    plan = make_plan("lab", declared, Table())

    assert [step.title for step in plan.steps if step.title in order] == order
    assert [step.title for step in plan.inverse().steps if step.title in order] == order[::-1]
