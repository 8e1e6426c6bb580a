"""The schema of Message Queuing as Active Directory has it, and its form for OpenLDAP (cn=config LDIF).

The data is ``schema.json`` beside this file. On Active Directory nothing of it is ever written; it serves OpenLDAP, the
checks that OpenLDAP leaves to its clients (superiors, ranges), and the GUIDs of the extended rights.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Final

from pydantic import BaseModel, ConfigDict


class AttributeType(BaseModel):
    """An attribute of the schema: an attributeSchema object."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    oid: str
    syntax: str
    single: bool
    schema_guid: str
    lower: int | None = None
    upper: int | None = None
    """``lower`` and ``upper`` bound a string's characters or an octet string's bytes, or an integer's value."""


class ObjectClass(BaseModel):
    """A classSchema object; all of them are structural."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    oid: str
    must: tuple[str, ...]
    may: tuple[str, ...]
    superiors: tuple[str, ...]
    """The classes of which a parent must be one."""
    schema_guid: str


class ExtendedRight(BaseModel):
    """A controlAccessRight object: what an object access control entry names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    guid: str
    applies_to: tuple[str, ...]


class Schema(BaseModel):
    """All classes and attributes of ``schema.json``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    attributes: dict[str, AttributeType]
    classes: dict[str, ObjectClass]
    extended_rights: dict[str, ExtendedRight]


@functools.cache
def load_schema() -> Schema:
    """The schema's data, read once."""
    text = resources.files("mqenterprise.directory").joinpath("schema.json").read_text(encoding="utf-8")
    return Schema.model_validate(json.loads(text))


SYNTAX_RULES: Final[Mapping[str, str]] = {
    "string": (
        "EQUALITY caseIgnoreMatch ORDERING caseIgnoreOrderingMatch SUBSTR caseIgnoreSubstringsMatch"
        " SYNTAX 1.3.6.1.4.1.1466.115.121.1.15"
    ),
    "integer": "EQUALITY integerMatch ORDERING integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27",
    "boolean": "EQUALITY booleanMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.7",
    "octets": "EQUALITY octetStringMatch ORDERING octetStringOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40",
    "dn": "EQUALITY distinguishedNameMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.12",
}
STANDARD: Final = frozenset({"member"})
"""Attributes that OpenLDAP's core schema declares already."""

# Attributes that class "top" allows in Active Directory. OpenLDAP's own "top" cannot be extended, so each class says it
# again.
EVERYWHERE: Final = ("objectGUID", "nTSecurityDescriptor", "adminDescription", "extensionName", "description")
# A node and a user bind with a password where there is no Kerberos; "sn" comes with organizationalPerson.
ACCOUNT: Final[Mapping[str, tuple[str, ...]]] = {"user": ("sn", "userPassword"), "computer": ("sn", "userPassword")}


def openldap_ldif() -> str:
    """The schema for OpenLDAP, to be added under cn=config. It needs the core schema and nothing else."""
    schema = load_schema()
    lines = [
        "# Classes and attributes of Message Queuing for OpenLDAP, with the object identifiers of Active Directory.",
        "# Written by schemas/generate.py: change mqenterprise/directory/schema.json and run that.",
        "dn: cn=msmq,cn=schema,cn=config",
        "objectClass: olcSchemaConfig",
        "cn: msmq",
    ]
    for definition in (*_attribute_types(schema), *_object_classes(schema)):
        lines.extend(_folded(definition))
    return "\n".join(lines) + "\n"


def _attribute_types(schema: Schema) -> Iterator[str]:
    for name, attribute in schema.attributes.items():
        if name not in STANDARD:
            single = " SINGLE-VALUE" if attribute.single else ""
            yield f"olcAttributeTypes: ( {attribute.oid} NAME '{name}' {SYNTAX_RULES[attribute.syntax]}{single} )"


def _object_classes(schema: Schema) -> Iterator[str]:
    for name, definition in schema.classes.items():
        must = " $ ".join(("cn", *definition.must))
        may = " $ ".join(dict.fromkeys((*definition.may, *ACCOUNT.get(name, ()), *EVERYWHERE)))
        yield f"olcObjectClasses: ( {definition.oid} NAME '{name}' SUP top STRUCTURAL MUST ( {must} ) MAY ( {may} ) )"


def _folded(line: str, width: int = 100) -> Iterator[str]:
    """LDIF folding (RFC 2849): a continuation begins with one space, which is not part of the value."""
    yield line[:width]
    for start in range(width, len(line), width - 1):
        yield " " + line[start : start + width - 1]
