"""A template is compiled once for all processes of a run, and means what it meant."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
from ansible import constants
from ansible.errors import AnsibleError
from ansible.template import Templar, trust_as_template

from tests.collection.conftest import COLLECTIONS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The texts that Jinja had to read, in a process that begins."""
    monkeypatch.setattr(sys, "path", [str(COLLECTIONS), *sys.path])
    templates: Any = importlib.import_module("ansible_collections.mqenterprise.fleet.plugins.plugin_utils._templates")
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(templates, "_KNOWN", {})
    monkeypatch.setattr(jinja2.Environment, "compile", jinja2.Environment.compile)
    templates.keep_compiled()
    read: list[str] = []
    parse = jinja2.Environment._parse

    def noted(self: jinja2.Environment, source: str, *more: Any) -> Any:
        read.append(str(source))
        return parse(self, source, *more)

    monkeypatch.setattr(jinja2.Environment, "_parse", noted)
    return read


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    templates: Any = importlib.import_module("ansible_collections.mqenterprise.fleet.plugins.plugin_utils._templates")
    monkeypatch.setattr(templates, "_KNOWN", {})


def rendered(text: str, **variables: object) -> Any:
    found = {name: trust_as_template(each) if isinstance(each, str) else each for name, each in variables.items()}
    return Templar(None, found).template(trust_as_template(text))


def test_another_process_and_another_host_need_not_compile_it(
    parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rendered("{{ one | upper }}-{{ two }}", one="{{ two }}a", two="b") == "BA-b"
    assert sorted(parsed) == ["{{ one | upper }}-{{ two }}", "{{ two }}a"]
    another_process(monkeypatch)

    assert rendered("{{ one | upper }}-{{ two }}", one="{{ two }}a", two="c") == "CA-c"

    assert len(parsed) == 2


def test_what_no_process_can_compile_is_a_fault_in_each(parsed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for _process in range(2):
        with pytest.raises(AnsibleError, match="Syntax error in template"):
            rendered("{{ one one }}", one=1)
        another_process(monkeypatch)
    assert len(parsed) == 2


def test_backslashes_mean_what_they_mean_in_their_place(parsed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = trust_as_template('{{ "a\\tb" }}')
    for _process in range(2):
        assert Templar(None, {}).template(text) == "a\\tb"
        assert Templar(None, {}).template(text, escape_backslashes=False) == "a\tb"
        another_process(monkeypatch)
    assert len(parsed) == 4
