"""Settings of key rotation: where the nodes' keys are, and how long an old key is kept."""

import os
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mqenterprise.operations.errors import OperationsError
from mqenterprise.operations.settings import read_settings
from qmnode.settings.mistakes import faults_of
from qmnode.settings.security import SecuritySettings


class KeyRotationError(Exception):
    """A step that must not or cannot be taken now; the sentence says why and what to do. Holds no part of a key."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


ENVIRONMENT: Final = "MQENTERPRISE_KEYS"
DAY: Final = 86_400.0
COMPUTER: Final = "{computer}"
"""The placeholder of the computer's name in ``directory``."""


class KeySettings(BaseModel):
    """All settings of a rotation. Times are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = "/var/lib/qmnode"
    """The folder of a node that holds its file key store; ``{computer}`` stands for the computer's name."""
    security: SecuritySettings = SecuritySettings()
    """The nodes' own ``security`` section: where keys are, how long they are cached, what may be weak."""
    modulus_length: int | None = Field(default=None, ge=512, le=16_384)
    """Bits of new keys; the provider's default when not set."""

    reload_interval: float = Field(default=60.0, ge=0)
    """The time between two reads of the key store by a node. A new key is published only after this time, when every
    node that can receive a message encrypted to it has read it."""
    replication_delay: float = Field(default=14_400.0, ge=0)
    """The longest time for which a replica of the directory may show a replaced key."""
    offline_cache_age: float = Field(default=DAY, ge=0)
    """The greatest age of other nodes' keys that a node uses while its directory is unavailable: no less than
    ``keys_for`` in the nodes' directory settings."""
    longest_time_to_reach_queue: float | None = Field(default=None, ge=0)
    """The longest time that a message may take. The default is the longer of two times: the nodes' setting of this name
    (under ``security``), which bounds every message, and the enterprise's default time to live."""
    destroy_after: float = Field(default=DAY, ge=0)
    """The time for which a retired key can be brought back."""
    maximum_age: float = Field(default=365 * DAY, gt=0)
    """The age at which a published key should be replaced."""

    concurrency: int = Field(default=8, ge=1, le=256)
    """The number of nodes that are worked on at a time."""

    @property
    def has_one_store(self) -> bool:
        """Return whether these settings give every node the same key store file."""
        return self.security.key_store.startswith("file") and COMPUTER not in self.directory


def load_key_settings(file: Path | None) -> KeySettings:
    """Read the settings from a YAML file, from the file that MQENTERPRISE_KEYS names, or take the defaults.

    Raises :class:`KeyRotationError` that names the fault and its place.
    """
    if file is None and os.environ.get(ENVIRONMENT):
        file = Path(os.environ[ENVIRONMENT])
    if file is None:
        return KeySettings()
    try:
        return read_settings(file, KeySettings)
    except OperationsError as error:
        raise KeyRotationError(error.sentence) from None


def key_settings_from(values: object, where: str) -> KeySettings:
    """Validate settings that were read. Raises :class:`KeyRotationError` that names each fault."""
    try:
        return KeySettings.model_validate(values)
    except ValidationError as error:
        raise KeyRotationError(f"{where}: {faults_of(error)}") from None
