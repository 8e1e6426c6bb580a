"""The attributes of MS-MQDSSM as data: which field of an object is which LDAP attribute, and how a value is written.

Properties that people declare come from :mod:`qmnode.objects`; this module adds their syntax in the directory.
"""

import base64
import calendar
import enum
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from hashlib import md5
from typing import Any, Final

from mqenterprise.directory.entries import Entry
from mqenterprise.directory.errors import ConstraintViolated
from mqenterprise.directory.ldap_names import escape_filter
from qmnode.directory.port import (
    DirectoryObject,
    DistributionList,
    Enterprise,
    Filter,
    Queue,
    QueueAlias,
    QueueManager,
    RoutingLink,
    Site,
    User,
)
from qmnode.objects.rows import Changes, Door, Form, Kind, Property
from qmnode.objects.table import ROWS
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import guid_from_bytes, new_guid
from qmnode.structures.public_keys import MqUserSignCert, MqUserSignCerts

Values = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Codec:
    """How a field's value is written as an attribute's values and read from them. No values mean: not set."""

    encode: Callable[[Any], Values]
    decode: Callable[[Values], Any]


def _time(values: Values) -> int:
    """Seconds since 1970 of a generalized time; Active Directory writes tenths of seconds that are always zero."""
    found = re.fullmatch(rb"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(?:[.,]\d+)?Z", values[0])
    if found is None:
        raise ValueError(f"{values[0]!r} is not a generalized time in UTC")
    return calendar.timegm(tuple(int(part) for part in found.groups()))


def _signed(value: int) -> Values:
    """An attribute of syntax Integer has 32 signed bits; quotas and times use all 32 unsigned."""
    return (str(struct.unpack("<i", struct.pack("<I", value))[0]).encode(),)


def _flag(yes: bytes, no: bytes) -> Codec:
    return Codec(lambda value: (yes if value else no,), lambda values: values[0].upper() == yes)


def _optional(value: bytes | None) -> Values:
    return () if value is None else (value,)


TEXT: Final = Codec(lambda value: (value.encode(),) if value else (), lambda values: values[0].decode())
BOOLEAN: Final = _flag(b"TRUE", b"FALSE")
YES_NO: Final = _flag(b"Y", b"N")
ONE_ZERO: Final = _flag(b"1", b"0")
VERSION: Final = _flag(b"3", b"200")
"""OldDirectory in mSMQVersion (3.1.6.11.3)."""
INTEGER: Final = Codec(lambda value: (str(int(value)).encode(),), lambda values: int(values[0]))
UNSIGNED: Final = Codec(_signed, lambda values: int(values[0]) & 0xFFFFFFFF)
OCTETS: Final = Codec(_optional, lambda values: values[0])
OCTETS_LIST: Final = Codec(tuple, tuple)
GUID: Final = Codec(_optional, lambda values: guid_from_bytes(values[0]))
GUID_LIST: Final = Codec(tuple, lambda values: tuple(guid_from_bytes(value) for value in values))
TIME: Final = Codec(lambda value: (), _time)


class Refers(enum.Enum):
    """The kind of object to which an attribute of distinguished names refers; the field has GUIDs."""

    SITE = "site"
    QUEUE_MANAGER = "mSMQConfiguration"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One row of the mapping."""

    field: str
    name: str
    codec: Codec
    section: str
    """Of MS-MQDSSM, where this row is in a table."""
    changes: Changes = Changes.ALWAYS
    required: bool = False
    """Whether an entry without it is half an object."""
    on_computer: bool = False
    """On the computer above the mSMQConfiguration object (3.1.6.20.1)."""
    refers: Refers | None = None


@dataclass(frozen=True, slots=True)
class ObjectMapping:
    """All rows of one kind of object."""

    entity: type[DirectoryObject]
    object_class: str
    attributes: tuple[Attribute, ...]
    computed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Fields computed by code, and the attributes that it needs."""
    context: str = "domain"
    """Of :class:`~mqenterprise.directory.server_kinds.Contexts`, what all objects of the kind are beneath."""

    def of(self, name: str) -> Attribute | None:
        """The row of a field."""
        return next((row for row in self.attributes if row.field == name), None)

    def names(self, wanted: Iterable[str] | None, *, on_computer: bool = False) -> tuple[str, ...]:
        """The LDAP attributes that reading these fields takes (3.1.6.10)."""
        asked = {item.name for item in fields(self.entity)} if wanted is None else set(wanted)
        unknown = asked - {item.name for item in fields(self.entity)}
        if unknown:
            raise ConstraintViolated(f"a {self.entity.__name__} has no attribute {', '.join(sorted(unknown))}")
        rows = [row.name for row in self.attributes if row.on_computer == on_computer and row.field in asked]
        extra = [name for computed, names in self.computed.items() if computed in asked for name in names]
        return tuple(dict.fromkeys((*rows, *((*extra, "objectGUID") if not on_computer else ()))))


