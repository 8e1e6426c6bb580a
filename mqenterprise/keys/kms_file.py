"""Private keys in a file that is encrypted with a key of AWS KMS (key store ``file-kms``).

Envelope encryption: the file is encrypted with a data key of its own, which lies beside it, encrypted by KMS. Reading
needs kms:Decrypt, writing kms:GenerateDataKey.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final, NoReturn

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from qmnode.security.errors import KeyStoreError, KeyStoreUnavailableError
from qmnode.security.key_stores import FileKeyStore, envelope, opened, sealed_document

if TYPE_CHECKING:
    from qmnode.security.key_stores import KeyStoreOptions

_SETTINGS: Final = frozenset({"path", "kms_key_id", "region", "endpoint_url"})
_CONTEXT: Final = {"purpose": "qmnode key store"}
"""The encryption context: KMS decrypts the data key only for a caller with the same context. CloudTrail shows it."""


def open_kms_file_key_store(options: KeyStoreOptions) -> FileKeyStore:
    """The store that the settings ``path``, ``kms_key_id``, ``region`` and ``endpoint_url`` describe."""
    settings = options.settings
    unknown = sorted(set(settings) - _SETTINGS)
    if unknown or "kms_key_id" not in settings:
        raise KeyStoreError(
            f"the key store file-kms has the settings {', '.join(sorted(_SETTINGS))}, and needs kms_key_id"
        )
    config = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 2, "mode": "standard"})
    try:
        client = boto3.session.Session().client(
            "kms", region_name=settings.get("region"), endpoint_url=settings.get("endpoint_url"), config=config
        )
    except (BotoCoreError, ValueError) as error:
        raise KeyStoreError(f"AWS KMS cannot be used: {error}") from None
    return FileKeyStore(options.directory / settings.get("path", "keys"), KmsSealing(client, settings["kms_key_id"]))


class KmsSealing:
    """A :class:`~qmnode.security.key_stores.Sealing` with a data key that KMS encrypts."""

    protection = "KMS"

    def __init__(self, client: Any, key_id: str) -> None:
        self._client = client
        self._key_id = key_id

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key store's way to its key is not copied to another process")

    def seal(self, clear: bytes, where: str) -> bytes:
        """Encrypt with a fresh data key."""
        made = self._call("generate_data_key", where, KeyId=self._key_id, KeySpec="AES_256", EncryptionContext=_CONTEXT)
        return envelope(clear, made["Plaintext"], {"kms": b64encode(made["CiphertextBlob"]).decode()})

    def open(self, stored: bytes, where: str) -> bytes:
        """Decrypt a store. A store in clear is read as it is, and encrypted when it is next written."""
        sealed = sealed_document(stored)
        if sealed is None:
            return stored
        try:
            blob = b64decode(sealed["kms"], validate=True)
        except (KeyError, TypeError, ValueError):
            raise KeyStoreError(f"{where} is not encrypted with a key of KMS") from None
        key = self._call("decrypt", where, CiphertextBlob=blob, KeyId=self._key_id, EncryptionContext=_CONTEXT)
        return opened(sealed, key["Plaintext"], where, "the file was altered")

    def _call(self, operation: str, where: str, **request: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**request)
            return answer
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
        except BotoCoreError as error:
            raise KeyStoreUnavailableError(f"{where}: KMS cannot be reached: {type(error).__name__}") from None
        if code in ("InvalidCiphertextException", "IncorrectKeyException"):
            raise KeyStoreError(f"{where} does not open: it is encrypted with another key of KMS ({code})")
        raise KeyStoreUnavailableError(f"{where}: KMS does not {operation}: see the key and its policy ({code})")
