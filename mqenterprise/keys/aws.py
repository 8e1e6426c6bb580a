"""Private keys in AWS Secrets Manager, encrypted by KMS.

Secrets Manager keeps old versions of a secret and cannot delete a single version. Each private key therefore has a
secret of its own, which is deleted with the key. One more secret, the index, holds the records of all pairs and is
what changes atomically. The identifier of its version N is computed from N, and Secrets Manager refuses a second
version with the same identifier and other contents, so that of two concurrent writers one gets an error. AWSCURRENT is
the newest version, AWSPREVIOUS the version before it.

Reading needs secretsmanager:GetSecretValue and kms:Decrypt, writing also CreateSecret, PutSecretValue, DeleteSecret and
kms:GenerateDataKey.
"""

from __future__ import annotations

import asyncio
import binascii
import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from qmnode.security.errors import KeyStoreConflictError, KeyStoreError, KeyStoreUnavailableError
from qmnode.security.key_stores import (
    KeyPair,
    KeyState,
    KeyStoreContents,
    KeyStoreOptions,
    decode_contents,
    encode_contents,
)
from qmnode.security.rsa_keys import PrivateKey
from qmnode.structures.guid import guid_to_text

if TYPE_CHECKING:
    from collections.abc import Iterable


_NAMESPACE: Final = uuid.UUID("6f0b1c52-6a39-5d0e-9c0e-6d3f4f6f1a10")
"""Namespace from which the identifiers of the index's versions are computed."""
_SETTINGS: Final = frozenset({"prefix", "region", "endpoint_url", "kms_key_id"})
_CURRENT: Final = "AWSCURRENT"
# Faults that the operator has to correct; any other fault may be temporary.
_REFUSED: Final = {
    "AccessDeniedException": "the identity that this node uses may not do this: see its policy",
    "UnrecognizedClientException": "the credentials are not known",
    "InvalidSignatureException": "the credentials are wrong",
    "DecryptionFailure": "KMS does not decrypt: see the key's policy and whether it is enabled",
    "EncryptionFailure": "KMS does not encrypt: see the key's policy and whether it is enabled",
}


