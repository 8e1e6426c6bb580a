"""The configuration of the private slapd, as one LDIF under cn=config."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqenterprise.directory.errors import DirectoryError
from mqenterprise.directory.gateway import CREATED_MARK, MARK, SETTINGS
from mqenterprise.directory.passwords import hashed
from mqenterprise.directory.schema import openldap_ldif

SCHEMA_FOLDERS: Final = (Path("/etc/ldap/schema"), Path("/etc/openldap/schema"), Path("/usr/local/etc/openldap/schema"))
MODULE_FOLDERS: Final = (
    Path("/usr/lib/ldap"),
    Path("/usr/lib64/openldap"),
    Path("/usr/libexec/openldap"),
    Path("/usr/lib/openldap"),
)
# Attributes that searches of a node and of a plan compare.
INDEXES: Final = (
    "objectClass eq",
    "cn eq,sub",
    "objectGUID eq",
    "objectSid eq",
    "sAMAccountName eq",
    "mSMQQMID eq",
    "mSMQSites eq",
    "mSMQLabelEx eq,sub",
    "mSMQQueueType eq",
    "mSMQDigests eq",
    "adminDescription eq,sub",
    "member eq",
    "entryUUID eq",
    "entryCSN eq",
)
DATABASE_LIMIT: Final = 4 * 1024**3
"""Bytes that the database may grow to (mdb reserves address space for it, not disk)."""
NODE_UNIT: Final = "Queue Managers"
"""The organizational unit in a client certificate's subject that marks a queue manager."""
ADMINISTRATORS: Final = "MSMQ Administrators"
"""The group under CN=Users whose members may write everything."""

# A queue manager may write these: nothing that says where it is, which roles it has, or who anybody is.
COMPUTER_ATTRIBUTES: Final = ("mSMQSignCertificates", "mSMQDigests")
"""Its own certificates, on its computer. A user may write these of the user's own entry, as in Active Directory."""
CONFIGURATION_ATTRIBUTES: Final = ("mSMQEncryptKey", "mSMQSignKey", "mSMQComputerTypeEx")
"""Its own public keys and version, on its mSMQConfiguration."""
QUEUE_ATTRIBUTES: Final = (
    "mSMQLabelEx",
    "mSMQQueueType",
    "mSMQJournal",
    "mSMQQueueQuota",
    "mSMQQueueJournalQuota",
    "mSMQAuthenticate",
    "mSMQPrivacyLevel",
    "mSMQTransactional",
    "MSMQ-MulticastAddress",
    "mSMQBasePriority",
    "mSMQQueueNameExt",
    "nTSecurityDescriptor",
)
"""Properties of the public queues that it creates, changes and deletes."""

# Users that an access list allows write these. Only administrators change the list itself.
_ADDED: Final = "=arscxd"
"""Access that reads and adds, and neither replaces nor deletes."""
_MACHINE: Final = "[a-z0-9._-]+"
"""A machine's name in the access rules, without what a URL or a set would read as its own."""
_NEW: Final = ("entry", "cn", "objectClass", "objectGUID")
SITE_ATTRIBUTES: Final = ("mSMQSiteForeign", "mSMQInterval1", "mSMQInterval2", "mSMQNt4Stub")
ENTERPRISE_ATTRIBUTES: Final = ("mSMQNameStyle", "mSMQLongLived", "mSMQCSPName", "mSMQVersion")
LINK_ATTRIBUTES: Final = ("mSMQSite1", "mSMQSite2", "mSMQCost", "mSMQSiteGates", "description")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlapdPaths:
    """Where the private slapd keeps its things."""

    state: Path

    @property
    def configuration(self) -> Path:
        return self.state / "config"

    @property
    def data(self) -> Path:
        return self.state / "data"

    @property
    def tls(self) -> Path:
        return self.state / "tls"

    @property
    def authority(self) -> Path:
        """The certificate that clients trust."""
        return self.tls / "ca.pem"

    @property
    def run(self) -> Path:
        return self.state / "run"

    @property
    def socket(self) -> Path:
        return self.run / "ldapi"

    @property
    def pid(self) -> Path:
        return self.run / "slapd.pid"

    @property
    def log(self) -> Path:
        return self.state / "slapd.log"

    @property
    def password(self) -> Path:
        return self.state / "admin.password"


