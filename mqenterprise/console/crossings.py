"""The routing links that messages in outgoing queues cross next, by the topology that the directory shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqenterprise.directory.errors import ObjectNotFound
from mqenterprise.routes.enterprise import UnknownName
from mqenterprise.routes.explanation import next_link
from qmnode.structures.names import PrivateFormatName, PublicFormatName, QueueNameError, parse_format_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mqenterprise.directory.service import EnterpriseDirectory
    from mqenterprise.routes.enterprise import NamedTopology
    from qmnode.routing import RoutingTable
    from qmnode.structures.guid import Guid

MOST_QUEUES = 10_000
"""Public queues whose computers are known; messages to further ones are counted at no link."""


class Crossings:
    """Answers for one reading of the directory."""

    def __init__(self, topology: NamedTopology, computers: Mapping[Guid, str | None] | None = None) -> None:
        """``computers`` are those of public queues that were looked up; None for a queue that does not exist."""
        self.computers = dict(computers or {})
        self.unknown: set[Guid] = set()
        """Public queues that were asked about, and whose computer is not known yet."""
        self._topology = topology
        self._tables: dict[Guid, RoutingTable] = {}
        self._found: dict[tuple[str, str], tuple[str, str] | None] = {}

    @property
    def is_incomplete(self) -> bool:
        """Whether the directory has to be read for a queue that was asked about."""
        return bool(self.unknown) and len(self.computers) < MOST_QUEUES

    def link(self, machine: str, format_name: str) -> tuple[str, str] | None:
        """The ends of the link that a message in this outgoing queue of a machine crosses next.

        None if the next hop is in the same site, if the name needs no route (``DIRECT=``), or if it is not known.
        """
        asked = machine, format_name
        if asked not in self._found:
            destination = self._destination(format_name)
            if destination is None:
                return None
            self._found[asked] = self._crossed(machine, destination)
        return self._found[asked]

    def _destination(self, format_name: str) -> Guid | None:
        try:
            name = parse_format_name(format_name)
        except QueueNameError:
            return None
        if isinstance(name, PrivateFormatName):
            return name.computer
        if not isinstance(name, PublicFormatName):
            return None
        if name.queue not in self.computers:
            self.unknown.add(name.queue)
            return None
        computer = self.computers[name.queue]
        try:
            return None if computer is None else self._topology.machine(computer)
        except UnknownName:
            return None

    def _crossed(self, machine: str, destination: Guid) -> tuple[str, str] | None:
        try:
            source = self._topology.machine(machine)
        except UnknownName:
            return None
        if destination not in self._topology.snapshot.machines:
            return None
        link = next_link(self._topology, source, destination, self._tables)
        return None if link is None else self._topology.ends(link)


def look_up(directory: EnterpriseDirectory, before: Crossings) -> dict[Guid, str | None]:
    """The computers of public queues: those known before, and those asked about since. Raises ``DirectoryError``."""
    computers = dict(before.computers)
    for queue in list(before.unknown)[: MOST_QUEUES - len(computers)]:
        try:
            computers[queue] = directory.queues.get(queue).computer
        except ObjectNotFound:
            computers[queue] = None
    return computers
