"""The one object through which a node protects what it sends and opens what it receives.

Both happen once, at the source for the destination queue manager, and at the destination; routing servers between them
pass the packet on as it is. A message that leaves is signed (MS-MQQB 3.1.7.1.4), then encrypted (3.1.7.1.5). One that
arrives is decrypted, then verified (3.1.5.8.3). The section verifies first. But the sender signs before it encrypts, so
that order would verify nothing.

A body under MSMQ's encryption has no protection against change but its padding. Somebody who sends altered copies of
a message and learns which of them decrypt can read it (a padding oracle). So after a few failures a session key is
dropped: a stranger's messages under it are no longer decrypted, and a declared peer's are no longer acknowledged.

No I/O, and any thread may call. Questions to the directory come before (``published_keys``) and after (``identity``).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from qmnode.errors import MessageQueuingError
from qmnode.security.caches import AgedCache
from qmnode.security.encryption import (
    CachedSymmetricKey,
    Choice,
    ReceiveKey,
    SendKey,
    WrappedKey,
    WrongKeyError,
    choose,
    decrypt_body,
    is_shortened,
    refusal,
    session_key,
    unwrap,
)
from qmnode.security.errors import LegacyUnavailableError, MessageDeferredError, MessageRefusedError, WeakAlgorithmError
from qmnode.security.key_stores import KeyRing
from qmnode.security.rsa_keys import (
    CIPHERS,
    HASHES,
    PROVIDER_BY_PRIVACY_LEVEL,
    PROVIDERS,
    PrivateKey,
    Provider,
    accepting_policy,
    sending_policy,
    sign,
    verify,
)
from qmnode.security.sender_identity import Sender, SenderCertificate, SenderClaim, parse_certificate
from qmnode.settings.security import SecuritySettings
from qmnode.structures.enumerations import (
    AuthenticationLevel,
    EncryptionAlgorithm,
    HashAlgorithm,
    MessageClass,
    PrivacyLevel,
    SenderIdentifierType,
)
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.fields import Octets
from qmnode.structures.guid import Guid
from qmnode.structures.packet_view import DIRECT, SECURITY_SIZE, Sections
from qmnode.structures.user_message import MAX_PACKET_SIZE, ProviderInfo, SecurityFlags, SecurityHeader, UserMessage

if TYPE_CHECKING:
    from qmnode.security.published_keys import PublishedKeys


# ----------------------------------------------------------------------------------------------------------------------
# Requests to message security and its answers, as values.


class Deliverer(NamedTuple):
    """The queue manager at the other end of the session that brought a message."""

    block: str
    """Its address, or its /64 network in IPv6."""
    declared: bool
    """Whether the neighbour is in the directory and speaks from its own address, or has shown a certificate."""


TRUSTED: Final = Deliverer("", declared=True)
"""The neighbour that stands for this machine itself."""


@dataclass(frozen=True, slots=True)
class Signer:
    """The signer of a message: a user, or this queue manager for itself."""

    private_key: PrivateKey
    certificate: bytes
    """The X.509 certificate in DER."""
    type: SenderIdentifierType
    identifier: bytes
    """A SID, or the GUID of the queue manager."""


@dataclass(slots=True)
class ProtectionRequest:
    """An outgoing message and what its security needs. Privacy level and algorithms are in the packet."""

    packet: bytes
    authentication_level: AuthenticationLevel = AuthenticationLevel.NONE
    signer: Signer | None = None
    keys: PublishedKeys | None = None
    """Of the destination queue manager, wherever the next hop is; filled in when they are looked up."""
    sections: Sections = field(init=False, repr=False, compare=False)
    """The packet, cut into its headers."""

    def __post_init__(self) -> None:
        self.sections = Sections(self.packet)


@dataclass(frozen=True, slots=True)
class Protected:
    """The packet as it leaves."""

    written: bytes

    @property
    def packet(self) -> UserMessage:
        """The same as a structure."""
        return UserMessage.parse(self.written)


@dataclass(frozen=True, slots=True)
class Unprotectable:
    """The message must not leave (3.1.7.1.5.1): it goes to the dead-letter queue if the sender wanted that."""

    error: MessageQueuingError


@dataclass(frozen=True, slots=True)
class Opened:
    """An arrived message in clear. Only this node has set its bits AU and AS."""

    written: bytes
    authentication_level: AuthenticationLevel = AuthenticationLevel.NONE
    """The kind of signature that verified."""
    claim: SenderClaim | None = None
    """The claimed signer, to be confirmed by the directory before it counts. None: the sender is anonymous."""
    key_fingerprint: str | None = None
    """Of our key that the message was encrypted to; None if it was not."""
    silent: bool = False
    """Whether the sender gets no answer, because an answer would show whether the body decrypted."""

    @property
    def packet(self) -> UserMessage:
        """The packet as a structure."""
        return UserMessage.parse(self.written)


@dataclass(frozen=True, slots=True)
class Refused:
    """The message fails a check: its negative acknowledgment, and a sentence for the log."""

    message_class: MessageClass
    sentence: str
    silent: bool = False
    """The same as in :class:`Opened`."""
    key_missing: bool = field(default=False, compare=False)
    """Whether none of our private keys unwraps the session key: it may be one that was not read yet."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The message cannot be judged now. It is neither acknowledged nor refused; the sender will send it again."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """An arrived message that may go into its queue."""

    written: bytes
    """In clear, with our bits."""
    sender: Sender
    authentication_level: AuthenticationLevel
    key_fingerprint: str | None = None
    """Of our key that the message was encrypted to; None if it was not."""
    silent: bool = False
    """The same as in :class:`Opened`."""

    @property
    def packet(self) -> UserMessage:
        """The packet as a structure."""
        return UserMessage.parse(self.written)


