"""RSA keys: made, checked, named by fingerprint; signatures; and the one private operation that must never be fooled.

Numbers on the wire and in CryptoAPI's blobs are little-endian (MS-MQQB 2.4.1, 2.4.2), the library's are big-endian: the
functions here speak wire order. The specification does not say in which order a signature's bytes travel; the other RSA
values are little-endian, as is what CryptSignHash returns, so this one is, too.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from qmnode.security import legacy_algorithms
from qmnode.security.errors import WeakAlgorithmError
from qmnode.settings.security import SecuritySettings, WeakAlgorithm
from qmnode.structures import public_keys
from qmnode.structures.enumerations import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel

# ----------------------------------------------------------------------------------------------------------------------
# Hashes, ciphers and cryptographic service providers as data, and what of them is too weak to use unasked.
#
# The algorithm ids are CryptoAPI's CALG_* (MS-MQMQ 2.2.19.3, MS-MQQB 2.4.2); the providers are those of MS-MQDMPR
# 3.1.3.

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
    EncryptionAlgorithm.AES256: CipherFacts(16, 32),
    EncryptionAlgorithm.AES192: CipherFacts(16, 24),
    EncryptionAlgorithm.AES128: CipherFacts(16, 16),
    EncryptionAlgorithm.RC4: CipherFacts(0, None, WeakAlgorithm.RC4),
    EncryptionAlgorithm.RC2: CipherFacts(8, None, WeakAlgorithm.RC2),
}
"""In the order of preference. The first of each provider is PreferredAdvancedAlgorithm, PreferredEnhancedAlgorithm and
PreferredBaseAlgorithm of MS-MQQB 3.1.3.1."""

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
    """The ciphers of a provider that a policy permits, preferred first."""
    return [each for each in CIPHERS if each in provider.algorithms and policy.permits(CIPHERS[each].weakness)]


PUBLIC_EXPONENT: Final = 65537
MAXIMUM_MODULUS_LENGTH: Final = 8192
"""Bits of the largest RSA key of others that is used: a larger one only costs time."""
ENCRYPTED: Final = "the private key has a passphrase: write it without one, openssl pkey -in KEY -out NEW"
_PADDING: Final = padding.PKCS1v15()


def fingerprint_of(public_key: rsa.RSAPublicKey) -> str:
    """The fingerprint of a key in logs and reports: the first 128 bits of SHA-256 over its SubjectPublicKeyInfo."""
    encoded = public_key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"SHA256:{hashlib.sha256(encoded).hexdigest()[:32]}"


def public_key_from_wire(modulus: bytes, public_exponent: int, most: int = MAXIMUM_MODULUS_LENGTH) -> rsa.RSAPublicKey:
    """A public key from its little-endian modulus. Raises ValueError for what cannot be an RSA key."""
    number = int.from_bytes(modulus, "little")
    if number.bit_length() > most:
        raise ValueError(f"an RSA key of {number.bit_length()} bits is more than the {most} that are used")
    # A modulus that is even or has small factors makes no difference to us, but the library refuses some of them late.
    if number % 2 == 0 or public_exponent < 3 or public_exponent % 2 == 0:
        raise ValueError("the modulus or the public exponent cannot be those of an RSA key")
    return rsa.RSAPublicNumbers(public_exponent, number).public_key()


def public_key_to_wire(public_key: rsa.RSAPublicKey) -> tuple[bytes, int]:
    """The little-endian modulus and the public exponent."""
    numbers = public_key.public_numbers()
    return numbers.n.to_bytes((public_key.key_size + 7) // 8, "little"), numbers.e


def encrypt_to(public_key: rsa.RSAPublicKey, secret: bytes) -> bytes:
    """RSAES-PKCS1-v1_5 of a session key, little-endian. ValueError when the modulus is too short for it."""
    if len(secret) > (public_key.key_size + 7) // 8 - PKCS1_OVERHEAD:
        raise ValueError(f"a key of {len(secret)} bytes does not fit an RSA modulus of {public_key.key_size} bits")
    return public_key.encrypt(secret, _PADDING)[::-1]


class PrivateKey:
    """A private key that does not show itself: no repr, pickle or copy holds any part of it."""

    __slots__ = ("_key", "_rejection_key", "fingerprint", "modulus_length")

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self._key = key
        self.modulus_length = key.key_size
        """The size of the key in bits."""
        self.fingerprint = fingerprint_of(key.public_key())
        exponent = key.private_numbers().d
        self._rejection_key = hashlib.sha256(exponent.to_bytes(self.modulus_size, "big")).digest()

    @classmethod
    def generate(cls, modulus_length: int, policy: Policy) -> PrivateKey:
        """A new key pair. Keys under 1,024 bits are made only if the policy allows them, by the legacy module."""
        policy.require_modulus(modulus_length)
        if modulus_length < SMALLEST_STRONG_MODULUS:
            return cls(legacy_algorithms.generate_short_key(modulus_length))
        return cls(rsa.generate_private_key(PUBLIC_EXPONENT, modulus_length))

    @classmethod
    def from_der(cls, encoded: bytes) -> PrivateKey:
        """A key from PKCS #8. Raises ValueError, without any part of the input, for anything else."""
        return cls._loaded(serialization.load_der_private_key, encoded)

    @classmethod
    def from_pem(cls, encoded: bytes) -> PrivateKey:
        """As :meth:`from_der`, from PEM without a passphrase."""
        return cls._loaded(serialization.load_pem_private_key, encoded)

    @classmethod
    def _loaded(cls, load: Callable[[bytes, None], object], encoded: bytes) -> PrivateKey:
        try:
            key = load(encoded, None)
        except TypeError:  # a passphrase is needed
            raise ValueError(ENCRYPTED) from None
        except ValueError:
            raise ValueError("not a PKCS #8 private key") from None
        if not isinstance(key, rsa.RSAPrivateKey):
            raise ValueError("not an RSA private key")
        return cls(key)

    def to_der(self) -> bytes:
        """PKCS #8, unencrypted: for a key store, which must protect it."""
        return self._key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def modulus_size(self) -> int:
        """Bytes of the modulus, of a ciphertext and of a signature."""
        return (self.modulus_length + 7) // 8

    @property
    def public_key(self) -> rsa.RSAPublicKey:
        """The half that may be published."""
        return self._key.public_key()

    @property
    def signing_key(self) -> rsa.RSAPrivateKey:
        """The library's object, for the signature module."""
        return self._key

    def decrypt(self, encrypted: bytes, length: int) -> bytes | None:
        """The ``length`` bytes that someone encrypted to this key (little-endian ciphertext), or None.

        With a wrong key the library does not fail: it returns a message made up from the private key and the
        ciphertext, so that an attacker learns nothing (implicit rejection). Its length is right once in a hundred
        times. The message that it would make up is computed here too, so a made-up message is distinguished from a real
        one for certain.
        """
        if len(encrypted) != self.modulus_size:
            return None
        ciphertext = encrypted[::-1]
        try:
            message = self._key.decrypt(ciphertext, _PADDING)
        except ValueError:
            return None
        made_up = self._implicit_rejection(ciphertext)
        is_real = not hmac.compare_digest(message, made_up)
        return message if is_real and len(message) == length else None

    def _implicit_rejection(self, ciphertext: bytes) -> bytes:
        """The message that stands for bad padding: draft-irtf-cfrg-rsa-guidance, 7.2, as OpenSSL 3.2 and later do."""
        size = self.modulus_size
        seed = hmac.digest(self._rejection_key, ciphertext, "sha256")
        lengths = _pseudo_random(seed, b"length", _LENGTH_CANDIDATES * 2)
        longest = size - PKCS1_OVERHEAD
        mask = (1 << (longest + 1).bit_length()) - 1
        length = 0
        for index in range(0, len(lengths), 2):
            candidate = int.from_bytes(lengths[index : index + 2], "big") & mask
            if candidate <= longest:
                length = candidate
        return _pseudo_random(seed, b"message", size)[size - length :]

    def __repr__(self) -> str:
        return f"<PrivateKey {self.fingerprint}, {self.modulus_length} bits>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key leaves the process only through a key store")

    def __copy__(self) -> PrivateKey:
        return self

    def __deepcopy__(self, memo: object) -> PrivateKey:
        return self


