"""Messages through the façade: out at the source, over the wire, in at the destination."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmnode.security.key_stores import KeyRing
from qmnode.security.protector import (
    TRUSTED,
    Deferred,
    Opened,
    Protected,
    ProtectionRequest,
    Refused,
    Unprotectable,
)
from qmnode.security.rsa_keys import (
    AES_PROVIDER,
    BASE_PROVIDER,
    ENHANCED_PROVIDER,
    HASHES,
    PROVIDERS,
    Provider,
)
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
from qmnode.structures.guid import Guid
from qmnode.structures.user_message import (
    MQFAddressHeader,
    MQFFormatNameElement,
    MQFPublicQueueFormatName,
    MultiQueueFormatHeader,
    ProviderInfo,
    SecurityFlags,
    SecurityHeader,
    SessionHeader,
    UserFlags,
    UserMessage,
)
from tests.lab.cases import cases
from tests.security.keys import EVERYTHING_ALLOWED
from tests.security.messages import (
    DAY,
    DESTINATION,
    NOW,
    QUEUE,
    RING,
    USER,
    Protector,
    certificate,
    encryption_pair,
    message,
    on_the_wire,
    published,
    sent,
    signer,
    source,
)

BAD_SIGNATURE = MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE
BAD_ENCRYPTION = MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION
UNSUPPORTED = MessageClass.MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER
SIGNATURES = (AuthenticationLevel.SIG10, AuthenticationLevel.SIG20)


def destination(ring: KeyRing = RING, settings: SecuritySettings = EVERYTHING_ALLOWED) -> Protector:
    return Protector(DESTINATION, settings, ring)


def opened(packet: UserMessage, protector: Protector | None = None, now: float = NOW) -> Opened:
    outcome = (protector or destination()).open(packet.write(), now)
    assert isinstance(outcome, Opened), outcome
    return outcome


def refused(packet: UserMessage, protector: Protector | None = None, now: float = NOW) -> Refused:
    outcome = (protector or destination()).open(packet.write(), now)
    assert isinstance(outcome, Refused), outcome
    return outcome


def body_of(packet: UserMessage) -> bytes:
    return bytes(packet.message_properties_header.message_body)


def flags_of(packet: UserMessage) -> int:
    assert packet.security_header is not None
    return packet.security_header.flags


def with_flags(packet: UserMessage, **flags: int) -> UserMessage:
    header = packet.security_header or SecurityHeader()
    return packet.replace(security_header=header.replace(flags=header.flags | SecurityFlags.of(**flags)))


# --- signatures -------------------------------------------------------------------------------------------------------
@cases("level", SIGNATURES)
@cases("algorithm", list(HashAlgorithm))
@cases("modulus_length", [1024, 2048])
def test_a_signed_message_is_authenticated(
    level: AuthenticationLevel, algorithm: HashAlgorithm, modulus_length: int
) -> None:
    packet = sent(message(hash_algorithm=algorithm), level, signer=signer(modulus_length))
    outcome = opened(packet)
    assert outcome.authentication_level is level
    assert SecurityFlags.AU.get(flags_of(outcome.packet)) == 1
    assert SecurityFlags.AS.get(flags_of(outcome.packet)) == level
    assert outcome.claim is not None
    assert (outcome.claim.type, outcome.claim.identifier) == (SenderIdentifierType.SID, USER)
    assert body_of(outcome.packet) == b"a body"


def to_several() -> UserMessage:
    name = MQFFormatNameElement(format_name=MQFPublicQueueFormatName(public_queue_identifier=QUEUE))
    header = MultiQueueFormatHeader(destination=MQFAddressHeader(format_name_list=(name, name)))
    return message().replace(multi_queue_format_header=header)


def test_a_message_to_several_queues_has_a_signature_of_its_own_kind() -> None:
    packet = sent(to_several(), AuthenticationLevel.SIG20)
    assert packet.security_header is not None
    assert packet.multi_queue_format_header is not None
    assert not packet.security_header.signature
    assert packet.multi_queue_format_header.signature.signature
    assert opened(packet).authentication_level is AuthenticationLevel.SIG30


def test_a_third_kind_of_signature_for_one_queue_is_sent_as_the_second() -> None:
    assert opened(sent(message(), AuthenticationLevel.SIG30)).authentication_level is AuthenticationLevel.SIG20


def test_an_altered_message_is_refused() -> None:
    packet = sent(message(), AuthenticationLevel.SIG20)
    header = packet.message_properties_header
    for altered in (
        header.replace(message_body=b"A body"),
        header.replace(label="another"),
        header.replace(application_tag=10),
        header.replace(body_type=0),
        header.replace(hash_algorithm=HashAlgorithm.SHA_256),
    ):
        outcome = refused(packet.replace(message_properties_header=altered))
        assert outcome.message_class is BAD_SIGNATURE
        assert "does not verify with certificate SHA256:" in outcome.sentence


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 4095), bit=st.integers(0, 7))
def test_no_bit_of_the_signature_can_change(place: int, bit: int) -> None:
    packet = sent(message(), AuthenticationLevel.SIG20)
    assert packet.security_header is not None
    signature = bytearray(packet.security_header.signature)
    signature[place % len(signature)] ^= 1 << bit
    altered = packet.replace(security_header=packet.security_header.replace(signature=bytes(signature)))
    assert refused(altered).message_class is BAD_SIGNATURE


def test_another_certificate_than_the_signers_is_refused() -> None:
    packet = sent(message(), AuthenticationLevel.SIG20, signer=signer(1024, 0, certificate(1024, 1)))
    assert refused(packet).message_class is BAD_SIGNATURE


@pytest.mark.parametrize("encoded", [b"", b"no certificate", bytes(40_000)])
def test_a_signature_without_a_certificate_that_can_be_read_is_refused(encoded: bytes) -> None:
    packet = sent(message(), AuthenticationLevel.SIG20, signer=signer(1024, 0, encoded))
    assert refused(packet).message_class is BAD_SIGNATURE


@pytest.mark.parametrize(
    ("now", "sentence"), [(NOW + DAY + 1.0, "has expired"), (NOW - DAY - 301.0, "is not valid yet")]
)
def test_a_certificate_outside_its_dates_is_refused(now: float, sentence: str) -> None:
    outcome = refused(sent(message(), AuthenticationLevel.SIG20), now=now)
    assert outcome.message_class is BAD_SIGNATURE
    assert sentence in outcome.sentence


@pytest.mark.parametrize("algorithm", [each for each, facts in HASHES.items() if facts.weakness])
def test_a_weak_hash_is_neither_sent_nor_verified_unasked(algorithm: HashAlgorithm) -> None:
    request = ProtectionRequest(message(hash_algorithm=algorithm).write(), AuthenticationLevel.SIG20, signer())
    outcome = source(SecuritySettings()).protect(request, NOW)
    assert isinstance(outcome, Unprotectable)
    assert outcome.error.code is ErrorCode.MQ_ERROR_CANNOT_CREATE_HASH_EX
    arrived = sent(message(hash_algorithm=algorithm), AuthenticationLevel.SIG20)
    verdict = refused(arrived, destination(settings=SecuritySettings()))
    assert verdict.message_class is UNSUPPORTED
    assert "weak_algorithms_accepted" in verdict.sentence


def test_an_unknown_hash_is_a_failed_authentication() -> None:
    packet = sent(message(), AuthenticationLevel.SIG20)
    header = packet.message_properties_header.replace(hash_algorithm=0x8005)
    assert refused(packet.replace(message_properties_header=header)).message_class is BAD_SIGNATURE


def test_a_message_that_nobody_signs_does_not_leave() -> None:
    outcome = source().protect(ProtectionRequest(message().write(), AuthenticationLevel.SIG20), NOW)
    assert isinstance(outcome, Unprotectable)
    assert outcome.error.code is ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED


def test_a_message_to_a_direct_name_leaves_unsigned() -> None:
    packet = sent(message(direct=True), AuthenticationLevel.SIG20)
    assert packet.security_header is None


# --- who says so ------------------------------------------------------------------------------------------------------
def test_a_message_without_security_header_is_anonymous() -> None:
    outcome = opened(message())
    assert outcome == Opened(message().write())


@pytest.mark.parametrize("direct", [False, True])
def test_the_senders_own_claim_to_be_authenticated_is_cleared(direct: bool) -> None:
    packet = with_flags(message(direct=direct), AU=1, AS=3, ST=1)
    packet = packet.replace(security_header=packet.security_header.replace(security_id=USER))  # type: ignore[union-attr]
    outcome = opened(on_the_wire(packet))
    assert outcome.authentication_level is AuthenticationLevel.NONE
    assert outcome.claim is None
    assert flags_of(outcome.packet) == SecurityFlags.of(ST=1)


def test_a_signature_counts_only_at_the_destination_that_the_packet_names() -> None:
    """3.1.5.8.3 applies where QueueManagerAddress is our own; a direct name leaves it empty."""
    elsewhere = Protector(Guid(b"another node 16b"), EVERYTHING_ALLOWED, RING)
    signed = opened(with_flags(sent(message(), AuthenticationLevel.SIG20), AU=1, AS=3), elsewhere)
    assert (signed.authentication_level, signed.claim) == (AuthenticationLevel.NONE, None)
    assert not flags_of(signed.packet) & SecurityFlags.of(AU=1, AS=15)
    outcome = refused(sent(message(privacy_level=PrivacyLevel.ADVANCED)), elsewhere)
    assert outcome.message_class is BAD_ENCRYPTION


def test_forged_bits_beside_a_real_signature_are_ours_in_the_end() -> None:
    packet = with_flags(sent(message(), AuthenticationLevel.SIG10), AU=1, AS=7)
    assert SecurityFlags.AS.get(flags_of(opened(packet).packet)) == AuthenticationLevel.SIG10


def test_a_certificate_without_an_identifier_proves_an_author_and_no_account() -> None:
    from qmnode.security.protector import Signer
    from tests.security.keys import private_key

    nameless = Signer(private_key(1024), certificate(), SenderIdentifierType.NONE, b"")
    outcome = opened(sent(message(), AuthenticationLevel.SIG20, signer=nameless))
    assert outcome.authentication_level is AuthenticationLevel.SIG20
    assert outcome.claim is None
    flags = flags_of(outcome.packet)
    assert (SecurityFlags.AU.get(flags), SecurityFlags.AS.get(flags)) == (0, AuthenticationLevel.SIG20)


@pytest.mark.parametrize(("kind", "identifier"), [(1, b""), (1, bytes(7)), (2, bytes(15)), (3, bytes(16)), (9, USER)])
def test_an_identifier_that_cannot_be_one_is_refused(kind: int, identifier: bytes) -> None:
    packet = sent(message(), AuthenticationLevel.SIG20)
    assert packet.security_header is not None
    flags = packet.security_header.flags & ~SecurityFlags.ST.mask | kind
    header = packet.security_header.replace(flags=flags, security_id=identifier)
    assert refused(packet.replace(security_header=header)).message_class is BAD_SIGNATURE


# --- encryption -------------------------------------------------------------------------------------------------------
CASES = [(provider, algorithm) for provider in PROVIDERS for algorithm in sorted(provider.algorithms)]


@pytest.mark.parametrize(("provider", "algorithm"), CASES)
@pytest.mark.parametrize("level", [AuthenticationLevel.NONE, AuthenticationLevel.SIG20])
@settings(max_examples=12, deadline=None)
@given(body=st.binary(max_size=200))
def test_an_encrypted_message_opens(
    provider: Provider, algorithm: EncryptionAlgorithm, level: AuthenticationLevel, body: bytes
) -> None:
    pair = encryption_pair(provider)
    packet = sent(
        message(body, privacy_level=provider.privacy_level, encryption_algorithm=algorithm),
        level,
        keys=published(pair),
    )
    assert body not in body_of(packet) or len(body) < 4
    assert packet.message_properties_header.allocation_body_size == len(body_of(packet))
    outcome = opened(packet, destination(KeyRing([pair])))
    assert body_of(outcome.packet) == body
    assert outcome.authentication_level is level
    assert outcome.key_fingerprint == pair.fingerprint
    assert not SecurityFlags.EB.get(flags_of(outcome.packet))


def test_a_message_that_grows_beyond_a_packet_does_not_leave() -> None:
    body = bytes(4 * 1024 * 1024 - 300)
    request = ProtectionRequest(message(body, privacy_level=PrivacyLevel.ADVANCED).write(), keys=published(*RING))
    outcome = source().protect(request, NOW)
    assert isinstance(outcome, Unprotectable)
    assert outcome.error.code is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=70), extension=st.binary(max_size=9), label=st.text(max_size=5))
def test_an_opened_packet_says_what_it_holds(body: bytes, extension: bytes, label: str) -> None:
    packet = message(body, privacy_level=PrivacyLevel.ADVANCED)
    label = label.replace("\0", "")
    header = packet.message_properties_header.replace(extension_data=extension, label=label)
    arrived = sent(packet.replace(message_properties_header=header), AuthenticationLevel.SIG20)
    outcome = opened(arrived)
    assert on_the_wire(outcome.packet) == outcome.packet
    assert outcome.packet.base_header.packet_size == len(outcome.packet.write())
    assert outcome.packet.message_properties_header.label == label
    assert bytes(outcome.packet.message_properties_header.extension_data) == extension


def test_the_packet_says_which_provider_was_used() -> None:
    packet = sent(message(privacy_level=PrivacyLevel.BASE, encryption_algorithm=EncryptionAlgorithm.RC4))
    assert packet.security_header is not None
    header = packet.message_properties_header
    assert (header.privacy_level, header.encryption_algorithm) == (PrivacyLevel.ADVANCED, EncryptionAlgorithm.AES256)
    provider = ProviderInfo.parse(packet.security_header.provider_info)
    assert (provider.provider_type, provider.provider_name) == (AES_PROVIDER.type, AES_PROVIDER.name)
    assert packet.security_header.flags == SecurityFlags.of(EB=1, AI=1)


def test_a_direct_name_cannot_be_encrypted_to() -> None:
    request = ProtectionRequest(
        message(direct=True, privacy_level=PrivacyLevel.ADVANCED).write(), keys=published(*RING)
    )
    outcome = source().protect(request, NOW)
    assert isinstance(outcome, Unprotectable)
    assert outcome.error.code is ErrorCode.MQ_ERROR_PUBLIC_KEY_NOT_FOUND


def test_only_the_destinations_key_is_used() -> None:
    """The text takes the next hop's key (RemoteQMGuid), which the destination does not have."""
    other = published(*RING)
    next_hop = type(other)(Guid(b"the next hop 16b"), other.keys, NOW)
    outcome = source().protect(
        ProtectionRequest(message(privacy_level=PrivacyLevel.ADVANCED).write(), keys=next_hop), NOW
    )
    assert isinstance(outcome, Unprotectable)


