"""How a directory is reached: servers, transport, identity and time limits."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator


class BindMethod(enum.StrEnum):
    """How the client authenticates."""

    ANONYMOUS = "anonymous"
    SIMPLE = "simple"
    EXTERNAL = "external"
    GSSAPI = "gssapi"


class ServerKind(enum.StrEnum):
    """The server product. ``AUTO`` asks the root DSE."""

    AUTO = "auto"
    OPENLDAP = "openldap"
    ACTIVE_DIRECTORY = "active-directory"


SCHEMES = ("ldaps", "ldap", "ldapi")


def _checked_servers(servers: tuple[str, ...]) -> tuple[str, ...]:
    for server in servers:
        parts = urlsplit(server)
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise ValueError(f"{server!r} is not the URL of a directory server: write ldaps://host, for example")
    return servers


CATALOGUE: Final = "the global catalogue"


class OtherServers(BaseModel):
    """How the global catalogue or another domain is reached. Other settings are those of the own domain."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    servers: tuple[str, ...] = ()
    """URLs; those of a domain that names none are found by DNS."""
    user: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    tls_name: str | None = None

    _known_schemes = field_validator("servers")(_checked_servers)


class DirectorySettings(BaseModel):
    """Everything that is needed to open a directory. Verification of certificates is on unless switched off here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    servers: tuple[str, ...] = ()
    """URLs in the order to try: ``ldaps://host[:port]``, ``ldap://`` (StartTLS is used then) or ``ldapi://%2Fpath``."""
    domain: str | None = None
    """A DNS domain whose servers are looked up (SRV records) when :attr:`servers` is empty."""
    site: str | None = None
    """The site whose SRV records are preferred."""
    nameservers: tuple[str, ...] = ()
    """``address`` or ``address:port`` of the name servers to ask for SRV records; the system's when empty."""
    root: str | None = None
    """The distinguished name of the directory's root; the server's own default naming context when not set."""
    kind: ServerKind = ServerKind.AUTO

    bind: BindMethod = BindMethod.SIMPLE
    user: str | None = None
    """A distinguished name, or on Active Directory also ``user@REALM``."""
    password: SecretStr | None = None
    password_file: Path | None = None

    start_tls: bool = True
    """Whether an ``ldap://`` connection is secured before anything else is said."""
    verify: bool = True
    ca_file: Path | None = None
    """PEM certificates that are trusted; the system's when not set."""
    tls_name: str | None = None
    """The server's name in its certificate and its Kerberos principal, when it is not the host of the URL."""
    client_certificate: Path | None = None
    client_key: Path | None = None

    connect_timeout: float = Field(default=5.0, gt=0, le=120)
    """Seconds for one server to accept a connection and secure it."""
    operation_timeout: float = Field(default=30.0, gt=0, le=600)
    """Seconds for one answer. MS-MQDSSM 3.1.6.15 has 120 s for a whole search."""
    page_size: int = Field(default=500, ge=1, le=1000)
    """Entries of one page of a search; Active Directory gives no more than 1,000 (MaxPageSize)."""
    search_entries: int = Field(default=200_000, ge=1)
    """The most entries of one search. A search that finds more fails, with a sentence that says so."""
    search_bytes: int = Field(default=128 << 20, ge=1)
    """The most bytes of all answers to one search."""
    search_timeout: float = Field(default=120.0, gt=0)
    """Seconds to wait for all answers to one search (MS-MQDSSM 3.1.6.15)."""
    pool_size: int = Field(default=4, ge=1, le=64)
    """Connections that are kept at most."""
    retry_after: float = Field(default=30.0, ge=0)
    """Seconds that a server which failed is tried last."""
    idle_limit: float = Field(default=240.0, gt=0)
    """Seconds after which an unused connection is not trusted any more; Active Directory closes one after 900."""

    catalogue: OtherServers | None = None
    """The global catalogue of the forest, ``ldaps://host:3269``. With it, objects of other domains are found, too."""
    domains: Mapping[str, OtherServers] = {}
    """Other domains of the forest, by DNS name, whose servers or account DNS and our own account do not say."""
    notify_through: Path | None = None
    """The Unix socket of a node on this machine, which sends change notifications (MS-MQCN) to the queue managers whose
    objects are changed. Windows reads its objects again at once then; nodes see changes by themselves.
    """

    _known_schemes = field_validator("servers")(_checked_servers)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.servers and not self.domain:
            raise ValueError("name servers (servers:) or a DNS domain to find them in (domain:)")
        if self.bind is BindMethod.SIMPLE and not (self.user and (self.password or self.password_file)):
            raise ValueError("a simple bind needs user and password (or password_file)")
        if self.catalogue is not None and not self.catalogue.servers:
            raise ValueError("catalogue needs servers, such as ldaps://dc1.contoso.test:3269")
        if (self.client_certificate is None) != (self.client_key is None):
            raise ValueError("client_certificate and client_key belong together")
        return self

    def of_domain(self, name: str) -> DirectorySettings:
        """The settings for another domain of the forest, or for :data:`CATALOGUE`."""
        given = self.catalogue if name == CATALOGUE else self.domains.get(name)
        given = given or OtherServers()
        changed: dict[str, Any] = {
            "catalogue": None, "domains": {}, "root": None, "tls_name": given.tls_name, "kind": ServerKind.AUTO,
            "servers": given.servers, "domain": None if given.servers else name, "notify_through": None,
        }  # fmt: skip
        if given.user is not None:
            changed |= {"user": given.user, "password": given.password, "password_file": given.password_file}
        if given.ca_file is not None:
            changed["ca_file"] = given.ca_file
        return self.model_copy(update=changed)

    @property
    def account(self) -> str:
        """The account that asks, by the name that a person would use."""
        return self.user or {
            BindMethod.ANONYMOUS: "an anonymous user",
            BindMethod.EXTERNAL: "the account of the client certificate or of this Linux user",
        }.get(self.bind, "the account of the Kerberos ticket")

    def secret(self) -> str:
        """The password of a simple bind; read anew each time, so that a changed file is picked up."""
        if self.password is not None:
            return self.password.get_secret_value()
        if self.password_file is not None:
            return self.password_file.read_text(encoding="utf-8-sig").rstrip("\r\n")
        return ""
