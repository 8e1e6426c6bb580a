"""Certificates of nodes, issued by the enterprise's authority, and the settings that name their files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from qmnode.security.rsa_keys import PrivateKey
from qmnode.settings.security import TlsSettings
from qmnode.structures.guid import guid_to_text
from tests.security.keys import private_key

AUTHORITY = 10
PEM = serialization.Encoding.PEM
SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True, content_commitment=False, key_encipherment=True, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


def linked(
    builder: x509.CertificateBuilder, own: PrivateKey, signer: PrivateKey, is_authority: bool
) -> x509.CertificateBuilder:
    """With what Python asks for from 3.13 on: whose key signed it, and that the key of an authority may sign."""
    known_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key)
    builder = builder.add_extension(known_by, critical=False)
    if not is_authority:
        return builder
    identifier = x509.SubjectKeyIdentifier.from_public_key(own.public_key)
    return builder.add_extension(identifier, critical=False).add_extension(SIGNS_CERTIFICATES, critical=True)


def certificate(
    name: str,
    number: int,
    issuer: str,
    *names: x509.GeneralName,
    is_authority: bool = False,
    by: int = AUTHORITY,
    expired: bool = False,
    hours: int = 1,
    usages: Sequence[x509.ObjectIdentifier] = (),
) -> bytes:
    """Issued by the enterprise's authority, or with the key of that number. It is good for so many hours."""

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC) - timedelta(days=expired)
    builder = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named(issuer))
    builder = builder.public_key(private_key(2048, number).public_key).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=hours))
    builder = builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    builder = linked(builder, private_key(2048, number), private_key(2048, by), is_authority)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(private_key(2048, by).signing_key, hashes.SHA256()).public_bytes(PEM)


def machine_names(*identifiers: bytes) -> list[x509.GeneralName]:
    """What names queue managers in a certificate."""
    return [x509.UniformResourceIdentifier(f"urn:uuid:{guid_to_text(one)}") for one in identifiers]


def write_key(file: Path, number: int) -> Path:
    """A private key as nodes want it."""
    key = private_key(2048, number).signing_key
    file.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    file.chmod(0o600)
    return file


def tls_of(
    folder: Path,
    address: str,
    *identifiers: bytes,
    number: int = 0,
    required: bool = False,
    expired: bool = False,
    hours: int = 1,
    **settings: Any,
) -> TlsSettings:
    """The files of a host whose certificate names these queue managers. With TLS for all peers, unless told."""
    place = folder / f"tls-{address}"
    place.mkdir(parents=True, exist_ok=True)
    root = certificate("authority", AUTHORITY, "authority", is_authority=True, hours=hours)
    names = [x509.IPAddress(ip_address(address)), *machine_names(*identifiers)]
    own = certificate(address, number, "authority", *names, expired=expired, hours=hours)
    (place / "authorities").write_bytes(root)
    (place / "certificate").write_bytes(own)
    write_key(place / "key", number)
    return TlsSettings(
        certificate=place / "certificate", private_key=place / "key", authorities=place / "authorities",
        require_identity=required, **(settings or {"peers": frozenset({"*"})}),
    )  # fmt: skip


def pinned_by(folder: Path, name: str, address: str, identifier: bytes, number: int) -> Path:
    """A certificate that a host made for itself, with its key beside it: ``NAME.pem`` and ``NAME.key``."""
    names = [x509.IPAddress(ip_address(address)), *machine_names(identifier)]
    file = folder / f"{name}.pem"
    file.write_bytes(certificate(name, number, name, *names, is_authority=True, by=number))
    write_key(file.with_suffix(".key"), number)
    return file
