"""Access lists in a normal form: equal lists have equal texts, on every server.

``Everyone: allow get_permissions get_properties`` is one entry; an access list is the sorted tuple of its entries. The
names of the rights are those of MS-MQMQ 2.2.24 to 2.2.26 without ``MQSEC_``, ``_MESSAGE`` and the kind of object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from mqenterprise.directory.security_descriptors import ENTERPRISE_RIGHTS, SITE_RIGHTS
from mqenterprise.topology.normal_form import Kind
from qmnode.structures.security_descriptor import QUEUE_RIGHTS, names_of_rights
from qmnode.structures.security_descriptor import EnterpriseAccess as E
from qmnode.structures.security_descriptor import SiteAccess as S

SITE_RIGHTS_BY_NAME: Final = {
    "create_machine": S.MQSEC_CREATE_FRS | S.MQSEC_CREATE_BSC | S.MQSEC_CREATE_MACHINE,
    "set_properties": S.MQSEC_SET_SITE_PROPERTIES,
    "get_properties": S.MQSEC_GET_SITE_PROPERTIES,
    "delete": S.MQSEC_DELETE_SITE,
    "get_permissions": S.MQSEC_GET_SITE_PERMISSIONS,
    "change_permissions": S.MQSEC_CHANGE_SITE_PERMISSIONS,
    "take_ownership": S.MQSEC_TAKE_SITE_OWNERSHIP,
    "generic_all": SITE_RIGHTS.all,
}
"""Those on a site. Directories have one right for all kinds of machines, and so has the declaration."""
ENTERPRISE_RIGHTS_BY_NAME: Final = {
    "create_routing_link": E.MQSEC_CREATE_SITE | E.MQSEC_CREATE_CN,
    "set_properties": E.MQSEC_SET_ENTERPRISE_PROPERTIES,
    "get_properties": E.MQSEC_GET_ENTERPRISE_PROPERTIES,
    "delete": E.MQSEC_DELETE_ENTERPRISE,
    "get_permissions": E.MQSEC_GET_ENTERPRISE_PERMISSIONS,
    "change_permissions": E.MQSEC_CHANGE_ENTERPRISE_PERMISSIONS,
    "take_ownership": E.MQSEC_TAKE_ENTERPRISE_OWNERSHIP,
    "generic_all": ENTERPRISE_RIGHTS.all,
}
"""Those on the enterprise. Beneath its object are routing links only, so both bits of creation are for these."""
BY_KIND: Final[Mapping[Kind, Mapping[str, int]]] = {
    Kind.ENTERPRISE: ENTERPRISE_RIGHTS_BY_NAME,
    Kind.SITE: SITE_RIGHTS_BY_NAME,
    Kind.QUEUE: QUEUE_RIGHTS,
}

NOT_UNDERSTOOD = "(not understood: "
"""How the one line of a descriptor begins that cannot be decoded."""


class DeclaredRights(Protocol):
    """A declared entry of an access list."""

    @property
    def to(self) -> str: ...
    @property
    def allow(self) -> tuple[str, ...]: ...
    @property
    def deny(self) -> tuple[str, ...]: ...


def mask(rights: Iterable[str], kind: Kind = Kind.QUEUE) -> int:
    value = 0
    for right in rights:
        value |= int(BY_KIND[kind][right])
    return value


def line(trustee: str, verb: str, value: int, kind: Kind = Kind.QUEUE) -> str:
    """Return one entry of a normal access list."""
    return f"{trustee}: {verb} {' '.join(names_of_rights(value, BY_KIND[kind]))}"


def normal(
    entries: Iterable[DeclaredRights], canonical: Callable[[str], str], kind: Kind = Kind.QUEUE
) -> tuple[str, ...]:
    """Return a declared access list in normal form. ``canonical`` returns the one name of a trustee."""
    masks: dict[tuple[str, str], int] = {}
    for entry in entries:
        # Two entries may name the same trustee in two ways.
        for verb, rights in (("allow", entry.allow), ("deny", entry.deny)):
            if rights:
                key = canonical(entry.to), verb
                masks[key] = masks.get(key, 0) | mask(rights, kind)
    return tuple(sorted(line(trustee, verb, value, kind) for (trustee, verb), value in masks.items()))


def is_understood(lines: Iterable[str]) -> bool:
    """Whether lines are a normal access list, and not the reason why a descriptor cannot be decoded."""
    return not any(text.startswith(NOT_UNDERSTOOD) for text in lines)


def parsed(text: str, kind: Kind = Kind.QUEUE) -> tuple[str, str, int]:
    """The trustee, the verb and the mask of one entry of a normal access list."""
    trustee, _, rest = text.rpartition(": ")
    verb, *rights = rest.split()
    value = 0
    for right in rights:
        value |= int(right, 16) if right.startswith("0x") else int(BY_KIND[kind][right])
    return trustee, verb, value


def declared(lines: Iterable[str]) -> list[dict[str, object]]:
    """A normal access list as the declaration writes it."""
    entries: dict[str, dict[str, object]] = {}
    for text in lines:
        trustee, _, rest = text.rpartition(": ")
        verb, *rights = rest.split()
        entries.setdefault(trustee, {"to": trustee})[verb] = rights
    return list(entries.values())
