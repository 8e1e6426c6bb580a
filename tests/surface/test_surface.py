"""What users and stores rely on is still as it was recorded (tests/surface/record.py)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.surface.record import PLACE, command_lines, differences, json_keys, python_names, settings, store_format

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("part", "present"),
    [
        ("python", python_names),
        ("command lines", command_lines),
        ("settings", settings),
        ("json", json_keys),
        ("store", store_format),
    ],
)
def test_nothing_recorded_is_gone_or_changed(part: str, present: Callable[[], dict[str, Any]]) -> None:
    recorded = json.loads(PLACE.read_text())[part]
    assert differences(recorded, json.loads(json.dumps(present()))) == []


def test_an_addition_is_compatible_and_a_removal_or_change_is_not() -> None:
    recorded = {"send": {"required": ["body"], "optional": {"priority": 3}}}
    assert differences(recorded, recorded | {"receive": {}}) == []
    assert differences(recorded, {"send": {"required": ["body"], "optional": {"priority": 3, "label": ""}}}) == []
    assert differences(recorded, {}) == ["/send is gone"]
    assert differences(recorded, {"send": {"required": ["body"], "optional": {}}}) == [
        "/send/optional/priority is gone"
    ]
    assert differences(recorded, {"send": {"required": ["body", "label"], "optional": {"priority": 4}}}) == [
        "/send/required was ['body'] and is ['body', 'label']",
        "/send/optional/priority was 3 and is 4",
    ]
