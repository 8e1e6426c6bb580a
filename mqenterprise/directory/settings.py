"""How a directory is reached: servers, transport, identity and time limits."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Self
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
    pool_size: int = Field(default=4, ge=1, le=64)
    """Connections that are kept at most."""
    retry_after: float = Field(default=30.0, ge=0)
    """Seconds that a server which failed is tried last."""
    idle_limit: float = Field(default=240.0, gt=0)
    """Seconds after which an unused connection is not trusted any more; Active Directory closes one after 900."""

    @field_validator("servers")
    @classmethod
    def _known_schemes(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            parts = urlsplit(server)
            if parts.scheme not in SCHEMES or not parts.netloc:
                raise ValueError(f"{server!r} is not the URL of a directory server: write ldaps://host, for example")
        return servers

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.servers and not self.domain:
            raise ValueError("name servers (servers:) or a DNS domain to find them in (domain:)")
        if self.bind is BindMethod.SIMPLE and not (self.user and (self.password or self.password_file)):
            raise ValueError("a simple bind needs user and password (or password_file)")
        if (self.client_certificate is None) != (self.client_key is None):
            raise ValueError("client_certificate and client_key belong together")
        return self

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
            return self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        return ""
