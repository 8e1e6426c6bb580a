"""The action that has a node's credentials on the controller: options left out, and when it admits anew."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.connection.local import Connection
from ansible.plugins.shell.sh import ShellModule

from tests.lab.silence import LyingDirectory, done, result

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


@pytest.mark.parametrize(
    ("code", "is_refused"),
    [(49, True), (8, False), (53, False)],
    ids=["invalidCredentials", "strongerAuthRequired", "unwillingToPerform"],
)
def test_only_an_unknown_account_or_a_wrong_password_is_admitted_anew(
    tmp_path: Path, code: int, is_refused: bool
) -> None:
    action: Any = importlib.import_module("ansible_collections.mqenterprise.fleet.plugins.action.credentials")
    binds = []

    def refuse(request: bytes) -> bytes:
        binds.append(request)
        return result(code)

    with LyingDirectory(lambda *_: [done()], refuse) as server:
        settings = tmp_path / "directory.yaml"
        login = {"bind": "simple", "user": "cn=ams-shop,dc=contoso", "password": "secret", "start_tls": False}
        settings.write_text(yaml.safe_dump({"servers": [server.url], "root": "dc=contoso"} | login), "utf-8")
        settings.chmod(0o600)
        assert action.refused(settings) is is_refused

    assert binds
