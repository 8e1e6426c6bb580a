"""The commands and settings of docs/keys.md, as they are printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.certificates.registry import CertificateRegistry, fingerprint_of
from mqenterprise.cli import app
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.keys.settings import KeySettings, load_key_settings
from qmnode.directory.port import QueueManager, User
from qmnode.settings.node import NodeSettings
from tests.lab.directory_objects import create, delete

if TYPE_CHECKING:
    from mqenterprise.directory.private_slapd import EmbeddedDirectory

pytestmark = pytest.mark.servers
GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "keys.md").read_text("utf-8")
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line
]


def settings(name: str) -> str:
    found = re.search(rf"^```yaml\n(# {name}\n.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_settings_are_those_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text(settings("keys.yaml"))
    assert load_key_settings(tmp_path / "keys.yaml") == KeySettings()  # the defaults, said aloud
    assert "alice" in NodeSettings(**yaml.safe_load(settings("node.yaml"))).security.signers


def test_the_commands_do_what_is_said(
    slapd: EmbeddedDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    administrator = slapd.client_settings()
    values = administrator.model_dump(mode="json", exclude_none=True)
    if administrator.password is not None:
        values["password"] = administrator.password.get_secret_value()
    Path("directory.yaml").write_text(yaml.safe_dump(values))
    short = {"directory": str(tmp_path), "reload_interval": 0, "modulus_length": 1024}
    Path("keys.yaml").write_text(yaml.safe_dump(yaml.safe_load(settings("keys.yaml")) | short))
    with EnterpriseDirectory(administrator) as directory:
        node = directory.queue_managers.add(QueueManager(computer_name="ALPHA"))
        user = create(directory, User(name="alice"))
        try:
            for line in COMMANDS:
                registered = list(CertificateRegistry(directory).list("alice"))
                name = fingerprint_of(registered[0]) if registered else ""
                words = shlex.split(line.replace("FINGERPRINT", name), comments=True)
                assert words[0] == "mqenterprise"
                if words[1:3] == ["keys", "rollback"]:  # there is a key before the present one
                    assert CliRunner().invoke(app, ["keys", "rotate", *words[3:]]).exit_code == 0
                result = CliRunner().invoke(app, words[1:])
                assert result.exit_code in (0, 2), f"{line}\n{result.output}"
            assert len(list(CertificateRegistry(directory).list("alice"))) == 1
        finally:
            delete(directory, node)
            delete(directory, user)
    assert len(COMMANDS) == 9
