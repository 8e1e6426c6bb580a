"""Map the values of resources to LDAP attributes, based on the rows of the directory's mapping.

Names of sites and machines are not among them: the directory refers to those by GUID and distinguished name, which
:mod:`mqenterprise.topology.ldap_reading` indexes.
"""

import base64
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import md5
from typing import Any, Final, cast

from mqenterprise.directory import mapping
from mqenterprise.directory.entries import Entry
from mqenterprise.directory.mapping import Attribute, ObjectMapping, Values, default_of
from mqenterprise.topology.resources import Value
from qmnode.directory.port import OperatingSystemType
from qmnode.objects.rows import QUOTA
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import guid_from_text, guid_to_text, new_guid
from qmnode.structures.queue_attributes import QueuePrivacyLevel
from qmnode.structures.user_certificates import MqUserSignCert, MqUserSignCerts

MARK: Final = "adminDescription"
"""The attribute for our mark: free text that every object of Active Directory may have and that nothing else reads.

Active Directory has it on class ``top``, so its schema is not changed. Our OpenLDAP schema allows it everywhere.
"""
_MARK: Final = re.compile(r"mqenterprise (\d{1,19})")


def mark(token: int) -> bytes:
    """Return the mark of an object that an apply with this fencing token writes."""
    return f"mqenterprise {token}".encode()


