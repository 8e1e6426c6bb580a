"""The tables of hashes, ciphers and providers, and the policy over what is weak."""

import pytest

from qmnode.security.errors import WeakAlgorithmError
from qmnode.security.rsa_keys import (
    AES_PROVIDER,
    BASE_PROVIDER,
    CIPHERS,
    ENHANCED_PROVIDER,
    HASHES,
    PROVIDERS,
    accepting_policy,
    sending_policy,
    usable_algorithms,
)
from qmnode.settings.security import SecuritySettings, WeakAlgorithm
from qmnode.structures.enumerations import EncryptionAlgorithm, HashAlgorithm


def test_every_hash_and_cipher_of_the_specification_is_in_the_tables() -> None:
    assert set(HASHES) == set(HashAlgorithm)
    assert set(CIPHERS) == set(EncryptionAlgorithm)


def test_providers_make_the_key_lengths_of_the_specification() -> None:
    assert [provider.specified_modulus_length for provider in PROVIDERS] == [1024, 1024, 512]
    assert BASE_PROVIDER.key_length(EncryptionAlgorithm.RC4) == 5
    assert ENHANCED_PROVIDER.key_length(EncryptionAlgorithm.RC2) == 16
    assert [AES_PROVIDER.key_length(each) for each in sorted(AES_PROVIDER.algorithms)] == [16, 24, 32]


def test_nothing_weak_is_on_by_default() -> None:
    settings = SecuritySettings()
    for policy in (sending_policy(settings), accepting_policy(settings)):
        assert [name for name, facts in HASHES.items() if policy.permits(facts.weakness)] == [
            HashAlgorithm.SHA_256,
            HashAlgorithm.SHA_512,
        ]
        assert not usable_algorithms(policy, BASE_PROVIDER)
        assert not usable_algorithms(policy, ENHANCED_PROVIDER)
        assert next(iter(usable_algorithms(policy, AES_PROVIDER))) is EncryptionAlgorithm.AES256


def test_a_weak_algorithm_is_refused_with_the_setting_that_would_allow_it() -> None:
    settings = SecuritySettings(weak_algorithms_sent=frozenset({WeakAlgorithm.MD5}))
    sending_policy(settings).require(WeakAlgorithm.MD5)
    with pytest.raises(WeakAlgorithmError, match=r"MD5 is off: security\.weak_algorithms_accepted"):
        accepting_policy(settings).require(WeakAlgorithm.MD5)


def test_a_short_modulus_is_weak() -> None:
    with pytest.raises(WeakAlgorithmError, match="RSA-512"):
        sending_policy(SecuritySettings()).require_modulus(1016)
    sending_policy(SecuritySettings()).require_modulus(1024)
