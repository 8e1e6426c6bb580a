"""Encryption of message bodies: session keys, chosen and wrapped for a destination (MS-MQQB 3.1.7.1.5), unwrapped on
arrival (3.1.5.8.3), and the ciphers under them (MS-MQMQ 2.2.19.3).

Bodies are under AES or RC2 in CBC mode with a zero IV and PKCS #5 padding, or under RC4. The specification fixes mode,
IV and padding; there is no integrity in any of them. An encrypted message must be protected from change, too, and only
a signature gives that.

Two readings of the text would lose or leak messages, so:

- The key is that of the *destination* queue manager. The text takes the next hop's, which fails after two hops.
- The packet's PrivacyLevel follows the provider that was chosen: the receiver picks its private key by that field
  alone, and a stronger provider than the message asked for is what the text prefers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4, RC2
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, modes
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.padding import PKCS7

from qmnode.errors import MessageQueuingError
from qmnode.security import legacy_algorithms
from qmnode.security.caches import AgedCache
from qmnode.security.errors import MessageRefusedError
from qmnode.security.rsa_keys import (
    AES_PROVIDER,
    BASE_PROVIDER,
    CIPHERS,
    ENHANCED_PROVIDER,
    Policy,
    Provider,
    encrypt_to,
    modulus_weakness,
    usable_algorithms,
)
from qmnode.structures.enumerations import EncryptionAlgorithm, MessageClass, PrivacyLevel
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.fields import Octets
from qmnode.structures.public_keys import SimpleBlob

if TYPE_CHECKING:
    from qmnode.security.key_stores import KeyRing
    from qmnode.security.published_keys import PublishedKey, PublishedKeys
    from qmnode.settings.security import SecuritySettings
    from qmnode.structures.guid import Guid

_LIBRARY_RC2_KEY: Final = 16
"""Bytes: the one length of RC2 keys that ``cryptography`` takes."""
_ZERO_IV: Final = {algorithm: bytes(facts.block_size) for algorithm, facts in CIPHERS.items()}
_CLASSES: Final[dict[EncryptionAlgorithm, Callable[[bytes], AES | RC2]]] = {
    EncryptionAlgorithm.AES128: AES,
    EncryptionAlgorithm.AES192: AES,
    EncryptionAlgorithm.AES256: AES,
    EncryptionAlgorithm.RC2: RC2,
}
_PADDINGS: Final = {size: PKCS7(size * 8) for size in (8, 16)}


class WrongKeyError(Exception):
    """The padding of a decrypted body is wrong: the key does not fit or the body was altered."""


class BodyCipher:
    """A session key with its cipher object, made once for all bodies. May be used from several threads."""

    __slots__ = ("_algorithm", "_block_size", "_cipher", "_legacy_key")

    def __init__(self, algorithm: EncryptionAlgorithm, key: bytes) -> None:
        self._algorithm = algorithm
        self._block_size = CIPHERS[algorithm].block_size
        self._legacy_key = b""
        self._cipher: Cipher[modes.CBC] | Cipher[None] | None = None
        if not self._block_size:
            self._cipher = Cipher(ARC4(key), None)
        elif algorithm is EncryptionAlgorithm.RC2 and len(key) != _LIBRARY_RC2_KEY:
            self._legacy_key = key
        else:
            self._cipher = Cipher(_CLASSES[algorithm](key), modes.CBC(_ZERO_IV[algorithm]))

    def encrypt(self, body: Octets) -> bytes:
        """The body as it travels. All of the key is effective."""
        size = self._block_size
        if size:
            missing = size - len(body) % size
            body = b"".join((body, bytes((missing,)) * missing))
        if self._cipher is None:
            return legacy_algorithms.rc2_encrypt(self._legacy_key, bytes(body), len(self._legacy_key) * 8)
        return _run(self._cipher.encryptor(), body)

    def decrypt(self, encrypted: Octets) -> bytes:
        """The body as it was. Raises :class:`WrongKeyError` if any byte of the padding is wrong."""
        size = self._block_size
        if size and (not encrypted or len(encrypted) % size):
            raise WrongKeyError(f"{len(encrypted)} bytes are not whole blocks of {self._algorithm.name}")
        if self._cipher is None:
            padded = legacy_algorithms.rc2_decrypt(self._legacy_key, bytes(encrypted), len(self._legacy_key) * 8)
        else:
            padded = _run(self._cipher.decryptor(), encrypted)
        if not size:
            return padded
        unpadder = _PADDINGS[size].unpadder()
        try:
            return unpadder.update(padded) + unpadder.finalize()
        except ValueError:
            raise WrongKeyError("the body does not end in padding") from None


def decrypt_body(algorithm: EncryptionAlgorithm, key: bytes, encrypted: Octets) -> bytes:
    """One body that is under a key."""
    return BodyCipher(algorithm, key).decrypt(encrypted)


def _run(context: CipherContext, data: Octets) -> bytes:
    return context.update(data) + context.finalize()


SHORT_KEY: Final = 5
"""Bytes of a 40-bit key."""
ZERO_PADDING: Final = bytes(11)
"""The 88 zero bits that make a 40-bit key one of 128 bits in the enhanced provider."""


class SendKey(NamedTuple):
    """The key of a session key for sending. With the public key in it, a rotated key is never used again."""

    remote_qm_guid: Guid
    crypto_service_provider: str
    crypto_algorithm: EncryptionAlgorithm
    public_key_fingerprint: str


class ReceiveKey(NamedTuple):
    """The key of a session key for receiving (3.1.5.8.3)."""

    remote_qm_guid: Guid
    crypto_service_provider: str
    crypto_algorithm: EncryptionAlgorithm
    encrypted_symmetric_key: bytes


@dataclass(frozen=True, slots=True)
class CachedSymmetricKey:
    """CachedSymmetricKey, 3.1.1.3.3, beside what it is found by."""

    encrypted_symmetric_key: bytes
    """The encrypted session key, a SIMPLEBLOB."""
    symmetric_key: bytes = field(repr=False)
    fingerprint: str
    """Of the RSA key that it is encrypted to."""
    cached_time: float
    cipher: BodyCipher = field(repr=False, compare=False)
    """The key at work."""


@dataclass(frozen=True, slots=True)
class Choice:
    """UseCSP, UseAlgorithm, UseSymmKeyLength and UsePublicKey of 3.1.7.1.5."""

    key: PublishedKey
    algorithm: EncryptionAlgorithm
    random_length: int
    """Bytes of the session key that are random."""

    @property
    def provider(self) -> Provider:
        """The provider to encrypt with: UseCSP."""
        return self.key.provider


def choose(
    keys: PublishedKeys, privacy_level: PrivacyLevel, requested: int, settings: SecuritySettings, policy: Policy
) -> Choice:
    """The strongest provider that the destination publishes, no weaker than ``privacy_level`` asks for.

    ``requested`` is the message's own algorithm, used if the provider has it; otherwise the preferred one is. Raises
    :class:`MessageQueuingError` when nothing fits: such a message is not sent (3.1.7.1.5.1).
    """
    obstacles = list(keys.faults)
    for provider in (AES_PROVIDER, ENHANCED_PROVIDER, BASE_PROVIDER):
        if provider.privacy_level < privacy_level:
            break
        key = keys.keys.get(provider.name)
        if key is None:
            continue
        algorithm = _algorithm(provider, requested, policy)
        if algorithm is None or not policy.permits(modulus_weakness(key.public_key.key_size)):
            obstacles.append(f"{provider.name} is too weak unless security.{policy.setting} allows it")
            continue
        return Choice(key, algorithm, _random_length(provider, algorithm, settings))
    if keys.keys:
        code = ErrorCode.MQ_ERROR_ENCRYPTION_PROVIDER_NOT_SUPPORTED
        sentence = "the destination computer publishes no key that a message of this privacy level may use"
    else:
        code = ErrorCode.MQ_ERROR_PUBLIC_KEY_DOES_NOT_EXIST
        sentence = "the destination computer publishes no public key: let it make its keys and publish them"
    raise MessageQueuingError(code, "; ".join([sentence, *obstacles]))


def _algorithm(provider: Provider, requested: int, policy: Policy) -> EncryptionAlgorithm | None:
    """The algorithm that the message asks for if it is usable, or the preferred one."""
    usable = usable_algorithms(policy, provider)
    return next((algorithm for algorithm in usable if algorithm == requested), next(iter(usable), None))


def _random_length(provider: Provider, algorithm: EncryptionAlgorithm, settings: SecuritySettings) -> int:
    shortened = settings.send_enhanced_rc2_using_40_bit_keys and algorithm is EncryptionAlgorithm.RC2
    return SHORT_KEY if shortened and provider is ENHANCED_PROVIDER else provider.key_length(algorithm)


def session_key(
    choice: Choice, remote: Guid, cache: AgedCache[SendKey, CachedSymmetricKey], now: float
) -> CachedSymmetricKey:
    """The cached session key for a destination, or a new one (3.1.7.1.5)."""
    place = SendKey(remote, choice.provider.name, choice.algorithm, choice.key.fingerprint)
    cached = cache.get(place, now)
    if cached is None:
        cached = _new_session_key(choice, now)
        cache.add(place, cached)
    return cached


def _new_session_key(choice: Choice, now: float) -> CachedSymmetricKey:
    key = os.urandom(choice.random_length)
    if choice.random_length < choice.provider.key_length(choice.algorithm):
        key += ZERO_PADDING
    try:
        encrypted = encrypt_to(choice.key.public_key, key)
    except ValueError as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_CORRUPTED_SECURITY_DATA, f"the session key: {error}") from None
    blob = SimpleBlob(session_key_algorithm=choice.algorithm, encrypted_key=encrypted).write()
    return CachedSymmetricKey(blob, key, choice.key.fingerprint, now, BodyCipher(choice.algorithm, key))


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A received session key, with what says which private key it may be encrypted to."""

    place: ReceiveKey
    provider: Provider
    encrypted_key: bytes
    sent_time: float

    @classmethod
    def parse(cls, place: ReceiveKey, provider: Provider, sent_time: float) -> WrappedKey:
        """From SecurityHeader.EncryptionKey. Raises :class:`MessageRefusedError` for what is no SIMPLEBLOB of it."""
        try:
            blob = SimpleBlob.parse(place.encrypted_symmetric_key)
        except PacketError as error:
            raise refusal(f"the session key cannot be read: {error}") from None
        if blob.session_key_algorithm != place.crypto_algorithm:
            raise refusal(
                f"the session key is for algorithm 0x{blob.session_key_algorithm:X}, not {place.crypto_algorithm.name}"
            )
        return cls(place, provider, blob.encrypted_key, sent_time)