def test_a_message_opens_after_hops_that_count_themselves_and_speak_of_their_sessions() -> None:
    packet = sent(message(privacy_level=PrivacyLevel.ADVANCED), AuthenticationLevel.SIG20)
    for hop in range(1, 3):
        flags = UserFlags.RC.put(packet.user_header.flags, hop)
        session = SessionHeader(ack_sequence_number=hop, user_msg_sequence_number=hop)
        packet = packet.replace(user_header=packet.user_header.replace(flags=flags), session_header=session)
    outcome = opened(on_the_wire(packet))
    assert outcome.authentication_level is AuthenticationLevel.SIG20
    assert body_of(outcome.packet) == b"a body"
    assert on_the_wire(outcome.packet) == outcome.packet


def test_a_key_that_is_not_ours_is_refused_and_our_keys_are_named() -> None:
    packet = sent(message(privacy_level=PrivacyLevel.ADVANCED))
    ours = encryption_pair(number=1)
    outcome = refused(packet, destination(KeyRing([ours])))
    assert outcome.message_class is BAD_ENCRYPTION
    assert ours.fingerprint in outcome.sentence


@pytest.mark.parametrize(("provider", "algorithm"), CASES)
def test_messages_to_another_nodes_key_are_all_refused(provider: Provider, algorithm: EncryptionAlgorithm) -> None:
    theirs, ours = encryption_pair(provider), encryption_pair(provider, 1)
    here, request = (
        destination(KeyRing([ours])),
        ProtectionRequest(
            message(privacy_level=provider.privacy_level, encryption_algorithm=algorithm).write(),
            keys=published(theirs),
        ),
    )
    for _ in range(2000 if algorithm is EncryptionAlgorithm.AES256 else 200):
        sender = source()  # a new session key each time
        protected = sender.protect(request, NOW)
        assert isinstance(protected, Protected)
        assert isinstance(here.open(protected.written, NOW), Refused)


