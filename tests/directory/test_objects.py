"""Every object of MS-MQDSSM 2.2.1 on both real servers: created, found, read back equal, changed, deleted."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mqenterprise.directory.errors import ConstraintViolated, ObjectAlreadyExists, ObjectNotFound
from qmnode.directory.port import (
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    User,
    equals,
)
from qmnode.objects.table import OperatingSystemType
from qmnode.structures.enumerations import QueuePrivacyLevel
from qmnode.structures.guid import Guid, new_guid
from tests.lab.directory_objects import change, create, delete

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqenterprise.directory.open_directory import EnterpriseDirectory

    Named = Callable[[str], str]

pytestmark = pytest.mark.servers


def certificates(*contents: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """An MQUSERSIGNCERTS structure and its digests."""
    digests = tuple(bytes([number]) * 16 for number in range(1, len(contents) + 1))
    packed = b"".join(
        digest + bytes(16) + struct.pack("<I", len(content)) + content
        for digest, content in zip(digests, contents, strict=True)
    )
    return struct.pack("<I", len(contents)) + packed, digests


def new_site(directory: EnterpriseDirectory, fresh_name: Named) -> tuple[Site, Guid]:
    site = create(directory, Site(name=fresh_name("Site")))
    assert site.identifier is not None
    return site, site.identifier


def machine(directory: EnterpriseDirectory, fresh_name: Named, **more: object) -> QueueManager:
    return directory.queue_managers.add(QueueManager(computer_name=fresh_name("NODE"), **more))  # type: ignore[arg-type]


class TestEnterprise:
    def test_it_is_there_once_the_directory_is_prepared(self, directory: EnterpriseDirectory) -> None:
        enterprise = directory.prepare()

        assert enterprise.identifier is not None
        assert enterprise.name == directory.connection.root
        assert directory.prepare() == enterprise

    def test_its_settings_are_written(self, directory: EnterpriseDirectory) -> None:
        before = directory.enterprise()
        values: dict[str, Any] = {
            "weakened_security": True,
            "non_ldap_capable_queue_manager_notification": False,
            "default_time_to_live": 0xFFFF_FFFE,
        }

        change(directory, before, **values)

        assert directory.enterprise() == replace(before, **values)
        change(directory, before, **{name: getattr(before, name) for name in values})
        assert directory.enterprise() == before


class TestSite:
    def test_created_found_changed_and_deleted(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        site = create(
            directory,
            Site(
                name=fresh_name("Site"),
                intra_site_replication_interval=3,
                inter_site_replication_interval=20,
            ),
        )
        assert site.identifier is not None

        assert directory.sites.get(site.identifier) == site
        assert directory.sites.find(site.name) == directory.sites.get(site.identifier)

        change(directory, site, inter_site_replication_interval=30)
        assert directory.sites.get(site.identifier).inter_site_replication_interval == 30

        delete(directory, site)
        assert directory.sites.find(site.name) is None
        with pytest.raises(ObjectNotFound):
            directory.sites.get(site.identifier)

    def test_a_foreign_site_is_found_as_one(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        foreign = create(directory, Site(name=fresh_name("Foreign"), foreign_site=True))
        own = create(directory, Site(name=fresh_name("Own")))

        found = {site.name for site in directory.sites.list(equals("foreign_site", True))}

        assert foreign.name in found
        assert own.name not in found

    def test_a_site_that_others_made_has_the_defaults(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        name = fresh_name("Plain")
        directory.connection.add(f"CN={name},{directory.connection.dialect.contexts.sites}", ("top", "site"), {})

        site = directory.sites.find(name)

        assert site is not None
        assert (site.intra_site_replication_interval, site.inter_site_replication_interval) == (2, 10)
        assert not site.foreign_site

    def test_a_name_is_given_once(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        site, _ = new_site(directory, fresh_name)

        with pytest.raises(ObjectAlreadyExists):
            create(directory, Site(name=site.name))


class TestRoutingLink:
    def test_created_found_changed_and_deleted(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        _, one_id = new_site(directory, fresh_name)
        _, two_id = new_site(directory, fresh_name)
        gate = machine(directory, fresh_name, site_identifier_list=(one_id,), routing_server=True)
        assert gate.identifier is not None

        link = create(
            directory,
            RoutingLink(
                site1_identifier=one_id,
                site2_identifier=two_id,
                actual_cost=999_999,
                site_gate_identifier_list=(gate.identifier,),
                description="the slow one",
            ),
        )

        assert link.identifier is not None
        assert directory.routing_links.get(link.identifier) == link
        assert link in list(directory.routing_links.list())
        assert link in list(directory.routing_links.list(equals("actual_cost", link.actual_cost)))

        change(directory, link, actual_cost=1, site_gate_identifier_list=(), description="")
        changed = directory.routing_links.get(link.identifier)
        assert (changed.actual_cost, changed.site_gate_identifier_list, changed.description) == (1, (), "")

        delete(directory, link)
        assert link.identifier not in [one.identifier for one in directory.routing_links.list()]

    def test_a_gate_that_is_gone_does_not_take_the_link_along(
        self, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        _, one_id = new_site(directory, fresh_name)
        _, two_id = new_site(directory, fresh_name)
        gate = machine(directory, fresh_name)
        assert gate.identifier is not None
        link = create(
            directory,
            RoutingLink(
                site1_identifier=one_id,
                site2_identifier=two_id,
                actual_cost=1,
                site_gate_identifier_list=(gate.identifier,),
            ),
        )
        assert link.identifier is not None

        delete(directory, gate)

        assert directory.routing_links.get(link.identifier) == replace(link, site_gate_identifier_list=())


class TestQueueManager:
    def test_created_found_changed_and_deleted(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        _, one_id = new_site(directory, fresh_name)
        _, two_id = new_site(directory, fresh_name)
        server = machine(directory, fresh_name, site_identifier_list=(one_id,), routing_server=True)
        assert server.identifier is not None
        name = fresh_name("NODE")
        node = directory.queue_managers.add(
            QueueManager(
                computer_name=name,
                qualified_computer_name=f"{name.lower()}.lab.test",
                queue_manager_version="6.3",
                operating_system_version="12",
                operating_system_type=OperatingSystemType.FOREIGN,
                queue_manager_quota=0xFFFF_FFFF,
                journal_quota=1000,
                site_identifier_list=(one_id, two_id),
                public_encryption_key_list=b"\x00\x01keys",
                public_signing_key_list=certificates(b"first", b"second")[0],
            )
        )
        assert node.identifier is not None
        routed: dict[str, Any] = {
            "out_routing_server_identifier_list": (server.identifier,),
            "in_routing_server_identifier_list": (server.identifier,),
        }
        change(directory, node, **routed)

        found = directory.queue_managers.get(node.identifier)
        assert found.create_time is not None and found.modify_time is not None
        assert set(found.site_identifier_list) == {one_id, two_id}  # the directory keeps a set
        comparable = replace(found, create_time=None, modify_time=None, security=None)
        assert replace(comparable, site_identifier_list=(one_id, two_id)) == replace(node, **routed)
        assert directory.queue_managers.find(name) == found
        assert found in list(directory.queue_managers.list(equals("site_identifier_list", two_id)))

        changed = replace(
            found, queue_manager_quota=5, out_routing_server_identifier_list=(), public_encryption_key_list=None
        )
        directory.queue_managers.modify(
            changed, ("queue_manager_quota", "out_routing_server_identifier_list", "public_encryption_key_list")
        )
        after = directory.queue_managers.get(node.identifier)
        assert replace(after, modify_time=None) == replace(changed, modify_time=None)

        delete(directory, node)
        assert directory.queue_managers.find(name) is None

    def test_certificates_are_written_with_their_digests(
        self, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        signing, digests = certificates(b"one", b"two", b"three")

        node = machine(directory, fresh_name, public_signing_key_list=signing)

        computer = directory.connection.read(str(node.full_path).partition(",")[2], ("mSMQDigests",))
        assert set(computer.attributes["msmqdigests"]) == set(digests)

    def test_nothing_is_left_behind(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        site, site_id = new_site(directory, fresh_name)
        server = machine(directory, fresh_name, site_identifier_list=(site_id,), routing_server=True)
        directory.queues.add(Queue(pathname=f"{server.computer_name}\\orders"))

        delete(directory, server)

        for base in (directory.connection.dialect.contexts.domain, str(site.full_path)):
            left = directory.connection.search(base, f"(cn={server.computer_name})", ("1.1",))
            assert list(left) == []

    def test_a_computer_that_others_made_is_kept(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        name = fresh_name("JOINED")
        dn = f"CN={name},{directory.connection.dialect.contexts.computers}"
        account = directory.connection.dialect.account("computer", name)
        directory.connection.add(dn, ("top", "computer"), account)

        node = directory.queue_managers.add(QueueManager(computer_name=name))
        delete(directory, node)

        assert directory.connection.read(dn).dn.lower() == dn.lower()

    def test_a_computer_outside_its_container_is_found(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        domain = directory.connection.dialect.contexts.domain
        unit, name = fresh_name("unit"), fresh_name("NODE")
        directory.connection.add(f"OU={unit},{domain}", ("top", "organizationalUnit"), {})
        account = directory.connection.dialect.account("computer", name)
        directory.connection.add(f"CN={name},OU={unit},{domain}", ("top", "computer"), account)

        node = directory.queue_managers.add(QueueManager(computer_name=name))
        queue = directory.queues.add(Queue(pathname=f"{name}\\orders"))

        assert f"OU={unit}" in str(node.full_path)
        assert directory.queue_managers.find(name) == directory.queue_managers.at(str(node.full_path))
        found = directory.queues.find(f"{name}\\orders")
        assert found is not None and found.identifier == queue.identifier


class TestQueue:
    def test_created_found_changed_and_deleted(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        node = machine(directory, fresh_name)
        service_type = new_guid()
        queue = directory.queues.add(
            Queue(
                pathname=f"{node.computer_name}\\Orders".lower(),
                label="Orders of the day",
                type=service_type,
                journaling=True,
                quota=2000,
                journal_quota=1000,
                authentication=True,
                privacy_level=QueuePrivacyLevel.BODY,
                transactional=True,
                multicast_address="234.1.1.1:8001",
                base_priority=-3,
            )
        )
        assert queue.identifier is not None

        found = directory.queues.get(queue.identifier)
        assert found.create_time is not None and found.modify_time is not None
        assert replace(found, create_time=None, modify_time=None, security=None, full_path=queue.full_path) == queue
        assert directory.queues.find(queue.pathname.upper()) == found
        assert found in list(directory.queues.list(equals("type", service_type)))
        assert found in list(directory.queues.list(equals("label", "orders OF the day")))
        assert found in list(directory.queues.list(equals("pathname", queue.pathname)))

        directory.queues.modify(replace(found, label="", quota=0xFFFF_FFFF, journaling=False))
        changed = directory.queues.get(queue.identifier)
        assert (changed.label, changed.quota, changed.journaling, changed.base_priority) == ("", 0xFFFF_FFFF, False, -3)

        directory.queues.delete(queue)
        assert directory.queues.find(queue.pathname) is None

    @pytest.mark.parametrize("length", [63, 64, 100, 147])
    def test_a_long_name_is_split_and_joined(
        self, directory: EnterpriseDirectory, fresh_name: Named, length: int
    ) -> None:
        node = machine(directory, fresh_name)
        pathname = f"{node.computer_name}\\{'q' * (length - 1)}x".lower()

        queue = directory.queues.add(Queue(pathname=pathname))

        assert queue.identifier is not None
        assert directory.queues.get(queue.identifier).pathname == pathname
        found = directory.queues.find(pathname)
        assert found is not None and found.identifier == queue.identifier

    def test_a_name_that_is_too_long_is_refused(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        node = machine(directory, fresh_name)

        with pytest.raises(ConstraintViolated, match="148 UTF-16 units"):
            directory.queues.add(Queue(pathname=f"{node.computer_name}\\{'q' * 148}"))

    def test_a_name_of_a_subqueue_is_refused(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        node = machine(directory, fresh_name)

        with pytest.raises(ConstraintViolated, match="what follows a semicolon is a subqueue"):
            directory.queues.add(Queue(pathname=f"{node.computer_name}\\a;b"))

    @pytest.mark.parametrize(
        "name",
        ["a,b", "a+b", 'a"b"', "a=b", "#a", "a#b", "a<b>c", "a b", "Grüße", "заказы", "注文", "a*b(c)", "a/b"],
    )
    def test_a_name_with_special_letters(self, directory: EnterpriseDirectory, fresh_name: Named, name: str) -> None:
        node = machine(directory, fresh_name)
        pathname = f"{node.computer_name}\\{name}".lower()

        queue = directory.queues.add(Queue(pathname=pathname, label=name))

        assert queue.identifier is not None
        assert directory.queues.get(queue.identifier).pathname == pathname
        found = directory.queues.find(pathname)
        assert found is not None and found.identifier == queue.identifier
        labelled = directory.queues.list(equals("label", name))
        assert pathname in [other.pathname for other in labelled]
        directory.queues.delete(found)
        assert directory.queues.find(pathname) is None

    def test_two_queues_of_one_name_are_refused(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        node = machine(directory, fresh_name)
        queue = directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders"))

        with pytest.raises(ObjectAlreadyExists):
            directory.queues.add(Queue(pathname=f"{node.computer_name}\\ORDERS"))
        assert [found.identifier for found in directory.queues.of(node.computer_name)] == [queue.identifier]

    def test_a_computer_without_queue_manager_is_named(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        name = fresh_name("NOBODY")

        with pytest.raises(ObjectNotFound, match=name):
            directory.queues.add(Queue(pathname=f"{name}\\orders"))
        assert directory.queues.find(f"{name}\\orders") is None


def test_an_identifier_of_another_kind_of_object_is_nobodys(directory: EnterpriseDirectory, fresh_name: Named) -> None:
    _, site_id = new_site(directory, fresh_name)

    for repository in (directory.queues, directory.queue_managers, directory.routing_links, directory.users):
        with pytest.raises(ObjectNotFound):
            repository.get(site_id)


class TestUser:
    def test_created_found_changed_and_deleted(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        name = fresh_name("user")
        user = create(directory, User(name=name))
        assert user.identifier is not None

        assert directory.users.find(name) == user
        packed, digests = certificates(b"of the user")
        change(directory, user, certificates=packed, certificate_digest_list=digests)
        changed = directory.users.get(user.identifier)
        assert (changed.certificates, changed.certificate_digest_list) == (packed, digests)
        by_digest = list(directory.users.list(equals("certificate_digest_list", digests[0])))
        assert name in [found.name for found in by_digest]

        delete(directory, user)
        assert directory.users.find(name) is None

    def test_computers_are_not_users(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        node = machine(directory, fresh_name)

        names = {user.name.rstrip("$") for user in directory.users.list()}

        assert node.computer_name not in names
