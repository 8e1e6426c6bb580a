"""How the enterprise rotates its nodes' keys: where they are, and how long an old one is waited for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mqenterprise.keys.errors import KeyRotationError
from qmnode.settings.security import SecuritySettings

ENVIRONMENT: Final = "MQENTERPRISE_KEYS"
DAY: Final = 86_400.0
COMPUTER: Final = "{computer}"
"""Stands for the computer's name in ``directory``."""


class KeySettings(BaseModel):
    """Everything that a rotation needs to know. Times are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = "/var/lib/qmnode"
    """The node's directory, which file key stores are in; ``{computer}`` stands for the computer's name."""
    security: SecuritySettings = SecuritySettings()
    """The nodes' own settings of this name: they say where keys are, how long they are cached, and what may be weak."""
    modulus_length: int | None = Field(default=None, ge=512, le=16_384)
    """Bits of new keys; the provider's default when not set."""

    reload_interval: float = Field(default=60.0, ge=0)
    """How often a node reads its key store. A new key is published only after this: every node that could be sent
    something encrypted to it decrypts with it by then."""
    replication_delay: float = Field(default=14_400.0, ge=0)
    """How long a replica of the directory may show a key that was replaced."""
    offline_cache_age: float = Field(default=DAY, ge=0)
    """How old what a node without its directory knows of other nodes' keys may be: no less than the nodes' setting
    ``keys_for`` of their directory."""
    longest_time_to_reach_queue: float | None = Field(default=None, ge=0)
    """The longest time that a message may take. Not set: the longer one of the nodes' setting of this name (under
    ``security``), to which they keep whatever a message asks for, and the enterprise's default time to live."""
    destroy_after: float = Field(default=DAY, ge=0)
    """How long a retired key can still be brought back."""
    maximum_age: float = Field(default=365 * DAY, gt=0)
    """The age at which a published key is to be replaced."""

    concurrency: int = Field(default=8, ge=1, le=256)
    """Nodes that are worked on at a time."""

    @property
    def has_one_store(self) -> bool:
        """Whether the key store of every node would be the same file."""
        return self.security.key_store.startswith("file") and COMPUTER not in self.directory


def load_key_settings(file: Path | None) -> KeySettings:
    """The settings in a YAML file, or in the one that MQENTERPRISE_KEYS names, or the defaults.

    Raises :class:`KeyRotationError` with what is wrong and where.
    """
    if file is None and os.environ.get(ENVIRONMENT):
        file = Path(os.environ[ENVIRONMENT])
    if file is None:
        return KeySettings()
    try:
        return key_settings_from(yaml.safe_load(file.read_text("utf-8")) or {}, str(file))
    except OSError as error:
        raise KeyRotationError(f"{file} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise KeyRotationError(f"{file} is not YAML: {' '.join(str(error).split())}") from None


def key_settings_from(values: object, where: str) -> KeySettings:
    """The settings that were written down. Raises :class:`KeyRotationError` with what is wrong in them."""
    try:
        return KeySettings.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise KeyRotationError(f"{where}: {wrong}") from None
