"""The action that has a node's credentials on the controller: which options may be left out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.connection.local import Connection
from ansible.plugins.shell.sh import ShellModule

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("in_process")


def issued(check: bool = False, **certificate: object) -> dict[str, Any]:
    """What the action answers to a task with these options of the certificate."""
    action: Any = importlib.import_module("ansible_collections.mqenterprise.fleet.plugins.action.credentials")
    task = Task()
    task.args = {"certificate": certificate}
    task.check_mode = check
    connection = Connection(PlayContext(), shell=ShellModule())
    return action.ActionModule(task, connection, None, None, None, None).run()  # type: ignore[no-any-return]


def files(folder: Path) -> dict[str, str]:
    return {
        "authority": str(folder / "authority"),
        "certificate": str(folder / "certificate.pem"),
        "private_key": str(folder / "key.pem"),
    }


@pytest.mark.parametrize("given", [{"names": ["ams-shop"]}, {"holder": "user"}], ids=["host", "user"])
def test_a_certificate_needs_only_the_options_that_its_module_requires(tmp_path: Path, given: dict[str, Any]) -> None:
    said = issued(check=True, name="ams-shop", **files(tmp_path), **given)
    assert said["changed"] and not (tmp_path / "certificate.pem").exists()

    assert issued(name="ams-shop", **files(tmp_path), **given)["changed"]
    assert (tmp_path / "certificate.pem").exists()
    assert not issued(name="ams-shop", **files(tmp_path), **given)["changed"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "names"),
        ({"holder": "user", "names": ["shop"]}, "leave out names"),
        ({"names": ["shop"], "renew_befor": 3}, "renew_befor"),
    ],
)
def test_what_the_module_refuses_the_action_refuses(tmp_path: Path, given: dict[str, Any], why: str) -> None:
    try:
        sentence = issued(name="ams-shop", **files(tmp_path), **given)["msg"]
    except AnsibleActionFail as error:
        sentence = str(error)

    assert why in sentence
    assert not (tmp_path / "authority").exists()
