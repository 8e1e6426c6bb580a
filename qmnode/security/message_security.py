"""Message security of one node, put together: keys from their store, questions to the directory, crypto in a worker.

The transport and the node call it. It runs in the event loop; the clock is an argument, so tests need none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from qmnode.security.arrival_checks import Admission, Worker, inline
from qmnode.security.errors import KeyStoreError, MessageDeferredError
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyRing, KeyState, KeyStore
from qmnode.security.protector import (
    Deferred,
    MessageProtector,
    Protected,
    ProtectionRequest,
    Unprotectable,
)
from qmnode.security.published_keys import DestinationDirectory, PublishedKeys
from qmnode.security.sender_identity import SenderDirectory, UnsignedSenderDirectory
from qmnode.structures.enumerations import AuthenticationLevel
from qmnode.structures.guid import ZERO_GUID, Guid

if TYPE_CHECKING:
    from qmnode.directory.port import Directory
    from qmnode.settings.security import SecuritySettings

    Keys = dict[Guid, PublishedKeys | Deferred]


@dataclass(frozen=True, slots=True)
class KeyStoreStatus:
    """How the last reading of the key store went."""

    version: int = 0
    fault: str | None = "it has not been read yet"
    """The reason why it could not be read, as a sentence that says what to do; None if it was read."""
    fingerprints: tuple[str, ...] = ()
    """The keys in use."""
    published: tuple[tuple[str, float], ...] = ()
    """Since when the directory shows the current encryption key of each provider: its name, and seconds since 1970."""
    pairs: tuple[KeyPair, ...] = ()
    """The keys in use, without their private halves."""

    @classmethod
    def of(cls, version: int, ring: KeyRing) -> Self:
        """After a reading that went well."""
        published = (
            (pair.provider, pair.created_time if pair.published_time is None else pair.published_time)
            for pair in ring
            if pair.state is KeyState.CURRENT and pair.purpose is KeyPurpose.ENCRYPTION
        )
        pairs = tuple(replace(pair, private_key=None) for pair in ring)
        return cls(version, None, tuple(pair.fingerprint for pair in ring), tuple(published), pairs)


class SecurityService:
    """Everything that a node needs of this room."""

    def __init__(
        self,
        identifier: Guid,
        settings: SecuritySettings,
        directory: Directory,
        key_store: KeyStore,
        worker: Worker = inline,
    ) -> None:
        self.protector = MessageProtector(identifier, settings)
        self.senders = SenderDirectory(directory, settings)
        self.unsigned_senders = UnsignedSenderDirectory(directory, settings, time.monotonic)
        self.destinations = DestinationDirectory(directory, settings)
        self.status = KeyStoreStatus()
        self._key_store = key_store
        self._worker = worker
        self.admission = Admission(self.protector, self.senders, settings, worker)

    async def load_keys(self) -> KeyStoreStatus:
        """Read the key store and go on with what it holds: at the start, and whenever keys may have changed.

        Never raises. While the store cannot be read, or is empty, the keys that were read before go on serving; a
        message that none of them decrypts is deferred, as it may be encrypted to one that was made since.
        """
        try:
            contents = await self._key_store.read()
        except KeyStoreError as error:
            return self._without_store(str(error))
        if not contents.version:
            return self._without_store("the key store is empty")
        ring = KeyRing(contents.pairs)
        self.protector.use_ring(ring)
        self.status = KeyStoreStatus.of(contents.version, ring)
        return self.status

    def _without_store(self, fault: str) -> KeyStoreStatus:
        self.status = replace(self.status, fault=fault)
        self.protector.use_ring(KeyRing(self.protector.ring, unavailable=fault))
        return self.status

    async def protect(
        self, requests: Sequence[ProtectionRequest], now: float
    ) -> list[Protected | Unprotectable | Deferred]:
        """Sign and encrypt a batch, in its order. ``keys`` of a request are looked up if it needs them."""
        keys = await self._keys_for(requests, now)
        ready = [_with_keys(request, keys) for request in requests]
        work = [request for request in ready if isinstance(request, ProtectionRequest)]
        if _takes_long(work):
            done = await self._worker(lambda: self.protector.protect_all(work, now))
        else:
            done = self.protector.protect_all(work, now)
        outcomes = iter(done)
        return [request if isinstance(request, Deferred) else next(outcomes) for request in ready]

    def clean_up(self, now: float) -> float | None:
        """The cleanup timers of all caches (MS-MQQB 3.1.6.10 to 3.1.6.13); when to come back, if at all."""
        due = [
            self.protector.clean_up(now),
            self.senders.cache.clean_up(now),
            self.destinations.cache.clean_up(now),
        ]
        return min((each for each in due if each is not None), default=None)

    async def close(self) -> None:
        """End what still waits for the directory."""
        await self.senders.close()
        await self.unsigned_senders.close()
        await self.destinations.close()

    async def _keys_for(self, requests: Sequence[ProtectionRequest], now: float) -> Keys:
        """The published keys of every destination that a batch needs, asked for all at once; or why not."""
        needed = {
            Guid(request.sections.address): None
            for request in requests
            if request.keys is None and _is_private(request)
        }
        keys: Keys = {remote: one for remote in needed if (one := self.destinations.cached(remote, now)) is not None}
        unknown = [remote for remote in needed if remote not in keys]
        if unknown:
            answers = await asyncio.gather(*(self._settled(remote, now) for remote in unknown))
            keys.update(zip(unknown, answers, strict=True))
        return keys

    async def _settled(self, remote: Guid, now: float) -> PublishedKeys | Deferred:
        try:
            return await self.destinations.keys_of(remote, now)
        except MessageDeferredError as deferred:
            return Deferred(deferred.sentence)


def _with_keys(request: ProtectionRequest, keys: Keys) -> ProtectionRequest | Deferred:
    if request.keys is not None or not _is_private(request):
        return request
    found = keys[Guid(request.sections.address)]
    if isinstance(found, Deferred):
        return found
    request.keys = found
    return request


def _is_private(request: ProtectionRequest) -> bool:
    sections = request.sections
    return bool(sections.privacy_level) and sections.address != ZERO_GUID


_AT_ONCE: Final = 256 * 1024
"""Bytes that are encrypted in about a millisecond: a thread would take longer to come and go."""


def _takes_long(requests: Sequence[ProtectionRequest]) -> bool:
    """Whether a thread should do it. Signing with a private key takes some tenths of a millisecond, the session key
    that encrypts is mostly there already."""
    if any(request.authentication_level is not AuthenticationLevel.NONE for request in requests):
        return True
    return sum(len(request.packet) for request in requests if _is_private(request)) > _AT_ONCE
