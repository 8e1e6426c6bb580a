"""The differences between the two kinds of servers. No other module depends on the kind.

=====================  =================================  ==========================================
subject                Active Directory                   OpenLDAP
=====================  =================================  ==========================================
objectGUID             given by the server                given by us, kept unique by an overlay
search by objectGUID   ``<GUID=...>`` in every context    an indexed search under the root
superiors, ranges      checked by the server              checked by us before we ask
deleting a subtree     a control                          leaf after leaf
times of an entry      whenCreated, whenChanged           createTimestamp, modifyTimestamp
security descriptors   a control says which parts         plain octets that nobody but us reads
accounts               sAMAccountName, unicodePwd         userPassword
=====================  =================================  ==========================================
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from mqenterprise.directory.errors import ConstraintViolated, SchemaMissing
from mqenterprise.directory.ldap_messages import SEQUENCE, Control, element, integer
from mqenterprise.directory.ldap_names import canonical, child, escape_filter, parent_of
from mqenterprise.directory.passwords import hashed
from mqenterprise.directory.schema import load_schema
from mqenterprise.directory.settings import ServerKind
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from qmnode.structures.names import utf16_length

ACTIVE_DIRECTORY_CAPABILITY: Final = b"1.2.840.113556.1.4.800"
SECURITY_DESCRIPTOR_FLAGS: Final = "1.2.840.113556.1.4.801"
TREE_DELETE: Final = "1.2.840.113556.1.4.805"
ASSERTION: Final = "1.3.6.1.1.12"
ROOT_DSE_ATTRIBUTES: Final = (
    "supportedCapabilities",
    "namingContexts",
    "rootDomainNamingContext",
    "defaultNamingContext",
    "configurationNamingContext",
)
WORKSTATION_TRUST_ACCOUNT: Final = 0x1000
NORMAL_ACCOUNT: Final = 0x0200
ACCOUNT_DISABLED: Final = 0x0002
OWNER_GROUP_AND_DACL: Final = 0x07
# Where a self-relative descriptor keeps the offset of each part (MS-DTYP 2.4.6), and the control's flag for it.
_DESCRIPTOR_PARTS: Final = ((4, 0x01), (8, 0x02), (12, 0x08), (16, 0x04))


@dataclass(frozen=True, slots=True)
class Contexts:
    """The naming contexts of one directory."""

    root: str
    """rootDomainNamingContext: where MS-MQDSSM 2.2.1 hangs everything."""
    domain: str
    """defaultNamingContext: where this server's computers and users are."""
    configuration: str

    @property
    def sites(self) -> str:
        return child("Sites", self.configuration)

    @property
    def services(self) -> str:
        return child("Services", self.configuration)

    @property
    def enterprise(self) -> str:
        """The one mSMQEnterpriseSettings object (2.2.3)."""
        return child("MsmqServices", self.services)

    @property
    def computers(self) -> str:
        return child("Computers", self.domain)

    @property
    def users(self) -> str:
        return child("Users", self.domain)


class Dialect(ABC):
    """One kind of server. The methods here are right for a server that needs nothing special."""

    kind: ClassVar[ServerKind]
    stored_names: Mapping[str, str] = {}
    """Attributes that go by another name on this kind of server: Active Directory's name to its own."""
    tree_delete: Control | None = None
    """The control that deletes a subtree, if there is one."""
    gives_guid = True
    """Whether the server itself gives objectGUID."""

    def __init__(self, contexts: Contexts) -> None:
        self.contexts = contexts

    def only_if(self, attribute: str, value: bytes) -> Control | None:
        """The control that makes a request conditional on a value, where the server has one (RFC 4528)."""
        return None

    def with_identity(
        self, classes: Sequence[str], attributes: Mapping[str, Sequence[bytes]]
    ) -> dict[str, Sequence[bytes]]:
        """The attributes of a new entry with an objectGUID, where it is ours to give."""
        return dict(attributes)

    @abstractmethod
    def by_guid(self, guid: Guid) -> tuple[str, str, bool]:
        """Where and how to search for a GUID: base, filter, and whether the base itself is meant."""

    def reading_controls(self, attributes: Collection[str]) -> list[Control]:
        """Controls for reading these attributes."""
        return []

    def writing_controls(self, attributes: Mapping[str, Sequence[bytes]]) -> list[Control]:
        """Controls for writing these attributes."""
        return []

    def check(
        self,
        dn: str,
        classes: Sequence[str],
        attributes: Mapping[str, Sequence[bytes]],
        parent_classes: Callable[[str], Sequence[str]],
    ) -> None:
        """Refuse a change that only Active Directory, which knows its schema, would refuse: ``ConstraintViolated``."""
        return None

    @abstractmethod
    def account(self, object_class: str, name: str) -> dict[str, Sequence[bytes]]:
        """Attributes that the server requires of a new user or computer, beside those of the caller."""

    @abstractmethod
    def password(self, secret: str) -> dict[str, Sequence[bytes]]:
        """The attributes that set an account's password and let it in."""