Verdict = Admitted | Refused | Deferred
"""The outcome for an arrived message."""


SEND_SYMMETRIC_KEY_CACHE_SIZE: Final = 53
RECEIVE_SYMMETRIC_KEY_CACHE_SIZE: Final = 127
"""Of the same names in MS-MQQB 3.1.3.1: the most cached entries."""
CHOICES_KEPT: Final = 1024
"""Choices of provider and algorithm that are kept, one for each destination."""
HEADERS_KEPT: Final = 128
"""Security headers that are kept, one for each signer."""


class OutgoingSecurity:
    """Signs and encrypts, with the settings and the send cache of one node."""

    def __init__(self, settings: SecuritySettings) -> None:
        self._settings = settings
        self._policy = sending_policy(settings)
        self.cache: AgedCache[SendKey, CachedSymmetricKey] = AgedCache(
            SEND_SYMMETRIC_KEY_CACHE_SIZE, settings.symmetric_key_short_lifetime
        )
        """The session keys by destination: SendSymmetricKeyCache."""
        self._hashes: dict[int, HashAlgorithm] = {}
        """Those that may be used, by their numbers."""
        self._choices: dict[tuple[Guid, int, int], tuple[PublishedKeys, Choice]] = {}
        self._headers: dict[tuple[bytes, int, bytes, int, int], tuple[bytes, bytes]] = {}

    def protect(self, request: ProtectionRequest, now: float) -> Protected | Unprotectable:
        """Sign and encrypt a message as it asks. One to a direct format name leaves unsigned (MS-MQQB 5.1)."""
        try:
            sections = request.sections
            if request.authentication_level is not AuthenticationLevel.NONE and sections.to != DIRECT:
                sections = Sections(self._signed(sections, request))
            packet = sections.packet
            if sections.privacy_level:
                packet = _encrypted(sections, *self._key_for(sections, request.keys, now))
            return Protected(_within_limits(packet))
        except MessageQueuingError as error:
            return Unprotectable(error)
        except (WeakAlgorithmError, LegacyUnavailableError) as error:
            return Unprotectable(MessageQueuingError(ErrorCode.MQ_ERROR_CORRUPTED_SECURITY_DATA, str(error)))

    def _signed(self, sections: Sections, request: ProtectionRequest) -> bytes:
        signer = request.signer
        if signer is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED, "the message asks for authentication and nobody signs it"
            )
        return self.with_signature(sections, signer, self.signature(sections, signer, request.authentication_level))

    def signature(self, sections: Sections, signer: Signer, level: AuthenticationLevel) -> bytes:
        """The signature over what a packet says. Raises :class:`MessageQueuingError` if it cannot be made."""
        algorithm = self._hash_for_sending(sections.hash_algorithm)
        try:
            return sign(signer.private_key, algorithm, sections.signed(level_for(sections, level), sections.body))
        except ValueError as error:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_CANNOT_SIGN_DATA_EX, f"the signature: {error}") from None

    def with_signature(self, sections: Sections, signer: Signer, signature: bytes, flags: int = 0) -> bytes:
        """The packet with its signature and these further flags of SecurityHeader."""
        if sections.is_several:  # it is signed elsewhere
            before, after = self._header(signer, 0, flags)
            packet = _with_several(sections.with_security(before + after), signature)
        else:
            before, after = self._header(signer, len(signature), flags)
            packet = sections.with_security(before + signature + after)
        return _within_limits(packet)

    def _header(self, signer: Signer, signature_size: int, flags: int) -> tuple[bytes, bytes]:
        """The security header of a signer around a signature of this size: for one signer always the same."""
        place = (signer.certificate, signer.type, signer.identifier, signature_size, flags)
        header = self._headers.get(place)
        if header is None:
            written = SecurityHeader(
                flags=SecurityFlags.of(ST=signer.type, DE=1, AI=1) | flags,
                security_id=signer.identifier,
                signature=bytes(signature_size),
                sender_cert=signer.certificate,
            ).write()
            at = SECURITY_SIZE + len(signer.identifier) + -len(signer.identifier) % 4
            header = written[:at], written[at + signature_size :]
            if len(self._headers) >= HEADERS_KEPT:
                self._headers = {}  # a new dictionary: other threads may be reading the old one
            self._headers[place] = header
        return header

    def _hash_for_sending(self, number: int) -> HashAlgorithm:
        algorithm = self._hashes.get(number)
        if algorithm is not None:
            return algorithm
        try:
            algorithm = HashAlgorithm(number)
            self._policy.require(HASHES[algorithm].weakness)
        except (ValueError, WeakAlgorithmError) as error:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_CANNOT_CREATE_HASH_EX, f"hash algorithm 0x{number:X}: {error}"
            ) from None
        self._hashes[number] = algorithm
        return algorithm

    def _key_for(self, sections: Sections, keys: PublishedKeys | None, now: float) -> tuple[Choice, CachedSymmetricKey]:
        """The session key that encrypts a packet (3.1.7.1.5)."""
        remote, privacy_level = sections.address, sections.privacy_level
        if sections.to in (DIRECT, 0):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_PUBLIC_KEY_NOT_FOUND,
                "a message to a direct format name cannot be encrypted: use a public or private format name",
            )
        if keys is None or keys.queue_manager != remote:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_PUBLIC_KEY_NOT_FOUND, "the directory gave no public key of the destination computer"
            )
        if privacy_level not in PROVIDER_BY_PRIVACY_LEVEL:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ENCRYPTION_PROVIDER_NOT_SUPPORTED, f"there is no privacy level {privacy_level}"
            )
        choice = self._choice(keys, privacy_level, sections.encryption_algorithm)
        return choice, session_key(choice, keys.queue_manager, self.cache, now)

    def _choice(self, keys: PublishedKeys, privacy_level: int, requested: int) -> Choice:
        """The choice for what a destination publishes: the same until that is read anew."""
        place = (keys.queue_manager, privacy_level, requested)
        made = self._choices.get(place)
        if made is None or made[0] is not keys:
            made = keys, choose(keys, PrivacyLevel(privacy_level), requested, self._settings, self._policy)
            if len(self._choices) >= CHOICES_KEPT:
                self._choices = {}  # a new dictionary: other threads may be reading the old one
            self._choices[place] = made
        return made[1]


