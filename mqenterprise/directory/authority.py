"""A private certificate authority for a private directory: its own root, and the certificates that it issues."""

import datetime
import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from qmnode.security.rsa_keys import ENCRYPTED

AUTHORITY_LIFETIME: Final = datetime.timedelta(days=3650)
FOR_BOTH: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
FOR_CLIENTS: Final = (ExtendedKeyUsageOID.CLIENT_AUTH,)
"""For users: no server may show the certificate, and no queue manager, which is a server and a client."""
CERTIFICATE_LIFETIME: Final = datetime.timedelta(days=825)
_QUEUE_MANAGER: Final = "urn:uuid:"
# A machine whose clock is a little behind must not refuse what was issued a moment ago.
CLOCK_TOLERANCE: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def save(self, certificate: Path, key: Path) -> None:
        """Write both as PEM, the key for its owner only."""
        write_anew(certificate, self.certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        write_anew(
            key,
            self.key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            0o600,
        )


def write_anew(path: Path, content: bytes, mode: int) -> None:
    """Write a new file in the place of another, whole; links and files that others put there are never written to."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    opened = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(opened, "wb") as file:
        file.write(content)
    partial.replace(path)


def create_authority(name: str, now: datetime.datetime) -> Issued:
    """A new root, good for ten years."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, subject, key, now, AUTHORITY_LIFETIME)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return Issued(builder.sign(key, hashes.SHA256()), key)


def load_authority(certificate: Path, key: Path) -> Issued:
    """A root that was saved. Raises ValueError when the files are not what they should be."""
    try:
        loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except TypeError:
        raise ValueError(f"{key}: {ENCRYPTED}") from None
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{key} is not a key of this authority")
    return Issued(x509.load_pem_x509_certificate(certificate.read_bytes()), loaded)


def issue(
    authority: Issued,
    common_name: str,
    names: Sequence[str],
    now: datetime.datetime,
    *,
    unit: str | None = None,
    usages: Sequence[x509.ObjectIdentifier] = FOR_BOTH,
) -> Issued:
    """A certificate for the given host names and addresses, and queue managers (``urn:uuid:`` and the GUID)."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if unit is not None:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    builder = _builder(x509.Name(parts), authority.certificate.subject, key, now, CERTIFICATE_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative_name(name) for name in names]), critical=False
        )
    return Issued(builder.sign(authority.key, hashes.SHA256()), key)


def _alternative_name(name: str) -> x509.GeneralName:
    if name.startswith(_QUEUE_MANAGER):
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    lifetime: datetime.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + lifetime)
    )