class ActiveDirectory(Dialect):
    """Active Directory, and Samba that is one."""

    kind = ServerKind.ACTIVE_DIRECTORY
    tree_delete = (TREE_DELETE, True, None)

    def by_guid(self, guid: Guid) -> tuple[str, str, bool]:
        return f"<GUID={guid_to_text(guid)}>", "(objectClass=*)", True

    def reading_controls(self, attributes: Collection[str]) -> list[Control]:
        # Without it the server leaves the attribute out, for nobody but it may read the part about auditing.
        if any(name.lower() in ("ntsecuritydescriptor", "*") for name in attributes):
            return [_descriptor_parts(OWNER_GROUP_AND_DACL)]
        return []

    def writing_controls(self, attributes: Mapping[str, Sequence[bytes]]) -> list[Control]:
        for name, values in attributes.items():
            if name.lower() == "ntsecuritydescriptor" and values:
                return [_descriptor_parts(descriptor_flags(values[0]))]
        return []

    def account(self, object_class: str, name: str) -> dict[str, Sequence[bytes]]:
        if object_class == "computer":
            control = WORKSTATION_TRUST_ACCOUNT
            account_name = f"{name}$"
        elif object_class == "user":
            control = NORMAL_ACCOUNT | ACCOUNT_DISABLED  # until it has a password
            account_name = name
        else:
            return {"sAMAccountName": (name.encode(),)}
        return {"sAMAccountName": (account_name.encode(),), "userAccountControl": (str(control).encode(),)}

    def password(self, secret: str) -> dict[str, Sequence[bytes]]:
        return {"unicodePwd": (f'"{secret}"'.encode("utf-16-le"),)}


