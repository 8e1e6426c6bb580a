"""Certificates: what is read from them, and which are not used."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from qmnode.security.errors import WeakAlgorithmError
from qmnode.security.rsa_keys import accepting_policy
from qmnode.security.sender_identity import parse_certificate
from qmnode.settings.security import SecuritySettings
from tests.security.keys import private_key
from tests.security.messages import DAY, NOW, certificate

POLICY = accepting_policy(SecuritySettings())


def certificate_of(public_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mallory")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1).public_key(public_key)
    builder = builder.not_valid_before(datetime.fromtimestamp(NOW, UTC))
    builder = builder.not_valid_after(datetime.fromtimestamp(NOW + DAY, UTC))
    return builder.sign(private_key(1024).signing_key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_a_certificate_is_read_with_its_dates_and_its_fingerprint() -> None:
    parsed = parse_certificate(certificate())
    assert (parsed.not_before, parsed.not_after) == (NOW - DAY, NOW + DAY)
    assert parsed.fault(NOW, 0.0, POLICY) is None
    assert parsed.fingerprint.startswith("SHA256:")


def test_a_certificate_of_another_kind_of_key_is_refused() -> None:
    with pytest.raises(ValueError, match="not an RSA key"):
        parse_certificate(certificate_of(ec.generate_private_key(ec.SECP256R1()).public_key()))


def test_a_key_that_would_make_verifying_slow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    modulus = private_key(2048).public_key.public_numbers().n
    slow = rsa.RSAPublicNumbers((1 << 2000) + 1, modulus).public_key()
    with pytest.raises(ValueError, match="more than 32 bits"):
        parse_certificate(certificate_of(slow))
    monkeypatch.setattr("qmnode.security.sender_identity.MAXIMUM_MODULUS_LENGTH", 1024)
    assert "more than 1024" in (parse_certificate(certificate(2048)).fault(NOW, 0.0, POLICY) or "")


def test_a_short_key_is_weak() -> None:
    short = parse_certificate(certificate_of(private_key(512).public_key))
    with pytest.raises(WeakAlgorithmError, match="RSA-512"):
        short.fault(NOW, 0.0, POLICY)


@pytest.mark.parametrize("encoded", [b"", b"\x30\x82", bytes(70_000), certificate()[:-1], certificate() + b"\0"])
def test_what_is_no_certificate_is_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        parse_certificate(encoded)
