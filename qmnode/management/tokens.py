"""Bearer tokens for the management API over TCP, and the assertions of consoles. The node knows only their digests.

A console that signs people in with a directory or an OpenID Connect provider has no token of theirs. It signs who they
are and their groups, for one node and for minutes (Ed25519, RFC 8037). The node knows the console's public key, and
maps groups to roles itself.
"""

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from qmnode.settings.mistakes import faults_of
from qmnode.settings.node import ConfigurationError
from qmnode.settings.writers import why_others_write
from qmnode.settings.yaml_text import read_yaml
from qmnode.structures.security_descriptor import Sid

_EVERYBODY: Final = 0o004


class Role(StrEnum):
    """The role of a caller."""

    READ = "read"
    """See everything but the bodies of messages, and change nothing."""
    BODIES = "bodies"
    """See everything, and change nothing."""
    OPERATE = "operate"
    """All resources and changes, bodies included."""
    ADMINISTER = "administer"
    """The same, and the audit log."""

    @property
    def sees_bodies(self) -> bool:
        """Whether the bodies and packets of messages are shown."""
        return self is not Role.READ

    @property
    def changes(self) -> bool:
        """Whether anything may be changed."""
        return self in (Role.OPERATE, Role.ADMINISTER)


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: the name of a token, or the user at the other end of the Unix socket."""

    name: str
    role: Role
    channel: str
    """The way in: ``unix`` or ``tcp``."""
    principal: str | None = None
    """The SID by which queues' descriptors are asked; without one the role alone counts."""
    user: tuple[int, frozenset[int]] | None = None
    """The user and groups at the other end of the Unix socket."""


def _sid_text(text: str) -> str:
    return str(Sid.from_text(text))


def _no_user(text: str) -> str:
    if text.lower().startswith("uid:"):  # jobs of such a token would be those of that user
        raise ValueError("uid:NUMBER is the name of a user of this machine")
    return text


class _Token(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_no_user)]
    role: Role
    sha256: Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{64}$")]
    principal: Annotated[str, AfterValidator(_sid_text)] | None = None


_TOKENS: Final = TypeAdapter(list[_Token])


class Tokens:
    """The tokens of a file. ConfigurationError if others can read it, or it cannot be understood."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._callers: dict[str, Caller] = {}
        self.load()

    def load(self) -> None:
        """Read the file; what was there before stays if that fails."""
        try:
            mode = self.path.stat().st_mode
            if mode & _EVERYBODY:
                raise ConfigurationError(
                    f"{self.path}: everybody may read the tokens (mode {mode & 0o777:o}): chmod o= {self.path}"
                )
            if fault := why_others_write(self.path):
                raise ConfigurationError(fault)
            tokens = _TOKENS.validate_python(read_yaml(self.path.read_text(encoding="utf-8")))
        except yaml.MarkedYAMLError as error:
            # Without the text around the mistake, which may be a token.
            line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
            raise ConfigurationError(f"{self.path}, line {line}: {error.problem or 'this is no YAML'}") from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigurationError(f"{self.path}: {error}") from error
        except ValidationError as error:
            # Never with its input: a mistake may well be a token where its digest belongs.
            raise ConfigurationError(f"{self.path}: {faults_of(error, 5)}") from None
        callers = {token.sha256.lower(): Caller(token.name, token.role, "tcp", token.principal) for token in tokens}
        if len(callers) != len(tokens) or len({token.name for token in tokens}) != len(tokens):
            raise ConfigurationError(f"{self.path}: two tokens have the same name or digest")
        self._callers = callers

    def caller(self, token: str) -> Caller | None:
        return self._callers.get(hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest())


ALGORITHM: Final = "Ed25519"
LONGEST: Final = 600.0
"""Seconds that an assertion may be good for."""
_CLOCKS: Final = 60.0
"""Seconds that the clocks of a console and of the node may differ."""
_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]{1,1000}\.[A-Za-z0-9_-]{1,12000}\.[A-Za-z0-9_-]{86}")
_MOST_GROUPS: Final = 1000
_RANK: Final = tuple(Role)


class _Console(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")]
    public_key: str
    roles: Annotated[dict[Annotated[str, Field(min_length=1, max_length=300)], Role], Field(min_length=1)]


_CONSOLES: Final = TypeAdapter(list[_Console])


class Consoles:
    """The consoles of a file, whose assertions this node believes. ConfigurationError if it cannot be used."""

    def __init__(self, path: Path, computer_name: str, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._audience = audience_of(computer_name)
        self._now = now
        self._consoles: dict[str, tuple[OKPKey, Mapping[str, Role]]] = {}
        self.load()

    def load(self) -> None:
        """Read the file; what was there before stays if that fails."""
        try:
            if fault := why_others_write(self.path):
                raise ConfigurationError(fault)
            consoles = _CONSOLES.validate_python(read_yaml(self.path.read_text("utf-8")))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigurationError(f"{self.path}: {' '.join(str(error).split())}") from error
        except ValidationError as error:
            raise ConfigurationError(f"{self.path}: {faults_of(error, 5)}") from None
        if len({one.name for one in consoles}) != len(consoles):
            raise ConfigurationError(f"{self.path}: two consoles have the same name")
        self._consoles = {
            one.name: (_public_key(self.path, one), {group.casefold(): role for group, role in one.roles.items()})
            for one in consoles
        }

    def caller(self, token: str) -> Caller | None:
        """The person whom an assertion names; None if it proves nobody, or no group of theirs has a role."""
        if not _SHAPE.fullmatch(token):
            return None
        for name, (key, roles) in self._consoles.items():
            try:
                claims = jwt.decode(token, key, algorithms=[ALGORITHM]).claims
            except (JoseError, ValueError):  # of another console, or of nobody
                continue
            return self._person(name, claims, roles)
        return None

    def _person(self, console: str, claims: Mapping[str, Any], roles: Mapping[str, Role]) -> Caller | None:
        now, began, ends = self._now(), claims.get("iat"), claims.get("exp")
        subject, groups = claims.get("sub"), claims.get("groups")
        if claims.get("iss") != console or claims.get("aud") != self._audience:
            return None
        if type(began) is not int or type(ends) is not int or not 0 < ends - began <= LONGEST:
            return None
        if now < began - _CLOCKS or now >= ends + _CLOCKS:
            return None
        if not isinstance(subject, str) or not 0 < len(subject) <= 200 or not subject.isprintable():
            return None
        if not isinstance(groups, list) or len(groups) > _MOST_GROUPS:
            return None
        held = [roles[group.casefold()] for group in groups if isinstance(group, str) and group.casefold() in roles]
        if not held:
            return None
        # Never the name of a token or of a user of this machine: those have no console before them.
        return Caller(f"{console}:{subject}", max(held, key=_RANK.index), "tcp")


def audience_of(computer_name: str) -> str:
    """The ``aud`` of assertions for a node."""
    return f"qmnode:{computer_name.casefold()}"


def _public_key(path: Path, console: _Console) -> OKPKey:
    try:
        key = OKPKey.import_key(console.public_key)
        if key.curve_name != "Ed25519":
            raise ValueError(f"it is for {key.curve_name}")
        if key.is_private:
            raise ValueError("it is the private key")
    except (ValueError, TypeError, AttributeError, JoseError) as error:
        raise ConfigurationError(
            f"{path}: public_key of {console.name} is no public key of Ed25519 in PEM ({error}): "
            "`openssl pkey -in console.key -pubout` shows it"
        ) from None
    return key
