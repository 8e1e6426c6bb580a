"""The commands on the page about living beside Windows, in their order, in an Active Directory."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.directory.open_directory import EnterpriseDirectory
from qmnode.directory.port import Queue, QueueManager, equals

if TYPE_CHECKING:
    from tests.lab.samba import DomainController

PAGE = (Path(__file__).parents[2] / "docs/beside-windows.md").read_text("utf-8")
COMMANDS = re.findall(r"^ {4,}mqenterprise (.+)$", PAGE, re.MULTILINE)


@pytest.mark.servers
def test_every_command_of_the_page_works(
    domain_controller: DomainController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = domain_controller.settings()
    values = settings.model_dump(mode="json", exclude_none=True)
    assert settings.password is not None
    file = tmp_path / "directory.yaml"
    file.write_text(yaml.safe_dump(values | {"password": settings.password.get_secret_value()}), "utf-8")
    monkeypatch.setenv("MQENTERPRISE_DIRECTORY", str(file))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    keys = tmp_path / "keys.yaml"
    keys.write_text(yaml.safe_dump({"directory": str(tmp_path / "{computer}")}), "utf-8")
    (tmp_path / "shop").mkdir()
    monkeypatch.setenv("MQENTERPRISE_KEYS", str(keys))
    with EnterpriseDirectory(settings) as directory:
        site = directory.sites.find("Default-First-Site-Name")
        assert site is not None and site.identifier is not None
        directory.queue_managers.add(QueueManager(computer_name="winshop", site_identifier_list=(site.identifier,)))
        directory.queues.add(Queue(pathname="winshop\\orders", transactional=True, label="Orders"))

    declared = tmp_path / "contoso.yaml"
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    (node,) = blocks[0]
    with contextlib.chdir(tmp_path):
        for command in COMMANDS:
            done = CliRunner().invoke(app, shlex.split(command))
            # A plan with steps, and keys that are not made yet: something is to be done.
            assert done.exit_code in ((0, 2) if command.startswith(("plan", "keys")) else (0,)), (command, done.output)
            if command.startswith("export"):
                enterprise = yaml.safe_load(declared.read_text("utf-8"))
                enterprise["machines"].append(node)
                declared.write_text(yaml.safe_dump(enterprise, allow_unicode=True), "utf-8")

    assert len(COMMANDS) >= 8
    with EnterpriseDirectory(settings) as directory:
        assert directory.queues.find("winshop\\orders") is not None
        (found,) = directory.queue_managers.list(equals("computer_name", "shop"))
        assert found.site_identifier_list == (site.identifier,)
