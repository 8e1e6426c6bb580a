"""Certificates and their private keys as files: read in PEM or DER, and internal ones made with a key of their own."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from mqenterprise.certificates.registry import CertificateError
from qmnode.security.rsa_keys import SMALLEST_STRONG_MODULUS, Policy, PrivateKey
from qmnode.security.sender_identity import make_internal_certificate

_STRONG_ONLY: Final = Policy(frozenset(), "weak_algorithms_sent")
_CLOCK_SKEW: Final = 300.0
"""Seconds by which a new certificate is valid before it was made."""


def read_certificate(file: Path) -> bytes:
    """The one certificate in a file, DER. Raises :class:`CertificateError`."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise CertificateError(f"{file} cannot be read: {error.strerror}") from None
    return certificate_in(data, str(file))


def certificate_in(data: bytes, where: str) -> bytes:
    """The one certificate in PEM text, DER; what is no PEM is taken for DER. Raises :class:`CertificateError`."""
    if b"-----BEGIN" not in data:
        return data
    if b"PRIVATE KEY-----" in data:
        raise CertificateError(f"{where} holds a private key beside the certificate: give the certificate alone")
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError:
        raise CertificateError(f"{where} holds no certificate in PEM") from None
    if len(found) != 1:
        raise CertificateError(f"{where} holds {len(found)} certificates: give one")
    return found[0].public_bytes(Encoding.DER)


@dataclass(frozen=True, slots=True)
class InternalCertificate:
    """A certificate that its own key signs, and the file that its key is in."""

    encoded: bytes
    key_file: Path


def make_internal(user: str, key_file: Path, now: float, days: int, modulus_length: int) -> InternalCertificate:
    """A new key in a new file of mode 0600 (PKCS #8, DER) and a certificate for it.

    Raises :class:`CertificateError` when the file exists already: it may hold a key that is in use.
    """
    if modulus_length < SMALLEST_STRONG_MODULUS:
        raise CertificateError(f"a key of {modulus_length} bits is weak: give it at least {SMALLEST_STRONG_MODULUS}")
    key = PrivateKey.generate(modulus_length, _STRONG_ONLY)
    encoded = make_internal_certificate(key, user, now - _CLOCK_SKEW, now + days * 86_400)
    _write_private(key_file, key.to_der())
    return InternalCertificate(encoded, key_file)


def read_private(key_file: Path) -> PrivateKey:
    """The private key in a file that :func:`make_internal` wrote. Raises :class:`CertificateError`."""
    try:
        return PrivateKey.from_der(key_file.read_bytes())
    except OSError as error:
        raise CertificateError(f"{key_file} cannot be read: {error.strerror}") from None
    except ValueError:
        raise CertificateError(f"{key_file} holds no RSA key in PKCS #8, DER: name another file") from None


def internal_for(user: str, key_file: Path, now: float, days: int) -> InternalCertificate:
    """A certificate for the key that is in a file already: what is left of a run that was cut, or the next one."""
    encoded = make_internal_certificate(read_private(key_file), user, now - _CLOCK_SKEW, now + days * 86_400)
    return InternalCertificate(encoded, key_file)


def _write_private(file: Path, secret: bytes) -> None:
    try:
        opened = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise CertificateError(f"{file} exists already and may hold a key that is in use: name another file") from None
    except OSError as error:
        raise CertificateError(f"{file} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(opened, "wb") as stream:
            stream.write(secret)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            file.unlink()
        raise CertificateError(f"{file} cannot be written: {error.strerror}") from None
