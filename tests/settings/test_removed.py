"""A removed setting is refused at the start, with the setting or the rule that takes its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from qmnode.errors import ConfigurationError
from qmnode.settings.mistakes import _REMOVED
from qmnode.settings.node import NodeSettings, read_settings

if TYPE_CHECKING:
    from pathlib import Path


def exists(name: str) -> bool:
    found: object = NodeSettings()
    for step in name.split("."):
        if not hasattr(found, step):
            return False
        found = getattr(found, step)
    return True


@pytest.mark.parametrize("name", _REMOVED)
def test_a_removed_setting_is_refused_with_what_takes_its_place(name: str, tmp_path: Path) -> None:
    section, _, setting = name.partition(".")
    path = tmp_path / "node.yaml"
    path.write_text(f"{section}: {{{setting}: 1}}\n")

    with pytest.raises(ConfigurationError) as refused:
        read_settings(path)

    assert str(refused.value).startswith(f"{path}:1: {name}: no setting any more: remove it (")
    successors = re.findall(rf"\b(?:{'|'.join(NodeSettings.model_fields)})\.[a-z_.]+[a-z]", _REMOVED[name])
    assert [one for one in successors if not exists(one)] == []


def test_a_removed_setting_in_the_environment_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMNODE_TRANSFER__RESEND_SHORT", "30")
    with pytest.raises(ConfigurationError, match=r"transfer\.resend_short: no setting any more: .*resend_timeouts"):
        read_settings(None)
