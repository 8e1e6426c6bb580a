"""The peers that are declared: queue managers of the directory that speak from their own addresses, and TLS peers.

A session names the queue manager that opened it, but any host can claim any name. The evidence is the address of the
connection: the queue manager's name must resolve to it. Any other peer is a stranger; it is served, but gets less
information.
"""

from typing import TYPE_CHECKING, Final

from qmnode.delivery.machine_addresses import MachineAddresses
from qmnode.model.quotas import OWN, Account
from qmnode.security.outcomes import Neighbour
from qmnode.structures.guid import Guid
from qmnode.transport.blocks import block_of

if TYPE_CHECKING:
    from qmnode.delivery.network import Network
    from qmnode.transport.connection import Connection

_STRANGERS: Final = 4096
"""Queue managers whose speaking address block is remembered."""


class Neighbours:
    """Determines which peers are declared."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self.addresses: MachineAddresses | None = None
        """None if there is no directory."""
        self._blocks: dict[Guid, str] = {}
        """The address blocks of strangers: the first from which a session named each queue manager."""

    def opened(self, connection: "Connection") -> None:
        """A session has opened: find out whether its peer is declared."""
        machine = connection.session.remote
        block = self._blocks.pop(machine, block_of(connection.address))
        self._blocks[machine] = block  # moved to the end of the order
        if len(self._blocks) > _STRANGERS:
            del self._blocks[next(iter(self._blocks))]
        addresses = self._addresses_for(connection)
        if addresses is not None and not addresses.is_fresh(machine):
            addresses.look_up(machine)

    def is_declared(self, connection: "Connection") -> bool:
        """Whether the peer is declared, as far as is known now. The previous answer holds during a new look-up, since a
        session may last for days.
        """
        if connection.encrypted:
            # It presented a certificate; one that outlived its machine in the directory declares nobody.
            certified, topology = connection.session.certified, self._network.topology
            return certified is None or topology is None or topology.knows(certified)
        machine, addresses = connection.session.remote, self._addresses_for(connection)
        if addresses is None:
            return False
        if not addresses.is_fresh(machine):
            addresses.look_up(machine)
        return connection.address in addresses.last(machine)

    def is_pending(self, connection: "Connection") -> bool:
        """Whether the addresses of the peer's machine have not been looked up yet, or the first answer is still
        pending.
        """
        addresses = self._addresses_for(connection)
        return addresses is not None and not addresses.was_asked(connection.session.remote)

    def account_of(self, source: Guid) -> Account:
        """The account that is charged for notices about messages of a queue manager."""
        network = self._network
        if source == network.manager.identifier:
            return OWN
        if network.is_in_directory(source):
            return Account(source.hex(), declared=True)
        return Account(self._blocks.get(source, ""), declared=False, has_directory=network.has_read_directory)

    def is_address_of_one(self, block: str) -> bool:
        """Whether a declared peer that connected recently has an address in this block."""
        return self.addresses is not None and any(block_of(address) == block for address in self.addresses.fresh())

    def of(self, connection: "Connection") -> Neighbour:
        """The peer in the form that security uses."""
        return Neighbour(block_of(connection.address), self.is_declared(connection))

    async def settle(self, connection: "Connection") -> None:
        """Wait until it is known whether the peer is declared."""
        addresses = self._addresses_for(connection)
        if addresses is not None:
            await addresses.of(connection.session.remote)

    def _addresses_for(self, connection: "Connection") -> MachineAddresses | None:
        """The machine addresses to check the peer against, if they decide whether it is declared."""
        is_asked = not connection.encrypted and self._network.is_in_directory(connection.session.remote)
        return self.addresses if is_asked else None
