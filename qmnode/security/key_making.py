"""New key pairs of a node (MS-MQDMPR 3.1.3), the step that makes one the current pair, and internal certificates."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from qmnode.security.algorithms import PROVIDERS, Provider, modulus_weakness, sending_policy, usable_algorithms
from qmnode.security.key_ring import KeyPair, KeyPurpose, KeyState
from qmnode.security.rsa_keys import PrivateKey
from qmnode.settings.security import SecuritySettings

LONGEST_NAME = 64
"""Characters of a certificate's common name (RFC 5280, ub-common-name)."""


def usable_providers(settings: SecuritySettings) -> list[Provider]:
    """The providers that a node makes keys for: with what is not weak, only the one with AES."""
    policy = sending_policy(settings)
    return [
        provider
        for provider in PROVIDERS
        if usable_algorithms(policy, provider) and policy.permits(modulus_weakness(provider.default_modulus_length))
    ]


def make_pair(
    provider: Provider,
    purpose: KeyPurpose,
    settings: SecuritySettings,
    now: float,
    *,
    state: KeyState = KeyState.NEXT,
    modulus_length: int | None = None,
) -> KeyPair:
    """A new pair, with the provider's default length unless another is given. Takes from 50 ms to seconds: no loop.

    Raises :class:`WeakAlgorithmError` and :class:`LegacyUnavailableError` for a length under 1,024 bits.
    """
    length = modulus_length or provider.default_modulus_length
    private_key = PrivateKey.generate(length, sending_policy(settings))
    return KeyPair.of(private_key, provider.name, purpose, state, now)


def first_pairs(settings: SecuritySettings, now: float) -> tuple[KeyPair, ...]:
    """Make the first keys of a node: a current pair for every usable provider and purpose."""
    return tuple(
        make_pair(provider, purpose, settings, now, state=KeyState.CURRENT)
        for provider in usable_providers(settings)
        for purpose in KeyPurpose
    )


def published(pairs: Iterable[KeyPair], fingerprint: str, now: float) -> tuple[KeyPair, ...]:
    """The pairs after the directory took the key of that fingerprint in the place of its provider's current one.

    Repeating it changes nothing. The way back is the same call with the previous key's fingerprint. Raises KeyError for
    a key that is not there or has no private key any more.
    """
    listed = tuple(pairs)
    chosen = next((pair for pair in listed if pair.fingerprint == fingerprint and pair.private_key is not None), None)
    if chosen is None:
        raise KeyError(fingerprint)
    return tuple(_after_publication(pair, chosen, now) for pair in listed)


def _after_publication(pair: KeyPair, chosen: KeyPair, now: float) -> KeyPair:
    if pair is chosen:
        if pair.state is KeyState.CURRENT:
            return pair
        return replace(pair, state=KeyState.CURRENT, published_time=now, superseded_time=None)
    replaced = (pair.provider, pair.purpose, pair.state) == (chosen.provider, chosen.purpose, KeyState.CURRENT)
    return pair.superseded(now) if replaced else pair


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
