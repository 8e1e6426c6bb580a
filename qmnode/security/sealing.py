"""How a key store's file is encrypted at rest: not at all, or with a passphrase through scrypt into AES-256-GCM."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from qmnode.security.errors import KeyStoreError
from qmnode.security.private_files import read_private

if TYPE_CHECKING:
    from pathlib import Path

PURPOSE: Final = b"qmnode key store 1"
"""The data that AES-GCM authenticates beside the contents: a file of another kind does not open."""
SCRYPT: Final = {"n": 1 << 15, "r": 8, "p": 1}
"""32 MiB and about 0.1 s for each guess."""
_LARGEST_SCRYPT: Final = {"n": 1 << 20, "r": 32, "p": 16}


class Sealing(Protocol):
    """Turns what a key store holds into what its file holds, and back. Calls may block; errors name ``where``."""

    protection: str
    """The protection of the file, in a word."""

    def seal(self, clear: bytes, where: str) -> bytes:
        """Encrypt the contents of a file. Raises :class:`KeyStoreError`."""

    def open(self, stored: bytes, where: str) -> bytes:
        """Decrypt the contents of a file. Raises :class:`KeyStoreError`."""


class NoSealing:
    """The file's permissions are all that protects the keys."""

    protection = "permissions"

    def seal(self, clear: bytes, where: str) -> bytes:
        """Return the contents unchanged."""
        return clear

    def open(self, stored: bytes, where: str) -> bytes:
        """As it is, if it is in clear."""
        if sealed_document(stored) is not None:
            raise KeyStoreError(f"{where} is encrypted: give its passphrase, or its key of KMS")
        return stored


class PassphraseSealing:
    """The passphrase is the first line of a file that only the node's user may read, and is read when it is needed."""

    protection = "passphrase"

    def __init__(self, passphrase: Path | str) -> None:
        self.__passphrase = passphrase

    def __reduce__(self) -> NoReturn:
        raise TypeError("a passphrase is not copied to another process")

    def seal(self, clear: bytes, where: str) -> bytes:
        """Encrypt with a fresh salt."""
        salt = os.urandom(16)
        return envelope(clear, self._derive(salt, SCRYPT), {"scrypt": SCRYPT, "salt": b64encode(salt).decode()})

    def open(self, stored: bytes, where: str) -> bytes:
        """Decrypt; a store in clear is taken as it is, and encrypted when it is next written."""
        sealed = sealed_document(stored)
        if sealed is None:
            return stored
        try:
            salt = b64decode(sealed["salt"], validate=True)
            cost = {name: int(sealed["scrypt"][name]) for name in SCRYPT}
            if any(not 0 < cost[name] <= limit for name, limit in _LARGEST_SCRYPT.items()):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise KeyStoreError(f"{where} is not an encrypted key store that a passphrase opens") from None
        return opened(sealed, self._derive(salt, cost), where, "the passphrase is wrong or the file altered")

    def _derive(self, salt: bytes, cost: dict[str, int]) -> bytes:
        passphrase = self.__passphrase
        secret = passphrase if isinstance(passphrase, str) else _read_passphrase(passphrase)
        return Scrypt(salt=salt, length=32, **cost).derive(secret.encode())


def _read_passphrase(path: Path) -> str:
    stored = read_private(path)
    if stored is None:
        raise KeyStoreError(f"{path} is not there: put the key store's passphrase into it, mode 0600")
    lines = stored.decode("utf-8", "replace").splitlines()
    if not lines or not lines[0]:
        raise KeyStoreError(f"{path} holds no passphrase")
    return lines[0]


def envelope(clear: bytes, key: bytes, how: dict[str, Any]) -> bytes:
    """An encrypted store as JSON, with how its key is found."""
    nonce = os.urandom(12)
    parts = {"nonce": nonce, "sealed": AESGCM(key).encrypt(nonce, clear, PURPOSE)}
    encoded = {name: b64encode(value).decode() for name, value in parts.items()}
    return json.dumps({"format": 1, **how, **encoded}, indent=1).encode()


def opened(sealed: dict[str, Any], key: bytes, where: str, otherwise: str) -> bytes:
    """Open an envelope; ``otherwise`` says why the key may not fit."""
    try:
        nonce, data = (b64decode(sealed[name], validate=True) for name in ("nonce", "sealed"))
        return AESGCM(key).decrypt(nonce, data, PURPOSE)
    except InvalidTag:
        raise KeyStoreError(f"{where} does not open: {otherwise}") from None
    except (KeyError, TypeError, ValueError):
        raise KeyStoreError(f"{where} is not an encrypted key store that can be read") from None


def sealed_document(stored: bytes) -> dict[str, Any] | None:
    """The envelope of an encrypted store, or None for one in clear or anything else."""
    try:
        document = json.loads(stored)
    except ValueError:
        return None
    return document if isinstance(document, dict) and "sealed" in document else None
