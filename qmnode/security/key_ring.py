"""The key pairs of this queue manager, and which of them a message may have been encrypted to.

The wire carries no key id (MS-MQQB 2.4.2), so while a rotation lasts several private keys may fit. The sent time says
which are likely.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmnode.security.rsa_keys import PrivateKey
    from qmnode.settings.security import SecuritySettings


class KeyPurpose(enum.StrEnum):
    """The directory's list that holds a public key (MS-MQDMPR 3.1.1.1)."""

    ENCRYPTION = "encryption"
    """Keys that senders encrypt to: PublicEncryptionKeyList."""
    SIGNING = "signing"
    """Keys that verify signatures: PublicSigningKeyList."""


class KeyState(enum.StrEnum):
    """The life of a key pair."""

    NEXT = "next"
    """Made and not published yet. It decrypts already: the directory may show it before this node learns so."""
    CURRENT = "current"
    PREVIOUS = "previous"
    """Superseded; messages encrypted to it may still arrive."""
    RETIRED = "retired"
    """No longer used, and not destroyed yet."""
    DESTROYED = "destroyed"
    """Only the record is left."""


_DECRYPTS = frozenset({KeyState.NEXT, KeyState.CURRENT, KeyState.PREVIOUS})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A key pair with its history. Times are seconds since 1970; a time that has not come is None."""

    provider: str
    """The name of the cryptographic service provider."""
    purpose: KeyPurpose
    state: KeyState
    fingerprint: str
    modulus_length: int
    created_time: float
    staged_time: float | None = None
    """When the key became the next one. A node that has read its key store since then decrypts with it."""
    published_time: float | None = None
    superseded_time: float | None = None
    """When the directory had the next key: from here on only caches and lagging replicas lead senders to this one."""
    destroyed_time: float | None = None
    private_key: PrivateKey | None = field(default=None, repr=False)
    """The private half; None once it was destroyed."""

    @classmethod
    def of(cls, private_key: PrivateKey, provider: str, purpose: KeyPurpose, state: KeyState, now: float) -> KeyPair:
        """A key pair made at ``now``."""
        return cls(
            provider=provider,
            purpose=purpose,
            state=state,
            fingerprint=private_key.fingerprint,
            modulus_length=private_key.modulus_length,
            created_time=now,
            staged_time=now,
            published_time=now if state is KeyState.CURRENT else None,
            private_key=private_key,
        )

    def superseded(self, now: float) -> KeyPair:
        """The same pair after another took its place in the directory."""
        return replace(self, state=KeyState.PREVIOUS, superseded_time=now)

    def destroyed(self, now: float) -> KeyPair:
        """The record of the pair without its private key."""
        return replace(self, state=KeyState.DESTROYED, destroyed_time=now, private_key=None)

    def may_have_served(self, sent_time: float, clock_skew: float, grace: float) -> bool:
        """Whether a sender may have encrypted to this key at ``sent_time``."""
        if sent_time < self.created_time - clock_skew:
            return False
        return self.superseded_time is None or sent_time <= self.superseded_time + grace + clock_skew

    def needed_until(
        self, settings: SecuritySettings, replication_delay: float, longest_time_to_reach_queue: float
    ) -> float | None:
        """When no message that is encrypted to this key can arrive any more; None while it is not superseded.

        A lagging replica shows the key for ``replication_delay`` seconds after the next one was published; a sender
        keeps what it read and the session key that it made for their lifetimes, and the message then has
        ``longest_time_to_reach_queue`` seconds to arrive.
        """
        if self.superseded_time is None:
            return None
        kept = (settings.public_key_lifetime + settings.symmetric_key_short_lifetime) / 1000
        return self.superseded_time + replication_delay + kept + longest_time_to_reach_queue + settings.clock_skew

    def distance(self, sent_time: float) -> float:
        """Seconds from ``sent_time`` to the time in which this key was the published one; 0 within it."""
        start = self.created_time if self.published_time is None else self.published_time
        if sent_time < start:
            return start - sent_time
        if self.superseded_time is not None and sent_time > self.superseded_time:
            return sent_time - self.superseded_time
        return 0.0


class KeyRing:
    """The usable key pairs of this node. Immutable: a rotation makes a new ring."""

    __slots__ = ("_pairs", "unavailable")

    def __init__(self, pairs: Iterable[KeyPair] = (), *, unavailable: str | None = None) -> None:
        self._pairs = tuple(pair for pair in pairs if pair.state in _DECRYPTS and pair.private_key is not None)
        self.unavailable = unavailable
        """Why the key store cannot be read at the moment; messages that no key here decrypts wait."""

    def current(self, provider: str, purpose: KeyPurpose) -> KeyPair | None:
        """The pair whose public key the directory holds."""
        return next((pair for pair in self._of(provider, purpose) if pair.state is KeyState.CURRENT), None)

    def candidates(self, provider: str, modulus_size: int, sent_time: float) -> list[KeyPair]:
        """The pairs that could decrypt a session key of ``modulus_size`` bytes, the likeliest first."""
        fitting = [
            pair for pair in self._of(provider, KeyPurpose.ENCRYPTION) if (pair.modulus_length + 7) // 8 == modulus_size
        ]
        return sorted(fitting, key=lambda pair: (pair.distance(sent_time), -pair.created_time))

    def fingerprints(self, provider: str) -> list[str]:
        """The names of the provider's keys that decrypt, for a log line."""
        return [pair.fingerprint for pair in self._of(provider, KeyPurpose.ENCRYPTION)]

    def __iter__(self) -> Iterator[KeyPair]:
        return iter(self._pairs)

    def _of(self, provider: str, purpose: KeyPurpose) -> list[KeyPair]:
        return [pair for pair in self._pairs if pair.provider == provider and pair.purpose is purpose]

    def __repr__(self) -> str:
        return f"<KeyRing of {len(self._pairs)} keys{'' if self.unavailable is None else ', unavailable'}>"
