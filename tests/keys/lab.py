"""A node's keys without servers: a directory in memory, a false clock, and settings that are short."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mqenterprise.keys.life_cycle import Waiting
from mqenterprise.keys.publication import Node, Shown
from mqenterprise.keys.rotation import Rotation
from mqenterprise.keys.settings import KeySettings
from qmnode.security.errors import KeyStoreConflictError
from qmnode.security.key_stores import FileKeyStore, KeyPair, KeyPurpose, KeyState, KeyStore, KeyStoreContents
from qmnode.settings.security import SecuritySettings
from qmnode.structures.guid import Guid

START = 1_800_000_000.0
NODE = Node("NODE", Guid(b"node node node 1"), "CN=msmq,CN=NODE,DC=lab,DC=test")
SECURITY = SecuritySettings(public_key_lifetime=30_000, symmetric_key_short_lifetime=20_000, clock_skew=2)
SETTINGS = KeySettings(
    security=SECURITY,
    modulus_length=1024,
    reload_interval=5,
    replication_delay=20,
    offline_cache_age=20,
    destroy_after=10,
    maximum_age=10_000,
)
WAITING = Waiting(SETTINGS, 60.0)
SHOWN_FOR = 20 + 20 + 30 + 20 + 2
"""Seconds after its publication during which a sender may still use the key before: delays, lifetimes, clocks."""
NEEDED_FOR = SHOWN_FOR + 60
RELOAD = 5.0


@dataclass
class Clock:
    """Time that the test moves; waiting moves it too."""

    now: float = START

    def __call__(self) -> float:
        return self.now

    async def wait(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Lists:
    """The directory of one node."""

    lists: dict[KeyPurpose, bytes | None] = field(default_factory=dict)
    between: object = None
    """Called once between a look and the change that follows it."""

    def read(self, node: Node) -> Shown:
        return Shown.of(dict(self.lists))

    def replace(self, node: Node, shown: Shown, lists: dict[KeyPurpose, bytes]) -> bool:
        if callable(self.between):
            call, self.between = self.between, None
            call()
        if any(self.lists.get(purpose) != shown.lists.get(purpose) for purpose in lists):
            return False
        self.lists.update(lists)
        return True

    def shown(self) -> frozenset[str]:
        return Shown.of(dict(self.lists)).fingerprints


class MemoryStore:
    """A key store that needs no time."""

    def __init__(self) -> None:
        self.contents = KeyStoreContents(0, ())

    async def read(self) -> KeyStoreContents:
        return self.contents

    async def replace(self, pairs: tuple[KeyPair, ...], *, expected_version: int) -> int:
        if expected_version != self.contents.version:
            raise KeyStoreConflictError("someone else wrote")
        self.contents = KeyStoreContents(expected_version + 1, pairs)
        return expected_version + 1


class Bench:
    """One node."""

    def __init__(self, folder: Path, store: KeyStore | None = None, waiting: Waiting = WAITING) -> None:
        self.file = FileKeyStore(folder / "keys")
        self.clock = Clock()
        self.lists = Lists()
        self.store = store or self.file
        self.waiting = waiting
        self.rotation = Rotation(NODE, self.store, self.lists, waiting, self.clock)

    async def rotate(self) -> None:
        begun = self.clock.now
        await self.rotation.prepare(begun)
        await self.finish()

    async def roll_back(self) -> None:
        await self.rotation.roll_back()
        await self.finish()

    async def finish(self) -> None:
        while (later := await self.rotation.publish()) is not None:
            self.clock.now = later

    async def pairs(self, purpose: KeyPurpose = KeyPurpose.ENCRYPTION) -> list[KeyPair]:
        """Newest first."""
        found = [pair for pair in (await self.store.read()).pairs if pair.purpose is purpose]
        return sorted(found, key=lambda pair: -pair.created_time)

    async def states(self) -> list[KeyState]:
        return [pair.state for pair in await self.pairs()]
