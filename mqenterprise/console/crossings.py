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
"""Public queues whose path names are known; messages to further ones are counted at no link."""


class Crossings:
    """Answers for one reading of the directory."""

    def __init__(self, topology: NamedTopology, pathnames: Mapping[Guid, str | None] | None = None) -> None:
        """``pathnames`` are those of public queues that were looked up; None for a queue that does not exist."""
        self.pathnames = dict(pathnames or {})
        self.unknown: set[Guid] = set()
        """Public queues that were asked about, and whose computer is not known yet."""
        self._topology = topology
        self._tables: dict[Guid, RoutingTable] = {}
        self._found: dict[tuple[str, str], tuple[str, str] | None] = {}

    @property
    def is_incomplete(self) -> bool:
        """Whether the directory has to be read for a queue that was asked about."""
        return bool(self.unknown) and len(self.pathnames) < MOST_QUEUES

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

    def destination(self, format_name: str) -> str:
        """The path name of a public queue, or the machine of a private one; empty if neither is known."""
        try:
            name = parse_format_name(format_name)
        except QueueNameError:
            return ""
        if isinstance(name, PrivateFormatName) and name.computer in self._topology.snapshot.machines:
            return f"{self._topology.machine_name(name.computer)} (private queue {name.queue})"
        if isinstance(name, PublicFormatName):
            if name.queue not in self.pathnames:
                self.unknown.add(name.queue)
            return self.pathnames.get(name.queue) or ""
        return ""

    def _destination(self, format_name: str) -> Guid | None:
        try:
            name = parse_format_name(format_name)
        except QueueNameError:
            return None
        if isinstance(name, PrivateFormatName):
            return name.computer
        if not isinstance(name, PublicFormatName):
            return None
        if name.queue not in self.pathnames:
            self.unknown.add(name.queue)
            return None
        pathname = self.pathnames[name.queue]
        try:
            return None if pathname is None else self._topology.machine(pathname.partition("\\")[0])
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
    """The path names of public queues: those known before, and those asked about since. Raises ``DirectoryError``."""
    pathnames = dict(before.pathnames)
    for queue in list(before.unknown)[: MOST_QUEUES - len(pathnames)]:
        try:
            pathnames[queue] = directory.queues.get(queue).pathname
        except ObjectNotFound:
            pathnames[queue] = None
    return pathnames
