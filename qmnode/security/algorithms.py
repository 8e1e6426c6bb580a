"""Hashes, ciphers and cryptographic service providers as data, and what of them is too weak to use unasked.

The algorithm ids are CryptoAPI's CALG_* (MS-MQMQ 2.2.19.3, MS-MQQB 2.4.2); the providers are those of MS-MQDMPR 3.1.3.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives import hashes

from qmnode.security.errors import WeakAlgorithmError
from qmnode.settings.security import SecuritySettings, WeakAlgorithm
from qmnode.structures import public_keys
from qmnode.structures.message_security import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel

SMALLEST_STRONG_MODULUS: Final = 1024
"""The bits of keys of the enhanced providers; a smaller key counts as weak."""
PKCS1_OVERHEAD: Final = 11
"""Bytes of a modulus that PKCS #1 v1.5 padding needs (RFC 3447, 7.2.1 and 9.2)."""


@dataclass(frozen=True, slots=True)
class HashFacts:
    """A hash algorithm: how long its digest is, what computes it (None: the legacy module), whether it is weak."""

    digest_size: int
    implementation: hashes.HashAlgorithm | None
    weakness: WeakAlgorithm | None = None


HASHES: Final[dict[HashAlgorithm, HashFacts]] = {
    HashAlgorithm.MD2: HashFacts(16, None, WeakAlgorithm.MD2),
    HashAlgorithm.MD4: HashFacts(16, None, WeakAlgorithm.MD4),
    HashAlgorithm.MD5: HashFacts(16, hashes.MD5(), WeakAlgorithm.MD5),  # noqa: S303  the specification's, off by default
    HashAlgorithm.SHA1: HashFacts(20, hashes.SHA1(), WeakAlgorithm.SHA1),  # noqa: S303
    HashAlgorithm.SHA_256: HashFacts(32, hashes.SHA256()),
    HashAlgorithm.SHA_512: HashFacts(64, hashes.SHA512()),
}


@dataclass(frozen=True, slots=True)
class CipherFacts:
    """A cipher of message bodies. ``block_size`` is in bytes, 0 for a stream cipher, which cannot tell a wrong key."""

    block_size: int
    key_length: int | None
    """Bytes of a key, or None when the provider decides."""
    weakness: WeakAlgorithm | None = None


CIPHERS: Final[dict[EncryptionAlgorithm, CipherFacts]] = {
    EncryptionAlgorithm.AES128: CipherFacts(16, 16),
    EncryptionAlgorithm.AES192: CipherFacts(16, 24),
    EncryptionAlgorithm.AES256: CipherFacts(16, 32),
    EncryptionAlgorithm.RC2: CipherFacts(8, None, WeakAlgorithm.RC2),
    EncryptionAlgorithm.RC4: CipherFacts(0, None, WeakAlgorithm.RC4),
}

_AES: Final = frozenset({EncryptionAlgorithm.AES128, EncryptionAlgorithm.AES192, EncryptionAlgorithm.AES256})
_RC: Final = frozenset({EncryptionAlgorithm.RC2, EncryptionAlgorithm.RC4})


@dataclass(frozen=True, slots=True)
class Provider:
    """A cryptographic service provider (CSP), known by its name in the directory and on the wire."""

    name: str
    type: int
    """The number of its type: ulProviderType, MS-MQMQ 2.2.1."""
    privacy_level: PrivacyLevel
    specified_modulus_length: int
    """Bits of its RSA keys by MS-MQDMPR 3.1.3."""
    default_modulus_length: int
    """Bits of the RSA keys that this node makes for it unless told otherwise."""
    algorithms: frozenset[EncryptionAlgorithm]
    short_key_length: int
    """Bytes of its RC2 and RC4 keys (MS-MQQB 3.1.7.1.5: 40 or 128 bits)."""

    def key_length(self, algorithm: EncryptionAlgorithm) -> int:
        """Bytes of a session key for ``algorithm`` in this provider."""
        return CIPHERS[algorithm].key_length or self.short_key_length


# The enhanced providers take keys of up to 16,384 bits, and a sender uses what the directory holds whatever its length;
# 1,024 bits are no longer safe, so the default is 2,048. The base provider takes no more than 512.
BASE_PROVIDER: Final = Provider(
    public_keys.BASE_PROVIDER, public_keys.PROV_RSA_FULL, PrivacyLevel.BASE, 512, 512, _RC, 5
)
ENHANCED_PROVIDER: Final = Provider(
    public_keys.ENHANCED_PROVIDER,
    public_keys.PROV_RSA_FULL,
    PrivacyLevel.ENHANCED,
    1024,
    2048,
    _RC,
    16,
)
AES_PROVIDER: Final = Provider(
    public_keys.AES_PROVIDER,
    public_keys.PROV_RSA_AES,
    PrivacyLevel.ADVANCED,
    1024,
    2048,
    _AES,
    16,
)
PROVIDERS: Final = (AES_PROVIDER, ENHANCED_PROVIDER, BASE_PROVIDER)
"""From strongest to weakest: the order in which a sender picks (MS-MQQB 3.1.7.1.5)."""
PROVIDER_BY_NAME: Final = {provider.name: provider for provider in PROVIDERS}
PROVIDER_BY_PRIVACY_LEVEL: Final = {int(provider.privacy_level): provider for provider in PROVIDERS}


@dataclass(frozen=True, slots=True)
class Policy:
    """The weak algorithms that one direction may use."""

    allowed: frozenset[WeakAlgorithm]
    setting: str
    """The name of the setting that allows more, for the operator."""

    def permits(self, weakness: WeakAlgorithm | None) -> bool:
        """Whether something with this weakness (None: strong) may be used."""
        return weakness is None or weakness in self.allowed

    def require(self, weakness: WeakAlgorithm | None) -> None:
        """Raise :class:`WeakAlgorithmError` for what is not allowed."""
        if not self.permits(weakness):
            assert weakness is not None
            raise WeakAlgorithmError(f"{weakness.value} is off: security.{self.setting} allows it if you must")

    def require_modulus(self, bits: int) -> None:
        """Raise :class:`WeakAlgorithmError` for an RSA key that is too short."""
        self.require(modulus_weakness(bits))


def sending_policy(settings: SecuritySettings) -> Policy:
    """The algorithms for outgoing messages and new keys."""
    return Policy(settings.weak_algorithms_sent, "weak_algorithms_sent")


def accepting_policy(settings: SecuritySettings) -> Policy:
    """The algorithms for received messages."""
    return Policy(settings.weak_algorithms_accepted, "weak_algorithms_accepted")


def modulus_weakness(bits: int) -> WeakAlgorithm | None:
    """Whether an RSA key of this length is weak."""
    return WeakAlgorithm.RSA_512 if bits < SMALLEST_STRONG_MODULUS else None


def usable_algorithms(policy: Policy, provider: Provider) -> Collection[EncryptionAlgorithm]:
    """The ciphers of a provider that a policy permits, strongest first."""
    return [
        algorithm
        for algorithm in sorted(provider.algorithms, key=lambda each: -(CIPHERS[each].key_length or 0))
        if policy.permits(CIPHERS[algorithm].weakness)
    ]
