"""Settings of operations over nodes: where each node's management API listens, and the token of the person who asks."""

import os
import re
import ssl
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from mqenterprise.operations.errors import OperationsError
from qmnode.settings.mistakes import faults_of
from qmnode.settings.yaml_text import settings_in

ENVIRONMENT: Final = "MQENTERPRISE_NODES"
_OTHERS: Final = 0o077
_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.%]+\]|[^\s:/@\[\]?#]+")
Model = TypeVar("Model", bound=BaseModel)
_EXAMPLE: Final = "authority: ca.pem, token_file: my.token"


class NodeSettings(BaseModel):
    """The settings of one machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str | None = None
    """``host``, or ``host:port``; IPv6 addresses in brackets. Without it the machine's name in the directory counts."""
    token_file: Path | None = None
    """The file of the token for this machine alone."""

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value, 1)
        return value


class OperationsSettings(BaseModel):
    """All settings. Relative paths begin at the folder of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    authority: Path | None = None
    """PEM file of the authority that issued the nodes' certificates; without it those of the system are believed."""
    token_file: Path | None = None
    """The file of the token of the person who asks: it goes to each node, which authorises and audits this person."""
    port: int = Field(default=8443, ge=1, le=65535)
    """The port of ``management.listen`` where a machine's address has none."""
    connect_timeout: float = Field(default=5.0, gt=0, le=300)
    """Seconds until a node that takes no connection counts as unavailable."""
    timeout: float = Field(default=30.0, gt=0, le=3600)
    """Seconds until a node that does not answer counts as unavailable."""
    concurrency: int = Field(default=32, ge=1, le=256)
    """The number of nodes that are asked at a time."""
    machines: dict[str, NodeSettings] = {}
    """Machines with an address or a token of their own, by computer name."""

    def of(self, computer: str) -> NodeSettings:
        """Return the settings of a machine. Case does not count in its name."""
        return {name.casefold(): one for name, one in self.machines.items()}.get(computer.casefold(), NodeSettings())

    def trust(self) -> ssl.SSLContext:
        """Return what makes a node's certificate believed. Raises :class:`OperationsError`."""
        try:
            context = ssl.create_default_context(cafile=None if self.authority is None else str(self.authority))
        except OSError as error:  # ssl.SSLError is one
            raise OperationsError(f"{self.authority}: no certificates of an authority can be read: {error}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def token(self, computer: str) -> str:
        """Return the token for a machine. Raises :class:`OperationsError` if there is none, or others may read it."""
        path = self.of(computer).token_file or self.token_file
        if path is None:
            raise OperationsError(
                f"there is no token for {computer}: name its file as token_file in the file of --nodes "
                f"({ENVIRONMENT}), and its digest in management.tokens of the node"
            )
        text = secret_of(path, "the token")
        if not text or not text.isascii() or not text.isprintable() or " " in text:
            raise OperationsError(f"{path}: it must hold a token, one line of ASCII letters without spaces")
        return text


def split_address(text: str, port: int) -> tuple[str, int]:
    """Return host and port of ``host``, ``host:port`` or ``[IPv6]:port``. ValueError."""
    found = _HOST.match(text)
    rest = text[found.end() :] if found else "?"
    number = rest[1:]
    if not found or (rest and (rest[0] != ":" or not number.isascii() or not number.isdigit())):
        raise ValueError(f"{text!r:.80} is no address: write HOST, HOST:PORT or [IPv6]:PORT")
    if rest and not 1 <= int(number) <= 65535:
        raise ValueError(f"{text!r:.80}: a port is a number from 1 to 65535")
    return found.group(), int(number) if rest else port


def load_settings(file: Path | None) -> OperationsSettings:
    """Read the settings of a file, or of the one that MQENTERPRISE_NODES names. Raises :class:`OperationsError`."""
    if file is None and os.environ.get(ENVIRONMENT):
        file = Path(os.environ[ENVIRONMENT])
    if file is None:
        raise OperationsError(
            f"say where the nodes are: --nodes FILE (or {ENVIRONMENT}), a YAML file such as {{{_EXAMPLE}}}; "
            "docs/operations.md describes it"
        )
    return _from_folder(read_settings(file, OperationsSettings), file.parent)


def read_settings(file: Path, model: type[Model]) -> Model:
    """Read a YAML file of settings. Raises :class:`OperationsError` with all that is wrong in it."""
    try:
        return model.model_validate(settings_in(file) or {})
    except ValidationError as error:
        raise OperationsError(f"{file}: {faults_of(error)}") from None
    except ValueError as error:
        raise OperationsError(str(error)) from None


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


def _from_folder(settings: OperationsSettings, folder: Path) -> OperationsSettings:
    def place(path: Path | None) -> Path | None:
        return None if path is None else folder / path.expanduser()

    machines = {
        name: one.model_copy(update={"token_file": place(one.token_file)}) for name, one in settings.machines.items()
    }
    return settings.model_copy(
        update={
            "authority": place(settings.authority),
            "token_file": place(settings.token_file),
            "machines": machines,
        }
    )