@dataclass(frozen=True, slots=True)
class Installation:
    """Where a machine has OpenLDAP's own files."""

    schema: Path
    """The folder of core.ldif."""
    modules: Path
    """The folder of syncprov.so; the database is built in on some systems."""

    @classmethod
    def of_this_machine(cls) -> Installation:
        """Raises :class:`DirectoryError` when OpenLDAP's server is not installed."""
        return cls(
            _existing("core.ldif", SCHEMA_FOLDERS).parent,
            _existing("syncprov.so", MODULE_FOLDERS).parent,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """One of several providers that hold the same and all take writes (RFC 4533)."""

    number: int
    """Server id, 1 to 4095; unique per server and never changed."""
    others: Mapping[int, str]
    """URLs of the other providers, by their numbers."""


def configuration_ldif(
    paths: SlapdPaths,
    root: str,
    password: str,
    owners: Iterable[int],
    *,
    durable: bool,
    installation: Installation,
    replication: Replication | None = None,
) -> str:
    """Everything under cn=config for ``slapadd -n 0``. ``owners`` are the users who administer over the socket."""
    administrator = f"cn=admin,{root}"
    return "\n".join(
        (
            _global(paths, administrator, root, owners, replication),
            _modules(installation.modules),
            "dn: cn=schema,cn=config\nobjectClass: olcSchemaConfig\ncn: schema\n",
            f"include: file://{installation.schema}/core.ldif\n",
            openldap_ldif(),
            _frontend(),
            _configuration_database(administrator),
            _database(paths, root, administrator, password, durable=durable, replication=replication),
        )
    )


def _existing(name: str, folders: tuple[Path, ...]) -> Path:
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    looked = ", ".join(str(folder) for folder in folders)
    raise DirectoryError(f"OpenLDAP's {name} is in none of {looked}: install the package slapd")


def _global(
    paths: SlapdPaths, administrator: str, root: str, owners: Iterable[int], replication: Replication | None
) -> str:
    # The owner of the process and root administer the directory over its own socket, without a password.
    users = "|".join(str(uid) for uid in sorted({0, *owners}))
    number = f"olcServerID: {replication.number}\n" if replication is not None else ""
    return f"""\
dn: cn=config
objectClass: olcGlobal
cn: config
olcPidFile: {paths.pid}
olcArgsFile: {paths.run / "slapd.args"}
olcTLSCACertificateFile: {paths.authority}
olcTLSCertificateFile: {paths.tls / "server.pem"}
olcTLSCertificateKeyFile: {paths.tls / "server.key"}
olcTLSVerifyClient: try
olcLocalSSF: 256
olcSecurity: simple_bind=112
olcPasswordHash: {{SSHA}}
olcAuthzRegexp: {{0}}"^gidNumber=[0-9]+\\+uidNumber=({users}),cn=peercred,cn=external,cn=auth$" "{administrator}"
olcAuthzRegexp: {{1}}"^cn=([^,]+),ou={NODE_UNIT}$" "cn=$1,cn=computers,{root}"
{number}"""


def _modules(folder: Path) -> str:
    return f"""\
dn: cn=module,cn=config
objectClass: olcModuleList
cn: module
olcModulePath: {folder}
olcModuleLoad: back_mdb
olcModuleLoad: syncprov
olcModuleLoad: unique
"""


def _frontend() -> str:
    return """\
dn: olcDatabase={-1}frontend,cn=config
objectClass: olcDatabaseConfig
objectClass: olcFrontendConfig
olcDatabase: {-1}frontend
olcAccess: {0}to dn.base="" by * read
olcAccess: {1}to dn.base="cn=Subschema" by * read
"""


def _configuration_database(administrator: str) -> str:
    return f"""\
dn: olcDatabase={{0}}config,cn=config
objectClass: olcDatabaseConfig
olcDatabase: {{0}}config
olcAccess: {{0}}to * by dn.exact="{administrator}" manage by * none
"""


def _database(
    paths: SlapdPaths,
    root: str,
    administrator: str,
    password: str,
    *,
    durable: bool,
    replication: Replication | None,
) -> str:
    indexes = "\n".join(f"olcDbIndex: {index}" for index in INDEXES)
    access = "\n".join(f"olcAccess: {{{order}}}{rule}" for order, rule in enumerate(access_rules(root)))
    return f"""\
dn: olcDatabase={{1}}mdb,cn=config
objectClass: olcDatabaseConfig
objectClass: olcMdbConfig
olcDatabase: {{1}}mdb
olcDbDirectory: {paths.data}
olcSuffix: {root}
olcRootDN: {administrator}
olcRootPW: {_hashed(password, root)}
olcDbMaxSize: {DATABASE_LIMIT}
olcDbNoSync: {"FALSE" if durable else "TRUE"}
olcSizeLimit: unlimited
olcAddContentAcl: TRUE
{indexes}
{access}
{_replicated(paths, root, administrator, password, replication) if replication is not None else ""}
dn: olcOverlay={{0}}syncprov,olcDatabase={{1}}mdb,cn=config
objectClass: olcOverlayConfig
objectClass: olcSyncProvConfig
olcOverlay: {{0}}syncprov
olcSpCheckpoint: 100 10
olcSpSessionlog: 10000

dn: olcOverlay={{1}}unique,olcDatabase={{1}}mdb,cn=config
objectClass: olcOverlayConfig
objectClass: olcUniqueConfig
olcOverlay: {{1}}unique
olcUniqueURI: ldap:///{root}?objectGUID?sub
olcUniqueURI: ldap:///{root}?objectSid?sub
"""


def rights_groups(creates: str) -> tuple[str, ...]:
    """The groups beneath a site, or the enterprise, by which the access rules decide; ``creates`` is its right to
    create.
    """
    return tuple(f"{verb} {right}" for right in (creates, "set_properties") for verb in ("allow", "deny"))


def _holders(right: str, level: str, of: str = "$1", style: str = "set.expand", *, who: str = "") -> str:
    """The clauses for those who are refused a right, and for those who have it. Groups may be members of the groups.

    The container of all users stands for everybody in it. ``who`` is one more condition.
    """
    found = {
        verb: f'by {who}{style}="[cn={verb} {right},{of}]/member* & (user | user/-1)"' for verb in ("deny", "allow")
    }
    return f"{found['deny']} read {found['allow']} {level}"


def _listed_rules(root: str, administrators: str, others: str) -> tuple[str, ...]:
    """The access rules that enforce the access lists of sites and of the enterprise (MS-MQMQ 2.2.25, 2.2.26).

    Everyone known reads all objects, and administrators may do everything, whatever a list says. The right to delete a
    site, and those to its list and owner, are not enforced for others: only administrators have them.

    A right to create lets its holder add whole entries, and no value to an entry that exists. Links are named as in
    MS-MQDSSM 3.1.6.1.4.2, so that none takes the place of a group by which these rules decide. Settings repeat the
    queue manager of the server's name, or the defaults (3.1.6.1.1.3).
    """
    site = f"(cn=[^,]+,cn=sites,cn=configuration,{re.escape(root.lower())})$"
    enterprise = f"cn=MsmqServices,cn=Services,cn=Configuration,{root}"
    # Compared first, as it needs no search, for all who only read.
    creator = "dnattr=creatorsName "
    exists = f'by {creator}set.expand="[ldap:///$0?objectClass?base?(objectClass=*)]/objectClass" read'

    def beneath(right: str, of: str = "$1", style: str = "set.expand") -> str:
        return f"{administrators} {_holders(right, _ADDED, of, style)} {others}"

    def new(right: str, of: str, style: str = "set.expand") -> str:
        return f"{administrators} {exists} {_holders(right, _ADDED, of, style, who=creator)} {others}"

    machine, link = new("create_machine", "$2"), new("create_routing_link", enterprise, "set")
    server = f'dn.regex="^cn=({_MACHINE}),cn=servers,{site}" filter="(objectClass=server)"'
    settings = f'dn.regex="^cn=msmq settings,cn=({_MACHINE}),cn=servers,{site}" filter="(objectClass=mSMQSettings)"'
    manager = f"[cn=msmq,cn=$1,cn=computers,{root}]"
    return (
        f'to dn.regex="^{site}" attrs={",".join(SITE_ATTRIBUTES)}'
        f" {administrators} {_holders('set_properties', 'write')} {others}",
        f'to dn.regex="^cn=servers,{site}" attrs=children {beneath("create_machine")}',
        f"to {server} attrs=children {beneath('create_machine', '$2')}",
        f"to {server} attrs={','.join(_NEW)} {machine}",
        f'to {server} attrs={MARK} val.exact="{CREATED_MARK.decode()}" {machine}',
        *(
            f'to {settings} attrs={name} {administrators} by {creator}set.expand="this/{name} &'
            f' ({f"[{default.decode()}] | " if default else ""}{manager}/{repeated})" break {others}'
            for name, (repeated, default) in SETTINGS.items()
        ),
        f"to {settings} attrs={','.join((*_NEW, *SETTINGS))} {machine}",
        f'to dn.exact="{enterprise}" attrs={",".join(ENTERPRISE_ATTRIBUTES)}'
        f" {administrators} {_holders('set_properties', 'write', enterprise, 'set')} {others}",
        f'to dn.exact="{enterprise}" attrs=children {beneath("create_routing_link", enterprise, "set")}',
        f'to dn.regex="^cn=[0-9a-f]{{64}},{re.escape(enterprise.lower())}$" filter="(objectClass=mSMQSiteLink)"'
        f" attrs={','.join((*_NEW, *LINK_ATTRIBUTES))} {link}",
    )


def access_rules(root: str) -> tuple[str, ...]:
    """The access rules: a queue manager writes named attributes of its own objects, everyone known reads the rest.

    A node that was taken over would otherwise name itself a routing server or a site gate, take over the name of
    another host, or create a user with the SID of somebody else.
    """
    administrators = f'by group/group/member="cn={ADMINISTRATORS},cn=Users,{root}" write'
    node = 'by dn.exact,expand="$1"'
    others = "by users read by * none"
    computer = f"(cn=[^,]+,cn=computers,{re.escape(root.lower())})$"
    queue = f'to dn.regex="^cn=[^,]+,cn=msmq,{computer}" filter="(objectClass=mSMQQueue)"'
    # Given once, when the queue is created: neither replaced nor deleted by the node.
    once = f"{administrators} {node} {_ADDED} {others}"
    return (
        f'to dn.regex="^{computer}" attrs=userPassword {administrators} by anonymous auth by * none',
        f"to attrs=userPassword {administrators} by self =xw by anonymous auth by * none",
        f'to dn.regex="^{computer}" attrs={",".join(COMPUTER_ATTRIBUTES)} {administrators} {node} write {others}',
        f'to dn.children="cn=Users,{root}" attrs={",".join(COMPUTER_ATTRIBUTES)}'
        f" {administrators} by self write {others}",
        f'to dn.regex="^cn=msmq,{computer}" attrs=children,{",".join(CONFIGURATION_ATTRIBUTES)}'
        f" {administrators} {node} write {others}",
        f"{queue} attrs=entry,{','.join(QUEUE_ATTRIBUTES)} {administrators} {node} write {others}",
        f'{queue} attrs=objectClass val.regex="^(top|mSMQQueue)$" {once}',
        f"{queue} attrs=cn,objectGUID {once}",
        *_listed_rules(root, administrators, others),
        f"to * {administrators} {others}",
    )


def _replicated(paths: SlapdPaths, root: str, administrator: str, password: str, replication: Replication) -> str:
    if re.search(r'[\s"\\]', password):
        raise DirectoryError("the administrator's password may have no blanks, quotes and backslashes in it")
    sources = "".join(
        f"olcSyncrepl: {{{order}}}rid={number:03d} provider={url} bindmethod=simple"
        f' binddn="{administrator}" credentials="{password}" searchbase="{root}" type=refreshAndPersist'
        f' retry="2 30 10 +" network-timeout=5 timeout=30 keepalive=60:5:10'
        f' tls_reqcert=demand tls_cacert="{paths.authority}"\n'
        for order, (number, url) in enumerate(sorted(replication.others.items()))
    )
    return sources + "olcMultiProvider: TRUE\n" if sources else ""


def _hashed(password: str, root: str) -> str:
    """The same settings are the same text. The password is long and random, so its salt need not be random too."""
    salt = hashlib.sha256(f"{root} {password}".encode()).digest()[:16]
    return hashed(password.encode(), salt).decode()
