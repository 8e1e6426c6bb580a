"""Next hops of private and public format names: the directory gives the owner, routing the path (3.1.7.4)."""

from qmnode.delivery.next_hops import ConnectorHere, ResolutionError, Resolver, addresses_of
from qmnode.delivery.topology import Topology
from qmnode.directory.port import (
    Directory,
    DirectoryOperationError,
    DirectoryOperationResult,
    Queue,
    QueueManager,
    equals,
)
from qmnode.model.waiting import WaitReason
from qmnode.protocol.connection import NextHop
from qmnode.routing.router import NoRouteError, Rule
from qmnode.structures.guid import Guid, guid_to_text
from qmnode.structures.names import PathName, PrivateFormatName, PublicFormatName, parse_single_format_name
from qmnode.structures.queue_attributes import ConnectionStatus


class DirectoryResolver(Resolver):
    """Resolves all names through the directory and the topology."""

    def __init__(self, directory: Directory, topology: Topology) -> None:
        self._directory = directory
        self._topology = topology

    async def next_hops(self, format_name: str) -> list[NextHop]:
        """The next hops, best first. Raises ResolutionError if there are none, ConnectorHere if the path ends here."""
        name = parse_single_format_name(format_name)
        if not isinstance(name, PrivateFormatName | PublicFormatName):
            return await super().next_hops(format_name)
        try:
            destination = await self.owner(name)
        except DirectoryOperationError as error:
            raise ResolutionError(ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE, error.sentence) from error
        return await self.hops_to(destination)

    async def hops_to(self, destination: Guid) -> list[NextHop]:
        """The next hops to a queue manager. Raises what ``next_hops`` raises."""
        try:
            router = self._topology.router()
            if router is None:
                return await self.addresses(destination)
            found = router.next_hops(destination)
            if found.rule is Rule.CONNECTOR:
                assert found.site is not None
                raise ConnectorHere(found.site)
            if found.dearer:
                await self._topology.check_journey(destination)
            return await self._first_that_resolve([*found.hops, *found.fall_back])
        except DirectoryOperationError as error:
            away = error.result is not DirectoryOperationResult.OBJECT_NOT_FOUND
            raise _unavailable(error.sentence, WaitReason.DIRECTORY if away else WaitReason.NO_ROUTE) from error
        except NoRouteError as error:
            self._topology.read_soon()  # it may be new
            raise _unavailable(str(error), WaitReason.NO_ROUTE) from error

    async def owner(self, name: PrivateFormatName | PublicFormatName) -> Guid:
        """The queue manager that owns a queue. Raises DirectoryOperationError if the directory does not know it."""
        if isinstance(name, PrivateFormatName):
            return name.computer
        queue = await self._directory.read_directory(Queue, [equals("identifier", name.queue)], ["pathname"])
        computer = PathName.parse(queue.pathname).computer
        found = await self._directory.read_directory(
            QueueManager, [equals("computer_name", computer)], ["identifier", "computer_name"]
        )
        assert found.identifier is not None
        return found.identifier

    async def _first_that_resolve(self, hops: list[Guid]) -> list[NextHop]:
        """The addresses of all hops that resolve: a hop whose name does not resolve does not block the others."""
        found: list[NextHop] = []
        failure: ResolutionError | None = None
        for hop in hops:
            try:
                found += await self.addresses(hop)
            except ResolutionError as error:
                failure = error
            except DirectoryOperationError as error:
                if error.result is not DirectoryOperationResult.OBJECT_NOT_FOUND:
                    raise
                name = self._topology.name_of(hop) or guid_to_text(hop)
                failure = _unavailable(f"the next hop {name} is not in the directory", WaitReason.NO_ROUTE)
        if not found and failure is not None:
            raise failure
        return found

    async def addresses(self, hop: Guid) -> list[NextHop]:
        """The addresses of a queue manager. DirectoryOperationError: it is unknown; ResolutionError: its name is."""
        found = await self._directory.read_directory(
            QueueManager, [equals("identifier", hop)], ["computer_name", "qualified_computer_name"]
        )
        return await addresses_of(found.qualified_computer_name or found.computer_name, hop)


def _unavailable(sentence: str, reason: WaitReason) -> ResolutionError:
    return ResolutionError(ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE, sentence, reason=reason)