def token_of(entry: Entry) -> int | None:
    """Return the fencing token of our mark, or None when the object is not ours."""
    value = entry.first(MARK)
    found = _MARK.fullmatch(value.decode("utf-8", "replace")) if value else None
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a resource as an attribute."""

    row: Attribute
    default: Value
    to_field: Callable[[Any], Any]
    from_field: Callable[[Any], Value]

    def encode(self, value: Value) -> Values:
        return self.row.codec.encode(self.to_field(value))

    def decode(self, entry: Entry) -> Value:
        """Return the value, or the specification's default when the attribute is not set.

        An attribute that cannot be decoded becomes a text that no declaration contains, so that a plan repairs it.
        """
        raw = entry.attributes.get(self.row.name.lower())
        if not raw:
            return self.default
        try:
            return self.from_field(self.row.codec.decode(raw))
        except (ValueError, LookupError, struct.error):
            return f"(not understood: {raw[0][:40]!r})"


def _same(value: Any) -> Any:
    return value


def _field(
    table: ObjectMapping,
    name: str,
    to_field: Callable[[Any], Any] = _same,
    from_field: Callable[[Any], Value] = _same,
) -> Field:
    row = table.of(name)
    if row is None:
        raise LookupError(name)
    default = default_of(table.entity, name)
    return Field(row, None if default is None else from_field(default), to_field, from_field)


ENTERPRISE: Final = {
    "weakened_security": _field(mapping.ENTERPRISE, "weakened_security"),
    "default_time_to_live": _field(mapping.ENTERPRISE, "default_time_to_live"),
    "change_notification": _field(mapping.ENTERPRISE, "non_ldap_capable_queue_manager_notification"),
    "old_directory": _field(mapping.ENTERPRISE, "old_directory"),
}
SITE: Final = {
    "foreign": _field(mapping.SITE, "foreign_site"),
    "intra_site_replication_interval": _field(mapping.SITE, "intra_site_replication_interval"),
    "inter_site_replication_interval": _field(mapping.SITE, "inter_site_replication_interval"),
    "migrated_from_msmq10": _field(mapping.SITE, "migrated_from_msmq10"),
}
ROUTING_LINK: Final = {
    "cost": Field(cast("Attribute", mapping.ROUTING_LINK.of("actual_cost")), None, _same, _same),
    "description": _field(mapping.ROUTING_LINK, "description"),
}

_OPERATING_SYSTEMS: Final = {
    "other": OperatingSystemType.OTHER,
    "foreign": OperatingSystemType.FOREIGN,
    "win95": OperatingSystemType.WIN95,
    "win_client": OperatingSystemType.WIN_CLIENT,
    "win_server": OperatingSystemType.WIN_SERVER,
    "win_enterprise": OperatingSystemType.WIN_ENT,
}
_SYSTEM_NAMES: Final = {system: name for name, system in _OPERATING_SYSTEMS.items()}

MACHINE: Final = {
    "routing_server": _field(mapping.QUEUE_MANAGER, "routing_server"),
    "supporting_server": _field(mapping.QUEUE_MANAGER, "supporting_server"),
    "directory_server": _field(mapping.QUEUE_MANAGER, "directory_server"),
    "quota": _field(mapping.QUEUE_MANAGER, "queue_manager_quota", QUOTA.read, QUOTA.write),
    "journal_quota": _field(mapping.QUEUE_MANAGER, "journal_quota", QUOTA.read, QUOTA.write),
    "foreign": _field(mapping.QUEUE_MANAGER, "foreign_system"),
    "operating_system": _field(
        mapping.QUEUE_MANAGER, "operating_system_type", _OPERATING_SYSTEMS.__getitem__, _SYSTEM_NAMES.__getitem__
    ),
    "version": _field(mapping.QUEUE_MANAGER, "queue_manager_version"),
}
COMPUTER: Final = {"dns_name": _field(mapping.QUEUE_MANAGER, "qualified_computer_name")}

_PRIVACY: Final = {level.name.lower(): level for level in QueuePrivacyLevel}


def _no_null_guid(value: bytes) -> Value:
    return guid_to_text(value) if any(value) else None


QUEUE: Final = {
    "label": _field(mapping.QUEUE, "label"),
    "type": _field(mapping.QUEUE, "type", lambda text: guid_from_text(text) if text else None, _no_null_guid),
    "transactional": _field(mapping.QUEUE, "transactional"),
    "journaling": _field(mapping.QUEUE, "journaling"),
    "quota": _field(mapping.QUEUE, "quota", QUOTA.read, QUOTA.write),
    "journal_quota": _field(mapping.QUEUE, "journal_quota", QUOTA.read, QUOTA.write),
    "authentication": _field(mapping.QUEUE, "authentication"),
    "privacy_level": _field(
        mapping.QUEUE, "privacy_level", _PRIVACY.__getitem__, lambda level: QueuePrivacyLevel(level).name.lower()
    ),
    "base_priority": _field(mapping.QUEUE, "base_priority"),
    "multicast_address": _field(mapping.QUEUE, "multicast_address", lambda text: text or "", lambda text: text or None),
}


def decode(fields: dict[str, Field], entry: Entry) -> dict[str, Value]:
    return {name: field.decode(entry) for name, field in fields.items()}


def encode(fields: dict[str, Field], values: Any) -> dict[str, Values]:
    """Return the attributes of the values that ``fields`` covers. An attribute without values is to be removed."""
    return {field.row.name: field.encode(values[name]) for name, field in fields.items() if name in values}


def names(*tables: dict[str, Field]) -> tuple[str, ...]:
    """Return the names of the attributes to read."""
    return tuple(field.row.name for table in tables for field in table.values())


def pack_certificates(encoded: tuple[str, ...]) -> dict[str, Values]:
    """Encode certificates in base64 as ``mSMQSignCertificates`` and ``mSMQDigests`` (MS-MQDSSM 3.1.6.7.6.2)."""
    if not encoded:
        return {"mSMQSignCertificates": (), "mSMQDigests": ()}
    certificates = []
    for text in encoded:
        der = base64.b64decode(text)
        digest = md5(der, usedforsecurity=False).digest()
        certificates.append(MqUserSignCert(digest=digest, identifier=new_guid(), certificate=der))
    packed = MqUserSignCerts(certificates=tuple(certificates)).write()
    return {"mSMQSignCertificates": (packed,), "mSMQDigests": tuple(one.digest for one in certificates)}


def unpack_certificates(entry: Entry) -> Value:
    """Return a user's certificates in base64, sorted, or one text with the reason why they cannot be decoded."""
    packed = entry.first("mSMQSignCertificates")
    if packed is None:
        return ()
    try:
        found = MqUserSignCerts.parse(packed).certificates
    except PacketError as error:
        return f"(not understood: {error})"
    return tuple(sorted(base64.b64encode(one.certificate).decode() for one in found))
