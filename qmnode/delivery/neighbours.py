"""Which peers are declared: queue managers of the directory that speak from their own addresses, and TLS peers.

A session names the queue manager that opened it, and anybody can write any name. What supports it is the address of the
connection: that which the name of the queue manager resolves to. A peer of which that is not so is a stranger; it is
served, but it is told less.
"""

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.delivery.next_hops import ResolutionError
from qmnode.delivery.routes import DirectoryResolver
from qmnode.directory.port import DirectoryOperationError
from qmnode.model.notices import OWN, Account
from qmnode.security.outcomes import Neighbour
from qmnode.structures.guid import Guid
from qmnode.transport.blocks import block_of

if TYPE_CHECKING:
    from qmnode.delivery.network import Network
    from qmnode.transport.connection import Connection

log = structlog.get_logger(__name__)

_LIFETIME: Final = 300.0
"""Seconds for which the addresses of a machine are remembered."""
_FAILED_LIFETIME: Final = 15.0
"""The same when its name did not resolve."""
_STRANGERS: Final = 4096
"""Queue managers of which is remembered from where they speak."""
_PATIENCE: Final = 5.0
"""Seconds for which a message waits to learn who brought it."""


class Neighbours:
    """Knows the addresses of the machines that open sessions. At most one look-up at a time for each."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._addresses: dict[Guid, tuple[float, frozenset[str]]] = {}
        """Until when they are believed, and the addresses. As many entries as the directory has machines."""
        self._looking: dict[Guid, asyncio.Task[None]] = {}
        self._blocks: dict[Guid, str] = {}
        """From where strangers speak; the first block that a session named a queue manager from."""

    def opened(self, connection: "Connection") -> None:
        """A session is open: find out whether its peer is declared."""
        machine = connection.session.remote
        block = self._blocks.pop(machine, block_of(connection.address))
        self._blocks[machine] = block  # behind all others
        if len(self._blocks) > _STRANGERS:
            del self._blocks[next(iter(self._blocks))]
        if not connection.encrypted and self._may_be_declared(machine) and self._known(machine) is None:
            self._look_up(machine)

    def is_declared(self, connection: "Connection") -> bool:
        """Whether the peer is declared, as far as is known now. A session may last for days: what was known serves
        while it is asked again."""
        if connection.encrypted:
            return True  # it has shown a certificate
        machine = connection.session.remote
        if not self._may_be_declared(machine):
            return False
        until, addresses = self._addresses.get(machine, (0.0, frozenset()))
        if self._loop.time() >= until:
            self._look_up(machine)
        return connection.address in addresses

    def is_pending(self, connection: "Connection") -> bool:
        """Whether nobody has asked yet where the peer's machine is, or the first answer is still to come."""
        machine = connection.session.remote
        return not connection.encrypted and machine not in self._addresses and self._may_be_declared(machine)

    def account_of(self, source: Guid) -> Account:
        """Who pays for notices about messages of a queue manager."""
        network = self._network
        if source == network.manager.identifier:
            return OWN
        if network.is_in_directory(source):
            return Account(source.hex(), declared=True)
        return Account(self._blocks.get(source, ""), declared=False, in_workgroup=not network.has_directory)

    def is_address_of_one(self, block: str) -> bool:
        """Whether a declared peer that was here lately has an address in this block."""
        now = self._loop.time()
        return any(
            now < until and any(block_of(address) == block for address in addresses)
            for until, addresses in self._addresses.values()
        )

    def of(self, connection: "Connection") -> Neighbour:
        """The peer, for security."""
        return Neighbour(block_of(connection.address), self.is_declared(connection))

    async def settle(self, connection: "Connection") -> None:
        """Wait until it is known whether the peer is declared."""
        machine = connection.session.remote
        if connection.encrypted or not self._may_be_declared(machine) or self._known(machine) is not None:
            return
        await asyncio.wait([self._look_up(machine)], timeout=_PATIENCE)

    async def stop(self) -> None:
        """End what still waits for an answer."""
        for task in list(self._looking.values()):
            task.cancel()
        await asyncio.gather(*self._looking.values(), return_exceptions=True)

    def _may_be_declared(self, machine: Guid) -> bool:
        network = self._network
        return isinstance(network.resolver, DirectoryResolver) and network.is_in_directory(machine)

    def _known(self, machine: Guid) -> frozenset[str] | None:
        until, addresses = self._addresses.get(machine, (0.0, frozenset()))
        return addresses if self._loop.time() < until else None

    def _look_up(self, machine: Guid) -> asyncio.Task[None]:
        task = self._looking.get(machine)
        if task is None:
            task = self._looking[machine] = self._loop.create_task(self._resolve(machine))
            task.add_done_callback(lambda _: self._looking.pop(machine, None))
        return task

    async def _resolve(self, machine: Guid) -> None:
        resolver = self._network.resolver
        assert isinstance(resolver, DirectoryResolver)
        try:
            hops = await resolver.addresses(machine)
        except (ResolutionError, DirectoryOperationError) as error:
            _, before = self._addresses.get(machine, (0.0, frozenset()))
            if not before:
                log.info("the addresses of a peer are not known: it counts as a stranger", reason=str(error))
            self._addresses[machine] = (self._loop.time() + _FAILED_LIFETIME, before)
            return
        self._addresses[machine] = (self._loop.time() + _LIFETIME, frozenset(hop.address for hop in hops))
