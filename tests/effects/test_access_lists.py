"""Access lists of sites and of the enterprise on both servers: who may change them and create objects in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.gateway import SECURITY
from mqenterprise.directory.service import EnterpriseDirectory
from mqenterprise.topology.check import load
from mqenterprise.topology.export import export
from mqenterprise.topology.ldap_target import LdapTarget
from mqenterprise.topology.session import apply_declared, plan_declared
from tests.effects.binds import ANNE, BOB, Users
from tests.topology.conftest import Silent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.servers import DirectoryServer

pytestmark = [pytest.mark.servers]

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


def test_lists_are_exported_as_they_were_declared(lists: Bench) -> None:
    denied = [{"to": BOB, "deny": ["create_routing_link"]}]
    lists.apply(site=[{"to": ANNE, "allow": ["generic_all"]}], enterprise=denied)
    found = yaml.safe_load(export(lists.target.snapshot().table, "Lists"))
    (site,) = (site for site in found["sites"] if site["name"] == "acl-listed")
    assert site["access"] == [{"to": ANNE, "allow": ["generic_all"]}]
    assert found["enterprise"]["access"] == denied
