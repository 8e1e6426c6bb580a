"""Users and groups by name and by security identifier, and access lists as security descriptors.

OpenLDAP stores a queue's descriptor in the form of Message Queuing, Active Directory in its own form
(:mod:`mqenterprise.directory.security_descriptors`). Inherited entries and owners belong to the server and are
left alone.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from mqenterprise.directory.ldap_names import escape_filter, name_of
from mqenterprise.directory.security_descriptors import (
    ENTERPRISE_RIGHTS,
    QUEUE_RIGHTS,
    SITE_RIGHTS,
    to_active_directory,
    to_message_queuing,
)
from mqenterprise.directory.settings import ServerKind
from mqenterprise.directory.slapd_configuration import rights_groups
from mqenterprise.topology import access_lists
from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import Kind
from qmnode.structures import security_descriptor
from qmnode.structures.errors import PacketError
from qmnode.structures.security_descriptor import AccessEntry, AceFlags, AceType, SecurityDescriptor, Sid, allow, deny

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection

WELL_KNOWN: Final = {
    security_descriptor.EVERYONE: "Everyone",
    security_descriptor.CREATOR_OWNER: "Creator Owner",
    security_descriptor.NETWORK: "Network",
    security_descriptor.ANONYMOUS: "Anonymous",
    security_descriptor.ENTERPRISE_DOMAIN_CONTROLLERS: "Enterprise Domain Controllers",
    security_descriptor.PRINCIPAL_SELF: "Self",
    security_descriptor.AUTHENTICATED_USERS: "Authenticated Users",
    security_descriptor.LOCAL_SYSTEM: "System",
}
_ALIASES: Final = {
    "anonymous logon": security_descriptor.ANONYMOUS,
    "local system": security_descriptor.LOCAL_SYSTEM,
    "world": security_descriptor.EVERYONE,
}
_VERBS: Final = {AceType.ACCESS_ALLOWED: "allow", AceType.ACCESS_DENIED: "deny"}
_RIGHTS: Final = {Kind.ENTERPRISE: ENTERPRISE_RIGHTS, Kind.SITE: SITE_RIGHTS, Kind.QUEUE: QUEUE_RIGHTS}
RIGHTS_GROUPS: Final = {
    Kind.ENTERPRISE: rights_groups("create_routing_link"),
    Kind.SITE: rights_groups("create_machine"),
}
"""The groups beneath an object on OpenLDAP, by which the server decides."""
_EVERYBODY: Final = frozenset({security_descriptor.EVERYONE.write(), security_descriptor.AUTHENTICATED_USERS.write()})
_UNDERSTOOD_KEPT: Final = 4096


class Trustees:
    """Names and security identifiers of one directory, cached until :meth:`forget`."""

    def __init__(self, connection: LdapConnection) -> None:
        self._connection = connection
        self.forget()

    def forget(self) -> None:
        """Empty the cache, so that the directory is asked anew."""
        self._names: dict[bytes, str] = {known.write(): name for known, name in WELL_KNOWN.items()}
        self._understood: dict[tuple[Kind, bytes], tuple[str, ...]] = {}
        self._identifiers: dict[str, bytes | None] = {fold(name): known for known, name in self._names.items()}
        self._identifiers |= {name: known.write() for name, known in _ALIASES.items()}

    def created(self, name: str) -> None:
        """Forget the cached answer for this name, because the user exists now."""
        self._identifiers.pop(fold(name), None)

    def canonical(self, name: str) -> str | None:
        """Return the one name of a user or group, or None when the name is unknown or ambiguous."""
        identifier = self.identifier(name)
        return None if identifier is None else self.name(identifier)

    def identifier(self, name: str) -> bytes | None:
        key = fold(name)
        if key not in self._identifiers:
            self._identifiers[key] = self._look_up(name)
        return self._identifiers[key]

    def _look_up(self, name: str) -> bytes | None:
        if name.upper().startswith("S-1-"):
            try:
                return Sid.from_text(name).write()
            except ValueError:
                return None
        wanted = escape_filter(name.rpartition("\\")[2])
        filter = f"(&(objectSid=*)(|(cn={wanted})(sAMAccountName={wanted})))"
        found = set()
        for entry in self._connection.search(self._connection.dialect.contexts.domain, filter, ("cn", "objectSid")):
            if identifier := entry.first("objectSid"):
                found.add(identifier)
                self._names.setdefault(identifier, name_of(entry.dn))
        return found.pop() if len(found) == 1 else None

    def name(self, identifier: bytes) -> str:
        """Return the name for a security identifier, or its text form when no object has it."""
        if identifier not in self._names:
            filter = f"(objectSid={escape_filter(identifier)})"
            entries = self._connection.search(self._connection.dialect.contexts.domain, filter, ("cn",))
            found = next((name_of(entry.dn) for entry in entries), None)
            # An ambiguous name would not lead back to this identifier.
            if found is not None and self.identifier(found) == identifier:
                self._names[identifier] = found
            else:
                self._names[identifier] = str(Sid.parse(identifier))
        return self._names[identifier]

    def new_identifier(self) -> bytes:
        """Make a security identifier for a new user where the server assigns none, in a domain named after the root."""
        domain = struct.unpack("<3I", hashlib.sha256(self._connection.root.lower().encode()).digest()[:12])
        number = 1000 + secrets.randbelow(0x7FFF_0000)
        return Sid.from_text("-".join(["S-1-5-21", *map(str, domain), str(number)])).write()

    @property
    def _active(self) -> bool:
        return self._connection.dialect.kind is ServerKind.ACTIVE_DIRECTORY

    def descriptor(self, lines: Iterable[str], kind: Kind = Kind.QUEUE) -> bytes:
        """Return the security descriptor of a normal access list. Raises :class:`LookupError` for an unknown name."""
        entries = []
        for line in lines:
            trustee, verb, mask = access_lists.parsed(line, kind)
            identifier = self.identifier(trustee)
            if identifier is None:
                raise LookupError(trustee)
            # In Active Directory servers are two levels beneath their site.
            creates = kind is Kind.SITE and self._active and mask & access_lists.BY_KIND[kind]["create_machine"]
            flags = AceFlags.of(CONTAINER_INHERIT_ACE=1) if creates else 0
            entries.append((deny if verb == "deny" else allow)(Sid.parse(identifier), mask, flags=flags))
        # Denials first: the canonical order (MS-DTYP 2.4.5).
        entries.sort(key=lambda entry: entry.ace_type != AceType.ACCESS_DENIED)
        written = SecurityDescriptor().with_dacl(*entries).write()
        return to_active_directory(written, _RIGHTS[kind]) if self._active else written

    def holders(self, lines: Iterable[str], kind: Kind) -> dict[str, tuple[str, ...]]:
        """Return the distinguished names that OpenLDAP's access rules look up, by group (:data:`RIGHTS_GROUPS`).

        Everyone is the containers of users and computers. Trustees without an entry, such as System, bind nowhere.
        """
        contexts = self._connection.dialect.contexts
        found: dict[str, set[str]] = {}
        for line in lines:
            trustee, verb, mask = access_lists.parsed(line, kind)
            identifier = self.identifier(trustee)
            if identifier is None:
                raise LookupError(trustee)
            if identifier in _EVERYBODY:
                names = [contexts.users, contexts.computers]
            else:
                filter = f"(objectSid={escape_filter(identifier)})"
                names = [entry.dn for entry in self._connection.search(contexts.domain, filter, ("1.1",))]
            for right, bits in access_lists.BY_KIND[kind].items():
                if mask & bits == bits:
                    found.setdefault(f"{verb} {right}", set()).update(names)
        return {name: tuple(sorted(found.get(name, ()))) for name in RIGHTS_GROUPS[kind]}

    def lines(self, descriptor: bytes | None, kind: Kind = Kind.QUEUE) -> tuple[str, ...] | None:
        """Return a descriptor as a normal access list: None without one, one line if it cannot be decoded."""
        if not descriptor:
            return None
        # The queues of an enterprise mostly share a few descriptors.
        known = self._understood.get((kind, descriptor))
        if known is None:
            try:
                known = self._read(descriptor, kind)
            except (ValueError, PacketError) as error:
                known = (f"{access_lists.NOT_UNDERSTOOD}{error})",)
            if len(self._understood) < _UNDERSTOOD_KEPT:
                self._understood[kind, descriptor] = known
        return known

    def _read(self, descriptor: bytes, kind: Kind) -> tuple[str, ...]:
        meant = to_message_queuing(descriptor, _RIGHTS[kind]) if self._active else descriptor
        dacl = SecurityDescriptor.parse(meant).dacl
        masks: dict[tuple[bytes, str], int] = {}
        for ace in dacl.aces if dacl else ():
            inherited = AceFlags.INHERITED_ACE.get(ace.ace_flags)
            if isinstance(ace.entry, AccessEntry) and ace.ace_type in _VERBS and not inherited and ace.entry.mask:
                key = ace.entry.sid.write(), _VERBS[AceType(ace.ace_type)]
                masks[key] = masks.get(key, 0) | ace.entry.mask
        return tuple(sorted(access_lists.line(self.name(who), verb, mask, kind) for (who, verb), mask in masks.items()))
