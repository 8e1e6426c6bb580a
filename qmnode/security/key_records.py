"""Key pairs as bytes: the one serialisation that the key stores share. The result holds private keys in clear."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Literal

from cryptography.exceptions import UnsupportedAlgorithm
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qmnode.security.errors import KeyStoreError
from qmnode.security.key_ring import KeyPair, KeyPurpose, KeyState
from qmnode.security.key_store import KeyStoreContents
from qmnode.security.rsa_keys import PrivateKey

LARGEST_STORE = 4 * 1024 * 1024
"""Bytes: more is no key store. A pair takes about 1 KiB."""


class _Record(BaseModel):
    """One pair. ``hide_input_in_errors``: a mistake must not print the key."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    provider: str = Field(max_length=256)
    purpose: KeyPurpose
    state: KeyState
    fingerprint: str = Field(max_length=64)
    modulus_length: int
    created_time: float
    staged_time: float | None = None
    published_time: float | None = None
    superseded_time: float | None = None
    destroyed_time: float | None = None
    private_key: str | None = Field(None, repr=False)

    def to_pair(self) -> KeyPair:
        key = None if self.private_key is None else PrivateKey.from_der(b64decode(self.private_key, validate=True))
        if key is not None and key.fingerprint != self.fingerprint:
            raise ValueError(f"the private key of {self.fingerprint} is another one, {key.fingerprint}")
        return KeyPair(**{**self.model_dump(), "private_key": key})

    @classmethod
    def of(cls, pair: KeyPair) -> _Record:
        key = None if pair.private_key is None else b64encode(pair.private_key.to_der()).decode()
        names = [name for name in cls.model_fields if name != "private_key"]
        return cls(**{name: getattr(pair, name) for name in names}, private_key=key)


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    format: Literal[1] = 1
    version: int = Field(ge=1)
    keys: list[_Record] = Field(max_length=1000)


def encode_contents(contents: KeyStoreContents) -> bytes:
    """The contents as bytes that only a key store may see."""
    document = _Document(version=contents.version, keys=[_Record.of(pair) for pair in contents.pairs])
    return json.dumps(document.model_dump(mode="json"), indent=1).encode()


def decode_contents(encoded: bytes, where: str) -> KeyStoreContents:
    """The contents from bytes. Raises :class:`KeyStoreError` that names ``where`` and repeats nothing of the bytes."""
    if len(encoded) > LARGEST_STORE:
        raise KeyStoreError(f"{where} has {len(encoded)} bytes, which is no key store")
    try:
        document = _Document.model_validate_json(encoded)
        return KeyStoreContents(document.version, tuple(record.to_pair() for record in document.keys))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:3])
    except (ValueError, UnsupportedAlgorithm) as error:
        faults = str(error)
    raise KeyStoreError(f"{where} cannot be read: {faults}") from None
