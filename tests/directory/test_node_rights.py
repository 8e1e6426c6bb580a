"""The private directory, attacked by a node with its own credentials: forty writes and more that it must not do."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import ldap3
import pytest

from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.errors import ConstraintViolated
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.slapd_configuration import (
    COMPUTER_ATTRIBUTES,
    CONFIGURATION_ATTRIBUTES,
    QUEUE_ATTRIBUTES,
)
from mqenterprise.keys.publication import ATTRIBUTES, Node, Publication
from mqenterprise.keys.rotation import Rotation
from qmnode.directory.port import Queue, QueueManager, RoutingLink, Site, User
from qmnode.security.key_stores import KeyPurpose, KeyState
from qmnode.security.published_keys import public_key_list
from qmnode.structures.guid import new_guid
from qmnode.structures.public_keys import MqUserSignCerts
from qmnode.structures.security_descriptor import Sid
from tests.keys.lab import Bench as KeyBench
from tests.lab.directory_objects import create
from tests.lab.servers import start_slapd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

pytestmark = [
    pytest.mark.servers,
    pytest.mark.one_server(reason="Active Directory has access lists of its own"),
]

INSUFFICIENT_ACCESS_RIGHTS: Final = 50
SECRET: Final = "Node-Secret-1"
ADMINISTRATOR: Final = Sid.from_text("S-1-5-21-1-2-3-500").write()
NEW_SID: Final = Sid.from_text("S-1-5-21-1-2-3-512").write()
"""Nobody's yet: it is not the uniqueness that refuses it."""
CERTIFICATES: Final = MqUserSignCerts(certificates=()).write()


@dataclass
class Lab:
    """The directory as its administrator and as the node ``me`` see it, and what there is in it."""

    administrator: EnterpriseDirectory
    node: EnterpriseDirectory
    me: QueueManager
    other: QueueManager
    site: Site
    link: RoutingLink
    user: User
    my_queue: Queue
    other_queue: Queue
    members: str
    raw: ldap3.Connection

    @property
    def my_computer(self) -> str:
        return computer_of(self.me)

    @property
    def my_configuration(self) -> str:
        return str(self.me.full_path)

    @property
    def users(self) -> str:
        return self.node.connection.dialect.contexts.users

    @property
    def computers(self) -> str:
        return self.node.connection.dialect.contexts.computers

    # As the node, past everything that this project's own client would check before it asks

    def write(self, dn: str, attribute: str, *values: bytes, kind: str = ldap3.MODIFY_REPLACE) -> int:
        self.raw.modify(dn, {attribute: [(kind, list(values))]})
        return int(self.raw.result["result"])

    def add(self, dn: str, *classes: str, **attributes: bytes) -> int:
        self.raw.add(dn, ["top", *classes], {"objectGUID": bytes(new_guid()), **attributes})
        return int(self.raw.result["result"])

    def delete(self, dn: str) -> int:
        self.raw.delete(dn)
        return int(self.raw.result["result"])

    def move(self, dn: str, name: str, under: str | None = None) -> int:
        self.raw.modify_dn(dn, name, new_superior=under)
        return int(self.raw.result["result"])


def computer_of(node: QueueManager) -> str:
    return str(node.full_path).partition(",")[2]


@pytest.fixture(scope="module")
def lab(slapd: EmbeddedDirectory) -> Iterator[Lab]:
    with EnterpriseDirectory(slapd.client_settings()) as administrator:
        sites = [create(administrator, Site(name=name)) for name in ("Rights1", "Rights2")]
        me, other = (
            administrator.queue_managers.add(QueueManager(computer_name=name)) for name in ("RIGHTS1", "RIGHTS2")
        )
        administrator.queue_managers.set_password(me, SECRET)
        ends = [site.identifier for site in sites]
        assert ends[0] is not None and ends[1] is not None
        link = create(administrator, RoutingLink(site1_identifier=ends[0], site2_identifier=ends[1], actual_cost=1))
        user = create(administrator, User(name="rights-boss", security_identifier=ADMINISTRATOR))
        queues = [administrator.queues.add(Queue(pathname=f"{each.computer_name}\\kept")) for each in (me, other)]
        group = f"rights-members-{new_guid().hex()[:8]}"
        members = f"CN={group},{administrator.connection.dialect.contexts.users}"
        administrator.connection.add(members, ("top", "group"), {"sAMAccountName": (group.encode(),)})
        settings = slapd.client_settings().model_copy(update={"user": computer_of(me), "password_file": None})
        own = type(settings).model_validate(settings.model_dump(exclude={"password"}) | {"password": SECRET})
        # Since Python 3.12, ldap3 looks for names alone in a certificate, and not for addresses.
        authority = str(slapd.paths.authority)
        trust = ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=authority, valid_names=["localhost"])
        server = ldap3.Server(slapd.url(slapd.settings), tls=trust)
        with (
            EnterpriseDirectory(own) as node,
            ldap3.Connection(server, computer_of(me), SECRET, auto_bind=True, check_names=False) as raw,
        ):
            yield Lab(administrator, node, me, other, sites[0], link, user, *queues, members, raw)