IDENTITY: Final = Attribute("identifier", "objectGUID", GUID, "3.1.6.10", Changes.NEVER, required=True)
TIMES: Final = (
    Attribute("create_time", "whenCreated", TIME, "3.1.6.10", Changes.NEVER),
    Attribute("modify_time", "whenChanged", TIME, "3.1.6.10", Changes.NEVER),
)
NAME: Final = Attribute("name", "cn", TEXT, "3.1.6.10", Changes.NEVER, required=True)

_BY_TYPE: Final = {bool: BOOLEAN, int: UNSIGNED, str: TEXT, tuple: OCTETS}
_CODECS: Final = {
    "mSMQCSPName": YES_NO,
    "mSMQVersion": VERSION,
    # 3.1.6.11.4 calls its absence an error; sites that Active Directory's own tools made never have it.
    "mSMQNt4Stub": ONE_ZERO,
    "mSMQCost": INTEGER,
    "mSMQSites": GUID_LIST,
    "mSMQQueueType": GUID,
    "mSMQBasePriority": INTEGER,
}
"""The syntax of an attribute where the form of the property does not decide it."""
_REFERS: Final = frozenset({"mSMQSiteGates", "mSMQOutRoutingServers", "mSMQInRoutingServers"})


def _codec(row: Property) -> Codec:
    member = type(row.default)
    return Codec(INTEGER.encode, lambda values: member(int(values[0]))) if row.form.choices else _BY_TYPE[row.form.type]


def _properties(kind: Kind) -> tuple[Attribute, ...]:
    """The rows of a kind's properties that the directory holds."""
    return tuple(
        Attribute(
            row.in_directory,
            row.attribute,
            GUID_LIST if row.attribute in _REFERS else _CODECS.get(row.attribute) or _codec(row),
            row.attribute_section,
            row.changes,
            required=row.attribute == "mSMQCost",
            on_computer=row.attribute == "dNSHostName",
            refers=Refers.QUEUE_MANAGER if row.attribute in _REFERS else None,
        )
        for row in ROWS[kind].values()
        if row.attribute
    )


def _mapping(
    kind: Kind, entity: type[DirectoryObject], object_class: str, *own: Attribute, **more: Any
) -> ObjectMapping:
    """The GUID of a kind, what no declaration says of it, and its properties."""
    return ObjectMapping(entity, object_class, (IDENTITY, *own, *_properties(kind)), **more)


ENTERPRISE: Final = _mapping(Kind.ENTERPRISE, Enterprise, "mSMQEnterpriseSettings", context="enterprise")
SITE: Final = _mapping(Kind.SITE, Site, "site", NAME, context="sites")
ROUTING_LINK: Final = _mapping(
    *(Kind.ROUTING_LINK, RoutingLink, "mSMQSiteLink"),
    Attribute("site1_identifier", "mSMQSite1", GUID, "3.1.6.1.4.4", required=True, refers=Refers.SITE),
    Attribute("site2_identifier", "mSMQSite2", GUID, "3.1.6.1.4.5", required=True, refers=Refers.SITE),
    context="enterprise",
)
QUEUE_MANAGER: Final = _mapping(
    *(Kind.MACHINE, QueueManager, "mSMQConfiguration", *TIMES),
    Attribute("public_encryption_key_list", "mSMQEncryptKey", OCTETS, "3.1.6.1.1.2"),
    Attribute("public_signing_keys", "mSMQSignKey", OCTETS, "3.1.6.1.1.2"),
    Attribute("security", "nTSecurityDescriptor", OCTETS, "3.1.6.17"),
    Attribute("operating_system_version", "operatingSystemVersion", TEXT, "3.1.6.11.1", on_computer=True),
    Attribute("public_signing_key_list", "mSMQSignCertificates", OCTETS, "3.1.6.1.1.9", on_computer=True),
)
QUEUE: Final = _mapping(*(Kind.QUEUE, Queue, "mSMQQueue", *TIMES), computed={"pathname": ("cn", "mSMQQueueNameExt")})
USER: Final = _mapping(
    *(Kind.USER, User, "user"),
    Attribute("security_identifier", "objectSid", OCTETS, "3.1.6.10.6", Changes.NEVER),
    Attribute("certificate_digest_list", "mSMQDigests", OCTETS_LIST, "3.1.6.7.6.2"),
    computed={"name": ("sAMAccountName", "cn")},
)
QUEUE_ALIAS: Final = _mapping(Kind.QUEUE_ALIAS, QueueAlias, "msMQ-Custom-Recipient", NAME)
DISTRIBUTION_LIST: Final = _mapping(Kind.DISTRIBUTION_LIST, DistributionList, "group", NAME)

