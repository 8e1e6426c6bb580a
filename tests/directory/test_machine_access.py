"""``mqenterprise machine acl`` on both directory servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app
from qmnode.directory.port import QueueManager

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from tests.lab.servers import DirectoryServer

pytestmark = pytest.mark.servers

Rules = dict[tuple[str, str], set[str]]


class Acl:
    def __init__(self, server: DirectoryServer, folder: Path) -> None:
        values = server.settings.model_dump(mode="json", exclude_none=True)
        if server.settings.password is not None:
            values["password"] = server.settings.password.get_secret_value()
        self.file = folder / "directory.yaml"
        self.file.write_text(yaml.safe_dump(values), "utf-8")

    def __call__(self, *words: str, code: int = 0) -> Any:
        done = CliRunner().invoke(app, ["machine", "acl", *words, "--directory", str(self.file), "--json"])
        assert done.exit_code == code, done.output
        if code:
            return done.output
        found: Rules = {}
        for row in json.loads(done.stdout):
            if not row["inherited"]:
                found.setdefault((row["user"], row["kind"]), set()).update(row["rights"])
        return found


@pytest.fixture
def acl(directory_server: DirectoryServer, tmp_path: Path) -> Acl:
    return Acl(directory_server, tmp_path)


@pytest.fixture
def machine(directory: EnterpriseDirectory, fresh_name: Callable[[str], str]) -> str:
    return directory.queue_managers.add(QueueManager(computer_name=fresh_name("acl"))).computer_name


def test_rights_are_allowed_denied_and_removed(acl: Acl, machine: str) -> None:
    before = acl("show", machine)

    allowed = acl("allow", machine, "Network", "receive-dead-letter", "create-queue")
    assert allowed["Network", "allow"] == {"receive-dead-letter", "create-queue"}
    denied = acl("deny", machine, "Network", "create-queue")
    assert denied["Network", "allow"] == {"receive-dead-letter"}
    assert denied["Network", "deny"] == {"create-queue"}
    removed = acl("remove", machine, "Network", "full-control")

    assert ("Network", "allow") not in removed and ("Network", "deny") not in removed
    # Whoever had rights before has them still.
    assert {key: removed.get(key) for key in before} == before
    assert acl("show", machine) == removed


def test_full_control_is_one_right(acl: Acl, machine: str) -> None:
    assert acl("allow", machine, "Network", "full-control")["Network", "allow"] == {"full-control"}
    assert "full-control" not in acl("remove", machine, "Network", "delete")["Network", "allow"]


def test_what_cannot_be_meant_is_told(acl: Acl, machine: str) -> None:
    assert "there is no user or group 'Nobody'" in acl("allow", machine, "Nobody", "delete", code=1)
    assert "'fly' is no right: use full-control" in acl("allow", machine, "Everyone", "fly", code=1)
    assert "no queue manager on a computer named 'none'" in acl("show", "none", code=1)
