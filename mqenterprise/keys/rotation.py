"""The rotation of one node's keys: the steps of ``life_cycle`` carried out in its key store and in the directory.

Each step reads both, decides, and writes with compare and set. It can therefore be killed at any point and run again
by anyone.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from mqenterprise.keys import life_cycle
from mqenterprise.keys.publication import Node, Shown
from mqenterprise.keys.settings import KeyRotationError
from qmnode.security.errors import KeyStoreConflictError
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyState, KeyStore, KeyStoreContents
from qmnode.security.published_keys import make_pair, usable_providers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from mqenterprise.keys.life_cycle import Pairs, Waiting
    from qmnode.security.rsa_keys import Provider

ATTEMPTS: Final = 5
"""Attempts at a step that another writer interferes with."""

log = structlog.get_logger(__name__)


class PublishedLists(Protocol):
    """The part of the directory that a rotation needs."""

    def read(self, node: Node) -> Shown:
        """Read a node's published keys."""
        ...

    def replace(self, node: Node, shown: Shown, lists: dict[KeyPurpose, bytes]) -> bool:
        """Replace the lists that were read by these. Return False when the directory has changed since."""
        ...


@dataclass(frozen=True, slots=True)
class KeysOfNode:
    """A node's key pairs beside what the directory shows."""

    node: Node
    pairs: Pairs
    shown: frozenset[str]
    version: int = 0
    """The version of the key store's contents."""


