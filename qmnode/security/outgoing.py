"""Messages that leave: signed (MS-MQQB 3.1.7.1.4), then encrypted (3.1.7.1.5), once, at their source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qmnode.errors import MessageQueuingError
from qmnode.security.algorithms import HASHES, PROVIDER_BY_PRIVACY_LEVEL, PROVIDERS, sending_policy
from qmnode.security.encryption import Choice, choose, session_key
from qmnode.security.errors import LegacyUnavailableError, WeakAlgorithmError
from qmnode.security.key_caches import AgedCache, CachedSymmetricKey, SendKey
from qmnode.security.outcomes import Protected, ProtectionRequest, Signer, Unprotectable
from qmnode.security.signing import sign
from qmnode.structures.base_header import MAX_PACKET_SIZE
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.message_security import AuthenticationLevel, HashAlgorithm, PrivacyLevel
from qmnode.structures.packet_view import SECURITY_SIZE
from qmnode.structures.sections import DIRECT, Sections
from qmnode.structures.security_header import ProviderInfo, SecurityFlags, SecurityHeader
from qmnode.structures.user_message import UserMessage

if TYPE_CHECKING:
    from qmnode.security.public_key_lists import PublishedKeys
    from qmnode.settings.security import SecuritySettings
    from qmnode.structures.guid import Guid

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
            settings.send_symmetric_key_cache_size, settings.symmetric_key_short_lifetime
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
        sections.security_flags & ~_CLEARED | _ENCRYPTED,
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
_ENCRYPTED: Final = SecurityFlags.EB.mask | SecurityFlags.AI.mask
_PROVIDER_INFO: Final = {
    provider.name: ProviderInfo(provider_type=provider.type, provider_name=provider.name).write()
    for provider in PROVIDERS
}
