"""Fixtures: modules run in this process as Ansible runs them, over each of the two directory servers."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
import yaml
from ansible.module_utils import _internal
from ansible.module_utils.testing import patch_module_args

from tests.lab.servers import leave_to_soak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lab.servers import DirectoryServer

REPOSITORY = Path(__file__).parents[2]
COLLECTIONS = REPOSITORY / "playbooks/collections"
COLLECTION = COLLECTIONS / "ansible_collections/mqenterprise/fleet"
MODULES = "ansible_collections.mqenterprise.fleet.plugins.modules"
OVER_ACTIVE_DIRECTORY = {
    "test_a_given_one_is_registered_and_revoked",
    "test_access_rights",
    "test_it_comes_changes_and_goes",
    "test_it_is_made_as_declared_and_pruned",
    "test_keys_are_made_replaced_rolled_back_and_put_away",
    "test_they_come_change_and_go",
}
"""Each kind of object once. How modules are given what they do does not depend on the product of the directory."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_to_soak(items, Path(__file__).parent, OVER_ACTIVE_DIRECTORY)


class ModuleFailed(Exception):
    """The module ended with ``fail_json``; its message."""


class Modules:
    """Runs modules with the connection options of one directory."""

    def __init__(self, **connection: object) -> None:
        self._connection = connection

    def run(self, name: str, /, *, check: bool = False, **options: object) -> dict[str, Any]:
        module = importlib.import_module(f"{MODULES}.{name}")
        arguments = {**self._connection, **options, "_ansible_check_mode": check, "_ansible_diff": True}
        output = io.StringIO()
        with patch_module_args(arguments), contextlib.redirect_stdout(output), pytest.raises(SystemExit):
            module.main()
        result: dict[str, Any] = json.loads(output.getvalue().splitlines()[-1])
        if result.get("failed"):
            raise ModuleFailed(result["msg"])
        return result

    def settle(self, name: str, /, **options: object) -> dict[str, Any]:
        """Check, do, and do again: the check must have said what was done, and there is nothing to do twice."""
        checked = self.run(name, check=True, **options)
        done = self.run(name, **options)
        again = self.run(name, **options)
        assert (checked["changed"], done["changed"], again["changed"]) == (True, True, False)
        assert checked["diff"] == done["diff"]
        assert again["diff"] in ([], {**again["diff"], "before": again["diff"]["after"]} if again["diff"] else [])
        return done


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Modules run in this process."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [str(COLLECTIONS), *sys.path])
    base = importlib.import_module("ansible_collections.mqenterprise.fleet.plugins.module_utils._module")
    monkeypatch.setattr(base, "forbid_core_dumps", lambda: None)  # this process is not the module's own
    monkeypatch.setattr(_internal, "is_controller", False)  # filters, which are tested beside, import the controller
    configured = structlog.get_config()
    yield
    structlog.configure(**configured)


@pytest.fixture
def modules(directory_file: Path, in_process: None) -> Modules:
    """The modules over each of the two servers in turn."""
    return Modules(directory_file=str(directory_file))


@pytest.fixture
def directory_file(directory_server: DirectoryServer, tmp_path: Path) -> Path:
    """The settings of the directory server, for its administrator."""
    values = directory_server.settings.model_dump(mode="json", exclude_none=True)
    if directory_server.settings.password is not None:
        values["password"] = directory_server.settings.password.get_secret_value()
    file = tmp_path / "directory.yaml"
    file.write_text(yaml.safe_dump(values), "utf-8")
    file.chmod(0o600)
    return file


@pytest.fixture
def site(modules: Modules, fresh_name: Callable[[str], str]) -> str:
    """A site of the test's own."""
    name = fresh_name("Site")
    modules.run("site", name=name)
    return name