def open_aws_key_store(options: KeyStoreOptions) -> AwsKeyStore:
    """The store of the node with the identifier that the options name (entry point ``aws``).

    Settings: ``prefix`` of the secrets' names (by default ``qmnode``), ``region``, ``endpoint_url``, ``kms_key_id``.
    """
    unknown = sorted(set(options.settings) - _SETTINGS)
    if unknown:
        raise KeyStoreError(f"the key store aws has no settings {', '.join(unknown)}")
    if options.identifier is None:
        raise KeyStoreError("the key store aws needs the node's identifier: join the directory first")
    settings = options.settings
    name = f"{settings.get('prefix', 'qmnode')}/{guid_to_text(options.identifier).lower()}"
    # Bounded in time: 2 attempts of (3 + 10) s.
    config = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 2, "mode": "standard"})
    try:
        client = boto3.session.Session().client(
            "secretsmanager",
            region_name=settings.get("region"),
            endpoint_url=settings.get("endpoint_url"),
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        raise KeyStoreError(f"AWS Secrets Manager cannot be used: {error}") from None
    return AwsKeyStore(client, name, settings.get("kms_key_id"))


class AwsKeyStore:
    """A :class:`~qmnode.security.key_stores.KeyStore` in Secrets Manager. Calls run in a thread."""

    def __init__(self, client: Any, name: str, kms_key_id: str | None = None) -> None:
        self._client = client
        self._name = name
        self._kms_key_id = kms_key_id
        self._read_keys: dict[str, PrivateKey] = {}
        """Private keys read before, by fingerprint, so that AWS is asked once. Retired keys are not kept here."""

    def __repr__(self) -> str:
        return f"<AwsKeyStore {self._name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key store holds private keys and is not copied to another process")

    async def read(self) -> KeyStoreContents:
        """The index of AWSCURRENT with the private keys that it names."""
        return await asyncio.to_thread(self._read)

    async def replace(self, pairs: tuple[KeyPair, ...], *, expected_version: int) -> int:
        """Store new private keys, then a new version of the index, then delete destroyed private keys.

        If the process ends before the index has changed, an unused secret remains, which the next writer of the same
        key takes over. If it ends before a private key is deleted, its pair is read as retired without a private key,
        and is destroyed again.
        """
        return await asyncio.to_thread(self._replace, pairs, expected_version)

    def _read(self) -> KeyStoreContents:
        encoded = self._value(self._name)
        if encoded is None:
            self._read_keys.clear()
            return KeyStoreContents(0, ())
        contents = decode_contents(encoded, self._name)
        wanted = [pair for pair in contents.pairs if pair.state is not KeyState.DESTROYED]
        pairs = {pair.fingerprint: self._private_key(pair) for pair in wanted}
        retired = {pair.fingerprint for pair in wanted if pair.state is KeyState.RETIRED}
        self._read_keys = {name: key for name, key in pairs.items() if key is not None and name not in retired}
        return KeyStoreContents(
            contents.version,
            tuple(replace(pair, private_key=pairs.get(pair.fingerprint)) for pair in contents.pairs),
        )

    def _private_key(self, pair: KeyPair) -> PrivateKey | None:
        known = self._read_keys.get(pair.fingerprint)
        if known is not None:
            return known
        where = self._name_of(pair)
        stored = self._value(where)
        if stored is None:
            if pair.state is KeyState.RETIRED:
                return None  # the process ended while the key was being destroyed
            raise KeyStoreError(f"{where} is missing, the private key of a pair that is {pair.state.value}: restore it")
        try:
            key = PrivateKey.from_der(stored)
        except ValueError as error:
            raise KeyStoreError(f"{where} holds {error}") from None
        if key.fingerprint != pair.fingerprint:
            raise KeyStoreError(f"{where} holds another key, {key.fingerprint}")
        return key

    def _replace(self, pairs: tuple[KeyPair, ...], expected_version: int) -> int:
        encoded = self._value(self._name)
        found = KeyStoreContents(0, ()) if encoded is None else decode_contents(encoded, self._name)
        if found.version != expected_version:
            raise self._conflict(found.version, expected_version)
        before = {pair.fingerprint: pair.state for pair in found.pairs}
        new = [pair for pair in pairs if pair.private_key is not None and pair.fingerprint not in before]
        for pair in new:
            self._store_private_key(pair)
        try:
            return self._store(pairs, before, expected_version + 1)
        except KeyStoreConflictError:
            for pair in new:
                self._delete(pair.fingerprint)
            raise

    def _store(self, pairs: tuple[KeyPair, ...], before: dict[str, KeyState], version: int) -> int:
        """Store the index, and delete the private keys that were destroyed since the one before."""
        kept = {pair.fingerprint for pair in pairs if pair.state is not KeyState.DESTROYED}
        gone = [name for name, state in before.items() if name not in kept and state is not KeyState.DESTROYED]
        if gone:
            # In this order: the index stops naming the keys, the keys are deleted, the index records that.
            self._store_index(version, (_undestroyed(pair) if pair.fingerprint in gone else pair for pair in pairs))
            for fingerprint in gone:
                self._delete(fingerprint)
            version += 1
        self._store_index(version, pairs)
        return version

    def _store_private_key(self, pair: KeyPair) -> None:
        assert pair.private_key is not None
        key = pair.private_key
        request = {"Name": self._name_of(pair), "SecretBinary": key.to_der()}
        if self._kms_key_id is not None:
            request["KmsKeyId"] = self._kms_key_id
        try:
            self._call("create_secret", **request)
        except _ExistsError:
            self._call("put_secret_value", SecretId=self._name_of(pair), SecretBinary=key.to_der())

    def _store_index(self, version: int, pairs: Iterable[KeyPair]) -> None:
        records = tuple(replace(pair, private_key=None) for pair in pairs)
        encoded = encode_contents(KeyStoreContents(version, records)).decode()
        token = str(uuid.uuid5(_NAMESPACE, f"{self._name}/{version}"))
        try:
            if version > 1:
                self._call("put_secret_value", SecretId=self._name, SecretString=encoded, ClientRequestToken=token)
                return
            request = {"Name": self._name, "SecretString": encoded, "ClientRequestToken": token}
            if self._kms_key_id is not None:
                request["KmsKeyId"] = self._kms_key_id
            self._call("create_secret", **request)
        except _ExistsError:
            raise self._conflict(version, version - 1) from None

    def _delete(self, fingerprint: str) -> None:
        name = f"{self._name}/{_digits(fingerprint)}"
        try:
            self._call("delete_secret", SecretId=name, ForceDeleteWithoutRecovery=True)
        except _MissingError:
            return

    def _value(self, name: str) -> bytes | None:
        """Return the current contents of a secret, or None when there is no such secret."""
        try:
            answer = self._call("get_secret_value", SecretId=name, VersionStage=_CURRENT)
        except _MissingError:
            return None
        value: bytes | str = answer["SecretBinary"] if "SecretBinary" in answer else answer["SecretString"]
        return value.encode() if isinstance(value, str) else value

    def _call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Call AWS. The errors that this raises never repeat the request, which may hold a private key."""
        name = request.get("SecretId", request.get("Name"))
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**request)
            return answer
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
        except (BotoCoreError, json.JSONDecodeError, binascii.Error) as error:
            raise KeyStoreUnavailableError(f"{name} cannot be reached: {type(error).__name__}") from None
        if code == "ResourceNotFoundException":
            raise _MissingError(f"{name} is missing")
        if code == "ResourceExistsException":
            raise _ExistsError(f"{name} exists already")
        if code in _REFUSED:
            raise KeyStoreUnavailableError(f"{name}: {_REFUSED[code]} ({code})")
        raise KeyStoreUnavailableError(f"{name} cannot be used now: AWS answers {code or 'nothing'}")

    def _name_of(self, pair: KeyPair) -> str:
        return f"{self._name}/{_digits(pair.fingerprint)}"

    def _conflict(self, found: int, expected: int) -> KeyStoreConflictError:
        return KeyStoreConflictError(f"{self._name} is at version {found}, not {expected}: read it again")


class _MissingError(KeyStoreError):
    """There is no such secret."""


class _ExistsError(KeyStoreError):
    """The secret exists already, or has a version with that identifier and other contents."""


def _digits(fingerprint: str) -> str:
    return fingerprint.removeprefix("SHA256:")


def _undestroyed(pair: KeyPair) -> KeyPair:
    """A pair whose private key is about to be deleted."""
    return replace(pair, state=KeyState.RETIRED, destroyed_time=None)
