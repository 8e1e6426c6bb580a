"""The topology that commands ask about, with names for its GUIDs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from mqenterprise.topology.names import fold
from mqenterprise.topology.problems import did_you_mean
from qmnode.delivery.topology import snapshot_of
from qmnode.routing import Machine, RoutingLink, Site, TopologySnapshot
from qmnode.structures.guid import Guid, guid_to_text

if TYPE_CHECKING:
    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from mqenterprise.topology.declaration import Declaration


class UnknownName(ValueError):
    """Nothing in the enterprise has that name; the message suggests the nearest one."""


@dataclass(frozen=True)
class NamedTopology:
    """A snapshot of the topology that translates names to GUIDs and back."""

    snapshot: TopologySnapshot

    def machine(self, name: str) -> Guid:
        """Return the queue manager with that name, or the one of the path name ``computer\\queue``."""
        computer = fold(name.partition("\\")[0])
        found = [each for each in self.snapshot.machines.values() if fold(each.name) == computer]
        if not found:
            names = (each.name for each in self.snapshot.machines.values())
            raise UnknownName(f"there is no queue manager {name!r}" + did_you_mean(name, names))
        return found[0].identifier

    def site(self, name: str) -> Guid:
        found = [each for each in self.snapshot.sites.values() if fold(each.name) == fold(name)]
        if not found:
            names = (each.name for each in self.snapshot.sites.values())
            raise UnknownName(f"there is no site {name!r}" + did_you_mean(name, names))
        return found[0].identifier

    def links(self, text: str) -> list[RoutingLink]:
        """Return the links written ``A-B``. The names may contain hyphens."""
        parts = text.split("-")
        for cut in range(1, len(parts)):
            ends = [fold("-".join(half)) for half in (parts[:cut], parts[cut:])]
            found = [link for link in self.snapshot.links if sorted(map(fold, self.ends(link))) == sorted(ends)]
            if found:
                return found
        names = (self.link_name(link) for link in self.snapshot.links)
        raise UnknownName(f"there is no routing link {text!r}; write SITE-SITE" + did_you_mean(text, names))

    def ends(self, link: RoutingLink) -> tuple[str, str]:
        """The names of the sites that a link joins."""
        return self.site_name(link.site1), self.site_name(link.site2)

    def link_name(self, link: RoutingLink) -> str:
        return "-".join(sorted(self.ends(link), key=fold))

    def machine_name(self, machine: Guid) -> str:
        known = self.snapshot.machines.get(machine)
        return guid_to_text(machine) if known is None else known.name

    def site_name(self, site: Guid) -> str:
        known = self.snapshot.sites.get(site)
        return guid_to_text(site) if known is None else known.name

    def site_names(self, sites: Iterable[Guid]) -> str:
        return ", ".join(map(self.site_name, sites)) or "no site"

    def machine_names(self, machines: Iterable[Guid]) -> str:
        return ", ".join(map(self.machine_name, machines))


def of_directory(directory: EnterpriseDirectory) -> NamedTopology:
    """Read the topology from the directory, as the nodes see it."""
    return NamedTopology(
        snapshot_of(directory.sites.list(), directory.queue_managers.list(), directory.routing_links.list())
    )


def of_declaration(declared: Declaration) -> NamedTopology:
    """Take the topology of a declaration. GUIDs are made from names, so equal hops may be ordered differently."""
    machines = (
        Machine(
            _guid("machine", machine.name),
            machine.name,
            tuple(_guid("site", name) for name in (*machine.sites, *machine.foreign_sites)),
            "routing_server" in machine.roles,
            tuple(_guid("machine", name) for name in machine.out_routing_servers),
            tuple(_guid("machine", name) for name in machine.in_routing_servers),
            machine.foreign,
        )
        for machine in declared.machines
    )
    sites = [
        Site(_guid("site", site.name), site.name, foreign)
        for foreign, declared_sites in ((False, declared.sites), (True, declared.foreign_sites))
        for site in declared_sites
    ]
    links = (
        RoutingLink(
            _guid("site", link.sites[0]),
            _guid("site", link.sites[1]),
            link.cost,
            tuple(_guid("machine", name) for name in link.site_gates),
        )
        for link in declared.routing_links
    )
    return NamedTopology(TopologySnapshot.of(machines, sites, links))


def _guid(kind: str, name: str) -> Guid:
    return Guid(blake2b(f"{kind} {fold(name)}".encode(), digest_size=16).digest())
