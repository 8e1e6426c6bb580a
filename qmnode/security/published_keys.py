"""Public keys in the directory, and the key pairs of this node behind them (MS-MQDMPR 3.1.3).

MQDSPUBLICKEYS (MS-MQMQ 2.2.2) holds one key for each provider. Senders pick a key by its provider's name; publishing a
new one *replaces* the provider's key. The first keys of a node are made, stored, and then published, so that nobody
encrypts to a key that is not safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from qmnode.directory.port import Directory, DirectoryOperationError, DirectoryOperationResult, QueueManager, equals
from qmnode.security.caches import AgedCache, SharedReads
from qmnode.security.errors import KeyStoreUnavailableError, MessageDeferredError
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyState, KeyStore
from qmnode.security.rsa_keys import (
    MAXIMUM_MODULUS_LENGTH,
    PROVIDER_BY_NAME,
    PROVIDERS,
    PrivateKey,
    Provider,
    fingerprint_of,
    modulus_weakness,
    public_key_from_wire,
    sending_policy,
    usable_algorithms,
)
from qmnode.settings.security import SecuritySettings
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid
from qmnode.structures.public_keys import CALG_RSA_KEYX, CALG_RSA_SIGN, MqdsPublicKey, MqdsPublicKeys, PublicKeyBlob


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
        cls, queue_manager: Guid, encoded: bytes | None, cached_time: float, most: int = MAXIMUM_MODULUS_LENGTH
    ) -> PublishedKeys:
        """The keys from the directory's bytes. A key that cannot be read, or has more
        bits than ``most``, is a fault, and the others still serve."""
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
                keys[provider.name] = _published_key(provider, entry, most)
            except (PacketError, ValueError) as error:
                faults.append(f"the key of {provider.name} cannot be used: {error}")
        return cls(queue_manager, keys, cached_time, tuple(faults))


def _published_key(provider: Provider, entry: MqdsPublicKey, most: int) -> PublishedKey:
    blob = entry.public_key
    public_key = public_key_from_wire(blob.key.modulus, blob.key.public_exponent, most)
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


async def publish_first_keys(
    key_store: KeyStore, directory: Directory, identifier: Guid, settings: SecuritySettings, now: float
) -> bool:
    """Make keys if the store has none, and publish them if the directory has none of this node (MS-MQDMPR 3.1.3).

    Returns whether anything was published. Raises KeyStoreError and DirectoryOperationError.
    """
    contents = await key_store.read()
    pairs = contents.pairs
    mine = await directory.read_directory(QueueManager, [equals("identifier", identifier)])
    if mine.public_encryption_key_list:
        if not pairs:
            # New keys would make every message refused that is encrypted to those that others know.
            raise KeyStoreUnavailableError(
                "the key store is empty, and the directory has keys of this node: bring the store back, or make new "
                "keys with 'mqenterprise keys rotate'"
            )
        return False
    if not pairs:
        pairs = await asyncio.to_thread(first_pairs, settings, now)
        await key_store.replace(pairs, expected_version=contents.version)
    await directory.write_directory(
        QueueManager(
            computer_name=mine.computer_name,
            identifier=identifier,
            public_encryption_key_list=public_key_list(pairs, KeyPurpose.ENCRYPTION),
            public_signing_keys=public_key_list(pairs, KeyPurpose.SIGNING),
        ),
        ["public_encryption_key_list", "public_signing_keys"],
    )
    return True


DESTINATIONS_KEPT: Final = 4096
"""Queue managers whose keys are kept; each takes about 2 KiB."""

_NOTHING_THERE: Final = {DirectoryOperationResult.OBJECT_NOT_FOUND, DirectoryOperationResult.ATTRIBUTE_NOT_FOUND}


class DestinationDirectory:
    """RemoteQMPublicKey (MS-MQQB 3.1.1.3.1) for each destination, read again when it is old.

    For the event loop's thread. The text keeps one in every session, for the next hop, as long as the session lasts.
    """

    def __init__(self, directory: Directory, settings: SecuritySettings) -> None:
        self._directory = directory
        self.cache: AgedCache[Guid, PublishedKeys] = AgedCache(DESTINATIONS_KEPT, settings.public_key_lifetime)
        self._reads: SharedReads[Guid, PublishedKeys] = SharedReads()

    def cached(self, queue_manager: Guid, now: float) -> PublishedKeys | None:
        """The keys, if they are fresh: most messages need no more."""
        return self.cache.get(queue_manager, now)

    async def keys_of(self, queue_manager: Guid, now: float) -> PublishedKeys:
        """The keys of a queue manager; none if the directory has none.

        Raises :class:`MessageDeferredError` when the directory does not answer: the message waits. The text deletes it.
        """
        known = self.cached(queue_manager, now)
        if known is not None:
            return known
        return await self._reads.share(queue_manager, lambda: self._read(queue_manager, now))

    def forget(self, queue_manager: Guid) -> int:
        """Read the keys of a queue manager again before the next message; returns whether any were known, 1 or 0."""
        return self.cache.forget(lambda place, _: place == queue_manager)

    async def close(self) -> None:
        """End the questions that still run."""
        await self._reads.close()

    async def _read(self, queue_manager: Guid, now: float) -> PublishedKeys:
        try:
            found = await self._directory.read_directory(
                QueueManager, [equals("identifier", queue_manager)], ["public_encryption_key_list"]
            )
            encoded = found.public_encryption_key_list
        except DirectoryOperationError as error:
            if error.result not in _NOTHING_THERE:
                raise MessageDeferredError(
                    f"the destination's public key cannot be looked up: {error.sentence}"
                ) from None
            encoded = None
        keys = PublishedKeys.parse(queue_manager, encoded, now)
        if keys.keys:  # a computer without keys may publish them any moment
            self.cache.add(queue_manager, keys)
        return keys
