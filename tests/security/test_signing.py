"""Signatures: round trips for every hash and key length, known answers, and refusals."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from qmnode.security.protector import level_that_verifies
from qmnode.security.rsa_keys import HASHES, PKCS1_OVERHEAD, sign, verify
from qmnode.structures.enumerations import AuthenticationLevel, HashAlgorithm
from tests.lab.cases import cases
from tests.security.keys import private_key

DIGEST_INFO = 19
CASES = [
    (algorithm, length)
    for algorithm in HashAlgorithm
    for length in (512, 1024, 2048)
    if HASHES[algorithm].digest_size + DIGEST_INFO + PKCS1_OVERHEAD <= length // 8
]


@cases(("algorithm", "modulus_length"), CASES)
def test_what_was_signed_verifies_and_nothing_else(algorithm: HashAlgorithm, modulus_length: int) -> None:
    key, other = private_key(modulus_length), private_key(modulus_length, 1)
    signature = sign(key, algorithm, b"properties")
    assert len(signature) == modulus_length // 8
    assert verify(key.public_key, algorithm, signature, b"properties")
    assert not verify(key.public_key, algorithm, signature, b"propertieS")
    assert not verify(other.public_key, algorithm, signature, b"properties")
    for place in range(0, len(signature), 7):
        altered = signature[:place] + bytes([signature[place] ^ 0x10]) + signature[place + 1 :]
        assert not verify(key.public_key, algorithm, altered, b"properties")
    for shorter in (b"", signature[:-1], signature + b"\0"):
        assert not verify(key.public_key, algorithm, shorter, b"properties")


def test_the_signature_is_pkcs1_little_endian() -> None:
    key = private_key(1024)
    signature = sign(key, HashAlgorithm.SHA_256, b"properties")
    key.public_key.verify(signature[::-1], b"properties", padding.PKCS1v15(), hashes.SHA256())


@pytest.mark.parametrize(
    ("algorithm", "digest_info"),
    [
        # RFC 3447 9.2 note 1, and RFC 1320's object identifier 1.2.840.113549.2.4
        (HashAlgorithm.MD2, "3020300c06082a864886f70d020205000410"),
        (HashAlgorithm.MD4, "3020300c06082a864886f70d020405000410"),
        (HashAlgorithm.MD5, "3020300c06082a864886f70d020505000410"),
        (HashAlgorithm.SHA1, "3021300906052b0e03021a05000414"),
        (HashAlgorithm.SHA_256, "3031300d060960864801650304020105000420"),
        (HashAlgorithm.SHA_512, "3051300d060960864801650304020305000440"),
    ],
)
def test_the_digest_is_marked_with_its_algorithm(algorithm: HashAlgorithm, digest_info: str) -> None:
    key = private_key(1024)
    numbers = key.public_key.public_numbers()
    signature = sign(key, algorithm, b"properties")
    block = pow(int.from_bytes(signature, "little"), numbers.e, numbers.n).to_bytes(128, "big")
    digest = block[-HASHES[algorithm].digest_size :]
    rest = block[: -len(digest)]
    assert rest.endswith(b"\xff\x00" + bytes.fromhex(digest_info))
    assert rest.startswith(b"\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff")


def test_the_kind_that_verifies_is_told() -> None:
    key = private_key(1024)
    inputs = [(AuthenticationLevel.SIG20, b"two"), (AuthenticationLevel.SIG10, b"one")]
    for text, level in ((b"two", AuthenticationLevel.SIG20), (b"one", AuthenticationLevel.SIG10)):
        signature = sign(key, HashAlgorithm.SHA_512, text)
        assert level_that_verifies(key.public_key, HashAlgorithm.SHA_512, signature, inputs) is level
    signature = sign(key, HashAlgorithm.SHA_512, b"three")
    assert level_that_verifies(key.public_key, HashAlgorithm.SHA_512, signature, inputs) is AuthenticationLevel.NONE


def test_a_hash_that_does_not_fit_the_key_is_refused() -> None:
    with pytest.raises(ValueError, match="too"):
        sign(private_key(512), HashAlgorithm.SHA_512, b"properties")
