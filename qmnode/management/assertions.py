"""Assertions of consoles (RFC 7521) as bearer tokens: a console says who signed in, this node what they may do.

A console that signs people in with a directory or an OpenID Connect provider has no token of theirs. It signs who they
are and their groups, for one node and for minutes (Ed25519, RFC 8037). The node knows the console's public key, and
maps groups to roles itself.
"""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from qmnode.management.tokens import Caller, Role
from qmnode.settings.node import ConfigurationError
from qmnode.settings.writers import why_others_write
from qmnode.settings.yaml_text import read_yaml

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
            mistakes = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
            raise ConfigurationError(f"{self.path}: {mistakes}") from None
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