FORBIDDEN: Final[dict[str, Callable[[Lab], int]]] = {
    # Where it is, and what it does for others
    "its own sites": lambda lab: lab.write(lab.my_configuration, "mSMQSites", bytes(lab.site.identifier or b"")),
    "itself a routing server": lambda lab: lab.write(lab.my_configuration, "mSMQRoutingServices", b"TRUE"),
    "itself a directory server": lambda lab: lab.write(lab.my_configuration, "mSMQDsServices", b"TRUE"),
    "itself a supporting server": lambda lab: lab.write(lab.my_configuration, "mSMQDependentClientServices", b"TRUE"),
    "its type of service": lambda lab: lab.write(lab.my_configuration, "mSMQServiceType", b"1"),
    "itself a foreign system": lambda lab: lab.write(lab.my_configuration, "mSMQForeign", b"TRUE"),
    "its out-routing servers": lambda lab: lab.write(
        lab.my_configuration, "mSMQOutRoutingServers", str(lab.other.full_path).encode()
    ),
    "its in-routing servers": lambda lab: lab.write(
        lab.my_configuration, "mSMQInRoutingServers", str(lab.other.full_path).encode()
    ),
    "its quota": lambda lab: lab.write(lab.my_configuration, "mSMQQuota", b"4294967295"),
    "its GUID": lambda lab: lab.write(lab.my_configuration, "objectGUID", bytes(new_guid())),
    "its access list": lambda lab: lab.write(lab.my_configuration, "nTSecurityDescriptor", b"\1"),
    "its owner": lambda lab: lab.write(lab.my_configuration, "mSMQOwnerID", ADMINISTRATOR),
    "its mark of who made it": lambda lab: lab.write(lab.my_computer, "adminDescription", b"mine"),
    "a second class of its configuration": lambda lab: lab.write(
        lab.my_configuration, "objectClass", b"extensibleObject", kind=ldap3.MODIFY_ADD
    ),
    "itself out of the directory": lambda lab: lab.delete(lab.my_configuration),
    # Who it is
    "its host's name": lambda lab: lab.write(lab.my_computer, "dNSHostName", b"directory.lab.test"),
    "a SID of its own": lambda lab: lab.write(lab.my_computer, "objectSid", NEW_SID),
    "an account name": lambda lab: lab.write(lab.my_computer, "sAMAccountName", b"administrator"),
    "service principal names": lambda lab: lab.write(
        lab.my_computer, "servicePrincipalName", b"ldap/directory.lab.test"
    ),
    "a user principal name": lambda lab: lab.write(lab.my_computer, "userPrincipalName", b"boss@lab.test"),
    "flags of its account": lambda lab: lab.write(lab.my_computer, "userAccountControl", b"8192"),
    "its password": lambda lab: lab.write(lab.my_computer, "userPassword", b"Another-1"),
    # Users, groups and SIDs
    "a user": lambda lab: lab.add(f"CN=rights-new,{lab.users}", "user"),
    "a user beneath itself, with a group's SID": lambda lab: lab.add(
        f"CN=Eve,{lab.my_computer}", "user", objectSid=NEW_SID
    ),
    "a user beneath its configuration": lambda lab: lab.add(
        f"CN=Eve,{lab.my_configuration}", "user", objectSid=NEW_SID
    ),
    "a group beneath its configuration": lambda lab: lab.add(f"CN=Eve,{lab.my_configuration}", "group"),
    "a computer beneath its configuration": lambda lab: lab.add(f"CN=Eve,{lab.my_configuration}", "computer"),
    "a group": lambda lab: lab.add(f"CN=Rights New,{lab.users}", "group"),
    "membership of a group": lambda lab: lab.write(
        lab.members, "member", lab.my_computer.encode(), kind=ldap3.MODIFY_ADD
    ),
    "the administrators' group": lambda lab: lab.add(
        f"CN=MSMQ Administrators,{lab.users}", "group", member=lab.my_computer.encode()
    ),
    "certificates of a user": lambda lab: lab.write(str(lab.user.full_path), "mSMQSignCertificates", CERTIFICATES),
    "another computer": lambda lab: lab.add(f"CN=EVE,{lab.computers}", "computer"),
    # Queues
    "a queue with the password of an account": lambda lab: lab.add(
        f"CN=eve,{lab.my_configuration}", "mSMQQueue", "simpleSecurityObject", userPassword=b"secret"
    ),
    "a queue of any attributes": lambda lab: lab.add(
        f"CN=eve,{lab.my_configuration}", "mSMQQueue", "extensibleObject", objectSid=NEW_SID
    ),
    "a queue of a second class": lambda lab: lab.add(f"CN=eve,{lab.my_configuration}", "mSMQQueue", "extensibleObject"),
    "any attributes of its queue": lambda lab: lab.write(
        str(lab.my_queue.full_path), "objectClass", b"extensibleObject", kind=ldap3.MODIFY_ADD
    ),
    "the GUID of its queue": lambda lab: lab.write(str(lab.my_queue.full_path), "objectGUID", bytes(new_guid())),
    "something beneath its queue": lambda lab: lab.add(f"CN=eve,{lab.my_queue.full_path}", "container"),
    "a queue beneath its computer": lambda lab: lab.add(f"CN=eve,{lab.my_computer}", "mSMQQueue"),
    "a queue of another node": lambda lab: lab.add(f"CN=eve,{lab.other.full_path}", "mSMQQueue"),
    "another node's queue, changed": lambda lab: lab.write(str(lab.other_queue.full_path), "mSMQLabelEx", b"mine"),
    "another node's queue, deleted": lambda lab: lab.delete(str(lab.other_queue.full_path)),
    # Others
    "its queue, moved among the users": lambda lab: lab.move(str(lab.my_queue.full_path), "CN=kept", lab.users),
    "its queue under another name": lambda lab: lab.move(str(lab.my_queue.full_path), "CN=other"),
    "another node's queue, moved to itself": lambda lab: lab.move(
        str(lab.other_queue.full_path), "CN=taken", lab.my_configuration
    ),
    "its computer under another name": lambda lab: lab.move(lab.my_computer, "CN=EVE"),
    "another node's key": lambda lab: lab.write(str(lab.other.full_path), "mSMQEncryptKey", b"mine"),
    "another node's certificates": lambda lab: lab.write(computer_of(lab.other), "mSMQSignCertificates", CERTIFICATES),
    "another node's password": lambda lab: lab.write(computer_of(lab.other), "userPassword", b"Another-1"),
    "a site": lambda lab: lab.add(f"CN=Rights3,{lab.node.connection.dialect.contexts.sites}", "site"),
    "a site's properties": lambda lab: lab.write(str(lab.site.full_path), "mSMQSiteForeign", b"TRUE"),
    "a routing link's gates": lambda lab: lab.write(
        str(lab.link.full_path), "mSMQSiteGates", lab.my_configuration.encode()
    ),
    "a routing link's cost": lambda lab: lab.write(str(lab.link.full_path), "mSMQCost", b"1"),
    "a routing link": lambda lab: lab.delete(str(lab.link.full_path)),
    "settings of the enterprise": lambda lab: lab.write(
        lab.node.connection.dialect.contexts.enterprise, "mSMQLongLived", b"1"
    ),
}


