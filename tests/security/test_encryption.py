"""Session keys: the choice of provider, wrapping, unwrapping, and 2,000 wrong private keys for each algorithm."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from qmnode.errors import MessageQueuingError
from qmnode.security.caches import AgedCache
from qmnode.security.encryption import (
    CachedSymmetricKey,
    Choice,
    ReceiveKey,
    SendKey,
    WrappedKey,
    choose,
    is_shortened,
    session_key,
    unwrap,
)
from qmnode.security.errors import MessageRefusedError
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyRing, KeyState
from qmnode.security.published_keys import PublishedKeys, public_key_list
from qmnode.security.rsa_keys import (
    AES_PROVIDER,
    BASE_PROVIDER,
    ENHANCED_PROVIDER,
    PROVIDER_BY_NAME,
    PROVIDERS,
    Provider,
    sending_policy,
)
from qmnode.settings.security import SecuritySettings, WeakAlgorithm
from qmnode.structures.enumerations import EncryptionAlgorithm, MessageClass, PrivacyLevel
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid
from qmnode.structures.public_keys import CALG_RSA_KEYX, MqdsPublicKey, MqdsPublicKeys, PublicKeyBlob, SimpleBlob
from tests.lab.cases import cases
from tests.security.keys import EVERYTHING_ALLOWED, ciphertexts, private_key, same_key

REMOTE = Guid(bytes(range(16)))
NOW = 1_800_000_000.0
CASES = [(provider, algorithm) for provider in PROVIDERS for algorithm in sorted(provider.algorithms)]


def pair(
    provider: Provider, number: int = 0, modulus_length: int | None = None, state: KeyState = KeyState.CURRENT
) -> KeyPair:
    length = modulus_length or provider.specified_modulus_length
    return KeyPair.of(private_key(length, number), provider.name, KeyPurpose.ENCRYPTION, state, NOW - 1000.0)


def published(*providers: Provider) -> PublishedKeys:
    encoded = public_key_list([pair(provider) for provider in providers], KeyPurpose.ENCRYPTION)
    return PublishedKeys.parse(REMOTE, encoded, NOW)


def chosen(
    keys: PublishedKeys,
    level: PrivacyLevel = PrivacyLevel.BASE,
    settings: SecuritySettings = EVERYTHING_ALLOWED,
    requested: int = 0,
) -> Choice:
    return choose(keys, level, requested, settings, sending_policy(settings))


def wrapped(
    algorithm: EncryptionAlgorithm, provider: Provider, settings: SecuritySettings = EVERYTHING_ALLOWED
) -> tuple[WrappedKey, bytes]:
    made = session_key(chosen(published(provider), requested=algorithm, settings=settings), REMOTE, cache(), NOW)
    parsed = parsed_key(provider, algorithm, made.encrypted_symmetric_key)
    return parsed, made.symmetric_key


def cache() -> AgedCache[SendKey, CachedSymmetricKey]:
    return AgedCache(53, 600_000)


def parsed_key(provider: Provider, algorithm: EncryptionAlgorithm, encoded: bytes) -> WrappedKey:
    return WrappedKey.parse(ReceiveKey(REMOTE, provider.name, algorithm, encoded), provider, NOW)


# --- what a destination publishes -------------------------------------------------------------------------------------
def test_the_published_list_has_the_current_key_of_every_provider_by_name() -> None:
    pairs = [pair(AES_PROVIDER), pair(AES_PROVIDER, 1).superseded(NOW), pair(ENHANCED_PROVIDER, 2)]
    listed = MqdsPublicKeys.parse(public_key_list(pairs, KeyPurpose.ENCRYPTION)).keys
    assert [(key.provider_name, key.provider_type) for key in listed] == [
        ("Microsoft Enhanced RSA and AES Cryptographic Provider", 0x18),
        ("Microsoft Enhanced Cryptographic Provider v1.0", 0x01),
    ]
    assert listed[0].public_key.header.key_algorithm == CALG_RSA_KEYX
    assert listed[0].public_key.modulus == private_key(1024).public_key.public_numbers().n


def test_a_key_that_cannot_be_read_does_not_hide_the_others() -> None:
    good = MqdsPublicKeys.parse(public_key_list([pair(ENHANCED_PROVIDER)], KeyPurpose.ENCRYPTION)).keys
    even = PublicKeyBlob.of(1 << 1023, 65537).write()
    bad = [
        MqdsPublicKey(provider_type=0x18, provider_name=AES_PROVIDER.name, key=even),
        MqdsPublicKey(provider_type=0x01, provider_name=BASE_PROVIDER.name, key=b"no blob"),
        MqdsPublicKey(provider_type=0x01, provider_name="A provider of tomorrow", key=b"?"),
    ]
    keys = PublishedKeys.parse(REMOTE, MqdsPublicKeys(keys=(*bad, *good)).write(), NOW)
    assert list(keys.keys) == [ENHANCED_PROVIDER.name]
    assert len(keys.faults) == 2


@pytest.mark.parametrize("encoded", [None, b"", b"\x01\x02", b"\x08\0\0\0\xff\xff\xff\xff"])
def test_no_list_is_no_key(encoded: bytes | None) -> None:
    assert not PublishedKeys.parse(REMOTE, encoded, NOW).keys


# --- the choice (3.1.7.1.5) -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("there", "level", "expected"),
    [
        ((BASE_PROVIDER, ENHANCED_PROVIDER, AES_PROVIDER), PrivacyLevel.BASE, AES_PROVIDER),
        ((BASE_PROVIDER, ENHANCED_PROVIDER, AES_PROVIDER), PrivacyLevel.ADVANCED, AES_PROVIDER),
        ((BASE_PROVIDER, ENHANCED_PROVIDER), PrivacyLevel.BASE, ENHANCED_PROVIDER),
        ((BASE_PROVIDER, ENHANCED_PROVIDER), PrivacyLevel.ENHANCED, ENHANCED_PROVIDER),
        ((BASE_PROVIDER, ENHANCED_PROVIDER), PrivacyLevel.ADVANCED, None),
        ((BASE_PROVIDER,), PrivacyLevel.BASE, BASE_PROVIDER),
        ((BASE_PROVIDER,), PrivacyLevel.ENHANCED, None),
    ],
)
def test_the_strongest_published_provider_is_chosen(
    there: Iterable[Provider], level: PrivacyLevel, expected: Provider | None
) -> None:
    keys = published(*there)
    if expected is None:
        with pytest.raises(MessageQueuingError) as refused:
            chosen(keys, level)
        assert refused.value.code is ErrorCode.MQ_ERROR_ENCRYPTION_PROVIDER_NOT_SUPPORTED
    else:
        assert chosen(keys, level).provider is expected


def test_the_algorithm_is_the_preferred_one_unless_the_message_asks_for_another_of_the_provider() -> None:
    keys = published(AES_PROVIDER)
    assert chosen(keys).algorithm is EncryptionAlgorithm.AES256
    assert chosen(keys, requested=EncryptionAlgorithm.AES128).algorithm == EncryptionAlgorithm.AES128
    assert chosen(keys, requested=EncryptionAlgorithm.RC4).algorithm is EncryptionAlgorithm.AES256
    assert chosen(published(ENHANCED_PROVIDER)).algorithm is EncryptionAlgorithm.RC4


def test_weak_providers_and_keys_are_not_chosen_unasked() -> None:
    with pytest.raises(MessageQueuingError, match=r"too weak unless security\.weak_algorithms_sent allows"):
        chosen(published(BASE_PROVIDER, ENHANCED_PROVIDER), settings=SecuritySettings())
    only_rc2 = SecuritySettings(weak_algorithms_sent=frozenset({WeakAlgorithm.RC2}))
    choice = chosen(published(BASE_PROVIDER, ENHANCED_PROVIDER), settings=only_rc2)
    assert (choice.provider, choice.algorithm) == (ENHANCED_PROVIDER, EncryptionAlgorithm.RC2)


def test_without_a_public_key_the_error_says_so() -> None:
    with pytest.raises(MessageQueuingError) as refused:
        chosen(PublishedKeys.parse(REMOTE, None, NOW))
    assert refused.value.code is ErrorCode.MQ_ERROR_PUBLIC_KEY_DOES_NOT_EXIST


# --- session keys -----------------------------------------------------------------------------------------------------
def test_a_session_key_serves_until_its_lifetime_ends_or_the_public_key_changes() -> None:
    keys, send = published(AES_PROVIDER), cache()
    first = session_key(chosen(keys), REMOTE, send, NOW)
    assert session_key(chosen(keys), REMOTE, send, NOW + 599.0) is first
    assert session_key(chosen(keys), REMOTE, send, NOW + 601.0) is not first
    rotated = public_key_list([pair(AES_PROVIDER, 1)], KeyPurpose.ENCRYPTION)
    fresh = session_key(chosen(PublishedKeys.parse(REMOTE, rotated, NOW)), REMOTE, send, NOW)
    assert fresh.symmetric_key != first.symmetric_key
    assert fresh.fingerprint == private_key(1024, 1).fingerprint


def test_the_blob_is_the_specifications() -> None:
    """MS-MQQB 2.4.2: the header, the algorithm, CALG_RSA_KEYX, and a ciphertext as long as the modulus."""
    made = session_key(chosen(published(AES_PROVIDER)), REMOTE, cache(), NOW)
    blob = made.encrypted_symmetric_key
    assert blob[:12].hex() == "010200001066000000a40000"
    assert len(blob) == 12 + 128
    assert private_key(1024).decrypt(blob[12:], 32) == made.symmetric_key


@cases(("provider", "algorithm"), CASES)
@cases("modulus_length", [512, 1024, 2048])
def test_every_session_key_comes_back(provider: Provider, algorithm: EncryptionAlgorithm, modulus_length: int) -> None:
    pairs = [pair(provider, modulus_length=modulus_length)]
    keys = PublishedKeys.parse(REMOTE, public_key_list(pairs, KeyPurpose.ENCRYPTION), NOW)
    made = session_key(chosen(keys, requested=algorithm), REMOTE, cache(), NOW)
    parsed = parsed_key(provider, algorithm, made.encrypted_symmetric_key)
    (found,) = unwrap(parsed, KeyRing(pairs), EVERYTHING_ALLOWED, NOW)
    assert found.symmetric_key == made.symmetric_key
    assert found.fingerprint == pairs[0].fingerprint
    assert len(found.symmetric_key) == provider.key_length(algorithm)


def test_the_enhanced_providers_rc2_key_can_be_one_of_40_bits() -> None:
    shortening = EVERYTHING_ALLOWED.model_copy(update={"send_enhanced_rc2_using_40_bit_keys": True})
    _, key = wrapped(EncryptionAlgorithm.RC2, ENHANCED_PROVIDER, shortening)
    assert key[5:] == bytes(11)
    assert len(key) == 16
    assert is_shortened(ENHANCED_PROVIDER, EncryptionAlgorithm.RC2, key)
    assert not is_shortened(BASE_PROVIDER, EncryptionAlgorithm.RC2, key)
    _, whole = wrapped(EncryptionAlgorithm.RC2, ENHANCED_PROVIDER)
    assert not is_shortened(ENHANCED_PROVIDER, EncryptionAlgorithm.RC2, whole)


# --- the right private key among several ------------------------------------------------------------------------------
@pytest.mark.parametrize(("provider", "algorithm"), CASES)
def test_2000_wrong_private_keys_never_pass(provider: Provider, algorithm: EncryptionAlgorithm) -> None:
    """Bare, the library gives a key of the right length about once in a hundred tries."""
    wrong = KeyPair.of(same_key(1024), provider.name, KeyPurpose.ENCRYPTION, KeyState.CURRENT, NOW - 1000.0)
    for ciphertext in ciphertexts(1024, 2000):
        blob = SimpleBlob(session_key_algorithm=algorithm, encrypted_key=ciphertext).write()
        assert unwrap(parsed_key(provider, algorithm, blob), KeyRing([wrong]), EVERYTHING_ALLOWED, NOW) == []


def test_bare_decryption_would_let_wrong_keys_pass() -> None:
    """What the test above would see without the check: the reason for it."""
    lengths = [len(same_key(1024).signing_key.decrypt(each[::-1], PKCS1v15())) for each in ciphertexts(1024, 1000)]
    assert lengths.count(32) > 0
    assert lengths.count(16) > 0


def test_the_sent_time_says_which_key_is_tried_first() -> None:
    old = pair(AES_PROVIDER, 0).superseded(NOW)
    new = KeyPair.of(private_key(1024, 1), AES_PROVIDER.name, KeyPurpose.ENCRYPTION, KeyState.CURRENT, NOW)
    ring = KeyRing([old, new])
    assert [each.fingerprint for each in ring.candidates(AES_PROVIDER.name, 128, NOW - 1.0)] == [
        old.fingerprint,
        new.fingerprint,
    ]
    assert [each.fingerprint for each in ring.candidates(AES_PROVIDER.name, 128, NOW + 1.0)] == [
        new.fingerprint,
        old.fingerprint,
    ]
    assert ring.candidates(AES_PROVIDER.name, 256, NOW) == []
    assert ring.candidates(ENHANCED_PROVIDER.name, 128, NOW) == []


def test_a_message_to_the_previous_key_still_opens_and_one_to_a_retired_key_does_not() -> None:
    parsed, key = wrapped(EncryptionAlgorithm.AES256, AES_PROVIDER)
    new = pair(AES_PROVIDER, 1)
    old = pair(AES_PROVIDER, 0).superseded(NOW)
    (found,) = unwrap(parsed, KeyRing([new, old]), EVERYTHING_ALLOWED, NOW)
    assert found.symmetric_key == key
    assert unwrap(parsed, KeyRing([new, old.destroyed(NOW)]), EVERYTHING_ALLOWED, NOW) == []


def test_rc4_is_refused_when_more_than_one_private_key_could_fit() -> None:
    parsed, key = wrapped(EncryptionAlgorithm.RC4, ENHANCED_PROVIDER)
    old, new = pair(ENHANCED_PROVIDER, 0).superseded(NOW), pair(ENHANCED_PROVIDER, 1)
    with pytest.raises(MessageRefusedError, match=r"RC4 cannot tell.*SHA256:") as refused:
        unwrap(parsed, KeyRing([old, new]), EVERYTHING_ALLOWED, NOW)
    assert refused.value.message_class is MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION
    later = KeyPair.of(
        private_key(1024, 1), ENHANCED_PROVIDER.name, KeyPurpose.ENCRYPTION, KeyState.CURRENT, NOW + 3600.0
    )
    (found,) = unwrap(parsed, KeyRing([old, later]), EVERYTHING_ALLOWED, NOW)
    assert found.symmetric_key == key


@pytest.mark.parametrize("encoded", [b"", b"\x01\x02\0\0", bytes(140), os.urandom(140)])
def test_what_is_no_blob_is_refused(encoded: bytes) -> None:
    with pytest.raises(MessageRefusedError, match="cannot be read"):
        parsed_key(AES_PROVIDER, EncryptionAlgorithm.AES256, encoded)


def test_a_blob_for_another_algorithm_is_refused() -> None:
    blob = SimpleBlob(session_key_algorithm=EncryptionAlgorithm.AES128, encrypted_key=bytes(128)).write()
    with pytest.raises(MessageRefusedError, match="is for algorithm 0x660E"):
        parsed_key(AES_PROVIDER, EncryptionAlgorithm.AES256, blob)


def test_names_and_providers_agree_with_the_structures() -> None:
    assert all(PROVIDER_BY_NAME[provider.name] is provider for provider in PROVIDERS)
