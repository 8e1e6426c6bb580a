"""MS-MQCN from end to end: a change that mqenterprise makes reaches the queue manager that owns the object."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.directory.admission import admit
from mqenterprise.directory.port import LdapPort
from qmnode.directory import membership
from qmnode.directory.port import QueueManager, Site
from qmnode.settings.node import DirectoryMembershipSettings
from tests.directory.test_membership import node_settings, running
from tests.lab.directory_objects import create
from tests.lab.waiting import until
from tests.transport.conftest import loopback_address, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from tests.lab.servers import DirectoryServer

    Named = Callable[[str], str]

DEADLINE = 60.0


def command(*words: object) -> None:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output


@pytest.mark.servers
async def test_a_change_made_with_mqenterprise_reaches_its_queue_manager(
    directory: EnterpriseDirectory,
    directory_server: DirectoryServer,
    tmp_path: Path,
    fresh_name: Named,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without notifications the owner would read its queues in 300 seconds at the earliest: it follows no changes."""
    monkeypatch.setattr(LdapPort, "watch", lambda *_: None)
    monkeypatch.setattr(membership, "LOOK", 0.2)
    names = {"sender": fresh_name("SEND"), "owner": fresh_name("OWN")}
    nodes = {}
    site = create(directory, Site(name=fresh_name("Site"))).identifier
    assert site is not None
    for role, name in names.items():
        (tmp_path / role).mkdir()
        address = loopback_address()
        directory.queue_managers.add(
            QueueManager(computer_name=name, qualified_computer_name=address, site_identifier_list=(site,))
        )
        admit(directory, name, tmp_path / role / "given")
        nodes[role] = node_settings(tmp_path / role, name, tmp_path / role / "given" / "directory.yaml").model_copy(
            update={
                "transport": settings_of(name, address).transport,
                "directory": DirectoryMembershipSettings(
                    name="ldap",
                    settings={"file": str(tmp_path / role / "given" / "directory.yaml"), "answer_limit": 15},
                    notification_interval=1,
                ),
            }
        )
    file = tmp_path / "directory.yaml"
    values = directory_server.settings.model_dump(mode="json", exclude_none=True)
    if directory_server.settings.password is not None:
        values["password"] = directory_server.settings.password.get_secret_value()
    file.write_text(yaml.safe_dump(values | {"notify_through": str(nodes["sender"].local.socket)}))
    queue = f"{names['owner']}\\orders"

    async with running(nodes["sender"]), running(nodes["owner"]) as owner:

        async def has_label(label: str) -> None:
            async def is_so() -> bool:
                found = {one.pathname: one for one in await owner.manager.queues()}.get(queue)
                return found is not None and found.label == label

            await until(is_so, f"the owner has heard of the label {label}", DEADLINE, 0.05)

        await asyncio.to_thread(command, "queue", "publish", queue, "--label", "old", "--directory", file)
        await has_label("old")
        await asyncio.to_thread(command, "queue", "set", queue, "--label", "new", "--directory", file)
        await has_label("new")
        enterprise = tmp_path / "enterprise.yaml"
        await asyncio.to_thread(command, "export", "--directory", file, "--output", enterprise)
        declared = yaml.safe_load(enterprise.read_text())
        [one] = [one for one in declared["queues"] if one["machine"].upper() == names["owner"]]
        one["label"] = "applied"
        enterprise.write_text(yaml.safe_dump(declared))
        await asyncio.to_thread(command, "apply", enterprise, "--directory", file, "--yes")
        await has_label("applied")
