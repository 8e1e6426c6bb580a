"""Reads directories into an estate: one for a forest with its global catalogue, or one for each domain."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from cryptography import x509

from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.entries import Scope
from mqenterprise.directory.ldap_names import child, normalized, split_dn
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.survey.estate import Certificate, Estate, Queue, SurveyError, shown
from mqenterprise.survey.machines import identifier_text
from mqenterprise.topology import access_lists
from mqenterprise.topology.declared_table import ROLES
from mqenterprise.topology.ldap_target import Index, read_all
from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import Kind, Resource, Table
from mqenterprise.topology.trustees import Trustees
from qmnode.structures.security_descriptor import Sid

_SHARED: Final = frozenset({Kind.ENTERPRISE, Kind.SITE, Kind.ROUTING_LINK})
"""The kinds of objects that the domains of one forest share."""
_WELL_KNOWN: Final = {
    "everyone": "everyone",
    "world": "everyone",
    "nt authority\\anonymous logon": "anonymous",
    "anonymous logon": "anonymous",
    "anonymous": "anonymous",
    "nt authority\\authenticated users": "authenticated-users",
    "authenticated users": "authenticated-users",
    "nt authority\\system": "S-1-5-18",
    "system": "S-1-5-18",
    "nt authority\\network service": "S-1-5-20",
    "network service": "S-1-5-20",
    "builtin\\administrators": "S-1-5-32-544",
    "builtin\\users": "S-1-5-32-545",
}
"""Accounts that every Windows has, as a node's access lists write them."""


class Directories:
    """Open directories. They are only read."""

    def __init__(self, opened: Sequence[EnterpriseDirectory]) -> None:
        self._opened = opened
        self._trustees: list[tuple[str, Trustees]] = []

    def read(self, estate: Estate) -> None:
        """Read all of them. Raises SurveyError for names that clash, and for directories without queue managers."""
        places: list[Index] = []
        for directory in self._opened:
            connection = directory.connection
            domain = connection.dialect.contexts.domain
            if fold(domain) in map(fold, estate.domains):
                raise SurveyError(f"two files of --directory name the same directory, {domain}: give each once")
            trustees = Trustees(connection)
            table, index = read_all(connection, trustees, (), access=True)
            self._check_clashes(estate, places, table, index, domain)
            self._trustees.append((domain, trustees))
            estate.domains.append(domain)
            estate.tables.append(table)
            places.append(index)
            estate.unread += index.unread
            for row in table:
                _note(estate, row, index, connection)
        self._note_other_domains(estate)
        if self._opened and not estate.machines:
            raise SurveyError(
                f"{', '.join(estate.domains)} has no queue manager that this account can see: check the account, and "
                "whether Message Queuing was installed with directory integration; without it, use --no-directory"
            )

    def _check_clashes(self, estate: Estate, places: list[Index], table: Table, index: Index, root: str) -> None:
        """Two domains of a forest share sites and links; any other object of the same name is another object."""
        clashes: list[str] = []
        for other, known, domain in zip(estate.tables, places, estate.domains, strict=True):
            for row in table:
                twin = other.get(row.reference)
                if twin is None or row.kind is Kind.ENTERPRISE:
                    continue
                if row.kind in _SHARED and _is_same(row, twin, index, known):
                    continue
                if row.kind is Kind.USER and not (row.values.get("certificates") and twin.values.get("certificates")):
                    continue
                clashes.append(f"{row.title} is in {domain} and in {root}")
        if clashes:
            more = f", and {len(clashes) - 3:,} more" if len(clashes) > 3 else ""
            raise SurveyError(
                f"names clash: {'; '.join(clashes[:3])}{more}. A declaration has each name once: survey the "
                "directories one by one, each into an --output of its own"
            )

    def _note_other_domains(self, estate: Estate) -> None:
        covered = {normalized(root) for root in estate.domains}
        covered |= {normalized(_domain_dn(machine.domain)) for machine in estate.machines.values() if machine.domain}
        for directory in self._opened:
            connection = directory.connection
            for name in _other_domains(connection):
                if normalized(_domain_dn(name)) not in covered and name not in estate.other_domains:
                    estate.other_domains.append(name)

    def resolve_access(self, estate: Estate) -> None:
        """Replace names in access lists of private queues by what a node understands; leave out unknown ones."""
        for queue in estate.queues.values():
            if queue.private and queue.access is not None:
                queue.access = [found for entry in queue.access if (found := self._resolved(estate, queue, entry))]

    def _resolved(self, estate: Estate, queue: Queue, entry: dict[str, Any]) -> dict[str, Any] | None:
        name = str(entry["to"])
        known = _WELL_KNOWN.get(fold(name)) or (name if name.upper().startswith("S-1-") else None)
        if known is None:
            before, _, _ = name.rpartition("\\")
            named = [one for root, one in self._trustees if before and fold(_first_label(root)) == fold(before)]
            found = {
                identifier
                for one in named or [one for _, one in self._trustees]
                if (identifier := one.identifier(name))
            }
            known = str(Sid.parse(found.pop())) if len(found) == 1 else None
        if known is None:
            estate.unread.append(f"{queue.path}: its access list names '{shown(name)}', which no directory resolves")
            return None
        return {**entry, "to": known}