MAPPINGS: Final = {
    Kind.ENTERPRISE: ENTERPRISE,
    Kind.SITE: SITE,
    Kind.USER: USER,
    Kind.MACHINE: QUEUE_MANAGER,
    Kind.ROUTING_LINK: ROUTING_LINK,
    Kind.QUEUE: QUEUE,
    Kind.QUEUE_ALIAS: QUEUE_ALIAS,
    Kind.DISTRIBUTION_LIST: DISTRIBUTION_LIST,
}


def default_of(entity: type[DirectoryObject], name: str) -> Any:
    """The value of a field whose attribute is not set (the default values of 3.1.6.11)."""
    return next(item.default for item in fields(entity) if item.name == name)


def filter_of(mapping: ObjectMapping, expressions: Iterable[Filter]) -> tuple[str, tuple[Filter, ...]]:
    """The LDAP filter of attribute-filter expressions, and those that cannot be said in it and are left to us."""
    parts, left = [], []
    for expression in expressions:
        row = mapping.of(expression.attribute)
        if row is None or row.on_computer or row.refers is not None or row.codec is TIME:
            left.append(expression)
        else:
            parts.append(_assertion(mapping, row, expression.value))
    return f"(&(objectClass={mapping.object_class}){''.join(parts)})", tuple(left)


def _assertion(mapping: ObjectMapping, row: Attribute, value: object) -> str:
    if row.codec in (GUID_LIST, OCTETS_LIST) and isinstance(value, bytes):
        value = (value,)  # "the list contains": what a search for a member means
    values = row.codec.encode(value)
    equal = "".join(f"({row.name}={escape_filter(item)})" for item in values) or f"(!({row.name}=*))"
    if len(values) > 1:
        equal = f"(&{equal})"
    if value == default_of(mapping.entity, row.field) and values:
        equal = f"(|{equal}(!({row.name}=*)))"
    return equal


def satisfies(found: DirectoryObject, expressions: Iterable[Filter]) -> bool:
    """Whether an object satisfies expressions; names compare without case."""

    def plain(value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    for expression in expressions:
        value, wanted = plain(getattr(found, expression.attribute)), plain(expression.value)
        if value != wanted and not (isinstance(value, tuple) and wanted in value):
            return False
    return True


@dataclass(frozen=True, slots=True)
class DeclaredValue:
    """A property in the written form of declarations, as an attribute."""

    row: Attribute
    form: Form
    key: str
    """The attribute in lower case, as entries have it."""
    default: Any
    """The specification's default, which an entry without the attribute has."""
    write: Callable[[Any], Any] | None
    """To the written form, where that is another."""

    def encode(self, written: Any) -> Values:
        if self.row.codec is TEXT or (self.row.codec is GUID and not written):
            return self.row.codec.encode(written or None)
        return self.row.codec.encode(self.form.read(written))

    def decode(self, entry: Entry) -> Any:
        """A value that cannot be decoded becomes a text that no declaration contains, so that a plan repairs it."""
        raw = entry.attributes.get(self.key)
        if not raw:
            return self.default
        try:
            value = self.row.codec.decode(raw)
            return value if self.write is None else self.write(value)
        except (ValueError, LookupError, struct.error):
            return f"(not understood: {raw[0][:40]!r})"


def declared_values(kind: Kind, *, on_computer: bool = False) -> dict[str, DeclaredValue]:
    """The properties of a kind that are plain values in declarations, by name."""
    found = {}
    for row in ROWS[kind].at(Door.DECLARATION):
        attribute = MAPPINGS[kind].of(row.in_directory)
        if attribute is None or row.form.type is tuple or attribute.on_computer != on_computer:
            continue
        write = row.form.write if row.form.choices or row.form.nullable else None
        default = None if attribute.required else default_of(MAPPINGS[kind].entity, attribute.field)
        if write is not None and default is not None:
            default = write(default)
        found[row.name] = DeclaredValue(attribute, row.form, attribute.name.lower(), default, write)
    return found


def digests_of(packed: bytes) -> tuple[bytes, ...]:
    """The digests of the certificates in an MQUSERSIGNCERTS structure, in their order (MS-MQDSSM 3.1.6.1.1.9).

    Raises ``ConstraintViolated`` for bytes that are no such structure.
    """
    try:
        return tuple(certificate.digest for certificate in MqUserSignCerts.parse(packed).certificates)
    except PacketError as error:
        raise ConstraintViolated(f"these are no packed certificates (MQUSERSIGNCERTS): {error}") from error


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


def unpack_certificates(entry: Entry) -> tuple[str, ...] | str:
    """Return a user's certificates in base64, sorted, or one text with the reason why they cannot be decoded."""
    packed = entry.first("mSMQSignCertificates")
    if packed is None:
        return ()
    try:
        found = MqUserSignCerts.parse(packed).certificates
    except PacketError as error:
        return f"(not understood: {error})"
    return tuple(sorted(base64.b64encode(one.certificate).decode() for one in found))
