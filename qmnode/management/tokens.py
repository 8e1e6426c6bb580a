"""Bearer tokens for the management API over TCP. The node knows only their digests."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

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
            mistakes = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
            raise ConfigurationError(f"{self.path}: {mistakes}") from None
        callers = {token.sha256.lower(): Caller(token.name, token.role, "tcp", token.principal) for token in tokens}
        if len(callers) != len(tokens) or len({token.name for token in tokens}) != len(tokens):
            raise ConfigurationError(f"{self.path}: two tokens have the same name or digest")
        self._callers = callers

    def caller(self, token: str) -> Caller | None:
        return self._callers.get(hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest())
