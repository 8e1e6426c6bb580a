"""RSA keys: wire form, fingerprints, secrecy, and decryption that a wrong key never passes."""

from __future__ import annotations

import copy
import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric import padding

from qmnode.security.errors import WeakAlgorithmError
from qmnode.security.rsa_keys import (
    PrivateKey,
    encrypt_to,
    fingerprint_of,
    public_key_from_wire,
    public_key_to_wire,
    sending_policy,
)
from qmnode.settings.security import SecuritySettings
from tests.security.keys import ciphertexts, private_key, same_key


@pytest.mark.parametrize("modulus_length", [512, 1024, 2048])
def test_a_session_key_comes_back_from_its_private_key(modulus_length: int) -> None:
    key = private_key(modulus_length)
    encrypted = encrypt_to(key.public_key, b"0123456789abcdef")
    assert len(encrypted) == modulus_length // 8
    assert key.decrypt(encrypted, 16) == b"0123456789abcdef"


def test_the_ciphertext_is_little_endian() -> None:
    key = private_key(1024)
    plain = key.signing_key.decrypt(encrypt_to(key.public_key, b"session key")[::-1], padding.PKCS1v15())
    assert plain == b"session key"


def test_another_length_than_the_expected_one_is_no_key() -> None:
    key = private_key(1024)
    encrypted = encrypt_to(key.public_key, bytes(16))
    assert key.decrypt(encrypted, 15) is None
    assert key.decrypt(encrypted[:-1], 16) is None
    assert key.decrypt(b"", 16) is None


@pytest.mark.parametrize("modulus_length", [512, 1024, 2048])
def test_what_the_library_makes_up_for_a_wrong_key_is_always_told_from_a_real_message(modulus_length: int) -> None:
    """Whatever length the library made up, so that no right length can come by luck: none of 300 passes."""
    key = same_key(modulus_length)
    looked_at = 0
    for ciphertext in ciphertexts(modulus_length, 300):
        try:
            made_up = key.signing_key.decrypt(ciphertext[::-1], padding.PKCS1v15())
        except ValueError:
            continue  # the number is larger than the modulus: the library does say so
        assert key.decrypt(ciphertext, len(made_up)) is None
        looked_at += 1
    assert looked_at > 100


def test_altered_ciphertext_is_no_key() -> None:
    key = private_key(1024)
    encrypted = bytearray(encrypt_to(key.public_key, bytes(32)))
    for place in range(0, len(encrypted), 3):
        altered = bytes(encrypted[:place]) + bytes([encrypted[place] ^ 1]) + bytes(encrypted[place + 1 :])
        assert key.decrypt(altered, 32) is None


def test_public_keys_survive_the_wire() -> None:
    public_key = private_key(1024).public_key
    modulus, exponent = public_key_to_wire(public_key)
    assert int.from_bytes(modulus, "little") == public_key.public_numbers().n
    again = public_key_from_wire(modulus, exponent)
    assert fingerprint_of(again) == private_key(1024).fingerprint


@pytest.mark.parametrize(
    ("modulus", "exponent"), [(b"", 3), (b"\x02" * 128, 65537), (b"\xff" * 128, 2), (b"\xff" * 128, 1)]
)
def test_numbers_that_are_no_key_are_refused(modulus: bytes, exponent: int) -> None:
    with pytest.raises(ValueError, match="RSA"):
        public_key_from_wire(modulus, exponent)


def test_a_huge_modulus_is_refused_before_it_costs_time() -> None:
    with pytest.raises(ValueError, match="16384 bits is more than the 8192"):
        public_key_from_wire(b"\xff" * 2048, 65537)


def test_short_keys_are_made_only_if_the_policy_allows() -> None:
    with pytest.raises(WeakAlgorithmError, match="RSA-512"):
        PrivateKey.generate(512, sending_policy(SecuritySettings()))
    assert private_key(512).modulus_length == 512


def test_a_private_key_does_not_show_itself() -> None:
    key = private_key(1024)
    secret = key.signing_key.private_numbers()
    shown = repr(key) + str(key) + f"{key!r:>10}"
    assert key.fingerprint in shown
    assert str(secret.d) not in shown
    assert format(secret.p, "x") not in shown
    with pytest.raises(TypeError, match="key store"):
        pickle.dumps(key)
    assert copy.deepcopy(key) is key


def test_what_is_no_private_key_is_refused_without_repeating_it() -> None:
    key = private_key(1024)
    encoded = key.to_der()
    assert PrivateKey.from_der(encoded).fingerprint == key.fingerprint
    with pytest.raises(ValueError, match="not a PKCS #8 private key") as refused:
        PrivateKey.from_der(encoded[:-30])
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_a_session_key_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encrypt_to(private_key(512).public_key, bytes(54))