def test_every_failure_of_decryption_has_the_same_sentence() -> None:
    """Whether the session key or the body was wrong is nobody's business."""
    packet = sent(message(privacy_level=PrivacyLevel.ADVANCED))
    header = packet.security_header
    assert header is not None
    key = header.encryption_key
    wrong_key = header.replace(encryption_key=key[:-1] + bytes([key[-1] ^ 1]))
    garbled = packet.message_properties_header.replace(message_body=os.urandom(16))
    outcomes = {refused(packet.replace(security_header=wrong_key))}
    while len(outcomes) < 2:  # one garbled block in 256 ends in padding
        outcome = destination().open(packet.replace(message_properties_header=garbled).write(), NOW)
        if isinstance(outcome, Refused):
            outcomes.add(outcome)
            break
        garbled = garbled.replace(message_body=os.urandom(16))
    assert len(outcomes) == 1


@pytest.mark.parametrize(("level", "algorithm"), [(2, 0x6610), (7, 0x6610), (5, 0x6602), (3, 0x6610), (5, 0x6601)])
def test_levels_and_algorithms_that_do_not_go_together_are_refused(level: int, algorithm: int) -> None:
    packet = sent(message(privacy_level=PrivacyLevel.ADVANCED))
    header = packet.message_properties_header.replace(privacy_level=level, encryption_algorithm=algorithm)
    assert refused(packet.replace(message_properties_header=header)).message_class is BAD_ENCRYPTION


