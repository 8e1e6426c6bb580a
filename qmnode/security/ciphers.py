"""Message bodies under a session key: AES and RC2 in CBC mode with a zero IV and PKCS #5 padding, RC4.

MS-MQMQ 2.2.19.3, MS-MQQB 3.1.7.1.5. The specification fixes mode, IV and padding; there is no integrity in any of them:
what an encrypted message must be protected from is change, too, and only a signature gives that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4, RC2
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, modes
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.padding import PKCS7

from qmnode.security import legacy
from qmnode.security.algorithms import CIPHERS
from qmnode.structures.message_security import EncryptionAlgorithm

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmnode.structures.fields import Octets

_LIBRARY_RC2_KEY: Final = 16
"""Bytes: the one length of RC2 keys that ``cryptography`` takes."""
_ZERO_IV: Final = {algorithm: bytes(facts.block_size) for algorithm, facts in CIPHERS.items()}
_CLASSES: Final[dict[EncryptionAlgorithm, Callable[[bytes], AES | RC2]]] = {
    EncryptionAlgorithm.AES128: AES,
    EncryptionAlgorithm.AES192: AES,
    EncryptionAlgorithm.AES256: AES,
    EncryptionAlgorithm.RC2: RC2,
}
_PADDINGS: Final = {size: PKCS7(size * 8) for size in (8, 16)}


class WrongKeyError(Exception):
    """What was decrypted is not padded as it must be: the key is wrong or the body was altered."""


def encrypted_size(algorithm: EncryptionAlgorithm, size: int) -> int:
    """Bytes that ``size`` bytes of body become."""
    block = CIPHERS[algorithm].block_size
    return size + block - size % block if block else size


def encrypt_body(algorithm: EncryptionAlgorithm, key: bytes, body: Octets) -> bytes:
    """The body as it travels. All of the key is effective."""
    facts = CIPHERS[algorithm]
    if not facts.block_size:
        return _run(Cipher(ARC4(key), None).encryptor(), body)
    missing = facts.block_size - len(body) % facts.block_size
    padded = b"".join((body, bytes((missing,)) * missing))
    if _needs_legacy(algorithm, key):
        return legacy.rc2_encrypt(key, padded, len(key) * 8)
    return _run(_block_cipher(algorithm, key).encryptor(), padded)


def decrypt_body(algorithm: EncryptionAlgorithm, key: bytes, encrypted: Octets) -> bytes:
    """The body as it was. Raises :class:`WrongKeyError` if the padding is not what it must be, byte for byte."""
    facts = CIPHERS[algorithm]
    if not facts.block_size:
        return _run(Cipher(ARC4(key), None).decryptor(), encrypted)
    if not encrypted or len(encrypted) % facts.block_size:
        raise WrongKeyError(f"{len(encrypted)} bytes are not whole blocks of {algorithm.name}")
    if _needs_legacy(algorithm, key):
        padded = legacy.rc2_decrypt(key, bytes(encrypted), len(key) * 8)
    else:
        padded = _run(_block_cipher(algorithm, key).decryptor(), encrypted)
    unpadder = _PADDINGS[facts.block_size].unpadder()
    try:
        return unpadder.update(padded) + unpadder.finalize()
    except ValueError:
        raise WrongKeyError("the body does not end in padding") from None


def _needs_legacy(algorithm: EncryptionAlgorithm, key: bytes) -> bool:
    return algorithm is EncryptionAlgorithm.RC2 and len(key) != _LIBRARY_RC2_KEY


def _block_cipher(algorithm: EncryptionAlgorithm, key: bytes) -> Cipher[modes.CBC]:
    return Cipher(_CLASSES[algorithm](key), modes.CBC(_ZERO_IV[algorithm]))


def _run(context: CipherContext, data: Octets) -> bytes:
    return context.update(data) + context.finalize()
