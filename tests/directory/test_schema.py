"""The schema's data: equal to what Active Directory has, and the LDIF for OpenLDAP generated from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.entries import Scope
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.schema import load_schema, openldap_ldif

if TYPE_CHECKING:
    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from tests.lab.samba import DomainController

REPOSITORY = Path(__file__).parents[2]
SYNTAXES = {  # attributeSyntax of Active Directory
    "string": {b"2.5.5.12", b"2.5.5.4"},
    "integer": {b"2.5.5.9"},
    "boolean": {b"2.5.5.8"},
    "octets": {b"2.5.5.10", b"2.5.5.17", b"2.5.5.15"},
    "dn": {b"2.5.5.1"},
}


def test_the_committed_ldif_is_what_the_generator_writes() -> None:
    committed = (REPOSITORY / "schemas" / "msmq-openldap.ldif").read_text(encoding="ascii")

    assert committed == openldap_ldif(), "run: python schemas/generate.py"


def test_all_of_message_queuing_is_there() -> None:
    schema = load_schema()

    assert len([name for name in schema.attributes if name.lower().startswith("msmq")]) == 59
    assert len([name for name in schema.classes if name.lower().startswith("msmq")]) == 8
    assert len(schema.extended_rights) == 9


@pytest.mark.servers
@pytest.mark.one_server(reason="on Active Directory no schema is written")
def test_slapd_knows_every_class_and_attribute_under_the_identifiers_of_active_directory(
    slapd: EmbeddedDirectory,
) -> None:
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        entry = directory.connection.read("cn=Subschema", ("attributeTypes", "objectClasses"))
    known = {value.split()[1].decode() for values in entry.attributes.values() for value in values}

    schema = load_schema()

    assert {item.oid for item in (*schema.attributes.values(), *schema.classes.values())} <= known


@pytest.mark.servers
@pytest.mark.one_server(reason="only Active Directory can say what its schema is")
def test_the_data_is_the_schema_of_active_directory(domain_controller: DomainController) -> None:
    connection = LdapConnection(domain_controller.settings())
    base = f"CN=Schema,{connection.dialect.contexts.configuration}"
    found = {
        (entry.first("lDAPDisplayName") or b"").decode(): entry
        for entry in connection.search(base, "(|(attributeID=*)(governsID=*))", ("*",), Scope.LEVEL)
    }
    connection.close()

    for name, attribute in load_schema().attributes.items():
        entry = found[name]
        assert entry.first("attributeID") == attribute.oid.encode(), name
        assert entry.first("attributeSyntax") in SYNTAXES[attribute.syntax], name
        assert entry.first("isSingleValued") == (b"TRUE" if attribute.single else b"FALSE"), name
        assert UUID(bytes_le=entry.first("schemaIDGUID")) == UUID(attribute.schema_guid), name
        bounds = [entry.first(bound) for bound in ("rangeLower", "rangeUpper")]
        assert [None if b is None else int(b) for b in bounds] == [attribute.lower, attribute.upper], name
    for name, definition in load_schema().classes.items():
        entry = found[name]
        allowed = {
            value.decode()
            for kind in ("mayContain", "systemMayContain", "mustContain", "systemMustContain")
            for value in entry.attributes.get(kind.lower(), ())
        }
        # From securityPrincipal, an auxiliary class of users, computers and groups, and from computers being users.
        inherited = {"sAMAccountName", "objectSid", "servicePrincipalName", *load_schema().classes["user"].may}
        assert entry.first("governsID") == definition.oid.encode(), name
        assert {*definition.may, *definition.must} <= allowed | inherited, name


@pytest.mark.servers
@pytest.mark.one_server(reason="only Active Directory has them as objects")
def test_the_extended_rights_are_those_of_active_directory(domain_controller: DomainController) -> None:
    connection = LdapConnection(domain_controller.settings())
    base = f"CN=Extended-Rights,{connection.dialect.contexts.configuration}"
    found = {
        (entry.first("cn") or b"").decode(): (entry.first("rightsGuid") or b"").decode()
        for entry in connection.search(base, "(cn=msmq-*)", ("cn", "rightsGuid"))
    }
    connection.close()

    assert {name: right.guid for name, right in load_schema().extended_rights.items()} == found
