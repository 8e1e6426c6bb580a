"""Message bodies under a session key: AES and RC2 in CBC mode with a zero IV and PKCS #5 padding, RC4.

MS-MQMQ 2.2.19.3, MS-MQQB 3.1.7.1.5. The specification fixes mode, IV and padding; there is no integrity in any of them:
what an encrypted message must be protected from is change, too, and only a signature gives that.
"""

from collections.abc import Callable
from typing import Final

from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4, RC2
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, modes
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.padding import PKCS7

from qmnode.security import legacy
from qmnode.security.algorithms import CIPHERS
from qmnode.structures.fields import Octets
from qmnode.structures.message_security import EncryptionAlgorithm

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
    """The padding of a decrypted body is wrong: the key does not fit or the body was altered."""


class BodyCipher:
    """A session key and what is made of it once, for all bodies under it. May be used from several threads."""

    __slots__ = ("_algorithm", "_block_size", "_cipher", "_legacy_key")

    def __init__(self, algorithm: EncryptionAlgorithm, key: bytes) -> None:
        self._algorithm = algorithm
        self._block_size = CIPHERS[algorithm].block_size
        self._legacy_key = b""
        self._cipher: Cipher[modes.CBC] | Cipher[None] | None = None
        if not self._block_size:
            self._cipher = Cipher(ARC4(key), None)
        elif algorithm is EncryptionAlgorithm.RC2 and len(key) != _LIBRARY_RC2_KEY:
            self._legacy_key = key
        else:
            self._cipher = Cipher(_CLASSES[algorithm](key), modes.CBC(_ZERO_IV[algorithm]))

    def encrypt(self, body: Octets) -> bytes:
        """The body as it travels. All of the key is effective."""
        size = self._block_size
        if size:
            missing = size - len(body) % size
            body = b"".join((body, bytes((missing,)) * missing))
        if self._cipher is None:
            return legacy.rc2_encrypt(self._legacy_key, bytes(body), len(self._legacy_key) * 8)
        return _run(self._cipher.encryptor(), body)

    def decrypt(self, encrypted: Octets) -> bytes:
        """The body as it was. Raises :class:`WrongKeyError` if the padding is not what it must be, byte for byte."""
        size = self._block_size
        if size and (not encrypted or len(encrypted) % size):
            raise WrongKeyError(f"{len(encrypted)} bytes are not whole blocks of {self._algorithm.name}")
        if self._cipher is None:
            padded = legacy.rc2_decrypt(self._legacy_key, bytes(encrypted), len(self._legacy_key) * 8)
        else:
            padded = _run(self._cipher.decryptor(), encrypted)
        if not size:
            return padded
        unpadder = _PADDINGS[size].unpadder()
        try:
            return unpadder.update(padded) + unpadder.finalize()
        except ValueError:
            raise WrongKeyError("the body does not end in padding") from None


def decrypt_body(algorithm: EncryptionAlgorithm, key: bytes, encrypted: Octets) -> bytes:
    """One body that is under a key."""
    return BodyCipher(algorithm, key).decrypt(encrypted)


def _run(context: CipherContext, data: Octets) -> bytes:
    return context.update(data) + context.finalize()
