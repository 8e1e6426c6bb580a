"""Whose login creates, changes and deletes public queues in the directory: the application's, or the node's.

MS-MQDMPR 3.1.1.6, on both servers. Anne administers the directory, Bob may only read it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import qmnode
from mqenterprise.directory.admission import SETTINGS_FILE, admit
from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.ldap_names import child
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.settings import ServerKind
from mqenterprise.directory.slapd_configuration import ADMINISTRATORS
from mqenterprise.topology.apply import apply_declared
from mqenterprise.topology.check import load
from mqenterprise.topology.ldap_target import LdapTarget
from qmnode.model.api import DirectoryLogin
from qmnode.structures.error_codes import ErrorCode
from tests.effects.binds import ANNE, BOB, Users
from tests.lab.nodes import NodeProcess
from tests.lab.waiting import wait_until
from tests.topology.conftest import Silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.servers import DirectoryServer

pytestmark = [pytest.mark.servers]
OPENLDAP = pytest.mark.parametrize("directory_server", [ServerKind.OPENLDAP], indirect=True, ids=["slapd"])
MACHINE = "weakly"
QUEUE = r".\weak-orders"


class Bench:
    """The declared enterprise and its node."""

    def __init__(self, server: DirectoryServer, folder: Path) -> None:
        self.folder = folder
        self.server = server
        self.directory = EnterpriseDirectory(server.settings)
        self.users = Users(self.directory, server.settings)
        self.apply()
        self.users.let_in()
        admit(self.directory, MACHINE, folder / "given", new=False)
        self.node = NodeProcess(
            folder / "node",
            computer_name=MACHINE.upper(),
            directory={"name": "ldap", "settings": {"file": str(folder / "given" / SETTINGS_FILE)}},
        )
        contexts = self.directory.connection.dialect.contexts
        administrators = "Domain Admins" if server.is_active_directory else ADMINISTRATORS
        self._administrators = child(administrators, contexts.users)
        self._anne = child(ANNE, contexts.users).encode()
        if server.is_active_directory:
            self._membership(ChangeKind.ADD)
        else:
            self.directory.connection.add(self._administrators, ("top", "group"), {"member": (self._anne,)})

    def _membership(self, change: ChangeKind) -> None:
        self.directory.connection.modify(self._administrators, [Change(change, "member", (self._anne,))])

    def apply(self, *, empty: bool = False, **enterprise: Any) -> None:
        declared = {
            "enterprise": {"name": "Weakened", **enterprise},
            "sites": [{"name": "weak-site"}],
            "machines": [{"name": MACHINE, "sites": ["weak-site"]}],
            "users": [{"name": name} for name in (ANNE, BOB)],
        }
        file = self.folder / "enterprise.yaml"
        file.write_text(yaml.safe_dump({"enterprise": declared["enterprise"]} if empty else declared))
        apply_declared(load(file), LdapTarget(self.directory), Silent(), prune=empty, patience=60)

    def close(self) -> None:
        if self.node.running:
            self.node.stop()
        if self.server.is_active_directory:
            self._membership(ChangeKind.DELETE)
        else:
            self.directory.connection.delete(self._administrators)
        self.apply(empty=True)
        self.directory.close()

    def connect(self, login: DirectoryLogin | None = None) -> Any:
        return qmnode.connect(self.node.socket, login)

    @property
    def label(self) -> str | None:
        """Of the queue in the directory; None if it is not there."""
        found = self.directory.queues.find(QUEUE.replace(".", MACHINE))
        return None if found is None else found.label

    def author(self, attribute: str) -> str:
        """Who wrote the queue, of which OpenLDAP keeps a record."""
        found = self.directory.queues.find(QUEUE.replace(".", MACHINE))
        assert found is not None and found.full_path is not None
        return (self.directory.connection.read(found.full_path, (attribute,)).first(attribute) or b"").decode()

    def shown(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.node.command("status", "--json").stdout)
        return status

    def obeys(self, weakened: bool) -> None:
        wait_until(lambda: self.shown()["weakened_security"] is weakened, 60, "the node has heard of it")


@pytest.fixture
def bench(directory_server: DirectoryServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="weak"))  # short: it has a socket in it
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    bench = Bench(directory_server, folder)
    try:
        bench.node.start()
        yield bench
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)


async def refused(work: Any, match: str) -> None:
    with pytest.raises(qmnode.MessageQueuingError, match=match) as error:
        await work
    assert error.value.code is ErrorCode.MQ_ERROR_ACCESS_DENIED


async def test_the_directory_sees_the_login_of_the_application_or_of_the_node(bench: Bench) -> None:
    anne, bob = bench.users.login(ANNE), bench.users.login(BOB)
    openldap = not bench.server.is_active_directory

    # Not weakened: the application's login counts.
    async with bench.connect(bob) as node:
        await refused(node.create_queue(QUEUE), "may not do this")
        assert bench.label is None and QUEUE.upper() not in str(await node.queues()).upper()
    async with bench.connect(DirectoryLogin(ANNE, "wrong")) as node:
        await refused(node.create_queue(QUEUE), f"no user '{ANNE}' with this password")
    async with bench.connect(anne) as node:
        await node.create_queue(QUEUE, label="first")
        await node.create_queue(r".\private$\own")  # of which the directory hears nothing
    assert bench.label == "first"
    if openldap:
        assert bench.author("creatorsName").lower().startswith(f"cn={ANNE},")
    async with bench.connect(bob) as node:
        await refused(node.set_queue(QUEUE, label="by Bob"), "may not do this")
        await refused(node.delete_queue(QUEUE), "may not do this")
        assert ((await node.queue(QUEUE)).label, bench.label) == ("first", "first")
    async with bench.connect(anne) as node:
        await node.set_queue(QUEUE, label="second")
    assert bench.label == "second"
    if openldap:
        assert bench.author("modifiersName").lower().startswith(f"cn={ANNE},")

    # Weakened: the node's, whoever asks.
    bench.apply(weakened_security=True)
    bench.obeys(True)
    assert bench.shown()["weakened_security_source"] == "directory"
    async with bench.connect(bob) as node:
        await node.set_queue(QUEUE, label="third")
        assert bench.label == "third"
        if openldap:
            assert bench.author("modifiersName").lower().startswith(f"cn={MACHINE},")
        await node.delete_queue(QUEUE)
    assert bench.label is None

    # At a restart without a new word of the directory, and back again.
    bench.node.stop()
    bench.node.start()
    assert bench.shown()["weakened_security"] is True
    bench.apply()
    bench.obeys(False)
    assert bench.shown()["weakened_security_source"] == "default"
    async with bench.connect(bob) as node:
        await refused(node.create_queue(QUEUE), "may not do this")
    async with bench.connect(DirectoryLogin(BOB, "wrong")) as node:
        for _ in range(10):
            await refused(node.create_queue(QUEUE), f"no user '{BOB}' with this password")
    async with bench.connect(bob) as node:
        await refused(node.create_queue(QUEUE), f"10 wrong passwords of {BOB} in a minute")
    async with bench.connect() as node:  # who brings no login has the node's
        await node.create_queue(QUEUE)
    assert bench.label == ""
    bench.directory.queues.delete(bench.directory.queues.find(QUEUE.replace(".", MACHINE)))


@OPENLDAP
async def test_commands_take_a_user_of_the_directory(bench: Bench) -> None:
    password = bench.folder / "password"
    password.touch(0o600)
    password.write_text(bench.users.login(BOB).password + "\n")
    login = ("--user", BOB, "--password-file", str(password))
    done = bench.node.command("queue", "create", "weak-orders", "--public", *login)
    assert done.returncode == 1 and "MQ_ERROR_ACCESS_DENIED" in done.stderr and "may not do this" in done.stderr
    for words, reason in (
        (("create", "weak-orders", *login), "give --public as well"),
        (("create", "weak-orders", "--public", *login[:2]), "give --password-file"),
        (("delete", QUEUE, "--yes", *login[2:]), "give --user as well"),
    ):
        done = bench.node.command("queue", *words)
        assert done.returncode == 2 and reason in " ".join(done.stderr.split()), done.stderr
    password.chmod(0o644)
    done = bench.node.command("queue", "create", "weak-orders", "--public", *login)
    assert done.returncode == 2 and bench.label is None, done.stderr
    password.chmod(0o600)
    bench.apply(weakened_security=True)
    bench.obeys(True)
    assert bench.node.command("queue", "create", "weak-orders", "--public", *login).returncode == 0
    assert bench.label == ""
    assert bench.node.command("queue", "delete", QUEUE, "--yes", *login).returncode == 0
    assert bench.label is None
    log = bench.node.said()
    assert bench.users.login(BOB).password not in log
