"""Addresses of the directory's machines, as their names resolve: cached, and looked up once for all callers."""

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple

import structlog

from qmnode.delivery.next_hops import ResolutionError
from qmnode.delivery.routes import DirectoryResolver
from qmnode.delivery.topology import Topology
from qmnode.directory.port import DirectoryOperationError, DirectoryOperationResult
from qmnode.structures.guid import Guid

log = structlog.get_logger(__name__)

_FRESH: Final = 300.0
"""Seconds for which found addresses are cached."""
_FRESH_FAILURE: Final = 15.0
"""Seconds for which a failure to find addresses is cached."""
_PAUSE: Final = 10.0
"""The least time in seconds between two look-ups for one machine, so that a stranger's sessions cannot cause more."""
_PATIENCE: Final = 5.0
"""Seconds that one look-up may take."""

_NOT_FOUND: Final = DirectoryOperationResult.OBJECT_NOT_FOUND


class _Found(NamedTuple):
    addresses: frozenset[str]
    asked: float
    until: float
    """The time at which the addresses become stale."""
    unanswered: bool = False
    """Whether there was no answer in time, or the directory could not be asked, and there was no answer before."""


_NEVER: Final = _Found(frozenset(), float("-inf"), float("-inf"))


class MachineAddresses:
    """The addresses of queue managers. There is one entry at most for each machine of the directory."""

    def __init__(self, resolver: DirectoryResolver, topology: Topology) -> None:
        self._resolver = resolver
        self._topology = topology
        self._loop = asyncio.get_running_loop()
        self._found: dict[Guid, _Found] = {}
        self._asking: dict[Guid, asyncio.Task[None]] = {}

    def last(self, machine: Guid) -> frozenset[str]:
        """The addresses found last; empty if there were none."""
        return self._found.get(machine, _NEVER).addresses

    def was_asked(self, machine: Guid) -> bool:
        """Whether the addresses of a machine were looked up, with any result."""
        return machine in self._found

    def is_unanswered(self, machine: Guid) -> bool:
        """Whether a machine of the directory was not looked up, or no look-up got an answer in time, or at all."""
        found = self._found.get(machine)
        return self._topology.knows(machine) if found is None else found.unanswered

    def is_fresh(self, machine: Guid, expected: str = "") -> bool:
        """Whether no look-up is needed now. Addresses without the expected one are looked up again, not too often."""
        known, now = self._found.get(machine, _NEVER), self._loop.time()
        if expected and expected not in known.addresses:
            return now < known.asked + _PAUSE
        return now < known.until

    def fresh(self) -> Iterator[str]:
        """All addresses that need no look-up now."""
        now = self._loop.time()
        for known in self._found.values():
            if now < known.until:
                yield from known.addresses

    def look_up(self, machine: Guid) -> "asyncio.Task[None]":
        """Look up the addresses of a machine. Concurrent callers share one look-up."""
        task = self._asking.get(machine)
        if task is None:
            task = self._asking[machine] = self._loop.create_task(self._look_up(machine))
            task.add_done_callback(lambda _: self._asking.pop(machine, None))
        return task

    async def of(self, machine: Guid, expected: str = "") -> frozenset[str]:
        """The addresses of a queue manager, or the previous ones if they cannot be found now."""
        if not self._topology.knows(machine):
            return frozenset()
        if not self.is_fresh(machine, expected):
            await asyncio.wait([self.look_up(machine)])
        return self.last(machine)

    async def stop(self) -> None:
        """Cancel the look-ups that are still running."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_up(self, machine: Guid) -> None:
        asked = self._loop.time()
        addresses, lifetime, unanswered = self.last(machine), _FRESH_FAILURE, False
        try:
            async with asyncio.timeout(_PATIENCE):
                addresses = frozenset(hop.address for hop in await self._resolver.addresses(machine))
            lifetime = _FRESH
        except (DirectoryOperationError, ResolutionError, TimeoutError) as error:
            if not addresses:
                was_asked = isinstance(error, ResolutionError) or getattr(error, "result", None) is _NOT_FOUND
                unanswered = not was_asked
                log.info(
                    "the addresses of a peer are not known: it counts as a stranger",
                    machine=machine.hex(), reason=str(error) or "no answer in time",
                )  # fmt: skip
        self._found[machine] = _Found(addresses, asked, self._loop.time() + lifetime, unanswered)
