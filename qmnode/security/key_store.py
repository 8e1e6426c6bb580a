"""The port to where private keys are kept.

Records of destroyed keys stay, without their private keys, so that a log line about an old message can still be
understood. A store has a version: a writer names the version that it read, so two writers never undo each other's step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from qmnode.security.errors import KeyStoreError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from qmnode.security.key_ring import KeyPair
    from qmnode.structures.guid import Guid


@dataclass(frozen=True, slots=True)
class KeyStoreContents:
    """All key pairs of one node, as of one version of its store. Version 0 is a store that does not exist yet."""

    version: int
    pairs: tuple[KeyPair, ...]


class KeyStoreUnavailableError(KeyStoreError):
    """The store is away: try again later. Nothing may be decided meanwhile that depends on it."""


class KeyStoreConflictError(KeyStoreError):
    """Someone else wrote the store since it was read: read again, then decide again."""


class KeyStore(Protocol):
    """Where a node's private keys are. Every call is bounded in time and raises only :class:`KeyStoreError`."""

    async def read(self) -> KeyStoreContents:
        """The contents. A store that nothing was written to is empty, with version 0."""

    async def replace(self, pairs: tuple[KeyPair, ...], *, expected_version: int) -> int:
        """Put these pairs in the place of all; returns the new version.

        Atomic: a reader, or a restart at any moment, finds the old contents or the new. Raises
        :class:`KeyStoreConflictError` when the version is no longer ``expected_version``.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStoreOptions:
    """The arguments for opening a key store."""

    settings: Mapping[str, str]
    """The store's own settings, as the node's configuration states them."""
    directory: Path
    """The folder of the node, for key stores in files."""
    identifier: Guid | None = None
    """QueueManager.Identifier, when it is settled already."""
