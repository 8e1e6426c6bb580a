"""Access lists of sites and of the enterprise on both servers: who may change them and create objects in them."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.errors import AccessRefused, DirectoryError
from mqenterprise.directory.gateway import CREATED_MARK, SECURITY, FencedWriter
from mqenterprise.directory.ldap_names import child, parent_of
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.settings import ServerKind
from mqenterprise.topology.apply import ApplyError, apply_declared, plan_declared
from mqenterprise.topology.check import load
from mqenterprise.topology.export import export
from mqenterprise.topology.ldap_target import LdapTarget
from tests.effects.binds import ANNE, BOB, Users
from tests.topology.conftest import Silent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.servers import DirectoryServer

pytestmark = [pytest.mark.servers]
OPENLDAP = pytest.mark.parametrize("directory_server", [ServerKind.OPENLDAP], indirect=True, ids=["slapd"])

SEEN = [{"to": "Everyone", "allow": ["get_properties", "get_permissions"]}]
"""What nodes need, and no right to change anything."""


class Bench:
    """A declared enterprise with two sites and two users."""

    def __init__(self, server: DirectoryServer, folder: Path) -> None:
        self.folder = folder
        self.directory = EnterpriseDirectory(server.settings)
        self.target = LdapTarget(self.directory)
        self.users = Users(self.directory, server.settings)

    def apply(self, site: Any = None, enterprise: Any = None, *, empty: bool = False) -> None:
        lists = [{} if one is None else {"access": one} for one in (enterprise, site)]
        declared = {
            "enterprise": {"name": "Lists", **lists[0]},
            "sites": [{"name": "acl-listed", **lists[1]}, {"name": "acl-other"}],
            "users": [{"name": name} for name in (ANNE, BOB)],
        }
        file = self.folder / "enterprise.yaml"
        file.write_text(yaml.safe_dump({"enterprise": {"name": "Lists", **lists[0]}} if empty else declared))
        apply_declared(load(file), self.target, Silent(), prune=True, patience=60)
        if not empty:
            assert plan_declared(load(file), self.target, prune=True).steps == ()


@pytest.fixture
def lists(directory_server: DirectoryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    bench = Bench(directory_server, tmp_path)
    connection = bench.directory.connection
    enterprise = connection.dialect.contexts.enterprise
    first = connection.read(enterprise, (SECURITY,)).attributes.get(SECURITY.lower(), ())
    try:
        bench.apply()
        bench.users.let_in()
        yield bench
    finally:
        bench.apply(enterprise=SEEN, empty=True)
        connection.modify(enterprise, [Change(ChangeKind.REPLACE, SECURITY, tuple(first))])
        bench.directory.close()


def test_the_list_of_a_site_says_who_changes_it_and_adds_servers(lists: Bench) -> None:
    users = lists.users
    assert users.changes_a_site("acl-listed") == users.adds_a_server("acl-listed") == []

    lists.apply(site=[{"to": ANNE, "allow": ["set_properties"]}, {"to": BOB, "allow": ["create_machine"]}])
    assert users.changes_a_site("acl-listed") == [ANNE]
    assert users.adds_a_server("acl-listed") == [BOB]
    assert users.changes_a_site("acl-other") == users.adds_a_server("acl-other") == []

    lists.apply(site=[{"to": "Everyone", "allow": ["set_properties"]}, {"to": ANNE, "deny": ["set_properties"]}])
    assert users.changes_a_site("acl-listed") == [BOB]
    assert users.adds_a_server("acl-listed") == []

    lists.apply()
    assert users.changes_a_site("acl-listed") == [BOB], "a list that is not declared stays"
    lists.apply(site=[])
    assert users.changes_a_site("acl-listed") == users.adds_a_server("acl-listed") == []


def test_the_list_of_the_enterprise_says_who_changes_it_and_creates_links(lists: Bench) -> None:
    users = lists.users
    rights = {ANNE: "set_properties", BOB: "create_routing_link"}
    lists.apply(enterprise=[*SEEN, *({"to": name, "allow": [right]} for name, right in rights.items())])
    assert users.changes_the_enterprise() == [ANNE]
    assert users.links("acl-listed", "acl-other") == [BOB]
    assert users.changes_a_site("acl-listed") == []

    lists.apply(enterprise=[*SEEN, {"to": BOB, "allow": ["set_properties"]}])
    assert users.changes_the_enterprise() == [BOB]
    assert users.links("acl-listed", "acl-other") == []

    lists.apply(enterprise=SEEN)
    assert users.changes_the_enterprise() == users.links("acl-listed", "acl-other") == []


def test_nobody_gives_himself_rights(lists: Bench) -> None:
    both = [{"to": name, "allow": ["set_properties"]} for name in (ANNE, BOB)]
    lists.apply(
        site=[*both[:1], {"to": BOB, "allow": ["create_machine", "get_properties"]}],
        enterprise=[*SEEN, *both[:1], {"to": BOB, "allow": ["create_routing_link"]}],
    )
    for dn in (lists.users.site("acl-listed"), lists.directory.connection.dialect.contexts.enterprise):
        assert lists.users.takes_a_list(dn) == []


CREATES = [{"to": BOB, "allow": ["create_routing_link"]}]
EVERYONE_CREATES = {"to": "Everyone", "allow": ["get_properties", "get_permissions", "create_routing_link"]}
REGISTERS = [{"to": BOB, "allow": ["create_machine"]}]


def test_who_may_create_changes_nothing_that_exists(lists: Bench) -> None:
    users, connection = lists.users, lists.directory.connection
    lists.apply(site=REGISTERS, enterprise=[*SEEN, *CREATES])
    server = child("acl-server", child("Servers", users.site("acl-listed")))
    settings = child("MSMQ Settings", server)
    link, ends = users.link("acl-listed", "acl-other")
    connection.add(server, ("top", "server"), {})
    connection.add(settings, ("top", "mSMQSettings"), {"mSMQQMID": (bytes(16),)})
    connection.add(link, ("top", "mSMQSiteLink"), ends)
    try:
        assert users.adds(link, "mSMQSiteGates", server.encode()) == []
        assert users.adds(link, "description", b"mine") == []
        assert users.adds(server, "adminDescription", CREATED_MARK) == []
        assert users.adds(settings, "mSMQServices", b"0") == []
        assert users.adds(settings, "mSMQDsService", b"TRUE") == []
    finally:
        for dn in (link, settings, server):
            connection.delete(dn)


@OPENLDAP
def test_the_creator_of_a_link_adds_nothing_to_it_later(lists: Bench) -> None:
    lists.apply(enterprise=[*SEEN, *CREATES])
    link, ends = lists.users.link("acl-listed", "acl-other")
    with lists.users.opened(BOB) as own:
        own.connection.add(link, ("top", "mSMQSiteLink"), {**ends, "mSMQSiteGates": (link.encode(),)})
        gate = lists.users.site("acl-listed").encode()
        for attribute, value in (("mSMQSiteGates", gate), ("cn", b"another"), ("description", b"mine")):
            with pytest.raises(AccessRefused):
                own.connection.modify(link, [Change(ChangeKind.ADD, attribute, (value,))])
    lists.directory.connection.delete(link)


@OPENLDAP
def test_no_link_has_the_name_of_a_group_of_rights_or_the_mark_of_an_apply(lists: Bench) -> None:
    lists.apply(enterprise=[*SEEN, *CREATES])
    link, ends = lists.users.link("acl-listed", "acl-other")
    enterprise = lists.directory.connection.dialect.contexts.enterprise
    for name in ("deny create_routing_link", "deny set_properties", "allow set_properties", "notes"):
        assert lists.users.makes(child(name, enterprise), "mSMQSiteLink", ends) == [], name
    assert lists.users.makes(link, "mSMQSiteLink", {**ends, "adminDescription": (b"mequenterprise 9" * 2,)}) == []
    assert lists.users.makes(link, "mSMQSiteLink", ends) == [BOB]


@OPENLDAP
def test_who_may_create_machines_makes_no_routing_server(lists: Bench) -> None:
    lists.apply(site=REGISTERS)
    users, connection = lists.users, lists.directory.connection
    servers, computers = child("Servers", users.site("acl-listed")), connection.dialect.contexts.computers
    computer, server = child("acl-machine", computers), child("acl-machine", servers)
    settings = child("MSMQ Settings", server)
    connection.add(computer, ("top", "computer"), {})
    routes = {"mSMQRoutingServices": (b"TRUE",), "mSMQServiceType": (b"1",)}
    manager = connection.add(child("msmq", computer), ("top", "mSMQConfiguration"), routes)
    connection.add(server, ("top", "server"), {})
    try:
        (mine,) = manager.attributes["objectguid"]
        repeated = {
            "mSMQQMID": (mine,), "mSMQServices": (b"1",), "mSMQRoutingService": (b"TRUE",), "mSMQDsService": (b"FALSE",)
        }  # fmt: skip
        assert users.makes(settings, "mSMQSettings", repeated) == [BOB]
        for false in (
            {"mSMQQMID": (bytes(16),)},
            {"mSMQServices": (b"3",)},
            {"mSMQDsService": (b"TRUE",)},
            {"mSMQDependentClientService": (b"TRUE",)},
        ):
            assert users.makes(settings, "mSMQSettings", {**repeated, **false}) == [], false
        connection.modify(child("msmq", computer), [Change(ChangeKind.REPLACE, "mSMQRoutingServices", (b"FALSE",))])
        assert users.makes(settings, "mSMQSettings", repeated) == []
        elsewhere = child("MSMQ Settings", child("acl-nobody", servers))
        connection.add(parent_of(elsewhere), ("top", "server"), {})
        assert users.makes(elsewhere, "mSMQSettings", {"mSMQQMID": (mine,)}) == []
        connection.delete(parent_of(elsewhere))
    finally:
        for dn in (server, child("msmq", computer), computer):
            connection.delete(dn)


@OPENLDAP
def test_an_apply_takes_over_no_entry_of_another_class(lists: Bench) -> None:
    lists.apply(enterprise=[*SEEN, *CREATES])
    _, ends = lists.users.link("acl-listed", "acl-other")
    connection = lists.directory.connection
    planted = child("deny create_routing_link", connection.dialect.contexts.enterprise)
    connection.add(planted, ("top", "mSMQSiteLink"), ends)
    denied = [EVERYONE_CREATES, {"to": BOB, "deny": ["create_routing_link"]}]
    try:
        with pytest.raises(
            ApplyError, match=rf"{re.escape(planted)} has the class mSMQSiteLink instead of group: delete"
        ):
            lists.apply(enterprise=denied)
        assert lists.users.links("acl-listed", "acl-other") == []
    finally:
        connection.delete(planted)
    lists.apply(enterprise=denied)
    assert lists.users.links("acl-listed", "acl-other") == [ANNE]


@OPENLDAP
def test_an_apply_that_fails_half_way_gives_nobody_more_than_is_declared(
    lists: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [*SEEN, *({"to": name, "allow": ["create_routing_link"]} for name in (ANNE, BOB))]
    one = [EVERYONE_CREATES, {"to": BOB, "deny": ["create_routing_link"]}]
    seen = []
    for written in (1, 2, 3):  # with none, all is as before
        lists.apply(enterprise=both)
        writes = count()
        with monkeypatch.context() as patched:
            for name in ("create", "discard"):
                patched.setattr(FencedWriter, name, _until(writes, written, getattr(FencedWriter, name)))
            with suppress(ApplyError):
                lists.apply(enterprise=one)
        seen.append(lists.users.links("acl-listed", "acl-other"))
        lists.apply(enterprise=one)
        assert lists.users.links("acl-listed", "acl-other") == [ANNE]
    assert seen == [[], [], [ANNE]]


def _until(writes: Iterator[int], limit: int, write: Any) -> Any:
    """The same write, which fails once so many were made."""

    def limited(*given: Any, **named: Any) -> Any:
        if next(writes) >= limit:
            raise DirectoryError("the directory stops here")
        return write(*given, **named)

    return limited


def test_lists_are_exported_as_they_were_declared(lists: Bench) -> None:
    denied = [{"to": BOB, "deny": ["create_routing_link"]}]
    lists.apply(site=[{"to": ANNE, "allow": ["generic_all"]}], enterprise=denied)
    found = yaml.safe_load(export(lists.target.snapshot().table, "Lists"))
    (site,) = (site for site in found["sites"] if site["name"] == "acl-listed")
    assert site["access"] == [{"to": ANNE, "allow": ["generic_all"]}]
    assert found["enterprise"]["access"] == denied