def test_weak_ciphers_do_not_open_unasked() -> None:
    pair = encryption_pair(ENHANCED_PROVIDER)
    packet = sent(
        message(privacy_level=PrivacyLevel.ENHANCED, encryption_algorithm=EncryptionAlgorithm.RC2),
        keys=published(pair),
    )
    outcome = refused(packet, destination(KeyRing([pair]), SecuritySettings()))
    assert outcome.message_class is UNSUPPORTED


def test_a_shortened_key_opens_unless_the_settings_reject_it() -> None:
    pair = encryption_pair(ENHANCED_PROVIDER)
    shortening = EVERYTHING_ALLOWED.model_copy(update={"send_enhanced_rc2_using_40_bit_keys": True})
    packet = message(privacy_level=PrivacyLevel.ENHANCED, encryption_algorithm=EncryptionAlgorithm.RC2)
    protected = source(shortening).protect(ProtectionRequest(packet.write(), keys=published(pair)), NOW)
    assert isinstance(protected, Protected)
    assert body_of(opened(protected.packet, destination(KeyRing([pair]))).packet) == b"a body"
    rejecting = EVERYTHING_ALLOWED.model_copy(update={"reject_enhanced_rc2_using_40_bit_keys": True})
    here = destination(KeyRing([pair]), rejecting)
    for _ in range(2):  # also when the session key is cached
        assert refused(protected.packet, here).message_class is BAD_ENCRYPTION


