"""Messages that leave: signed (MS-MQQB 3.1.7.1.4), then encrypted (3.1.7.1.5), once, at their source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qmnode.errors import MessageQueuingError
from qmnode.security.algorithms import HASHES, PROVIDER_BY_PRIVACY_LEVEL, PROVIDERS, sending_policy
from qmnode.security.ciphers import encrypt_body
from qmnode.security.encryption import Choice, choose, session_key
from qmnode.security.errors import LegacyUnavailableError, WeakAlgorithmError
from qmnode.security.key_caches import AgedCache, CachedSymmetricKey, SendKey
from qmnode.security.outcomes import Protected, ProtectionRequest, Unprotectable
from qmnode.security.repacking import padding_of, repacked, with_body
from qmnode.security.signing import sign
from qmnode.structures.base_header import MAX_PACKET_SIZE
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.message_security import AuthenticationLevel, HashAlgorithm, PrivacyLevel
from qmnode.structures.queue_formats import DirectQueueFormatName
from qmnode.structures.security_header import ProviderInfo, SecurityFlags, SecurityHeader
from qmnode.structures.signature_properties import signed_bytes

if TYPE_CHECKING:
    from qmnode.security.outcomes import Signer
    from qmnode.security.public_key_lists import PublishedKeys
    from qmnode.security_settings import SecuritySettings
    from qmnode.structures.guid import Guid
    from qmnode.structures.message_properties_header import MessagePropertiesHeader
    from qmnode.structures.user_message import UserMessage


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
        """SendSymmetricKeyCache."""
        self._choices: dict[tuple[Guid, int, int], tuple[PublishedKeys, Choice]] = {}
        self._headers: dict[tuple[bytes, int, bytes, int], SecurityHeader] = {}

    def protect(self, request: ProtectionRequest, now: float) -> Protected | Unprotectable:
        """Sign and encrypt a message as it asks. One to a direct format name leaves unsigned (MS-MQQB 5.1)."""
        try:
            packet = request.packet
            direct = isinstance(packet.user_header.destination_queue, DirectQueueFormatName)
            security = packet.security_header
            if request.authentication_level is not AuthenticationLevel.NONE and not direct:
                packet, security = self._signed(packet, request)
            properties = packet.message_properties_header
            if properties.privacy_level != PrivacyLevel.NONE:
                choice, key = self._key_for(packet, request.keys, direct, now)
                properties = _encrypted(properties, choice, key)
                security = _with_key(security, choice, key)
            return Protected(_within_limits(repacked(packet, security, properties)))
        except MessageQueuingError as error:
            return Unprotectable(error)
        except (WeakAlgorithmError, LegacyUnavailableError) as error:
            return Unprotectable(MessageQueuingError(ErrorCode.MQ_ERROR_CORRUPTED_SECURITY_DATA, str(error)))

    def _signed(self, packet: UserMessage, request: ProtectionRequest) -> tuple[UserMessage, SecurityHeader]:
        """The security header that signs a packet; the packet with its signature, if that is elsewhere in it."""
        signer = request.signer
        if signer is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED, "the message asks for authentication and nobody signs it"
            )
        return self._with_signature(packet, signer, self.signature(packet, signer, request.authentication_level))

    def signature(self, packet: UserMessage, signer: Signer, level: AuthenticationLevel) -> bytes:
        """The signature over what a packet says. Raises :class:`MessageQueuingError` if it cannot be made."""
        algorithm = self._hash_for_sending(packet.message_properties_header.hash_algorithm)
        try:
            return sign(signer.private_key, algorithm, signed_bytes(packet, level_for(packet, level)))
        except ValueError as error:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_CANNOT_SIGN_DATA_EX, f"the signature: {error}") from None

    def with_signature(self, packet: UserMessage, signer: Signer, signature: bytes, flags: int = 0) -> UserMessage:
        """The packet with its signature and these further flags of SecurityHeader."""
        packet, security = self._with_signature(packet, signer, signature)
        if flags:
            security = security.put(flags=security.flags | flags)
        return _within_limits(repacked(packet, security, packet.message_properties_header))

    def _with_signature(
        self, packet: UserMessage, signer: Signer, signature: bytes
    ) -> tuple[UserMessage, SecurityHeader]:
        several = packet.multi_queue_format_header
        if several is None:
            return packet, self._header(signer, len(signature)).put(signature=signature)
        several = several.replace(signature=several.signature.replace(signature=signature))
        return packet.replace(multi_queue_format_header=several), self._header(signer, 0)

    def _header(self, signer: Signer, signature_size: int) -> SecurityHeader:
        """The security header of a signer with room for the signature: for one signer always the same."""
        place = (signer.certificate, signer.type, signer.identifier, signature_size)
        header = self._headers.get(place)
        if header is None:
            header = SecurityHeader(
                flags=SecurityFlags.of(ST=signer.type, DE=1, AI=1),
                security_id=signer.identifier,
                signature=bytes(signature_size),
                sender_cert=signer.certificate,
            )
            if len(self._headers) >= HEADERS_KEPT:
                self._headers = {}  # a new dictionary: other threads may be reading the old one
            self._headers[place] = header
        return header

    def _hash_for_sending(self, number: int) -> HashAlgorithm:
        try:
            algorithm = HashAlgorithm(number)
            self._policy.require(HASHES[algorithm].weakness)
        except (ValueError, WeakAlgorithmError) as error:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_CANNOT_CREATE_HASH_EX, f"hash algorithm 0x{number:X}: {error}"
            ) from None
        return algorithm

    def _key_for(
        self, packet: UserMessage, keys: PublishedKeys | None, direct: bool, now: float
    ) -> tuple[Choice, CachedSymmetricKey]:
        """What encrypts a packet (3.1.7.1.5)."""
        header = packet.message_properties_header
        remote = packet.user_header.queue_manager_address
        if direct or packet.user_header.destination_queue is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_PUBLIC_KEY_NOT_FOUND,
                "a message to a direct format name cannot be encrypted: use a public or private format name",
            )
        if keys is None or keys.queue_manager != remote:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_PUBLIC_KEY_NOT_FOUND, "the directory gave no public key of the destination computer"
            )
        if header.privacy_level not in PROVIDER_BY_PRIVACY_LEVEL:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ENCRYPTION_PROVIDER_NOT_SUPPORTED,
                f"there is no privacy level {header.privacy_level}",
            )
        choice = self._choice(keys, header.privacy_level, header.encryption_algorithm)
        return choice, session_key(choice, remote, self.cache, now)

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


def level_for(packet: UserMessage, level: AuthenticationLevel) -> AuthenticationLevel:
    """The kind of signature that a receiver looks for: 3.1.5.8.3 tries SIG30 for several destinations and only then."""
    if packet.multi_queue_format_header is not None:
        return AuthenticationLevel.SIG30
    return AuthenticationLevel.SIG20 if level is AuthenticationLevel.SIG30 else level


def _encrypted(header: MessagePropertiesHeader, choice: Choice, key: CachedSymmetricKey) -> MessagePropertiesHeader:
    body = encrypt_body(choice.algorithm, key.symmetric_key, header.message_body)
    return with_body(
        header,
        body,
        allocation_body_size=len(body),
        privacy_level=choice.provider.privacy_level,
        encryption_algorithm=choice.algorithm,
    )


def _within_limits(packet: UserMessage) -> UserMessage:
    size = packet.base_header.packet_size
    if size > MAX_PACKET_SIZE:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
            f"protected, the message takes {size} bytes, more than the {MAX_PACKET_SIZE} of a packet: send less",
        )
    return packet


def _with_key(header: SecurityHeader | None, choice: Choice, key: CachedSymmetricKey) -> SecurityHeader:
    """The security header of an encrypted message.

    3.1.7.1.5 puts the provider's name in, MS-MQMQ 2.2.20.6 allows that only while DE is clear.
    """
    header = _NO_SIGNATURE if header is None else header
    flags = header.flags & ~(SecurityFlags.AU.mask | SecurityFlags.AS.mask | SecurityFlags.DE.mask)
    blob, info = key.encrypted_symmetric_key, _PROVIDER_INFO[choice.provider.name]
    return header.put(
        flags=flags | SecurityFlags.EB.mask | SecurityFlags.AI.mask,
        encryption_key=blob,
        encryption_key_padding=padding_of(len(blob)),
        provider_info=info,
        provider_info_padding=padding_of(len(info)),
    )


_NO_SIGNATURE: Final = SecurityHeader()
_PROVIDER_INFO: Final = {
    provider.name: ProviderInfo(provider_type=provider.type, provider_name=provider.name).write()
    for provider in PROVIDERS
}
