"""Settings of signing in: the console's key, the directory of people, the provider."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mqenterprise.operations.errors import OperationsError
from qmnode.console.port import GROUPS_AGE
from qmnode.settings.yaml_text import read_yaml

_OTHERS: Final = 0o077
_ATTRIBUTE: Final = r"^[A-Za-z][A-Za-z0-9-]{0,60}(:[0-9.]{1,60}:)?$"


class LdapSettings(BaseModel):
    """The directory of people. Its entries are searched as the identity of ``directory``, and bound as the person."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: Path
    """The file of the directory's settings, such as that of ``--directory``."""
    people: str | None = None
    """The distinguished name below which people are; the directory's root when not set."""
    name: str = Field(default="uid", pattern=_ATTRIBUTE)
    """The attribute that holds the name to sign in with; ``sAMAccountName`` on Active Directory."""
    groups: str | None = None
    """The distinguished name below which groups are; the directory's root when not set."""
    member: str = Field(default="member", pattern=_ATTRIBUTE)
    """The attribute of a group with the names of its members. On Active Directory
    ``member:1.2.840.113556.1.4.1941:`` also finds members of groups in groups."""
    group_name: str = Field(default="cn", pattern=_ATTRIBUTE)
    """The attribute with a group's name, as ``management.consoles`` of the nodes has it."""


class OpenIdSettings(BaseModel):
    """The provider, and this console as its client (OpenID Connect Core 1.0, the code flow with PKCE)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: str
    """The provider's URL; its configuration is read from there (OpenID Connect Discovery 1.0)."""
    client_id: str = Field(min_length=1, max_length=300)
    client_secret_file: Path | None = None
    """The file of the client's secret. A public client has none."""
    url: str
    """The URL of the console as browsers know it; the provider sends them to ``api/oidc/callback`` below it."""
    scope: str = Field(default="openid profile groups", pattern=r"^openid( [!-~]+)*$")
    name: str = "preferred_username"
    """The claim with the person's name. Without it ``sub`` counts."""
    groups: str = "groups"
    """The claim with the names of the person's groups."""
    authority: Path | None = None
    """PEM file of the authority of the provider's certificate; without it those of the system are believed."""
    timeout: float = Field(default=5.0, gt=0, le=60)
    """Seconds for an answer of the provider."""

    @field_validator("issuer", "url")
    @classmethod
    def _is_safe(cls, value: str) -> str:
        parts = urlsplit(value)
        loopback = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if not parts.hostname or parts.query or parts.fragment or (parts.scheme != "https" and not loopback):
            raise ValueError("write a URL with https")
        return value


class SignInSettings(BaseModel):
    """All settings. Relative paths begin at the folder of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(default="console", pattern=r"^[A-Za-z0-9._-]{1,60}$")
    """The console's name in ``management.consoles`` of the nodes."""
    signing_key: Path
    """PEM file of the console's private key (Ed25519); its holder can be everybody to the nodes."""
    ldap: LdapSettings | None = None
    openid: OpenIdSettings | None = None
    groups_age: float = Field(default=GROUPS_AGE, ge=1, le=3600)
    """Seconds after which the directory or the provider is asked again which groups a person is in. A session ends
    when it has not answered for 15 times as long."""

    @model_validator(mode="after")
    def _has_a_way(self) -> Self:
        if self.ldap is None and self.openid is None:
            raise ValueError("name a way to sign in: ldap, openid or both")
        return self


def load_sign_in(file: Path) -> SignInSettings:
    """The settings of a file. Raises :class:`OperationsError`."""
    try:
        settings = SignInSettings.model_validate(read_yaml(file.read_text("utf-8")) or {})
    except (OSError, UnicodeDecodeError) as error:
        raise OperationsError(f"{file} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise OperationsError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        mistakes = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
        raise OperationsError(f"{file}: {mistakes}") from None
    folder = file.parent
    changes: dict[str, object] = {"signing_key": folder / settings.signing_key}
    if settings.ldap is not None:
        changes["ldap"] = settings.ldap.model_copy(update={"directory": folder / settings.ldap.directory})
    if (openid := settings.openid) is not None:
        paths = {"client_secret_file": openid.client_secret_file, "authority": openid.authority}
        changes["openid"] = openid.model_copy(
            update={name: folder / path for name, path in paths.items() if path is not None}
        )
    return settings.model_copy(update=changes)


def secret_of(file: Path, what: str) -> str:
    """The text of a file that only its owner may read. Raises :class:`OperationsError`."""
    try:
        mode = file.stat().st_mode
        text = file.read_text("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OperationsError(f"{file}: {what} cannot be read: {error}") from None
    if mode & _OTHERS:
        raise OperationsError(f"{file}: others may read {what} (mode {mode & 0o777:o}): chmod 600 {file}")
    return text