def _is_same(row: Resource, twin: Resource, index: Index, known: Index) -> bool:
    place, other = (one.places.get((row.kind, row.reference.key)) for one in (index, known))
    if place is not None and other is not None and place.guid and other.guid:
        return place.guid == other.guid
    return place is not None and other is not None and place.dn == other.dn


def _note(estate: Estate, row: Resource, index: Index, connection: LdapConnection) -> None:
    """Take over what a survey needs of an object of a directory."""
    values = row.values
    match row.kind:
        case Kind.MACHINE if not row.partial:
            machine = estate.machine(row.name[0])
            place = index.machines[row.reference.key[0]]
            machine.name, machine.is_declared = row.name[0], True
            machine.domain = _domain_of(place.computer)
            machine.identifier = identifier_text(place.configuration.guid) if place.configuration else ""
            machine.sites = _texts(values.get("sites"))
            machine.roles = tuple(role for role in ROLES if values.get(role))
            machine.foreign = bool(values.get("foreign"))
            machine.host = "" if machine.foreign else str(values.get("dns_name") or row.name[0])
        case Kind.QUEUE:
            queue = estate.queue(*row.name, private=False)
            queue.name, queue.identifier = row.name[1], index.places[row.kind, row.reference.key].guid
            for name, value in values.items():
                if name != "access":
                    queue.learn(name, "none" if value is None and "quota" in name else value, "directory")
            lines = values.get("access")
            if isinstance(lines, tuple) and access_lists.is_understood(lines):
                queue.access = access_lists.declared(lines)
                queue.sources["access"] = "directory"
        case Kind.USER:
            for encoded in _texts(values.get("certificates")):
                estate.certificates.append(_certificate(row.name[0], connection.dialect.contexts.domain, encoded))
            if isinstance(wrong := values.get("certificates"), str):
                estate.unread.append(f"user {row.name[0]}: certificates {wrong}")


def _texts(value: object) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _certificate(user: str, domain: str, encoded: str) -> Certificate:
    try:
        found = x509.load_der_x509_certificate(base64.b64decode(encoded))
        return Certificate(
            shown(user), domain, shown(found.subject.rfc4514_string()), found.not_valid_after_utc.timestamp()
        )
    except ValueError:
        return Certificate(shown(user), domain, "(cannot be read)", None)


def _domain_of(dn: str) -> str:
    """The DNS name of the domain that an object is in."""
    return ".".join(part.partition("=")[2] for part in split_dn(dn) if part[:3].upper() == "DC=")


def _domain_dn(name: str) -> str:
    return ",".join(f"DC={label}" for label in name.split("."))


def _first_label(root: str) -> str:
    return split_dn(root)[0].partition("=")[2]


def _other_domains(connection: LdapConnection) -> list[str]:
    """The domains of the forest, and those that this one trusts, by DNS name."""
    contexts = connection.dialect.contexts
    partitions = connection.search(
        child("Partitions", contexts.configuration),
        "(&(objectClass=crossRef)(nETBIOSName=*))",
        ("dnsRoot",),
        Scope.LEVEL,
    )
    trusted = connection.search(contexts.domain, "(objectClass=trustedDomain)", ("trustPartner",))
    return [
        shown(value.decode("utf-8", "replace"))
        for attribute, entries in (("dnsRoot", partitions), ("trustPartner", trusted))
        for one in entries
        if (value := one.first(attribute))
    ]
