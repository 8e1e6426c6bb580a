"""Messages and certificates for the tests."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyRing, KeyState
from qmnode.security.protector import (
    TRUSTED,
    Deferred,
    MessageProtector,
    Opened,
    Protected,
    ProtectionRequest,
    Refused,
    Signer,
    Unprotectable,
)
from qmnode.security.published_keys import PublishedKeys, public_key_list
from qmnode.security.rsa_keys import AES_PROVIDER, Provider
from qmnode.settings.security import SecuritySettings
from qmnode.structures.enumerations import (
    AuthenticationLevel,
    EncryptionAlgorithm,
    HashAlgorithm,
    PrivacyLevel,
    SenderIdentifierType,
)
from qmnode.structures.guid import Guid
from qmnode.structures.user_message import (
    BaseFlags,
    BaseHeader,
    DirectQueueFormatName,
    MessagePropertiesHeader,
    PublicQueueFormatName,
    UserFlags,
    UserHeader,
    UserMessage,
)
from tests.security.keys import EVERYTHING_ALLOWED, private_key

SOURCE = Guid(b"source node 16 b")
DESTINATION = Guid(b"destination 16 b")
QUEUE = Guid(b"a public queue 1")
USER = bytes.fromhex("01050000000000051500000001020304050607080910111213020000")
NOW = 1_800_000_000.0
DAY = 86_400.0


@cache
def certificate(
    modulus_length: int = 1024, number: int = 0, begins: float = NOW - DAY, ends: float = NOW + DAY
) -> bytes:
    """A self-signed certificate of a test key, as Message Queuing's internal ones are."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
    key = private_key(modulus_length, number).signing_key
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
    builder = builder.public_key(key.public_key())
    builder = builder.not_valid_before(datetime.fromtimestamp(begins, UTC))
    builder = builder.not_valid_after(datetime.fromtimestamp(ends, UTC))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def signer(modulus_length: int = 1024, number: int = 0, encoded: bytes | None = None) -> Signer:
    """A user with a certificate."""
    return Signer(
        private_key(modulus_length, number),
        certificate(modulus_length, number) if encoded is None else encoded,
        SenderIdentifierType.SID,
        USER,
    )


def message(
    body: bytes = b"a body",
    *,
    privacy_level: PrivacyLevel = PrivacyLevel.NONE,
    hash_algorithm: int = HashAlgorithm.SHA_512,
    encryption_algorithm: int = EncryptionAlgorithm.AES256,
    direct: bool = False,
    sent_time: float = NOW,
) -> UserMessage:
    """A message in clear to a public queue, or to a direct name."""
    return UserMessage(
        base_header=BaseHeader(flags=BaseFlags.of(PR=5)),
        user_header=UserHeader(
            source_queue_manager=SOURCE,
            queue_manager_address=Guid(bytes(16)) if direct else DESTINATION,
            sent_time=int(sent_time),
            message_id=7,
            flags=UserFlags.of(MP=1, DM=1, JN=1),
            destination_queue=DirectQueueFormatName(direct_format_name="OS:there\\private$\\q")
            if direct
            else PublicQueueFormatName(public_queue_identifier=QUEUE),
            admin_queue=DirectQueueFormatName(direct_format_name="OS:here\\private$\\admin"),
        ),
        message_properties_header=MessagePropertiesHeader(
            label="a label",
            message_body=body,
            extension_data=b"an extension",
            body_type=8,
            application_tag=9,
            privacy_level=privacy_level,
            hash_algorithm=hash_algorithm,
            encryption_algorithm=encryption_algorithm,
        ),
    )


def on_the_wire(packet: UserMessage) -> UserMessage:
    """The packet as the other side parses it."""
    return UserMessage.parse(packet.write())


def encryption_pair(
    provider: Provider = AES_PROVIDER, number: int = 0, modulus_length: int = 1024, now: float = NOW - DAY
) -> KeyPair:
    return KeyPair.of(private_key(modulus_length, number), provider.name, KeyPurpose.ENCRYPTION, KeyState.CURRENT, now)


def published(*pairs: KeyPair) -> PublishedKeys:
    """What the directory says of the destination."""
    return PublishedKeys.parse(DESTINATION, public_key_list(pairs, KeyPurpose.ENCRYPTION), NOW)


RING = KeyRing([encryption_pair()])


class Protector(MessageProtector):
    """Takes messages one by one."""

    def protect(self, request: ProtectionRequest, now: float) -> Protected | Unprotectable:
        (outcome,) = self.protect_all([request], now)
        return outcome

    def open(self, packet: bytes, now: float) -> Opened | Refused | Deferred:
        (outcome,) = self.open_all([(packet, TRUSTED)], now)
        return outcome


def source(settings: SecuritySettings = EVERYTHING_ALLOWED) -> Protector:
    return Protector(SOURCE, settings, KeyRing())


def sent(packet: UserMessage, level: AuthenticationLevel = AuthenticationLevel.NONE, **rest: object) -> UserMessage:
    """The protected packet as the destination parses it."""
    request = ProtectionRequest(packet.write(), level, **{"signer": signer(), "keys": published(*RING), **rest})  # type: ignore[arg-type]
    protected = source().protect(request, NOW)
    assert isinstance(protected, Protected), protected
    arrived = on_the_wire(protected.packet)
    assert arrived == protected.packet  # its sizes, padding and flags say what is there
    return arrived
