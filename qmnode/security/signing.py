"""Digital signatures of messages: made (MS-MQQB 3.1.7.1.4) and verified (3.1.5.8.3).

RSASSA-PKCS1-v1_5 over the properties of MS-MQMQ 2.5. The specification does not say in which order the signature's
bytes travel; its other RSA values (MS-MQQB 2.4.1, 2.4.2) are little-endian, as is what CryptSignHash returns, so this
one is, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from qmnode.security import legacy
from qmnode.security.algorithms import HASHES
from qmnode.structures.message_security import AuthenticationLevel, HashAlgorithm

if TYPE_CHECKING:
    from qmnode.security.rsa_keys import PrivateKey

_PADDING: Final = padding.PKCS1v15()

LEVELS_TRIED: Final[tuple[AuthenticationLevel, ...]] = (AuthenticationLevel.SIG20, AuthenticationLevel.SIG10)
"""The kinds of SecurityData.Signature, in the order of 3.1.5.8.3; SIG30 is the multiple-destination one."""


def sign(private_key: PrivateKey, algorithm: HashAlgorithm, data: bytes) -> bytes:
    """The signature over ``data`` as it travels. ValueError when the key is too short for the hash."""
    implementation = HASHES[algorithm].implementation
    if implementation is None:
        return legacy.sign(private_key.signing_key, algorithm, data)[::-1]
    return private_key.signing_key.sign(data, _PADDING, implementation)[::-1]


def verify(public_key: RSAPublicKey, algorithm: HashAlgorithm, signature: bytes, data: bytes) -> bool:
    """Whether ``signature``, as it travelled, is this key's over ``data``."""
    implementation = HASHES[algorithm].implementation
    if implementation is None:
        return legacy.verify(public_key, algorithm, signature[::-1], data)
    try:
        public_key.verify(signature[::-1], data, _PADDING, implementation)
    except InvalidSignature:
        return False
    return True


def level_that_verifies(
    public_key: RSAPublicKey,
    algorithm: HashAlgorithm,
    signature: bytes,
    inputs: Iterable[tuple[AuthenticationLevel, bytes]],
) -> AuthenticationLevel:
    """The first kind of signature that verifies, given what each covers; NONE if none does."""
    for level, data in inputs:
        if verify(public_key, algorithm, signature, data):
            return level
    return AuthenticationLevel.NONE