@pytest.mark.parametrize("write", FORBIDDEN)
def test_a_node_does_not_write(lab: Lab, write: str) -> None:
    assert FORBIDDEN[write](lab) == INSUFFICIENT_ACCESS_RIGHTS


def test_forty_writes_are_tried() -> None:
    assert len(FORBIDDEN) >= 40


class TestWhatItMustWrite:
    def test_keys_are_published_and_rotated(self, lab: Lab) -> None:
        assert lab.me.identifier is not None
        publication = Publication(lab.node)
        node = Node(lab.me.computer_name, lab.me.identifier, lab.my_configuration)

        for key in (b"first", b"second"):
            shown = publication.read(node)
            assert publication.replace(node, shown, dict.fromkeys(ATTRIBUTES, key))

        assert publication.read(node).lists[KeyPurpose.ENCRYPTION] == b"second"

    async def test_a_whole_rotation_works_and_gives_no_other_right(self, lab: Lab, tmp_path: Path) -> None:
        assert lab.me.identifier is not None
        bench, publication = KeyBench(tmp_path), Publication(lab.node)
        node = Node(lab.me.computer_name, lab.me.identifier, lab.my_configuration)
        empty = {purpose: public_key_list((), purpose) for purpose in ATTRIBUTES}
        assert publication.replace(node, publication.read(node), empty)
        bench.rotation = Rotation(node, bench.store, publication, bench.waiting, bench.clock)

        await bench.rotate()
        bench.clock.now += 1000
        await bench.rotate()

        assert (await bench.states())[:2] == [KeyState.CURRENT, KeyState.PREVIOUS]
        new, old = await bench.pairs()
        seen = Publication(lab.administrator).read(node).fingerprints
        assert new.fingerprint in seen and old.fingerprint not in seen
        assert {write(lab) for write in FORBIDDEN.values()} == {INSUFFICIENT_ACCESS_RIGHTS}

    def test_certificates_and_the_version_are_its_own(self, lab: Lab) -> None:
        changed = replace(lab.me, public_signing_key_list=CERTIFICATES, queue_manager_version="7")

        lab.node.queue_managers.modify(changed, ("public_signing_key_list", "queue_manager_version"))

        assert lab.administrator.queue_managers.at(lab.my_configuration).queue_manager_version == "7"

    @pytest.mark.parametrize("name", ["orders", "a, b = c + d", "Aufträge", "a" * 100])
    def test_queues_come_change_and_go(self, lab: Lab, name: str) -> None:
        full = Queue(
            pathname=f"{lab.me.computer_name}\\{name}",
            label="before",
            type=new_guid(),
            journaling=True,
            quota=17,
            journal_quota=18,
            authentication=True,
            transactional=True,
            multicast_address="234.1.1.1:8001",
            base_priority=3,
            security=b"\1",
        )
        made = lab.node.queues.add(full)
        assert made.identifier is not None

        lab.node.queues.modify(replace(made, label="after", quota=19, base_priority=4, security=b"\2"))
        found = lab.administrator.queues.get(made.identifier)
        assert (found.label, found.base_priority, found.security) == ("after", 4, b"\2")
        lab.node.queues.delete(made)

        assert lab.administrator.queues.find(full.pathname) is None

    def test_an_administrator_takes_its_queue_away(self, lab: Lab) -> None:
        made = lab.node.queues.add(Queue(pathname=f"{lab.me.computer_name}\\brief"))

        lab.administrator.queues.delete(made)

        assert lab.node.queues.find(made.pathname) is None

    def test_each_attribute_can_be_replaced(self, lab: Lab) -> None:
        queue = lab.node.queues.add(Queue(pathname=f"{lab.me.computer_name}\\every"))
        values = {
            "mSMQJournal": b"TRUE",
            "mSMQAuthenticate": b"TRUE",
            "mSMQTransactional": b"TRUE",
            "mSMQDigests": b"\1" * 16,
        }
        numbers = {
            "mSMQQueueQuota",
            "mSMQQueueJournalQuota",
            "mSMQAuthenticate",
            "mSMQPrivacyLevel",
            "mSMQBasePriority",
        }
        places = {
            lab.my_computer: COMPUTER_ATTRIBUTES,
            lab.my_configuration: CONFIGURATION_ATTRIBUTES,
            str(queue.full_path): QUEUE_ATTRIBUTES,
        }

        for dn, attributes in places.items():
            for attribute in attributes:
                value = values.get(attribute, b"1" if attribute in numbers else b"1" * 16)
                assert lab.write(dn, attribute, value) == 0, attribute
        lab.node.queues.delete(queue)


def test_a_security_identifier_is_there_once(lab: Lab) -> None:
    with pytest.raises(ConstraintViolated):
        create(lab.administrator, User(name="rights-twin", security_identifier=ADMINISTRATOR))
    with pytest.raises(ConstraintViolated):
        lab.administrator.connection.modify(lab.members, [Change(ChangeKind.REPLACE, "objectSid", (ADMINISTRATOR,))])

    assert lab.administrator.users.find("rights-twin") is None


def test_a_directory_of_before_gets_these_rules_when_it_is_started(open_folder: Path) -> None:
    embedded = start_slapd(open_folder / "state")
    try:
        embedded.stop()
        for file in (embedded.paths.configuration / "cn=config").glob("olcDatabase={1}*.ldif"):
            lines = file.read_text().splitlines()
            file.write_text("\n".join(line for line in lines if not line.startswith("olcAddContentAcl")) + "\n")
        (embedded.paths.configuration / "digest").unlink()

        embedded.start()

        (file,) = (embedded.paths.configuration / "cn=config").glob("olcDatabase={1}*.ldif")
        assert "olcAddContentAcl: TRUE" in file.read_text()
        with EnterpriseDirectory(embedded.client_settings()) as directory:
            directory.prepare()
    finally:
        embedded.stop()
