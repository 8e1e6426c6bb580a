"""The port to a rotation of this node's own keys: its plan, and the change itself.

The directory's plug-in supplies it (``mqenterprise.keys.own_node``), since public keys are published in the directory.
Nothing here holds a private key.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from qmnode.security.key_ring import KeyPurpose, KeyState
    from qmnode.settings.node import KeyRotationSettings
    from qmnode.settings.security import SecuritySettings
    from qmnode.structures.guid import Guid


class RotationAction(enum.StrEnum):
    """The changes of a node's keys, as ``mqenterprise keys`` names them."""

    ROTATE = "rotate"
    ROLLBACK = "rollback"
    RETIRE = "retire"


class StepKind(enum.StrEnum):
    """The step that a key goes through."""

    MAKE = "make"
    """A new key pair is made in the key store."""
    PUBLISH = "publish"
    """The directory shows this key from then on."""
    KEEP = "keep"
    """Another key is published in its place, and it goes on decrypting."""
    RETIRE = "retire"
    """The node stops decrypting with it. It can be brought back."""
    DESTROY = "destroy"
    """Its private half is deleted for good."""


class RotationStage(enum.StrEnum):
    """The stages of a rotation."""

    MAKING = "making"
    READING = "reading"
    """The node reads its key store, so that it decrypts with a new key before anybody encrypts to it."""
    PUBLISHING = "publishing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step of a plan. Times are seconds since 1970, as they are if the plan is carried out now."""

    kind: StepKind
    provider: str
    purpose: KeyPurpose
    length: int
    """Bits of its modulus."""
    fingerprint: str | None = None
    """None for a key that is not made yet."""
    senders_until: float | None = None
    """Until when a sender may still encrypt to the key."""
    needed_until: float | None = None
    """Until when a message that is encrypted to the key may arrive."""


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """The steps of each action on the keys of a node."""

    version: int
    """The version of the key store's contents that the plan is made for."""
    steps: Mapping[RotationAction, tuple[PlannedStep, ...]]
    """Empty for an action that has nothing to do."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key that a rotation has changed, and its state since."""

    fingerprint: str
    purpose: KeyPurpose
    state: KeyState


class RotationFailure(Exception):
    """A rotation cannot begin or go on; the sentence says why and what to do, and holds no part of a key."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class KeyRotation(Protocol):
    """The keys of this node in its key store and in the directory. Raises only :class:`RotationFailure`."""

    async def plan(self) -> RotationPlan:
        """Return what each action would do now. Changes nothing."""
        ...

    async def carry_out(
        self,
        action: RotationAction,
        begun: float,
        read: Callable[[], Awaitable[frozenset[str]]],
        progress: Callable[[RotationStage], None],
    ) -> tuple[KeyChange, ...]:
        """Carry out an action and return the keys that it changed.

        ``read`` has the node read its key store, and returns the fingerprints that it decrypts with. A key that was
        published since ``begun`` is not replaced. After an interruption the same action does the remaining steps.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRotationOptions:
    """The node whose keys are rotated."""

    computer_name: str
    identifier: Callable[[], Guid]
    """Returns QueueManager.Identifier, which the directory may change when the node joins."""
    data: Path
    """The folder of the node, for key stores in files."""
    security: SecuritySettings
    settings: KeyRotationSettings


@runtime_checkable
class RotatesKeys(Protocol):
    """A directory whose plug-in rotates the keys of a node."""

    def key_rotation(self, options: KeyRotationOptions) -> KeyRotation:
        """The rotation of this node's keys."""
        ...
