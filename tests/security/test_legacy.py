"""The legacy module against published vectors, its limits, and its absence."""

import subprocess
import sys

import pytest

from qmnode.security import legacy_algorithms
from qmnode.security.errors import LegacyUnavailableError
from qmnode.structures.enumerations import HashAlgorithm


@pytest.mark.parametrize(
    ("algorithm", "text", "expected"),
    [
        # RFC 1319 A.5
        (HashAlgorithm.MD2, b"", "8350e5a3e24c153df2275c9f80692773"),
        (HashAlgorithm.MD2, b"message digest", "ab4f496bfb2a530b219ff33031fe06b0"),
        # RFC 1320 A.5
        (HashAlgorithm.MD4, b"", "31d6cfe0d16ae931b73c59d7e0c089c0"),
        (HashAlgorithm.MD4, b"message digest", "d9130a8164549fe818874806e1c7014b"),
    ],
)
def test_digests_are_those_of_the_rfcs(algorithm: HashAlgorithm, text: bytes, expected: str) -> None:
    assert legacy_algorithms.digest(algorithm, text).hex() == expected


@pytest.mark.parametrize(
    ("key", "effective_bits", "plain", "cipher"),
    [
        # RFC 2268 section 5; one block with a zero IV is the plain cipher
        ("0000000000000000", 63, "0000000000000000", "ebb773f993278eff"),
        ("ffffffffffffffff", 64, "ffffffffffffffff", "278b27e42e2f0d49"),
        ("88bca90e90875a", 64, "0000000000000000", "6ccf4308974c267f"),
        ("88bca90e90875a7f0f79c384627bafb2", 64, "0000000000000000", "1a807d272bbe5db1"),
        ("88bca90e90875a7f0f79c384627bafb2", 128, "0000000000000000", "2269552ab0f85ca6"),
    ],
)
def test_rc2_is_that_of_the_rfc(key: str, effective_bits: int, plain: str, cipher: str) -> None:
    encrypted = legacy_algorithms.rc2_encrypt(bytes.fromhex(key), bytes.fromhex(plain), effective_bits)
    assert encrypted.hex() == cipher
    assert legacy_algorithms.rc2_decrypt(bytes.fromhex(key), encrypted, effective_bits).hex() == plain


@pytest.mark.parametrize("modulus_length", [384, 512, 768])
def test_a_short_key_has_the_length_asked_for(modulus_length: int) -> None:
    assert legacy_algorithms.generate_short_key(modulus_length).key_size == modulus_length


@pytest.mark.parametrize("modulus_length", [256, 513, 1024, 2048])
def test_other_lengths_are_refused(modulus_length: int) -> None:
    with pytest.raises(ValueError, match="384 to 1,016"):
        legacy_algorithms.generate_short_key(modulus_length)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Crypto.Cipher.ARC2", None)
    with pytest.raises(LegacyUnavailableError, match=r"RC2 with 40 effective bits needs.*qmnode\[legacy\]"):
        legacy_algorithms.rc2_encrypt(bytes(5), bytes(8), 40)


def test_importing_the_security_room_does_not_load_pycryptodome() -> None:
    code = "import sys, qmnode.security.encryption, qmnode.security.rsa_keys; assert 'Crypto' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