_LENGTH_CANDIDATES: Final = 128


def _pseudo_random(seed: bytes, label: bytes, size: int) -> bytes:
    """The draft's PRF: HMAC-SHA-256 blocks over a counter, the label and the wanted length in bits."""
    suffix = label + (size * 8).to_bytes(2, "big")
    blocks = [hmac.digest(seed, index.to_bytes(2, "big") + suffix, "sha256") for index in range(-(-size // 32))]
    return b"".join(blocks)[:size]


def sign(private_key: PrivateKey, algorithm: HashAlgorithm, data: bytes) -> bytes:
    """The signature over ``data`` as it travels. ValueError when the key is too short for the hash."""
    implementation = HASHES[algorithm].implementation
    if implementation is None:
        return legacy_algorithms.sign(private_key.signing_key, algorithm, data)[::-1]
    return private_key.signing_key.sign(data, _PADDING, implementation)[::-1]


def verify(public_key: RSAPublicKey, algorithm: HashAlgorithm, signature: bytes, data: bytes) -> bool:
    """Whether ``signature``, as it travelled, is this key's over ``data``."""
    implementation = HASHES[algorithm].implementation
    if implementation is None:
        return legacy_algorithms.verify(public_key, algorithm, signature[::-1], data)
    try:
        public_key.verify(signature[::-1], data, _PADDING, implementation)
    except InvalidSignature:
        return False
    return True
