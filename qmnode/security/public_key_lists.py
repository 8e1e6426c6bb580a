"""MQDSPUBLICKEYS (MS-MQMQ 2.2.2): what this node publishes, and what the directory holds of another.

Senders pick a key by its provider's name; publishing a new one *replaces* the provider's key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from qmnode.security.algorithms import PROVIDER_BY_NAME, Provider
from qmnode.security.key_ring import KeyPair, KeyPurpose, KeyState
from qmnode.security.rsa_keys import fingerprint_of, public_key_from_wire
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid
from qmnode.structures.key_blobs import CALG_RSA_KEYX, CALG_RSA_SIGN, PublicKeyBlob
from qmnode.structures.public_keys import MqdsPublicKey, MqdsPublicKeys

_KEY_ALGORITHMS = {KeyPurpose.ENCRYPTION: CALG_RSA_KEYX, KeyPurpose.SIGNING: CALG_RSA_SIGN}


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """One provider's public key of a queue manager."""

    provider: Provider
    public_key: RSAPublicKey
    fingerprint: str


@dataclass(frozen=True, slots=True)
class PublishedKeys:
    """RemoteQMPublicKey, MS-MQQB 3.1.1.3.1: what the directory holds of a queue manager, and since when."""

    queue_manager: Guid
    keys: dict[str, PublishedKey]
    """By the provider's name."""
    cached_time: float
    """When the directory was read."""
    faults: tuple[str, ...] = field(default=())
    """The faults of keys that could not be used, as sentences."""

    @classmethod
    def parse(
        cls, queue_manager: Guid, encoded: bytes | None, cached_time: float, maximum_modulus_length: int
    ) -> PublishedKeys:
        """The keys from the directory's bytes. A key that cannot be read is a fault, and the others still serve."""
        if not encoded:
            return cls(queue_manager, {}, cached_time)
        try:
            listed = MqdsPublicKeys.parse(encoded).keys
        except PacketError as error:
            return cls(queue_manager, {}, cached_time, (f"the list of public keys cannot be read: {error}",))
        keys: dict[str, PublishedKey] = {}
        faults: list[str] = []
        for entry in listed:
            provider = PROVIDER_BY_NAME.get(entry.provider_name)
            if provider is None or provider.name in keys:
                continue
            try:
                keys[provider.name] = _published_key(provider, entry, maximum_modulus_length)
            except (PacketError, ValueError) as error:
                faults.append(f"the key of {provider.name} cannot be used: {error}")
        return cls(queue_manager, keys, cached_time, tuple(faults))


def _published_key(provider: Provider, entry: MqdsPublicKey, maximum_modulus_length: int) -> PublishedKey:
    blob = entry.public_key
    public_key = public_key_from_wire(blob.key.modulus, blob.key.public_exponent, maximum_modulus_length)
    return PublishedKey(provider, public_key, fingerprint_of(public_key))


def public_key_list(pairs: Iterable[KeyPair], purpose: KeyPurpose) -> bytes:
    """PublicEncryptionKeyList or PublicSigningKeyList: the current pair of every provider (MS-MQDMPR 3.1.3)."""
    return MqdsPublicKeys(
        keys=tuple(
            _entry(pair, purpose) for pair in pairs if pair.purpose is purpose and pair.state is KeyState.CURRENT
        )
    ).write()


def _entry(pair: KeyPair, purpose: KeyPurpose) -> MqdsPublicKey:
    assert pair.private_key is not None
    numbers = pair.private_key.public_key.public_numbers()
    provider = PROVIDER_BY_NAME[pair.provider]
    return MqdsPublicKey(
        provider_type=provider.type,
        provider_name=provider.name,
        key=PublicKeyBlob.of(numbers.n, numbers.e, _KEY_ALGORITHMS[purpose]).write(),
    )