class OpenLdap(Dialect):
    """OpenLDAP with the schema in ``schemas/msmq-openldap.ldif``."""

    kind = ServerKind.OPENLDAP
    stored_names: Mapping[str, str] = {"whencreated": "createTimestamp", "whenchanged": "modifyTimestamp"}
    gives_guid = False

    def __init__(self, contexts: Contexts) -> None:
        super().__init__(contexts)
        self._schema = load_schema()
        self._attributes = {name.lower(): (name, kind) for name, kind in self._schema.attributes.items()}

    def only_if(self, attribute: str, value: bytes) -> Control | None:
        # An equalityMatch filter (RFC 4511 4.5.1).
        return ASSERTION, True, element(0xA3, element(0x04, attribute.encode()) + element(0x04, value))

    def with_identity(
        self, classes: Sequence[str], attributes: Mapping[str, Sequence[bytes]]
    ) -> dict[str, Sequence[bytes]]:
        if classes[-1] not in self._schema.classes:
            return dict(attributes)  # the root's class is OpenLDAP's own and does not allow one
        return {"objectGUID": (new_guid(),), **attributes}

    def by_guid(self, guid: Guid) -> tuple[str, str, bool]:
        return self.contexts.root, f"(objectGUID={escape_filter(bytes(guid))})", False

    def check(
        self,
        dn: str,
        classes: Sequence[str],
        attributes: Mapping[str, Sequence[bytes]],
        parent_classes: Callable[[str], Sequence[str]],
    ) -> None:
        for name, values in attributes.items():
            self._check_range(dn, name, values)
        definition = self._schema.classes.get(classes[-1]) if classes else None
        if definition is None:
            return
        missing = [name for name in definition.must if not attributes.get(name)]
        if missing:
            raise ConstraintViolated(f"{dn} lacks {', '.join(missing)}, which a {classes[-1]} must have")
        parents = parent_classes(parent_of(dn))
        allowed = {name.lower() for name in definition.superiors}
        # The root of a private directory is an organization with a domain component; Active Directory's is a domainDNS.
        present = {name.lower() for name in parents} | ({"domaindns"} if "dcObject" in parents else set())
        if not allowed & present:
            raise ConstraintViolated(
                f"{dn} cannot be there: a {classes[-1]} lies under {' or '.join(definition.superiors)}, "
                f"not under {parents[-1] if parents else 'nothing'}"
            )

    def account(self, object_class: str, name: str) -> dict[str, Sequence[bytes]]:
        account_name = f"{name}$" if object_class == "computer" else name
        return {"sAMAccountName": (account_name.encode(),)}

    def password(self, secret: str) -> dict[str, Sequence[bytes]]:
        return {"userPassword": (hashed(secret.encode()),)}

    def _check_range(self, dn: str, name: str, values: Sequence[bytes]) -> None:
        known = self._attributes.get(name.lower())
        if known is None:
            return
        proper, kind = known
        if kind.single and len(values) > 1:
            raise ConstraintViolated(f"{proper} of {dn} can have one value, not {len(values)}")
        for value in values:
            match kind.syntax:
                case "string":
                    size, unit = utf16_length(value.decode("utf-8", errors="replace")), "UTF-16 units"
                case "octets":
                    size, unit = len(value), "bytes"
                case "integer":
                    size, unit = int(value), "as its value"
                case _:
                    continue
            if (kind.lower is not None and size < kind.lower) or (kind.upper is not None and size > kind.upper):
                allowed = f"{kind.lower or 0} to {'any number' if kind.upper is None else kind.upper}"
                raise ConstraintViolated(f"{proper} of {dn} has {size} {unit}; {allowed} are allowed")


def _descriptor_parts(flags: int) -> Control:
    return SECURITY_DESCRIPTOR_FLAGS, True, element(SEQUENCE, integer(flags))


def descriptor_flags(descriptor: bytes) -> int:
    """The parts that a self-relative security descriptor has, as flags of the control (MS-ADTS 3.1.1.3.4.1.11). Absent
    parts must not be written: the object would lose its owner.
    """
    flags = 0
    for offset, flag in _DESCRIPTOR_PARTS:
        if len(descriptor) >= offset + 4 and struct.unpack_from("<I", descriptor, offset)[0]:
            flags |= flag
    return flags


def dialect_of(
    root_dse: Mapping[str, Sequence[bytes]], kind: ServerKind = ServerKind.AUTO, root: str | None = None
) -> Dialect:
    """Recognize the kind of server by its root DSE. ``root`` is our own choice, and needed when it does not say."""

    def first(name: str) -> str | None:
        values = root_dse.get(name.lower())
        return values[0].decode("utf-8", "replace") if values else None

    if kind is ServerKind.AUTO:
        is_active = ACTIVE_DIRECTORY_CAPABILITY in root_dse.get("supportedcapabilities", ())
        kind = ServerKind.ACTIVE_DIRECTORY if is_active else ServerKind.OPENLDAP
    if kind is ServerKind.ACTIVE_DIRECTORY:
        top = root or first("rootDomainNamingContext")
        domain = first("defaultNamingContext") or top
        configuration = first("configurationNamingContext")
        if top is None or domain is None or configuration is None:
            raise SchemaMissing("the server says that it is Active Directory and does not name its naming contexts")
        return ActiveDirectory(Contexts(canonical(top), canonical(domain), canonical(configuration)))
    top = root or first("namingContexts")
    if top is None:
        raise SchemaMissing("the server names no naming context: set root: to the distinguished name to use")
    top = canonical(top)
    return OpenLdap(Contexts(top, top, child("Configuration", top)))