def unwrap(wrapped: WrappedKey, ring: KeyRing, settings: SecuritySettings, now: float) -> list[CachedSymmetricKey]:
    """The session keys that our private keys find in it, the likeliest first: one, or none.

    Every private key of the right length is tried, whether or not one before it fitted, so that the time taken says
    nothing about which did. Two could fit only once in ten million times.
    """
    candidates = ring.candidates(wrapped.provider.name, len(wrapped.encrypted_key), wrapped.sent_time)
    if not CIPHERS[wrapped.place.crypto_algorithm].block_size:
        candidates = [
            pair
            for pair in candidates
            if pair.may_have_served(wrapped.sent_time, settings.clock_skew, settings.superseded_key_grace)
        ]
        if len(candidates) > 1:
            names = ", ".join(pair.fingerprint for pair in candidates)
            raise refusal(f"RC4 cannot tell which of several private keys is the right one: {names}")
    length = wrapped.provider.key_length(wrapped.place.crypto_algorithm)
    found = []
    for pair in candidates:
        assert pair.private_key is not None
        key = pair.private_key.decrypt(wrapped.encrypted_key, length)
        if key is not None:
            cipher = BodyCipher(wrapped.place.crypto_algorithm, key)
            found.append(CachedSymmetricKey(wrapped.place.encrypted_symmetric_key, key, pair.fingerprint, now, cipher))
    return found


def is_shortened(provider: Provider, algorithm: EncryptionAlgorithm, key: bytes) -> bool:
    """Whether the enhanced provider's RC2 key has only 40 bits, the other 88 being zero (3.1.5.8.3)."""
    return provider is ENHANCED_PROVIDER and algorithm is EncryptionAlgorithm.RC2 and key.endswith(ZERO_PADDING)


def refusal(sentence: str, *, key_missing: bool = False) -> MessageRefusedError:
    """The refusal of a message that does not decrypt, or of which anything that was encrypted fails a check."""
    return MessageRefusedError(MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION, sentence, key_missing=key_missing)