def test_an_encrypted_message_to_a_direct_name_is_refused() -> None:
    assert refused(with_flags(message(direct=True), EB=1)).message_class is BAD_ENCRYPTION


def test_an_altered_body_of_a_signed_message_never_passes() -> None:
    """Encryption alone does not see a change in the middle of a body; the signature does."""
    packet = sent(message(bytes(64), privacy_level=PrivacyLevel.ADVANCED), AuthenticationLevel.SIG20)
    body = body_of(packet)
    for place in range(len(body)):
        altered = packet.message_properties_header.replace(
            message_body=body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        )
        outcome = refused(packet.replace(message_properties_header=altered))
        assert outcome.message_class in (BAD_ENCRYPTION, BAD_SIGNATURE)


# --- keys come and go -------------------------------------------------------------------------------------------------
def test_while_the_key_store_is_away_nothing_is_refused() -> None:
    packet = sent(message(privacy_level=PrivacyLevel.ADVANCED))
    here = Protector(DESTINATION, EVERYTHING_ALLOWED)
    outcome = here.open(packet.write(), NOW)
    assert isinstance(outcome, Deferred)
    assert "key store is away" in outcome.sentence
    assert opened(message(), here).packet == message()
    here.use_ring(RING)
    assert body_of(opened(packet, here).packet) == b"a body"
    here.use_ring(KeyRing(unavailable="the network is down"))
    assert body_of(opened(packet, here).packet) == b"a body"  # its session key is cached
    assert isinstance(here.open(sent(message(privacy_level=PrivacyLevel.ADVANCED)).write(), NOW), Deferred)


