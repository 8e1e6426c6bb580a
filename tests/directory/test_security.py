"""Who may write what: each node binds as itself and writes its own subtree; access rights on queues."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mqenterprise.directory.authority import issue, load_authority
from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.errors import AccessRefused, DirectoryError
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.security_descriptors import (
    QUEUE_MANAGER_RIGHTS,
    QUEUE_RIGHTS,
    RightsTable,
    to_active_directory,
    to_message_queuing,
)
from mqenterprise.directory.settings import BindMethod
from mqenterprise.directory.slapd_configuration import NODE_UNIT
from qmnode.directory.port import Queue, QueueManager, Site
from qmnode.structures.security_descriptor import (
    AUTHENTICATED_USERS,
    EVERYONE,
    AceType,
    Acl,
    ObjectEntry,
    QueueAccess,
    QueueManagerAccess,
    SecurityDescriptor,
    Sid,
    allow,
    deny,
)
from tests.lab.directory_objects import change, create

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from tests.lab.samba import DomainController
    from tests.lab.servers import DirectoryServer

    Named = Callable[[str], str]

SECRET = "Node-Secret-1"


def described(*aces: object) -> bytes:
    return SecurityDescriptor(dacl=Acl.of(*aces)).write()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rights", "mask"),
    [
        (QUEUE_RIGHTS, QueueAccess.MQSEC_QUEUE_GENERIC_ALL),
        (QUEUE_RIGHTS, QueueAccess.MQSEC_QUEUE_GENERIC_READ),
        (QUEUE_RIGHTS, QueueAccess.MQSEC_QUEUE_GENERIC_WRITE),
        (QUEUE_RIGHTS, QueueAccess.MQSEC_PEEK_MESSAGE),
        (QUEUE_RIGHTS, QueueAccess.MQSEC_RECEIVE_JOURNAL_MESSAGE),
        (QUEUE_MANAGER_RIGHTS, QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL),
        (QUEUE_MANAGER_RIGHTS, QueueManagerAccess.MQSEC_MACHINE_GENERIC_WRITE),
        (QUEUE_MANAGER_RIGHTS, QueueManagerAccess.MQSEC_PEEK_DEADLETTER_MESSAGE),
    ],
)
def test_rights_survive_the_way_to_active_directory_and_back(rights: RightsTable, mask: int) -> None:
    there = to_active_directory(described(deny(AUTHENTICATED_USERS, mask), allow(EVERYONE, mask)), rights)
    back = SecurityDescriptor.parse(to_message_queuing(there, rights))

    assert back.dacl is not None
    masks: dict[tuple[int, str], int] = {}
    for ace in back.dacl.aces:
        key = (ace.ace_type, str(ace.entry.sid))  # type: ignore[union-attr]
        masks[key] = masks.get(key, 0) | ace.entry.mask  # type: ignore[union-attr]
    assert masks == {
        (AceType.ACCESS_DENIED, str(AUTHENTICATED_USERS)): int(mask),
        (AceType.ACCESS_ALLOWED, str(EVERYONE)): int(mask),
    }


def test_sending_is_the_extended_right_of_that_name() -> None:
    there = to_active_directory(described(allow(EVERYONE, QueueAccess.MQSEC_WRITE_MESSAGE)), QUEUE_RIGHTS)

    dacl = SecurityDescriptor.parse(there).dacl
    assert dacl is not None
    (ace,) = dacl.aces
    assert isinstance(ace.entry, ObjectEntry)
    assert ace.entry.object_type is not None
    assert bytes(ace.entry.object_type).hex() == "0232bd063edfd1119c86006008764d0e"


@pytest.mark.parametrize("junk", [b"", b"\x01\x00", b"\x01" * 19, bytes(20)])
def test_what_is_no_descriptor_is_said_to_be_none(junk: bytes) -> None:
    with pytest.raises(ValueError, match="SECURITY_DESCRIPTOR"):
        to_message_queuing(junk, QUEUE_RIGHTS)


@pytest.mark.servers
class TestNodes:
    @pytest.fixture
    def nodes(self, directory: EnterpriseDirectory, fresh_name: Named) -> tuple[QueueManager, QueueManager]:
        made = []
        for _ in range(2):
            node = directory.queue_managers.add(QueueManager(computer_name=fresh_name("NODE")))
            directory.queue_managers.set_password(node, SECRET)
            made.append(node)
        return made[0], made[1]

    @pytest.fixture
    def as_node(
        self, directory_server: DirectoryServer, nodes: tuple[QueueManager, QueueManager]
    ) -> Iterator[EnterpriseDirectory]:
        """The directory as the first node sees it."""
        user = (
            f"{nodes[0].computer_name}$@lab.test"
            if directory_server.is_active_directory
            else str(nodes[0].full_path).partition(",")[2]
        )
        settings = directory_server.settings_with(user=user, password=SECRET, password_file=None)
        with EnterpriseDirectory(settings) as opened:
            yield opened

    def test_a_node_reads_everything_and_writes_its_own_subtree(
        self,
        as_node: EnterpriseDirectory,
        directory: EnterpriseDirectory,
        nodes: tuple[QueueManager, QueueManager],
        fresh_name: Named,
    ) -> None:
        mine, other = nodes
        site = create(directory, Site(name=fresh_name("Site")))
        assert mine.identifier is not None and other.identifier is not None
        assert as_node.sites.find(site.name) is not None
        assert as_node.queue_managers.get(other.identifier).computer_name == other.computer_name

        changed = replace(mine, public_encryption_key_list=b"my key", queue_manager_version="7")
        as_node.queue_managers.modify(changed, ("public_encryption_key_list", "queue_manager_version"))
        queue = as_node.queues.add(Queue(pathname=f"{mine.computer_name}\\orders"))
        as_node.queues.modify(replace(queue, label="mine"), ("label",))
        as_node.queues.delete(queue)

        assert directory.queue_managers.get(mine.identifier).public_encryption_key_list == b"my key"

    def test_a_node_writes_nothing_else(
        self,
        as_node: EnterpriseDirectory,
        directory: EnterpriseDirectory,
        nodes: tuple[QueueManager, QueueManager],
        fresh_name: Named,
    ) -> None:
        _, other = nodes
        site = create(directory, Site(name=fresh_name("Site")))
        queue = directory.queues.add(Queue(pathname=f"{other.computer_name}\\orders"))
        computer = str(other.full_path).partition(",")[2]
        stolen = replace(other, public_encryption_key_list=b"my key")
        replaced = [Change(ChangeKind.REPLACE, "mSMQSignCertificates", (b"mine",))]

        for attempt in (
            lambda: as_node.queue_managers.modify(stolen, ("public_encryption_key_list",)),
            lambda: as_node.connection.modify(computer, replaced),
            lambda: as_node.queues.add(Queue(pathname=f"{other.computer_name}\\mine")),
            lambda: as_node.queues.modify(replace(queue, label="mine"), ("label",)),
            lambda: as_node.queues.delete(queue),
            lambda: as_node.connection.delete(computer, tree=True),
            lambda: as_node.connection.set_password(computer, "Taken-Over-1"),
            lambda: create(as_node, Site(name=fresh_name("Site"))),
            lambda: change(as_node, site, foreign_site=True),
            lambda: change(as_node, as_node.enterprise(), default_time_to_live=1),
            lambda: as_node.queue_managers.add(QueueManager(computer_name=fresh_name("NODE"))),
        ):
            with pytest.raises(AccessRefused):
                attempt()
        assert directory.queues.find(queue.pathname) is not None

    def test_a_node_creates_its_own_configuration_in_active_directory_alone(
        self, directory: EnterpriseDirectory, directory_server: DirectoryServer, fresh_name: Named
    ) -> None:
        name = fresh_name("SELF")
        dialect = directory.connection.dialect
        dn = f"CN={name},{dialect.contexts.computers}"
        directory.connection.add(dn, ("top", "computer"), dialect.account("computer", name))
        directory.connection.set_password(dn, SECRET)
        user = f"{name}$@lab.test" if directory_server.is_active_directory else dn

        settings = directory_server.settings_with(user=user, password=SECRET, password_file=None)
        with EnterpriseDirectory(settings) as as_node:
            if not directory_server.is_active_directory:
                # It would say of itself where it is: the private directory has administrators for that.
                with pytest.raises(AccessRefused):
                    as_node.queue_managers.add(QueueManager(computer_name=name))
                return
            made = as_node.queue_managers.add(QueueManager(computer_name=name))
            as_node.queue_managers.modify(replace(made, queue_manager_version="7"), ("queue_manager_version",))
            as_node.queues.add(Queue(pathname=f"{name}\\orders"))

        found = directory.queue_managers.find(name)
        assert found is not None and found.identifier == made.identifier

    def test_nobody_unknown_reads(self, directory_server: DirectoryServer, directory: EnterpriseDirectory) -> None:
        settings = directory_server.settings_with(
            bind=BindMethod.ANONYMOUS, user=None, password=None, password_file=None
        )

        with EnterpriseDirectory(settings) as stranger, pytest.raises(DirectoryError):
            stranger.enterprise()


@pytest.mark.servers
class TestAccessRights:
    def test_rights_on_a_queue_are_kept(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        node = directory.queue_managers.add(QueueManager(computer_name=fresh_name("NODE")))
        masks = {
            str(EVERYONE): QueueAccess.MQSEC_QUEUE_GENERIC_WRITE,
            str(AUTHENTICATED_USERS): QueueAccess.MQSEC_RECEIVE_MESSAGE,
        }
        wanted = described(*(allow(Sid.from_text(who), int(mask)) for who, mask in masks.items()))
        is_active = directory.connection.dialect.gives_guid
        stored = to_active_directory(wanted, QUEUE_RIGHTS) if is_active else wanted

        queue = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders"))
        directory.queues.modify(replace(queue, security=stored), ("security",))

        assert queue.identifier is not None
        found = directory.queues.get(queue.identifier).security
        assert found is not None
        meant = SecurityDescriptor.parse(to_message_queuing(found, QUEUE_RIGHTS) if is_active else found)
        kept: dict[str, int] = {}
        assert meant.dacl is not None
        for ace in meant.dacl.aces:
            if not ace.ace_flags & 0x10:  # what is inherited is the directory's own
                who = str(ace.entry.sid)  # type: ignore[union-attr]
                kept[who] = kept.get(who, 0) | ace.entry.mask  # type: ignore[union-attr]
        assert kept == {who: int(mask) for who, mask in masks.items()}


@pytest.mark.servers
class TestBinds:
    @pytest.mark.one_server(reason="Samba does not map client certificates")
    def test_a_client_certificate_is_the_node_that_it_names(
        self, slapd: EmbeddedDirectory, tmp_path: Path, fresh_name: Named
    ) -> None:
        name = fresh_name("NODE")
        with EnterpriseDirectory(slapd.client_settings()) as directory:
            node = directory.queue_managers.add(QueueManager(computer_name=name))
            other = directory.queue_managers.add(QueueManager(computer_name=fresh_name("NODE")))
        authority = load_authority(slapd.paths.authority, slapd.paths.tls / "ca.key")
        certificate, key = tmp_path / "node.pem", tmp_path / "node.key"
        issue(authority, name, (), authority.certificate.not_valid_before_utc, unit=NODE_UNIT).save(certificate, key)
        settings = slapd.client_settings().model_copy(
            update={
                "bind": BindMethod.EXTERNAL,
                "user": None,
                "password_file": None,
                "client_certificate": certificate,
                "client_key": key,
            }
        )

        with EnterpriseDirectory(settings) as as_node:
            as_node.queue_managers.modify(replace(node, queue_manager_version="7"), ("queue_manager_version",))
            with pytest.raises(AccessRefused):
                as_node.queue_managers.modify(replace(other, queue_manager_version="7"), ("queue_manager_version",))

    @pytest.mark.one_server(reason="only the private slapd has such a socket")
    def test_the_owner_of_the_process_administers_over_its_socket(self, slapd: EmbeddedDirectory) -> None:
        socket = str(slapd.paths.socket).replace("/", "%2F")
        settings = slapd.client_settings().model_copy(
            update={"servers": (f"ldapi://{socket}",), "bind": BindMethod.EXTERNAL, "user": None}
        )

        with EnterpriseDirectory(settings) as directory:
            enterprise = directory.enterprise()
            change(directory, enterprise, default_time_to_live=enterprise.default_time_to_live)

    @pytest.mark.one_server(reason="only a domain controller gives tickets")
    def test_a_kerberos_ticket_is_enough(
        self, domain_controller: DomainController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KRB5_CONFIG", str(domain_controller.krb5_conf))
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
        domain_controller.kinit()
        settings = domain_controller.settings(
            bind=BindMethod.GSSAPI, user=None, password=None, tls_name=domain_controller.host
        )

        with EnterpriseDirectory(settings) as directory:
            assert directory.enterprise().identifier is not None
