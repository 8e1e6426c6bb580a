"""Bodies under session keys: known answers, round trips, wrong keys."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmnode.security.encryption import BodyCipher, WrongKeyError, decrypt_body
from qmnode.security.rsa_keys import CIPHERS, PROVIDERS, Provider
from qmnode.structures.enumerations import EncryptionAlgorithm

CASES = [(provider, algorithm) for provider in PROVIDERS for algorithm in sorted(provider.algorithms)]


@pytest.mark.parametrize(
    ("algorithm", "key", "plain", "cipher"),
    [
        # FIPS 197 appendix C: one block with a zero IV is the plain cipher; the padding block follows
        (EncryptionAlgorithm.AES128, 16, "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"),
        (EncryptionAlgorithm.AES192, 24, "00112233445566778899aabbccddeeff", "dda97ca4864cdfe06eaf70a0ec0d7191"),
        (EncryptionAlgorithm.AES256, 32, "00112233445566778899aabbccddeeff", "8ea2b7ca516745bfeafc49904b496089"),
    ],
)
def test_aes_is_that_of_fips_197(algorithm: EncryptionAlgorithm, key: int, plain: str, cipher: str) -> None:
    encrypted = BodyCipher(algorithm, bytes(range(key))).encrypt(bytes.fromhex(plain))
    assert encrypted[:16].hex() == cipher
    assert len(encrypted) == 32


def test_rc2_with_128_bits_is_that_of_rfc_2268() -> None:
    encrypted = BodyCipher(EncryptionAlgorithm.RC2, bytes.fromhex("88bca90e90875a7f0f79c384627bafb2")).encrypt(bytes(8))
    assert encrypted[:8].hex() == "2269552ab0f85ca6"


@pytest.mark.parametrize(
    ("key", "stream"),
    [
        # RFC 6229, offset 0
        ("0102030405", "b2396305f03dc027ccc3524a0a1118a8"),
        ("0102030405060708090a0b0c0d0e0f10", "9ac7cc9a609d1ef7b2932899cde41b97"),
    ],
)
def test_rc4_is_that_of_rfc_6229(key: str, stream: str) -> None:
    assert BodyCipher(EncryptionAlgorithm.RC4, bytes.fromhex(key)).encrypt(bytes(16)).hex() == stream


@pytest.mark.parametrize(("provider", "algorithm"), CASES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_bodies_come_back(provider: Provider, algorithm: EncryptionAlgorithm, data: st.DataObject) -> None:
    length = provider.key_length(algorithm)
    key = data.draw(st.binary(min_size=length, max_size=length))
    body = data.draw(st.binary(max_size=300))
    encrypted = BodyCipher(algorithm, key).encrypt(memoryview(body))
    block = CIPHERS[algorithm].block_size
    assert len(encrypted) == (len(body) + block - len(body) % block if block else len(body))
    assert decrypt_body(algorithm, key, memoryview(encrypted)) == body
    assert decrypt_body(algorithm, key, encrypted) == body


@pytest.mark.parametrize(("provider", "algorithm"), [case for case in CASES if CIPHERS[case[1]].block_size])
def test_a_wrong_session_key_passes_no_more_often_than_padding_allows(
    provider: Provider, algorithm: EncryptionAlgorithm
) -> None:
    """What the padding alone can do: about one key in 256 passes. This is why a wrapped key is checked itself, too."""
    length = provider.key_length(algorithm)
    encrypted = BodyCipher(algorithm, os.urandom(length)).encrypt(b"a body of some bytes" * 5)
    passed = 0
    for _ in range(2000):
        try:
            decrypt_body(algorithm, os.urandom(length), encrypted)
        except WrongKeyError:
            continue
        passed += 1
    assert passed < 40  # 7.8 expected; 40 comes once in 10**14 runs


@pytest.mark.parametrize("size", [0, 1, 15, 17])
def test_a_body_that_is_not_whole_blocks_is_refused(size: int) -> None:
    with pytest.raises(WrongKeyError, match="whole blocks"):
        decrypt_body(EncryptionAlgorithm.AES256, bytes(32), bytes(size))
