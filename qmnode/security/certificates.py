"""Certificates that messages are signed with: X.509 (MS-MQMQ 2.2.20.6), parsed once and checked for every message.

A certificate does not prove its account by itself: the directory does (``identity``). So no chain is built here; an
internal certificate is signed by nobody but itself.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from qmnode.security.algorithms import Policy
    from qmnode.security.rsa_keys import PrivateKey

LARGEST_CERTIFICATE = 0xFFFF
"""Bytes: SecurityHeader.SenderCertSize ends there."""
LONGEST_EXPONENT = 32
"""Bits (MS-MQMQ 2.2.20.6). A longer one would only make verifying slow."""


@dataclass(frozen=True, slots=True)
class SenderCertificate:
    """The parts of a certificate that verifying needs. Times are seconds since 1970."""

    encoded: bytes
    public_key: RSAPublicKey
    not_before: float
    not_after: float
    fingerprint: str

    def fault(self, now: float, clock_skew: float, policy: Policy, maximum_modulus_length: int) -> str | None:
        """Why it cannot be used at ``now``, as a sentence, or None."""
        bits = self.public_key.key_size
        if now < self.not_before - clock_skew:
            return f"certificate {self.fingerprint} is not valid yet"
        if now > self.not_after:
            return f"certificate {self.fingerprint} has expired"
        if bits > maximum_modulus_length:
            return f"certificate {self.fingerprint} has a key of {bits} bits, more than {maximum_modulus_length}"
        policy.require_modulus(bits)
        return None


def parse_certificate(encoded: bytes) -> SenderCertificate:
    """A certificate with an RSA key from its DER bytes. Raises ValueError for anything else."""
    if len(encoded) > LARGEST_CERTIFICATE:
        raise ValueError(f"a certificate of {len(encoded)} bytes is too large")
    try:
        certificate = x509.load_der_x509_certificate(encoded)
        public_key = certificate.public_key()
        not_before, not_after = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except Exception as error:  # the library raises its own UnsupportedAlgorithm beside ValueError
        raise ValueError(f"not a certificate that can be read: {type(error).__name__}") from None
    if not isinstance(public_key, RSAPublicKey):
        raise ValueError("the certificate's key is not an RSA key")
    if public_key.public_numbers().e >> LONGEST_EXPONENT:
        raise ValueError(f"the public exponent of the certificate's key has more than {LONGEST_EXPONENT} bits")
    fingerprint = f"SHA256:{hashlib.sha256(encoded).hexdigest()[:32]}"
    return SenderCertificate(encoded, public_key, not_before.timestamp(), not_after.timestamp(), fingerprint)


LONGEST_NAME = 64
"""Characters of a certificate's common name (RFC 5280, ub-common-name)."""


def make_internal_certificate(private_key: PrivateKey, name: str, not_before: float, not_after: float) -> bytes:
    """A certificate signed by its own key, DER: only that the key exists. Times are seconds since 1970."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:LONGEST_NAME])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private_key.public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(not_before, UTC))
        .not_valid_after(datetime.fromtimestamp(not_after, UTC))
        .sign(private_key.signing_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.DER)