def level_for(sections: Sections, level: AuthenticationLevel) -> AuthenticationLevel:
    """The kind of signature that a receiver looks for: 3.1.5.8.3 tries SIG30 for several destinations and only then."""
    if sections.is_several:
        return AuthenticationLevel.SIG30
    return AuthenticationLevel.SIG20 if level is AuthenticationLevel.SIG30 else level


def _with_several(packet: bytes, signature: bytes) -> bytes:
    """The packet with the signature in its MultiQueueFormatHeader."""
    message = UserMessage.parse(packet)
    several = message.multi_queue_format_header
    assert several is not None
    several = several.replace(signature=several.signature.replace(signature=signature))
    return message.replace(multi_queue_format_header=several).write()


def _encrypted(sections: Sections, choice: Choice, key: CachedSymmetricKey) -> bytes:
    """The packet under a session key. 3.1.7.1.5 has the provider's name, MS-MQMQ 2.2.20.6 only while DE is clear."""
    provider = choice.provider
    return sections.encrypted(
        sections.security_flags & ~_CLEARED | _SET_WITH_ENCRYPTION,
        key.encrypted_symmetric_key,
        _PROVIDER_INFO[provider.name],
        key.cipher.encrypt(sections.body),
        provider.privacy_level,
        choice.algorithm,
    )


