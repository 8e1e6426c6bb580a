"""The keys of many nodes, a few at a time. A node that fails does not hold up the others, and progress is reported."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mqenterprise.keys.rotation import KeysOfNode, Rotation
from mqenterprise.keys.settings import COMPUTER, KeyRotationError
from qmnode.directory.port import DirectoryOperationError
from qmnode.security.errors import KeyStoreError, LegacyUnavailableError, WeakAlgorithmError
from qmnode.security.key_stores import KeyStoreOptions, open_key_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mqenterprise.keys.life_cycle import Waiting
    from mqenterprise.keys.publication import Node
    from mqenterprise.keys.rotation import PublishedLists
    from mqenterprise.keys.settings import KeySettings
    from qmnode.security.key_stores import KeyStore


def store_of(node: Node, settings: KeySettings) -> KeyStore:
    """The key store of a node, as the settings have it. Raises :class:`KeyStoreError`."""
    options = KeyStoreOptions(
        settings=settings.security.key_store_settings,
        directory=Path(settings.directory.replace(COMPUTER, node.computer_name)),
        identifier=node.identifier,
    )
    return open_key_store(settings.security.key_store, options)


@dataclass(slots=True)
class KeyRunOutcome:
    """The outcome of a run over many nodes."""

    done: list[KeysOfNode] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """The reason of each failure, by computer name."""
    waiting: dict[str, float] = field(default_factory=dict)
    """The time from which a node's next key may be published, by computer name."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The current time in seconds since 1970, and waiting. Tests pass a fake clock."""

    now: Callable[[], float] = time.time
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep


class Fleet:
    """The nodes that a command names, with the way to each one's keys."""

    def __init__(
        self,
        nodes: Sequence[Node],
        lists: PublishedLists,
        waiting: Waiting,
        *,
        clock: Clock | None = None,
        stores: Callable[[Node, KeySettings], KeyStore] = store_of,
        step: Callable[[], None] = lambda: None,
    ) -> None:
        self._nodes = nodes
        self._lists = lists
        self._waiting = waiting
        self._clock = clock or Clock()
        self._stores = stores
        self._step = step
        self._places = asyncio.Semaphore(waiting.settings.concurrency)

    async def status(self) -> KeyRunOutcome:
        """Return the state of all keys without changing anything."""
        return await self._run(self._nothing)

    async def rotate(self, begun: float, *, wait: bool) -> KeyRunOutcome:
        """Make and publish new keys, as :meth:`Rotation.prepare` has it; ``wait``: also for the nodes to know them."""

        async def begin(rotation: Rotation) -> None:
            await rotation.prepare(begun)

        return await self._run(begin, publish=True, wait=wait)

    async def roll_back(self, *, wait: bool) -> KeyRunOutcome:
        """Publish the keys before the published ones again."""
        return await self._run(Rotation.roll_back, publish=True, wait=wait)

    async def retire(self) -> KeyRunOutcome:
        """Retire and destroy the keys that are due."""
        return await self._run(Rotation.retire)

    @staticmethod
    async def _nothing(rotation: Rotation) -> None:
        """The action of ``status``: leave the keys as they are."""

    async def _run(
        self, begin: Callable[[Rotation], Awaitable[None]], *, publish: bool = False, wait: bool = False
    ) -> KeyRunOutcome:
        outcome = KeyRunOutcome()
        async with asyncio.TaskGroup() as group:
            for node in self._nodes:
                group.create_task(self._one(node, begin, outcome, publish=publish, wait=wait))
        outcome.done.sort(key=lambda each: each.node.computer_name.casefold())
        return outcome

    async def _one(
        self,
        node: Node,
        begin: Callable[[Rotation], Awaitable[None]],
        outcome: KeyRunOutcome,
        *,
        publish: bool,
        wait: bool,
    ) -> None:
        try:
            async with self._places:
                rotation = Rotation(
                    node, self._stores(node, self._waiting.settings), self._lists, self._waiting, self._clock.now
                )
                await begin(rotation)
                later = await rotation.publish() if publish else None
            while later is not None and wait:
                await self._clock.wait(max(later - self._clock.now(), 0.0))
                async with self._places:
                    later = await rotation.publish()
            async with self._places:
                outcome.done.append(await rotation.look())
            if later is not None:
                outcome.waiting[node.computer_name] = later
        except (
            KeyStoreError,
            KeyRotationError,
            DirectoryOperationError,
            WeakAlgorithmError,
            LegacyUnavailableError,
        ) as error:
            outcome.failed[node.computer_name] = str(error)
        finally:
            self._step()
