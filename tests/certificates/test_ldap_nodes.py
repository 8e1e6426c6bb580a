"""A user's message from the command line of one node to the queue of another, both on a real directory."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

import qmnode
from mqenterprise.cli import app
from mqenterprise.directory.admission import SETTINGS_FILE, admit
from mqenterprise.directory.ldap_names import child
from mqenterprise.directory.open_directory import EnterpriseDirectory
from qmnode.directory.port import QueueManager, User
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import guid_to_text
from qmnode.structures.public_keys import MqUserSignCerts
from qmnode.structures.security_descriptor import EVERYONE, Acl, QueueAccess, SecurityDescriptor, Sid, allow, deny
from tests.certificates.enterprise import ACCOUNT, ADMIN, ALICE
from tests.collection.conftest import COLLECTION
from tests.keys.processes import PROJECT, QUEUE, NodeProcess, ReplicatedDirectory
from tests.lab.directory_objects import create, delete
from tests.lab.groups import Groups

if TYPE_CHECKING:
    from mqenterprise.directory.private_slapd import EmbeddedDirectory

pytestmark = [pytest.mark.servers, pytest.mark.timeout(180)]
LIFETIME = 500
PROBE = COLLECTION / "roles/queue_manager/files/probe.py"
OWNER_ENTRY = allow(ALICE, QueueAccess.MQSEC_QUEUE_GENERIC_ALL)


class Enterprise:
    """Two nodes and a user in the directory."""

    def __init__(self, directory: EnterpriseDirectory, folder: Path, fresh_name: Callable[[str], str]) -> None:
        self.directory, self.folder = directory, folder
        self.settings = folder / "administrator.yaml"
        values = directory.connection.settings.model_dump(mode="json", exclude_none=True)
        if directory.connection.settings.password is not None:
            values["password"] = directory.connection.settings.password.get_secret_value()
        self.settings.write_text(yaml.safe_dump(values))
        self.groups = Groups(directory, fresh_name)
        self.key = folder / "user.key"
        self.certificate = folder / "user.der"
        self.names = tuple(fresh_name("sign").upper()[:15] for _ in range(2))
        self.one, self.two = map(self._node, self.names)

    def _node(self, name: str) -> NodeProcess:
        node = NodeProcess(self.folder / name, ReplicatedDirectory(self.folder), user_cert_lifetime=LIFETIME)
        self.directory.queue_managers.add(QueueManager(computer_name=name, qualified_computer_name=node.address))
        found = admit(self.directory, name, node.folder / "directory")
        assert found.identifier is not None
        node.identifier = found.identifier
        file = node.folder / "directory" / SETTINGS_FILE
        node.settings["directory"] = {"name": "ldap", "settings": {"file": str(file), "fresh_for": 0.5}}
        node.settings["transfer"] |= {"send_insecure_nacks": True}
        signer = {"private_key": str(self.key), "certificate": str(self.certificate)}
        node.settings["security"] |= {"signers": {ACCOUNT: signer}}
        return node

    def certificates(self, *words: str) -> Any:
        """``mqenterprise certificate``."""
        result = CliRunner().invoke(app, ["certificate", *words, "--directory", str(self.settings), "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def revoke(self, fingerprint: str) -> None:
        arguments = ["certificate", "revoke", ACCOUNT, fingerprint, "--directory", str(self.settings)]
        assert CliRunner().invoke(app, arguments).exit_code == 0

    def send(self, *words: str) -> None:
        """``qmnode send`` at the first node."""
        command = [sys.executable, "-c", "from qmnode.cli import main; main()", "send", *words]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "QMNODE_SOCKET": str(self.one.socket)}
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=240)

    def probe(self, node: NodeProcess, *words: str) -> Any:
        """The script of ``verify.yml``, run by the user."""
        command = [sys.executable, PROBE, node.socket, *words]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        done = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
        return json.loads(done.stdout)


@pytest.fixture
async def enterprise(
    slapd: EmbeddedDirectory, tmp_path: Path, fresh_name: Callable[[str], str]
) -> AsyncIterator[Enterprise]:
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(EnterpriseDirectory(slapd.client_settings()))
        user = create(directory, User(name=ACCOUNT, security_identifier=ALICE.write()))
        stack.callback(delete, directory, user)
        enterprise = Enterprise(directory, tmp_path, fresh_name)
        for node in (enterprise.one, enterprise.two):
            stack.callback(node.stop)
        yield enterprise


async def test_a_user_signs_until_the_certificate_is_revoked(enterprise: Enterprise) -> None:
    (registered,) = enterprise.certificates("register", ACCOUNT, "--internal", str(enterprise.key), "--bits", "1024")
    listed = enterprise.directory.users.find(ACCOUNT)
    assert listed is not None and listed.certificates is not None
    enterprise.certificate.write_bytes(MqUserSignCerts.parse(listed.certificates).certificates[0].certificate)
    await asyncio.gather(enterprise.one.start(), enterprise.two.start())
    async with qmnode.connect(enterprise.two.socket) as two, qmnode.connect(enterprise.one.socket) as one:
        # A queue of a user whom the directory knows takes messages of nobody else until its access list says so.
        taking = SecurityDescriptor(dacl=Acl.of(OWNER_ENTRY, allow(EVERYONE, QueueAccess.MQSEC_WRITE_MESSAGE))).write()
        await two.create_queue(QUEUE, authentication=True, security=taking)
        await one.create_queue(ADMIN, security=taking)
        admin = await one.open_queue(f"DIRECT=OS:{ADMIN}")
        number = (await two.queue(QUEUE)).private_queue_number
        name = f"PRIVATE={guid_to_text(two.identifier)}\\{number:08x}"
        own = f"PRIVATE={guid_to_text(one.identifier)}\\{(await one.queue(ADMIN)).private_queue_number:08x}"
        options = ("--admin-queue", own, "--acknowledge", "5", "--authenticated", "--encrypted", "--hash", "sha256")

        await asyncio.to_thread(enterprise.send, name, "an order", *options)
        assert (await admin.receive(timeout=60)).message_class == MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE
        (shown,) = json.loads(await enterprise.two.body("/v1/queues/exchange/messages?body=text"))["messages"]
        assert (shown["text"], shown["authenticated"], shown["sender"]) == ("an order", True, str(ALICE))

        inner, _ = enterprise.groups.group(child(ACCOUNT, enterprise.directory.connection.dialect.contexts.users))
        outer, denied = enterprise.groups.group(inner)
        access = Acl.of(
            deny(Sid.parse(denied), QueueAccess.MQSEC_WRITE_MESSAGE),
            OWNER_ENTRY,
            allow(EVERYONE, QueueAccess.MQSEC_WRITE_MESSAGE),
        )
        await two.set_queue(QUEUE, security=SecurityDescriptor(dacl=access).write())
        for members, expected in (
            ((inner,), MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED),
            ((), MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE),
        ):
            enterprise.groups.change(outer, *members)
            async with asyncio.timeout(60):  # at the latest when what B remembers has aged
                outcome = None
                while outcome != expected:
                    await asyncio.to_thread(enterprise.send, name, "of a group", *options)
                    outcome = (await admin.receive(timeout=60)).message_class

        enterprise.revoke(registered["fingerprint"])
        refused = MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE
        async with asyncio.timeout(60):  # at the latest when what B remembers has aged
            outcome = None
            while outcome != refused:
                await asyncio.to_thread(enterprise.send, name, "another", *options)
                outcome = (await admin.receive(timeout=60)).message_class
        count = (await two.queue(QUEUE)).message_count
        await asyncio.to_thread(enterprise.send, name, "and another", *options)
        assert (await admin.receive(timeout=60)).message_class == refused
        assert (await two.queue(QUEUE)).message_count == count


async def test_a_probe_comes_back_where_the_directory_has_the_user_who_verifies(enterprise: Enterprise) -> None:
    """New queues of such a user take messages of nobody else: neither probes nor their acknowledgments and reports."""
    one, two = enterprise.one, enterprise.two
    await asyncio.gather(one.start(), two.start())
    async with qmnode.connect(two.socket) as node:  # as an earlier release left it
        await node.create_queue(r".\private$\mqenterprise-probe")
    foretold = enterprise.probe(two, "check", "no certificate")
    sender, target = (enterprise.probe(node, "prepare", "no certificate", "reports") for node in (one, two))
    assert foretold["changed"] and sender["changed"] and target["changed"]

    here, there = enterprise.names
    names = {sender["identifier"]: here, target["identifier"]: there}
    asked = {"targets": {there: target["format_name"]}, "names": names, "addresses": {two.address: there}}
    found = enterprise.probe(one, "probe", json.dumps(asked | {"direct": None}))["found"][there]

    assert (found["why"], found["path"]) == ("", [here, there])
    assert not enterprise.probe(one, "prepare", "no certificate", "reports")["changed"]