def _within_limits(packet: bytes) -> bytes:
    size = len(packet)
    if size > MAX_PACKET_SIZE:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
            f"protected, the message takes {size} bytes, more than the {MAX_PACKET_SIZE} of a packet: send less",
        )
    return packet


_CLEARED: Final = SecurityFlags.AU.mask | SecurityFlags.AS.mask | SecurityFlags.DE.mask
_SET_WITH_ENCRYPTION: Final = SecurityFlags.EB.mask | SecurityFlags.AI.mask
_PROVIDER_INFO: Final = {
    provider.name: ProviderInfo(provider_type=provider.type, provider_name=provider.name).write()
    for provider in PROVIDERS
}


FAILURES: Final = 3
"""Bodies under one session key, from one neighbour, that may fail before the key is dropped."""
SUSPICION_LIFETIME: Final = 3600.0
"""Seconds after its last failure for which a key stays dropped."""
SUSPECT_KEYS: Final = 64
"""Session keys remembered of one neighbour. Over it all of its session keys count as dropped."""
SUSPECT_NEIGHBOURS: Final = 1024
"""Strangers remembered, and as many declared peers."""


class _FailedKeys:
    __slots__ = ("counts", "last")

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.last = 0.0


class Suspects:
    """Counts failures in bounded memory. May be used from several threads."""

    def __init__(self) -> None:
        self._records: tuple[dict[str, _FailedKeys], dict[str, _FailedKeys]] = ({}, {})
        self._lock = Lock()

    def failed(self, neighbour: Deliverer, key: bytes, now: float) -> None:
        """A body under this SIMPLEBLOB, which one of our private keys unwrapped, did not decrypt."""
        with self._lock:
            records = self._records[neighbour.declared]
            record = self._fresh(neighbour, now) or _FailedKeys()
            records.pop(neighbour.block, None)
            records[neighbour.block] = record  # behind all others: the first is the one without failures for longest
            if len(records) > SUSPECT_NEIGHBOURS:
                del records[next(iter(records))]
            record.last = now
            digest = _digest(key)
            if digest in record.counts or len(record.counts) < SUSPECT_KEYS:
                record.counts[digest] = record.counts.get(digest, 0) + 1

    def is_dropped(self, neighbour: Deliverer, key: bytes, now: float) -> bool:
        """Whether too many messages that the neighbour brought under this key did not decrypt."""
        if neighbour.block not in self._records[neighbour.declared]:
            return False
        with self._lock:
            record = self._fresh(neighbour, now)
            if record is None:
                return False
            return len(record.counts) >= SUSPECT_KEYS or record.counts.get(_digest(key), 0) >= FAILURES

    def _fresh(self, neighbour: Deliverer, now: float) -> _FailedKeys | None:
        record = self._records[neighbour.declared].get(neighbour.block)
        return record if record is not None and abs(now - record.last) <= SUSPICION_LIFETIME else None


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=16).digest()


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
"""For a signature without a claimed account: anybody can make such a certificate, so it proves no sender."""