def test_a_destroyed_key_opens_nothing_any_more_not_even_from_the_cache() -> None:
    packet = sent(message(privacy_level=PrivacyLevel.ADVANCED))
    here = destination()
    assert body_of(opened(packet, here).packet) == b"a body"
    old, new = encryption_pair().superseded(NOW), encryption_pair(number=1, now=NOW)
    assert here.use_ring(KeyRing([new, old])) == 0
    assert body_of(opened(packet, here).packet) == b"a body"
    assert here.use_ring(KeyRing([new, old.destroyed(NOW)])) == 1
    assert refused(packet, here).message_class is BAD_ENCRYPTION


def test_messages_under_one_session_key_are_unwrapped_once() -> None:
    away = source()
    request = ProtectionRequest(message(privacy_level=PrivacyLevel.ADVANCED).write(), keys=published(*RING))
    first, second = away.protect_all([request, request], NOW)
    assert isinstance(first, Protected)
    assert isinstance(second, Protected)
    here = destination()
    assert all(isinstance(each, Opened) for each in here.open_all([(first.written, TRUSTED)], NOW))
    here.use_ring(KeyRing(unavailable="only the cache can answer"))
    assert body_of(opened(second.packet, here).packet) == b"a body"
    assert isinstance(here.open(second.written, NOW + 601.0), Deferred)


def test_a_garbled_body_puts_nothing_into_the_cache() -> None:
    packet = sent(message(privacy_level=PrivacyLevel.ADVANCED))
    here = destination()
    short = packet.message_properties_header.replace(message_body=b"seven b")
    refused(packet.replace(message_properties_header=short), here)
    assert here.clean_up(NOW) is None


def test_cleaning_up_says_when_to_come_back() -> None:
    away = source()
    assert away.clean_up(NOW) is None
    away.protect(ProtectionRequest(message(privacy_level=PrivacyLevel.ADVANCED).write(), keys=published(*RING)), NOW)
    assert away.clean_up(NOW) == NOW + 600.0 + 60.0
    assert away._outgoing.cache.forget(lambda place, _: place.remote_qm_guid == DESTINATION) == 1


def test_base_keys_of_512_bits_work_where_they_are_allowed() -> None:
    pair = encryption_pair(BASE_PROVIDER, modulus_length=512)
    packet = sent(
        message(privacy_level=PrivacyLevel.BASE, encryption_algorithm=EncryptionAlgorithm.RC4), keys=published(pair)
    )
    assert body_of(opened(packet, destination(KeyRing([pair]))).packet) == b"a body"
