"""Signers: Linux users of this machine, with the private keys that the settings name and the directory's certificates.

The kernel says which user asks (SO_PEERCRED); no application can be given another's signature.
"""

import asyncio
import pwd
from dataclasses import dataclass
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from qmnode.directory.port import Directory, DirectoryOperationError, DirectoryOperationResult, User, equals
from qmnode.errors import MessageQueuingError
from qmnode.security.errors import KeyStoreError
from qmnode.security.principals import security_identifier_of
from qmnode.security.private_files import read_private
from qmnode.security.protector import Signer
from qmnode.security.rsa_keys import PrivateKey, public_key_to_wire
from qmnode.security.sender_identity import SenderCertificate, parse_certificate
from qmnode.settings.security import SecuritySettings, SignerSettings
from qmnode.structures.enumerations import SenderIdentifierType
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.public_keys import MqUserSignCerts

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _ReadSigner:
    signer: Signer
    read_time: float


class Signers:
    """The signers of a node's users, read once and kept for UserCertLifetime. For the event loop's thread."""

    def __init__(self, settings: SecuritySettings, directory: Directory) -> None:
        self._settings = settings
        self._directory = directory
        self._known: dict[int, _ReadSigner] = {}
        self._lifetime = settings.user_cert_lifetime / 1000

    def forget(self) -> None:
        """Read private keys and certificates again before the next signature."""
        self._known.clear()

    async def of(self, user_id: int, now: float) -> Signer:
        """The signer for the Linux user with that number.

        Raises :class:`MessageQueuingError`: MQ_ERROR_COULD_NOT_GET_USER_SID when nobody knows the user's SID,
        MQ_ERROR_CERTIFICATE_NOT_PROVIDED when there is no key or no certificate for it, MQ_ERROR_NO_DS when the
        directory does not answer and the user's certificate is not known yet.
        """
        known = self._known.get(user_id)
        if known is not None and 0 <= now - known.read_time <= self._lifetime:
            return known.signer
        try:
            signer = await self._read(_account_of(user_id))
        except MessageQueuingError as error:
            if known is None or error.code != ErrorCode.MQ_ERROR_NO_DS:
                self._known.pop(user_id, None)
                raise
            # Signing needs no directory; whether the certificate still counts is for the receiver to say.
            log.info("a user's certificate could not be read again", user_id=user_id, reason=error.sentence)
            return known.signer
        self._known[user_id] = _ReadSigner(signer, now)
        return signer

    async def _read(self, account: str) -> Signer:
        settings = self._settings.signers.get(account)
        if settings is None:
            raise _no_certificate(
                f"{account} has nothing to sign with: make a certificate with 'mqenterprise certificate register "
                f"{account} --internal FILE', and name the file in security.signers"
            )
        sid = await security_identifier_of(account, self._settings, self._directory)
        key = await asyncio.to_thread(_read_key, settings.private_key)
        if settings.certificate is not None:
            encoded = await asyncio.to_thread(_read_certificate, settings)
            if not _fits(key, encoded):
                raise _no_certificate(f"{settings.certificate} is not the certificate of {settings.private_key}")
        else:
            encoded = await self._registered(account, sid.write(), key)
        return Signer(key, encoded.encoded, SenderIdentifierType.SID, sid.write())

    async def _registered(self, account: str, sid: bytes, key: PrivateKey) -> SenderCertificate:
        """The certificate in the directory that the key fits; of several, the one that is valid longest."""
        try:
            user = await self._directory.read_directory(User, [equals("security_identifier", sid)], ["certificates"])
            listed = MqUserSignCerts.parse(user.certificates or bytes(4)).certificates
        except DirectoryOperationError as error:
            if error.result is not DirectoryOperationResult.OBJECT_NOT_FOUND:
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_NO_DS, f"the certificate of {account}: {error.sentence}"
                ) from None
            listed = ()
        except PacketError:
            listed = ()
        fitting = [each for entry in listed if (each := _readable(entry.certificate)) and _fits(key, each)]
        if not fitting:
            raise _no_certificate(
                f"the directory has no certificate of {account} for the key {key.fingerprint}: register it with "
                f"'mqenterprise certificate register {account}'"
            )
        return max(fitting, key=lambda each: each.not_after)


def _account_of(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


def _read_key(file: Path) -> PrivateKey:
    try:
        stored = read_private(file)
    except KeyStoreError as error:
        raise _no_certificate(str(error)) from None
    if stored is None:
        raise _no_certificate(f"{file} is not there: security.signers names it as a user's private key")
    try:
        return PrivateKey.from_pem(stored) if b"-----BEGIN" in stored else PrivateKey.from_der(stored)
    except ValueError as error:
        raise _no_certificate(f"{file} holds {error}") from None


def _read_certificate(settings: SignerSettings) -> SenderCertificate:
    file = settings.certificate
    assert file is not None
    try:
        data = file.read_bytes()
        if b"-----BEGIN" in data:
            data = x509.load_pem_x509_certificate(data).public_bytes(Encoding.DER)
        return parse_certificate(data)
    except OSError as error:
        raise _no_certificate(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise _no_certificate(f"{file}: {error}") from None


def _readable(encoded: bytes) -> SenderCertificate | None:
    try:
        return parse_certificate(bytes(encoded))
    except ValueError:
        return None


def _fits(key: PrivateKey, certificate: SenderCertificate) -> bool:
    return public_key_to_wire(key.public_key) == public_key_to_wire(certificate.public_key)


def _no_certificate(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED, sentence)