LEVELS_TRIED: Final[tuple[AuthenticationLevel, ...]] = (AuthenticationLevel.SIG20, AuthenticationLevel.SIG10)
"""The kinds of SecurityData.Signature, in the order of 3.1.5.8.3; SIG30 is the multiple-destination one."""


def level_that_verifies(
    public_key: RSAPublicKey,
    algorithm: HashAlgorithm,
    signature: bytes,
    inputs: Iterable[tuple[AuthenticationLevel, bytes]],
) -> AuthenticationLevel:
    """The first kind of signature that verifies, given what each covers; NONE if none does."""
    for level, data in inputs:
        if verify(public_key, algorithm, signature, data):
            return level
    return AuthenticationLevel.NONE


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
            RECEIVE_SYMMETRIC_KEY_CACHE_SIZE, settings.symmetric_key_short_lifetime
        )
        """The session keys of senders: ReceiveSymmetricKeyCache."""
        self._certificates: dict[bytes, SenderCertificate] = {}
        self._suspects = Suspects()

    def open(self, packet: bytes, now: float, neighbour: Deliverer = TRUSTED) -> Opened | Refused | Deferred:
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

    def _is_silent(self, sections: Sections, neighbour: Deliverer, now: float) -> bool:
        return not neighbour.declared or self._suspects.is_dropped(neighbour, sections.encryption_key, now)

    def _open(self, sections: Sections, encrypted: bool, now: float, neighbour: Deliverer) -> Opened:
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
        self, sections: Sections, signature: _Signature | None, now: float, neighbour: Deliverer
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
        fault = certificate.fault(now, settings.clock_skew, self._policy)
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


class MessageProtector:
    """Signing, encrypting, decrypting and verifying with the settings, keys and caches of one node."""

    def __init__(self, identifier: Guid, settings: SecuritySettings, ring: KeyRing | None = None) -> None:
        unread = KeyRing(unavailable="it has not been read yet")
        self._incoming = IncomingSecurity(identifier, settings, unread if ring is None else ring)
        self._outgoing = OutgoingSecurity(settings)

    @property
    def ring(self) -> KeyRing:
        """The key pairs in use."""
        return self._incoming.ring

    def use_ring(self, ring: KeyRing) -> int:
        """Go on with these key pairs. Session keys that a pair no longer in the ring unwrapped are forgotten.

        A ring that is unavailable forgets nothing: what is cached still serves. Returns how many were forgotten.
        """
        self._incoming.ring = ring
        if ring.unavailable is not None:
            return 0
        names = {pair.fingerprint for pair in ring}
        return self._incoming.cache.forget(lambda _, key: key.fingerprint not in names)

    def protect_all(self, requests: Iterable[ProtectionRequest], now: float) -> list[Protected | Unprotectable]:
        """Sign and encrypt each message as it asks, in one call for a batch in a worker thread. One to a direct format
        name leaves unsigned (MS-MQQB 5.1).
        """
        return [self._outgoing.protect(request, now) for request in requests]

    def open_all(self, packets: Iterable[tuple[bytes, Deliverer]], now: float) -> list[Opened | Refused | Deferred]:
        """Decrypt messages that are at their destination, each with who brought it, and verify their signatures, in one
        call for a batch in a worker thread.
        """
        return [self._incoming.open(packet, now, neighbour) for packet, neighbour in packets]

    def clean_up(self, now: float) -> float | None:
        """The cleanup timers of the symmetric key caches (3.1.6.10 to 3.1.6.12); when to come back, if at all."""
        due = [cache.clean_up(now) for cache in (self._incoming.cache, self._outgoing.cache)]
        return min((each for each in due if each is not None), default=None)
