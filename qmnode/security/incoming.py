"""Messages that arrive at their destination: decrypted, then verified (MS-MQQB 3.1.5.8.3).

The section verifies first. But the sender signs before it encrypts (3.1.7.1.4, 3.1.7.1.5), so that order would verify
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from qmnode.security.algorithms import CIPHERS, HASHES, PROVIDER_BY_PRIVACY_LEVEL, Provider, accepting_policy
from qmnode.security.certificates import SenderCertificate, parse_certificate
from qmnode.security.ciphers import WrongKeyError, decrypt_body
from qmnode.security.encryption import WrappedKey, is_shortened, refusal, unwrap
from qmnode.security.errors import (
    LegacyUnavailableError,
    MessageDeferredError,
    MessageRefusedError,
    WeakAlgorithmError,
)
from qmnode.security.identity import SenderClaim
from qmnode.security.key_caches import AgedCache, CachedSymmetricKey, ReceiveKey
from qmnode.security.outcomes import TRUSTED, Deferred, Neighbour, Opened, Refused
from qmnode.security.signing import LEVELS_TRIED, level_that_verifies
from qmnode.security.suspects import Suspects
from qmnode.settings.security import SecuritySettings
from qmnode.structures.fields import Octets
from qmnode.structures.guid import Guid
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.message_security import (
    AuthenticationLevel,
    EncryptionAlgorithm,
    HashAlgorithm,
    SenderIdentifierType,
)
from qmnode.structures.sections import Sections
from qmnode.structures.security_header import SecurityFlags

if TYPE_CHECKING:
    from qmnode.security.key_ring import KeyRing

CERTIFICATES_KEPT: Final = 128
"""Parsed certificates: parsing one takes longer than verifying a signature with it."""

_SET_BY_RECEIVER: Final = SecurityFlags.AU.mask | SecurityFlags.AS.mask | SecurityFlags.EB.mask
"""Bits that only the receiver sets: those that came with the message are cleared."""


_ALGORITHMS: Final = {int(each): each for each in EncryptionAlgorithm}
_HASHES: Final = {int(each): each for each in HashAlgorithm}
_SENDER_TYPES: Final = {int(each): each for each in SenderIdentifierType}
_ENCRYPTED: Final = SecurityFlags.EB.mask
_SENDER_TYPE: Final = SecurityFlags.ST.mask
_AUTHENTICATED: Final = {level: SecurityFlags.of(AU=1, AS=level) for level in AuthenticationLevel}
_SIGNED: Final = {level: SecurityFlags.of(AS=level) for level in AuthenticationLevel}
"""The signature verifies with a certificate that anybody can have made: it proves no sender."""


class _Signature(NamedTuple):
    signature: bytes
    certificate: SenderCertificate
    algorithm: HashAlgorithm
    levels: Sequence[AuthenticationLevel]

    def level(self, sections: Sections, body: bytes) -> AuthenticationLevel:
        """The kind of signature that verifies with this body, if any."""
        inputs = ((each, sections.signed(each, body)) for each in self.levels)
        return level_that_verifies(self.certificate.public_key, self.algorithm, self.signature, inputs)


class IncomingSecurity:
    """Decrypts and verifies, with the settings, the private keys and the receive cache of one node."""

    def __init__(self, identifier: Guid, settings: SecuritySettings, ring: KeyRing) -> None:
        self._identifier = identifier
        self._settings = settings
        self._policy = accepting_policy(settings)
        self.ring = ring
        self.cache: AgedCache[ReceiveKey, CachedSymmetricKey] = AgedCache(
            settings.receive_symmetric_key_cache_size, settings.symmetric_key_short_lifetime
        )
        """The session keys of senders: ReceiveSymmetricKeyCache."""
        self._certificates: dict[bytes, SenderCertificate] = {}
        self._suspects = Suspects()

    def open(self, packet: bytes, now: float, neighbour: Neighbour = TRUSTED) -> Opened | Refused | Deferred:
        """Decrypt a message and verify its signature. One without a security header is anonymous.

        Every failure inside an encrypted message has the same answer, after the same work. The failure of an unsigned
        one is silent, unless a declared neighbour brought it and nothing shows that it was altered.
        """
        sections = Sections(packet)
        if not sections.has_security:
            return Opened(packet)
        encrypted = bool(sections.security_flags & _ENCRYPTED)
        try:
            return self._open(sections, encrypted, now, neighbour)
        except MessageRefusedError as refused:
            silent = encrypted and self._is_silent(sections, neighbour, now)
            return Refused(refused.message_class, refused.sentence, silent, refused.key_missing)
        except MessageDeferredError as deferred:
            return Deferred(deferred.sentence)
        except (WeakAlgorithmError, LegacyUnavailableError) as error:
            silent = encrypted and self._is_silent(sections, neighbour, now)
            return Refused(MessageClass.MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER, str(error), silent)

    def _is_silent(self, sections: Sections, neighbour: Neighbour, now: float) -> bool:
        return not neighbour.declared or self._suspects.is_dropped(neighbour, sections.encryption_key, now)

    def _open(self, sections: Sections, encrypted: bool, now: float, neighbour: Neighbour) -> Opened:
        flags = sections.security_flags & ~_SET_BY_RECEIVER
        if sections.address != self._identifier:
            if encrypted:
                raise refusal("a message to a direct format name is encrypted, to a key that nobody can know")
            return Opened(sections.with_body(flags, None))
        fingerprint = body = None
        signature = self._signature_of(sections, now)
        silent = False
        if encrypted:
            body, fingerprint = self._decrypted(sections, signature, now, neighbour)
            silent = signature is None and self._is_silent(sections, neighbour, now)
        level, claim = AuthenticationLevel.NONE, None
        if signature is not None:
            level = signature.level(sections, sections.body if body is None else body)
            if level is AuthenticationLevel.NONE:
                fault = f"the signature does not verify with certificate {signature.certificate.fingerprint}"
                raise refusal(fault) if encrypted else _bad_signature(fault)
            claim = _claim(sections, signature.certificate)
            flags |= _SIGNED[level] if claim is None else _AUTHENTICATED[level]
        return Opened(sections.with_body(flags, body), level, claim, fingerprint, silent)

    def _decrypted(
        self, sections: Sections, signature: _Signature | None, now: float, neighbour: Neighbour
    ) -> tuple[bytes, str]:
        """The body in clear, and the fingerprint of the key that it was encrypted to."""
        if not neighbour.declared and self._suspects.is_dropped(neighbour, sections.encryption_key, now):
            raise refusal("bodies under this session key failed to decrypt before")
        provider, algorithm = self._cipher_of(sections.privacy_level, sections.encryption_algorithm)
        place = ReceiveKey(sections.source, provider.name, algorithm, sections.encryption_key)
        cached = self.cache.get(place, now)
        keys = [cached] if cached is not None else self._unwrapped(place, provider, sections.sent_time, now)
        for key in keys:
            if self._settings.reject_enhanced_rc2_using_40_bit_keys and is_shortened(
                provider, algorithm, key.symmetric_key
            ):
                raise refusal("the session key is one of 40 bits, which the settings reject")
            try:
                body = key.cipher.decrypt(sections.body)
            except WrongKeyError:
                continue
            if cached is None:
                self.cache.add(place, key)
            return body, key.fingerprint
        if not keys:
            _spend_the_time_of_decryption(provider, algorithm, sections.body)
        if signature is not None:  # as long as if it had decrypted
            signature.level(sections, sections.body)
        if keys:
            self._suspects.failed(neighbour, sections.encryption_key, now)
        elif self.ring.unavailable is not None:
            raise MessageDeferredError(f"a private key is needed and the key store is away: {self.ring.unavailable}")
        raise refusal(f"the body does not decrypt with any of our keys: {self._names(provider)}", key_missing=not keys)

    def _unwrapped(
        self, place: ReceiveKey, provider: Provider, sent_time: float, now: float
    ) -> list[CachedSymmetricKey]:
        return unwrap(WrappedKey.parse(place, provider, sent_time), self.ring, self._settings, now)

    def _cipher_of(self, privacy_level: int, number: int) -> tuple[Provider, EncryptionAlgorithm]:
        """SelectedCSP and the algorithm of a received message (3.1.5.8.3, MS-MQMQ 2.2.19.3)."""
        provider = PROVIDER_BY_PRIVACY_LEVEL.get(privacy_level)
        if provider is None:
            raise refusal(f"there is no privacy level {privacy_level}")
        algorithm = _ALGORITHMS.get(number)
        if algorithm not in provider.algorithms:
            raise refusal(f"{provider.name} has no algorithm 0x{number:X}")
        self._policy.require(CIPHERS[algorithm].weakness)
        return provider, algorithm

    def _names(self, provider: Provider) -> str:
        return ", ".join(self.ring.fingerprints(provider.name)) or f"there is none for {provider.name}"

    def _signature_of(self, sections: Sections, now: float) -> _Signature | None:
        """The signature with what it is to be verified with; None for a message without one. Looks at headers only,
        so that its refusals say nothing of an encrypted body."""
        signature, levels = sections.signature, LEVELS_TRIED
        if not signature and (several := sections.several) is not None:
            signature, levels = several.signature.signature, (AuthenticationLevel.SIG30,)
        if not signature:
            return None
        settings = self._settings
        certificate = self._certificate(sections.sender_cert)
        fault = certificate.fault(now, settings.clock_skew, self._policy, settings.maximum_modulus_length)
        if fault is not None:
            raise _bad_signature(fault)
        algorithm = self._hash_for_verifying(sections.hash_algorithm)
        accepted = settings.signatures_accepted
        return _Signature(signature, certificate, algorithm, tuple(each for each in levels if each in accepted))

    def _hash_for_verifying(self, number: int) -> HashAlgorithm:
        algorithm = _HASHES.get(number)
        if algorithm is None:
            raise _bad_signature(f"there is no hash algorithm 0x{number:X}")
        self._policy.require(HASHES[algorithm].weakness)
        return algorithm

    def _certificate(self, encoded: bytes) -> SenderCertificate:
        certificate = self._certificates.get(encoded)
        if certificate is None:
            try:
                certificate = parse_certificate(encoded)
            except ValueError as error:
                raise _bad_signature(str(error)) from None
            if len(self._certificates) >= CERTIFICATES_KEPT:
                self._certificates = {}  # a new dictionary: other threads may be reading the old one
            self._certificates[encoded] = certificate
        return certificate


_LENGTHS: Final = {SenderIdentifierType.SID: range(8, 69), SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER: range(16, 17)}


def _claim(sections: Sections, certificate: SenderCertificate) -> SenderClaim | None:
    """The account that the sender claims; None for a certificate alone, which proves an author and no account."""
    number = sections.security_flags & _SENDER_TYPE
    if number == SenderIdentifierType.NONE:
        return None
    kind = _SENDER_TYPES.get(number)
    if kind is None:
        raise _bad_signature(f"there is no sender identifier of type {number}")
    if len(sections.security_id) not in _LENGTHS[kind]:
        raise _bad_signature(f"a sender identifier of {len(sections.security_id)} bytes is no {kind.name}")
    return SenderClaim(kind, sections.security_id, certificate)


def _spend_the_time_of_decryption(provider: Provider, algorithm: EncryptionAlgorithm, body: Octets) -> None:
    """Decrypt with a key that means nothing: a session key that was no key takes as long as one that was wrong.

    Else the time of the answer would tell an attacker which ciphertexts are well padded (Bleichenbacher).
    """
    try:
        decrypt_body(algorithm, os.urandom(provider.key_length(algorithm)), body)
    except WrongKeyError:
        return


def _bad_signature(sentence: str) -> MessageRefusedError:
    return MessageRefusedError(MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE, sentence)