class Rotation:
    """The keys of one node. Raises :class:`KeyStoreError`, ``DirectoryError`` and :class:`KeyRotationError`."""

    def __init__(
        self,
        node: Node,
        store: KeyStore,
        lists: PublishedLists,
        waiting: Waiting,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.node = node
        self._store = store
        self._lists = lists
        self._waiting = waiting
        self._clock = clock

    async def look(self) -> KeysOfNode:
        """The state of the node's keys."""
        contents, shown = await asyncio.gather(self._store.read(), asyncio.to_thread(self._lists.read, self.node))
        return KeysOfNode(self.node, contents.pairs, shown.fingerprints, contents.version)

    async def prepare(self, begun: float) -> None:
        """Make a next pair for each provider that has none and whose current pair was published before ``begun``.

        ``begun`` (seconds since 1970) is when the operator started this rotation. Run again after an interruption, it
        leaves alone the pairs that it has already replaced.
        """
        for _ in range(ATTEMPTS):
            contents = await self._store.read()
            missing = [place for place in self._places() if needs_next(contents.pairs, *place, begun)]
            if not missing:
                return
            made = [await asyncio.to_thread(self._make, provider, purpose) for provider, purpose in missing]
            if await self._wrote(contents, (*contents.pairs, *made), "key pair made") is not None:
                return
        raise self._contended()

    async def publish(self, read: Collection[str] = ()) -> float | None:
        """Publish next pairs that have waited long enough, and correct a directory that shows other keys.

        A pair whose fingerprint is in ``read`` waits no longer: every reader of the key store has read it. Return the
        time from which the remaining pairs may be published, or None when none is left.
        """
        for _ in range(ATTEMPTS):
            contents = await self._store.read()
            shown = await asyncio.to_thread(self._lists.read, self.node)
            now = self._clock()
            times = {
                pair.fingerprint: 0.0 if pair.fingerprint in read else self._waiting.publishable_from(pair)
                for pair in _next(contents.pairs)
            }
            after = contents.pairs
            for fingerprint, moment in times.items():
                if moment <= now:
                    after = life_cycle.settled(after, fingerprint, now)
            if await self._published(contents, shown, after):
                return max((moment for moment in times.values() if moment > now), default=None)
        raise self._contended()

    async def retire(self) -> None:
        """Retire pairs to which no message can be encrypted any more; destroy those retired for long enough."""
        for _ in range(ATTEMPTS):
            contents = await self._store.read()
            now = self._clock()
            if not any((due := self._waiting.due(pair, now)) and due[1] <= now for pair in contents.pairs):
                return
            shown = await asyncio.to_thread(self._lists.read, self.node)
            after = life_cycle.aged(contents.pairs, shown.fingerprints, self._waiting, now)
            if await self._wrote(contents, after, "old keys put away") is not None:
                return
        raise self._contended()

    async def roll_back(self) -> None:
        """Make the pair before the published one the next pair again. A rollback that was already started is continued.

        Raises :class:`KeyRotationError` when no earlier pair is left.
        """
        for _ in range(ATTEMPTS):
            contents = await self._store.read()
            pairs, found = contents.pairs, False
            for provider in sorted({pair.provider for pair in pairs}):
                underway = any(map(life_cycle.is_rollback, life_cycle.of(pairs, provider, KeyPurpose.ENCRYPTION)))
                target = None if underway else life_cycle.before(pairs, provider, KeyPurpose.ENCRYPTION)
                found = found or underway or target is not None
                if target is not None:
                    pairs = life_cycle.staged(pairs, target.fingerprint, self._clock())
            if not found:
                raise KeyRotationError(f"{self.node.computer_name} has no earlier key that could be published again")
            if await self._wrote(contents, pairs, "rollback begun") is not None:
                return
        raise self._contended()

    def _places(self) -> list[tuple[Provider, KeyPurpose]]:
        providers = usable_providers(self._waiting.settings.security)
        return [(provider, purpose) for provider in providers for purpose in KeyPurpose]

    def _make(self, provider: Provider, purpose: KeyPurpose) -> KeyPair:
        settings = self._waiting.settings
        return make_pair(provider, purpose, settings.security, self._clock(), modulus_length=settings.modulus_length)

    async def _published(self, contents: KeyStoreContents, shown: Shown, after: Pairs) -> bool:
        """Bring directory and store to ``after``. Return False when another writer came in between."""
        wanted = {
            purpose: shown.with_pairs(after, purpose)
            for purpose in KeyPurpose
            if any(pair.purpose is purpose and pair.state is KeyState.CURRENT for pair in after)
        }
        if any(shown.lists.get(purpose) != encoded for purpose, encoded in wanted.items()):
            # Senders may have read a key that the directory wrongly showed until now: its waiting time begins now.
            now = self._clock()
            marked = await self._wrote(contents, _superseded_anew(contents.pairs, shown, now), "key was still shown")
            if marked is None:
                return False
            contents, after = marked, _superseded_anew(after, shown, now)
            if not await asyncio.to_thread(self._lists.replace, self.node, shown, wanted):
                return False
        return await self._wrote(contents, after, "key published") is not None

    async def _wrote(self, contents: KeyStoreContents, pairs: Pairs, what: str) -> KeyStoreContents | None:
        """Write these pairs and return the store's contents, or None when another writer came in between."""
        if pairs == contents.pairs:
            return contents
        try:
            version = await self._store.replace(pairs, expected_version=contents.version)
        except KeyStoreConflictError:
            return None
        known = {(pair.fingerprint, pair.state) for pair in contents.pairs}
        for pair in pairs:
            if (pair.fingerprint, pair.state) not in known:
                log.info(
                    what, node=self.node.computer_name, provider=pair.provider, key=pair.fingerprint, state=pair.state
                )
        return KeyStoreContents(version, pairs)

    def _contended(self) -> KeyRotationError:
        return KeyRotationError(f"someone else changes the keys of {self.node.computer_name} all the time: try again")


def _next(pairs: Iterable[KeyPair]) -> list[KeyPair]:
    return [pair for pair in pairs if pair.state is KeyState.NEXT]


def needs_next(pairs: Pairs, provider: Provider, purpose: KeyPurpose, begun: float) -> bool:
    """Return whether a rotation that was started then makes a next pair for this provider and purpose."""
    if life_cycle.of(pairs, provider.name, purpose, KeyState.NEXT):
        return False
    current = life_cycle.of(pairs, provider.name, purpose, KeyState.CURRENT)
    if not current:
        return True
    # Nobody waits for a signing key: its certificate says how long it is valid.
    return purpose is KeyPurpose.ENCRYPTION and all((pair.published_time or 0.0) < begun for pair in current)


def _superseded_anew(pairs: Pairs, shown: Shown, now: float) -> Pairs:
    """Mark previous and retired pairs that the directory still shows as superseded only now."""
    late = (KeyState.PREVIOUS, KeyState.RETIRED)
    return tuple(
        pair.superseded(now)
        if pair.state in late and pair.private_key is not None and pair.fingerprint in shown.fingerprints
        else pair
        for pair in pairs
    )
