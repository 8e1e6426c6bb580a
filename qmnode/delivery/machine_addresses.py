"""Where the machines of the directory are, as their names resolve: remembered, and looked up once for all who ask."""

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple

import structlog

from qmnode.delivery.next_hops import ResolutionError
from qmnode.delivery.routes import DirectoryResolver
from qmnode.delivery.topology import Topology
from qmnode.directory.port import DirectoryOperationError
from qmnode.structures.guid import Guid

log = structlog.get_logger(__name__)

_FRESH: Final = 300.0
"""Seconds for which addresses are taken as they were found."""
_FRESH_FAILURE: Final = 15.0
"""The same when they could not be found."""
_PAUSE: Final = 10.0
"""Seconds between two looks at the addresses of one machine at least: a stranger's sessions cost no more."""
_PATIENCE: Final = 5.0
"""Seconds that one look-up may take."""


class _Found(NamedTuple):
    addresses: frozenset[str]
    asked: float
    until: float
    """When they are old."""


_NEVER: Final = _Found(frozenset(), float("-inf"), float("-inf"))


class MachineAddresses:
    """The addresses of queue managers. As many entries as the directory has machines; none for others."""

    def __init__(self, resolver: DirectoryResolver, topology: Topology) -> None:
        self._resolver = resolver
        self._topology = topology
        self._loop = asyncio.get_running_loop()
        self._found: dict[Guid, _Found] = {}
        self._asking: dict[Guid, asyncio.Task[None]] = {}

    def last(self, machine: Guid) -> frozenset[str]:
        """As they were found last; empty if they never were."""
        return self._found.get(machine, _NEVER).addresses

    def was_asked(self, machine: Guid) -> bool:
        """Whether they were looked up, with whatever outcome."""
        return machine in self._found

    def is_fresh(self, machine: Guid, expected: str = "") -> bool:
        """Whether they need not be looked up now. Those that lack the one that is expected are looked up anew, though
        not all the time."""
        known, now = self._found.get(machine, _NEVER), self._loop.time()
        if expected and expected not in known.addresses:
            return now < known.asked + _PAUSE
        return now < known.until

    def fresh(self) -> Iterator[str]:
        """All addresses that need not be looked up now."""
        now = self._loop.time()
        for known in self._found.values():
            if now < known.until:
                yield from known.addresses

    def look_up(self, machine: Guid) -> "asyncio.Task[None]":
        """Find them; whoever asks meanwhile waits for the same answer."""
        task = self._asking.get(machine)
        if task is None:
            task = self._asking[machine] = self._loop.create_task(self._look_up(machine))
            task.add_done_callback(lambda _: self._asking.pop(machine, None))
        return task

    async def of(self, machine: Guid, expected: str = "") -> frozenset[str]:
        """The addresses of a queue manager; those of before while they cannot be found."""
        if not self._topology.knows(machine):
            return frozenset()
        if not self.is_fresh(machine, expected):
            await asyncio.wait([self.look_up(machine)])
        return self.last(machine)

    async def stop(self) -> None:
        """End what still waits for an answer."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_up(self, machine: Guid) -> None:
        asked = self._loop.time()
        addresses, lifetime = self.last(machine), _FRESH_FAILURE
        try:
            async with asyncio.timeout(_PATIENCE):
                addresses = frozenset(hop.address for hop in await self._resolver.addresses(machine))
            lifetime = _FRESH
        except (DirectoryOperationError, ResolutionError, TimeoutError) as error:
            if not addresses:
                log.info(
                    "the addresses of a peer are not known: it counts as a stranger",
                    machine=machine.hex(), reason=str(error) or "no answer in time",
                )  # fmt: skip
        self._found[machine] = _Found(addresses, asked, self._loop.time() + lifetime)
