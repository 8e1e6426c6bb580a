"""Certificates of declared users: PEM text or PEM files. Problems are reported at the line that names them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from mqenterprise.topology.names import fold

if TYPE_CHECKING:
    from mqenterprise.topology.loader import Loaded
    from mqenterprise.topology.problems import Problem


def read_certificates(loaded: Loaded, found: list[Problem]) -> dict[str, tuple[str, ...]]:
    """Return, for each user (folded name) with declared certificates, their DER in base64, sorted and unique."""
    certificates: dict[str, tuple[str, ...]] = {}
    for position, user in enumerate(loaded.declaration.users):
        if user.certificates is None:
            continue
        texts: set[str] = set()
        for index, source in enumerate(user.certificates):
            path = ("users", position, "certificates", index)
            try:
                texts.update(_read(source, loaded.sources.locate(path)[0]))
            except ValueError as error:
                found.append(loaded.sources.problem(path, str(error)))
        certificates[fold(user.name)] = tuple(sorted(texts))
    return certificates


def _read(source: str, beside: Path | None) -> list[str]:
    if "-----BEGIN" in source:
        data = source.encode()
    else:
        file = (beside.parent if beside else Path()) / source
        try:
            data = file.read_bytes()
        except OSError as error:
            raise ValueError(f"{file} cannot be read: {error.strerror}") from None
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError:
        raise ValueError("holds no certificate in PEM; give a file, or text with BEGIN CERTIFICATE") from None
    return [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode() for certificate in found]


def described(encoded: str) -> str:
    """Describe a certificate in a few words, for a diff."""
    try:
        certificate = x509.load_der_x509_certificate(base64.b64decode(encoded, validate=True))
    except ValueError:
        return f"(no certificate: {encoded[:16]}...)"
    fingerprint = certificate.fingerprint(hashes.SHA256()).hex()
    return f"{certificate.subject.rfc4514_string()} sha256:{fingerprint[:16]}"


def as_pem(encoded: str) -> str:
    """Return a certificate as PEM text for a declaration."""
    body = "\n".join(encoded[at : at + 64] for at in range(0, len(encoded), 64))
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
