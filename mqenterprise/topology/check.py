"""Check the declaration as a whole: duplicate names, dangling references, roles that do not fit."""

import gc
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path as FilePath
from pathlib import PurePosixPath
from typing import Final

from pydantic import BaseModel

from mqenterprise.directory.errors import INSTEAD
from mqenterprise.topology.declaration import (
    ONLY_PRIVATE,
    SECTIONS,
    AnyAccess,
    Declaration,
    Failover,
    Machine,
    Queue,
    RoutingLink,
    is_known_to_nodes,
    path_of,
)
from mqenterprise.topology.loader import Loaded, Sources, load_models, read_certificates
from mqenterprise.topology.names import fold
from mqenterprise.topology.problems import (
    DeclarationError,
    NoDirectoryError,
    Note,
    Path,
    Problem,
    did_you_mean,
    in_order,
)
from qmnode.objects.rows import Door, Property, Rows
from qmnode.objects.table import ENTERPRISE, MACHINE, QUEUE, SITE
from qmnode.settings.node import RemoteCopySettings
from qmnode.settings.probes import ProbeSettings
from qmnode.structures.names import parse_single_format_name


@contextmanager
def paused_collector() -> Iterator[None]:
    """Suspend garbage collection inside the block.

    While a million objects are made that all stay alive, the collector scans them again and again. That takes two
    thirds of the time in which a large declaration is read.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_MOST: Final = 3
_RESOURCE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def failover_faults(machine: Machine, machines: Sequence[Machine]) -> Iterator[tuple[Path, str]]:
    """Yield what is wrong with the hosts of one of the machines: the place below it, and what to do."""
    hosts, failover = machine.hosts, machine.failover
    if failover is None and not hosts:
        return
    if machine.foreign:
        yield ("hosts" if hosts else "failover",), f"{machine.name} is a foreign system; only a node fails over"
        return
    if hosts:
        yield from _hosts(machine, machines)
    else:
        yield ("failover",), "failover needs hosts: name the two or three hosts that may run the machine's node"
    if failover is None:
        yield ("hosts",), "hosts need failover: say who moves the node, such as failover: {way: pacemaker, ...}"
        return
    if not machine.addresses:
        sentence = "addresses is missing; name the address that moves with the node, so that others find it on any host"
        yield (), sentence
    for place, sentence in _WAYS[failover.way](failover):
        yield ("failover", *place), sentence
    for name in ("device", "store"):
        path = getattr(failover, name)
        if path is not None and not _is_plain(path):
            yield ("failover", name), f"{path!r} is no absolute path without . and ..; name it in full"


def _hosts(machine: Machine, machines: Sequence[Machine]) -> Iterator[tuple[Path, str]]:
    if len(machine.hosts) == 1:
        yield ("hosts",), f"{machine.hosts[0]} alone cannot fail over; name two or three hosts, or leave hosts out"
    elif len(machine.hosts) > _MOST:
        yield ("hosts",), f"{len(machine.hosts)} hosts are too many; name two or three"
    named = {fold(one.name): one.name for one in machines}
    taken = {_short(host): one.name for one in machines if one is not machine for host in one.hosts}
    seen: dict[str, str] = {}
    for index, host in enumerate(machine.hosts):
        short = _short(host)
        if short in seen:
            yield ("hosts", index), f"{host!r} and {seen[short]!r} are one host; name another to stand by for it"
        elif short in named:
            sentence = f"{host} is the name of the machine {named[short]}; give the host or the machine another name"
            yield ("hosts", index), sentence
        elif short in taken:
            yield ("hosts", index), f"{host} is a host of {taken[short]} already, and runs one node; name another host"
        seen.setdefault(short, host)


def _of_pacemaker(failover: Failover) -> Iterator[tuple[Path, str]]:
    if failover.device is None:
        yield (), "device is missing; Pacemaker mounts the store from a block device that all hosts see: name it"
    if not failover.fencing:
        yield (
            (),
            (
                "fencing is missing; name the fencing devices of the cluster by the identifiers of their resources "
                "(pcs stonith status): without a confirmed fence two hosts would write one store"
            ),
        )
    for index, name in enumerate(failover.fencing):
        if not _RESOURCE.fullmatch(name):
            yield ("fencing", index), f"{name!r} is no identifier of a resource; pcs stonith status shows those there"
    yield from _unused(failover, "storage_class", "size")


def _of_operator(failover: Failover) -> Iterator[tuple[Path, str]]:
    if failover.device is None and failover.store is None:
        yield (
            (),
            (
                "store is missing; name its directory on the file system that the hosts share, or a device that one of "
                "them mounts"
            ),
        )
    if failover.fencing:
        yield ("fencing",), "an operator fences by hand: leave fencing out, or let Pacemaker move the node"
    yield from _unused(failover, "storage_class", "size")


def _of_kubernetes(failover: Failover) -> Iterator[tuple[Path, str]]:
    yield from _unused(failover, "device", "store", "fencing", "filesystem")


def _unused(failover: Failover, *names: str) -> Iterator[tuple[Path, str]]:
    for name in names:
        if name in failover.model_fields_set and getattr(failover, name):
            yield (name,), f"nothing uses {name} with 'way: {failover.way}'; leave it out"


_WAYS: Final = {"pacemaker": _of_pacemaker, "operator": _of_operator, "kubernetes": _of_kubernetes}


def _short(host: str) -> str:
    """The host's own name without the domain, as nodes compare hosts."""
    return fold(host.partition(".")[0])


def _is_plain(path: str) -> bool:
    parts = PurePosixPath(path)
    return parts.is_absolute() and str(parts) == path and ".." not in parts.parts and len(parts.parts) > 1


NONE_HERE: Final = "'directory: none'"
_DIRECT: Final = r"send to its queues by direct names, DIRECT=OS:machine\private$\queue"
_ROUTES: Final = f"routing needs a directory that holds sites and links, and this enterprise has {NONE_HERE}"
_SIGNS: Final = (
    f"signatures are verified with certificates that a directory publishes, and this enterprise has {NONE_HERE}"
)
_OBJECT: Final = f"is an object of a directory, and this enterprise has {NONE_HERE}"
_SECTIONS: Final = {
    "routing_links": f"{_ROUTES}; delete the link: machines connect to each other directly",
    "foreign_sites": f"{_ROUTES}; delete the foreign site, and use a bridge to reach another message system",
    "users": f"{_SIGNS}; delete the user. An access list takes SIDs and accounts of the machine (user:alice), and with "
    "TLS a node proves who it is",
    "queue_aliases": f"a queue alias {_OBJECT}; delete it, and send to the queue by its direct name",
    "distribution_lists": f"a distribution list {_OBJECT}; delete it, and send to several direct names, joined by "
    "commas (MS-MQMQ 2.1.7)",
}
"""Sections whose objects need a directory."""
_ROLES: Final = {
    "routing_server": f"{_ROUTES}; leave the role out: machines connect to each other directly",
    "connector": f"{_ROUTES}; leave the role out, and use a bridge to reach another message system",
}
_NODE_QUOTA: Final = "the directory brings it to a node; set {} under queue_manager_settings in the inventory"
_VALUES: Final = {
    "quota": _NODE_QUOTA.format("quotas.queue_manager_quota"),
    "journal_quota": _NODE_QUOTA.format("quotas.journal_quota"),
    "out_routing_servers": f"{_ROUTES}; leave it out",
    "in_routing_servers": f"{_ROUTES}; leave it out",
    "foreign": f"only a directory knows foreign systems; delete the machine, and {_DIRECT}",
    "default_time_to_live": "the directory brings it to nodes; programs set the time to reach queue of each message",
}
_OTHERWISE: Final = f"only a directory holds it, and this enterprise has {NONE_HERE}; leave it out"


def refusals(declared: Declaration) -> Iterator[tuple[Path, str]]:
    """Yield the place of each value that needs a directory, with a sentence that says why and what to do."""
    for section, sentence in _SECTIONS.items():
        yield from (((section, position), sentence) for position in range(len(getattr(declared, section))))
    yield from _values(("enterprise",), declared.enterprise, ENTERPRISE)
    for position, site in enumerate(declared.sites):
        yield from _values(("sites", position), site, SITE)
    for position, machine in enumerate(declared.machines):
        here: Path = ("machines", position)
        yield from _values(here, machine, MACHINE, but=("sites", "dns_name"))
        for index, role in enumerate(machine.roles):
            if role != "client":
                otherwise = f"a {role.replace('_', ' ')} needs a directory; leave the role out"
                yield (*here, "roles", index), _ROLES.get(role, otherwise)
        if machine.hosts:
            yield (
                (*here, "hosts"),
                "a node of a workgroup chooses its identifier when it is first started, which the certificates of "
                "several hosts cannot know; declare a machine with hosts in an enterprise with a directory",
            )
        if machine.foreign_sites:
            yield (*here, "foreign_sites"), f"{_ROUTES}; leave it out"
    for position, queue in enumerate(declared.queues):
        here = ("queues", position)
        if not queue.private:
            yield here, f"a public queue {_OBJECT}; add private: true"
        if attrgetter("authentication")(queue):
            yield (*here, "authentication"), f"{_SIGNS}; leave it out: the queue would refuse every message"
        if attrgetter("privacy_level")(queue) == "body":
            yield (
                (*here, "privacy_level"),
                "messages are encrypted with keys that a directory publishes, and this enterprise has "
                f"{NONE_HERE}; leave it out, and encrypt connections with TLS (queue_manager_tls: require)",
            )


def _values(here: Path, item: BaseModel, rows: Rows, but: Sequence[str] = ()) -> Iterator[tuple[Path, str]]:
    """Yield the properties of an object that have another value than the default."""
    for row in rows.at(Door.DECLARATION):
        if row.name in type(item).model_fields and row.name not in but:
            value = attrgetter(row.name)(item)
            if value != row.form.write(row.default):
                yield (*here, row.name), _VALUES.get(row.name, _OTHERWISE)


_NODES = frozenset({"everyone", "authenticated users", "world"})
"""Names of groups that all nodes are in."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A consistent declaration, the positions of its parts, and its users' certificates by folded name.

    ``warnings`` name effects that its author may expect and that it does not have.
    """

    declaration: Declaration
    sources: Sources
    certificates: Mapping[str, tuple[str, ...]]
    warnings: tuple[Problem, ...] = ()
    noted: tuple[Note, ...] = ()
    """Properties that nothing obeys, and names of earlier releases."""

    @property
    def notes(self) -> tuple[Problem, ...]:
        """Notes with their lines. To find these, the files are read a second time, which takes a while."""
        return in_order(self.sources.problem(path, sentence) for path, sentence in self.noted)


def load(start: FilePath, *, for_directory: bool = False) -> Checked:
    """Read and check a declaration. Raises :class:`DeclarationError` with every problem of it.

    ``for_directory``: raises :class:`NoDirectoryError` if the enterprise has none.
    """
    with paused_collector():
        loaded = load_models(start)
        checker = _Checker(loaded)
        checker.run()
    certificates = read_certificates(loaded, checker.found)
    if checker.found:
        raise DeclarationError(checker.found, checker.warnings)
    if for_directory and loaded.declaration.is_workgroup:
        sentence = f"{loaded.declaration.enterprise.name} has no directory; {INSTEAD}"
        raise NoDirectoryError([loaded.sources.problem(("directory",), sentence)])
    noted = (*loaded.notes, *_unobeyed(loaded))
    return Checked(loaded.declaration, loaded.sources, certificates, in_order(checker.warnings), noted)


def _unobeyed(loaded: Loaded) -> Iterator[Note]:
    """Yield a note for each property that a declared object has, and that nothing obeys."""
    declared = loaded.declaration
    sections: list[tuple[Path, Sequence[BaseModel], Rows]] = [(("enterprise",), [declared.enterprise], ENTERPRISE)]
    sections += [((name,), getattr(declared, name), rows) for name, (_, rows) in SECTIONS.items()]
    for path, items, rows in sections:
        for row in rows.at(Door.DECLARATION):
            if not row.unobeyed:
                continue
            found = _having(items, row)
            if not found:
                continue
            here = path if path == ("enterprise",) else (*path, found[0])
            role = f"{row.name}: " if row.name not in type(items[0]).model_fields else ""
            others = f" (here and in {len(found) - 1} more of the {path[0]})" if len(found) > 1 else ""
            effect = "has no effect" if declared.is_workgroup else "is written to the directory and has no effect"
            yield (*here, "roles" if role else row.name), f"{role}{row.unobeyed}; it {effect}{others}"


def _having(items: Sequence[BaseModel], row: Property) -> list[int]:
    """The positions of the objects that have another value than the default."""
    if items and row.name in type(items[0]).model_fields:
        own, default = attrgetter(row.name), row.form.write(row.default)
        return [position for position, item in enumerate(items) if own(item) != default]
    return [position for position, item in enumerate(items) if isinstance(item, Machine) and row.name in item.roles]


def contradictions(declared: Declaration) -> list[Problem]:
    """Return the contradictions in a declaration that was not read from a file."""
    checker = _Checker(Loaded(declared, Sources()))
    checker.run()
    return checker.found


@dataclass
class _Checker:
    loaded: Loaded
    found: list[Problem] = field(init=False)
    warnings: list[Problem] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.found = list(self.loaded.problems)

    def run(self) -> None:
        declared = self.loaded.declaration
        self.sites = self._unique("sites", (site.name for site in declared.sites), "site")
        self.foreign = self._unique("foreign_sites", (site.name for site in declared.foreign_sites), "foreign site")
        for name, position in self.foreign.items():
            if name in self.sites:
                self._say(("foreign_sites", position, "name"), "a site of this name is declared; give it another name")
        self.machines = self._unique("machines", (machine.name for machine in declared.machines), "machine")
        self.users = self._unique("users", (user.name for user in declared.users), "user")
        self._unique("bridges", (f"{bridge.machine}\\{bridge.name}" for bridge in declared.bridges), "bridge")
        self.queues = self._unique("queues", map(path_of, declared.queues), "queue")
        self.aliases = self._unique("queue_aliases", (alias.name for alias in declared.queue_aliases), "queue alias")
        self.lists = self._unique(
            "distribution_lists", (each.name for each in declared.distribution_lists), "distribution list"
        )
        if declared.is_workgroup:
            for path, sentence in refusals(declared):
                self._say(path, sentence)
            self._machines()
            self._queues()
            self._bridges()
            return
        self._access(("enterprise",), declared.enterprise.access)
        self._read_by_nodes(("enterprise",), declared.enterprise.access)
        for section, sites in (("sites", declared.sites), ("foreign_sites", declared.foreign_sites)):
            for position, site in enumerate(sites):
                self._access((section, position), site.access)
                self._read_by_nodes((section, position), site.access)
        self._links()
        self._machines()
        self._queues()
        self._lists()
        self._bridges()

    def _say(self, path: Path, sentence: str) -> None:
        self.found.append(self.loaded.sources.problem(path, sentence))

    def _unique(self, section: str, names: Iterable[str], what: str) -> dict[str, int]:
        """Return positions by folded name. A duplicate is reported with the place of the first."""
        positions: dict[str, int] = {}
        for position, name in enumerate(names):
            first = positions.setdefault(fold(name), position)
            if first != position:
                before = self.loaded.sources.problem((section, first), "")
                self._say(
                    (section, position), f"the {what} {name!r} is declared at {before.file}:{before.line} already"
                )
        return positions

    def _exists(
        self, path: Path, name: str, known: dict[str, int], names: Callable[[], Sequence[str]], what: str
    ) -> bool:
        if fold(name) in self.loaded.doubtful:
            return False  # told already
        if fold(name) in known:
            return True
        if self.loaded.incomplete:
            return False  # it may be in a part that could not be read
        self._say(path, f"there is no {what} {name!r}" + did_you_mean(name, names()))
        return False

    def _machine(self, name: str) -> Machine:
        return self.loaded.declaration.machines[self.machines[fold(name)]]

    def _site_names(self) -> list[str]:
        declared = self.loaded.declaration
        return [site.name for site in declared.sites] + [site.name for site in declared.foreign_sites]

    def _machine_names(self) -> list[str]:
        return [machine.name for machine in self.loaded.declaration.machines]

    def _links(self) -> None:
        pairs: dict[frozenset[str], int] = {}
        self._gated = self._sites_of_gates(self.loaded.declaration.routing_links)
        for position, link in enumerate(self.loaded.declaration.routing_links):
            here: Path = ("routing_links", position)
            for index, name in enumerate(link.sites):
                self._exists((*here, "sites", index), name, {**self.sites, **self.foreign}, self._site_names, "site")
            pair = frozenset(fold(name) for name in link.sites)
            if len(pair) == 1:
                self._say((*here, "sites"), f"the link joins {link.sites[0]!r} with itself; name two sites")
            elif pair <= self.foreign.keys():
                self._say((*here, "sites"), "the link joins two foreign sites; one end has to be a site")
            first = pairs.setdefault(pair, position)
            if first != position:
                before = self.loaded.sources.problem(("routing_links", first), "")
                self._say(here, f"a link between these sites is declared at {before.file}:{before.line} already")
            self._repeated((*here, "site_gates"), link.site_gates)
            for index, name in enumerate(link.site_gates):
                self._site_gate((*here, "site_gates", index), name, link.sites)
            self._gates_of_both_sides(here, link)

    def _gates_of_both_sides(self, here: Path, link: RoutingLink) -> None:
        """Warn of a link without a site gate on one side or on both."""
        ends, gates = ({fold(name) for name in names} for names in (link.sites, link.site_gates))
        machines = [self._machine(name) for name in gates if name in self.machines]
        about = {fold(site) for machine in machines for site in (*machine.sites, *machine.foreign_sites)} | ends
        certain = about <= self.sites.keys() | self.foreign.keys() and not (about | gates) & self.loaded.doubtful
        if self.loaded.incomplete or not certain or len(machines) < len(gates) or len(ends) < 2:
            return  # told already
        gated = self._sites_of_gates([link])
        if gated and any(fold(name) in self.foreign for name in link.sites):
            return  # its gates are the connectors
        missing = [name for name in link.sites if fold(name) not in gated]
        if not missing:
            return
        cut_off = [name for name in missing if fold(name) not in self._gated]
        follows = (
            f"messages to {' and to '.join(cut_off)} wait"  # MS-MQBR 3.1.5.7
            if cut_off
            else f"gates that other links name in {' and '.join(missing)} are used"
        )
        self._warn(
            (*here, "site_gates") if link.site_gates else here,
            f"the link between {' and '.join(link.sites)} has no site gate in {' or in '.join(missing)}: {follows}; "
            f"name a routing server of {' and one of '.join(missing)} under site_gates",
        )

    def _sites_of_gates(self, links: Iterable[RoutingLink]) -> set[str]:
        """Return the folded names of the sites in which a link has a site gate."""
        found: set[str] = set()
        for link in links:
            ends = {fold(name) for name in link.sites}
            for name in link.site_gates:
                if fold(name) in self.machines:
                    machine = self._machine(name)
                    found |= ends & {fold(site) for site in (*machine.sites, *machine.foreign_sites)}
        return found

    def _warn(self, path: Path, sentence: str) -> None:
        self.warnings.append(self.loaded.sources.problem(path, sentence))

    def _site_gate(self, path: Path, name: str, sites: Sequence[str]) -> None:
        if not self._exists(path, name, self.machines, self._machine_names, "machine"):
            return
        machine = self._machine(name)
        member = {fold(site) for site in (*machine.sites, *machine.foreign_sites)}
        ends = {fold(site) for site in sites}
        known = member | ends <= self.sites.keys() | self.foreign.keys() and len(ends) == 2
        if "routing_server" not in machine.roles:
            self._say(path, f"{machine.name} is no routing server; only a routing server can be a site gate")
        if known and not member & ends:  # otherwise the faults of the sites are reported instead
            self._say(path, f"{machine.name} is in {', '.join(machine.sites)}, which this link does not join")

    def _machines(self) -> None:
        for position, machine in enumerate(self.loaded.declaration.machines):
            here: Path = ("machines", position)
            for index, name in enumerate(machine.sites):
                self._exists((*here, "sites", index), name, self.sites, self._plain_site_names, "site")
            if machine.remote_copy is not None:
                self._remote_copy((*here, "remote_copy"), machine, machine.remote_copy)
            if fold(machine.name) not in self.loaded.doubtful:
                for place, sentence in failover_faults(machine, self.loaded.declaration.machines):
                    self._say((*here, *place), sentence)
            for name, probe in machine.probes.items():
                self._probe((*here, "probes", name), machine, probe)
            if self.loaded.declaration.is_workgroup:
                self._repeated((*here, "sites"), machine.sites)
                continue
            for index, name in enumerate(machine.foreign_sites):
                self._exists((*here, "foreign_sites", index), name, self.foreign, self._foreign_names, "foreign site")
            for section in ("sites", "foreign_sites", "roles", "out_routing_servers", "in_routing_servers"):
                self._repeated((*here, section), getattr(machine, section))
            if fold(machine.name) not in self.loaded.doubtful:
                self._roles(here, machine)
            for section in ("out_routing_servers", "in_routing_servers"):
                for index, name in enumerate(getattr(machine, section)):
                    self._routing_server((*here, section, index), name, machine)

    def _probe(self, here: Path, machine: Machine, probe: ProbeSettings) -> None:
        if machine.foreign:
            self._say(here, f"{machine.name} is a foreign system; only a node sends heartbeats")
        declared = {frozenset(map(fold, link.sites)) for link in self.loaded.declaration.routing_links}
        for position, ends in enumerate(probe.links):
            if frozenset(map(fold, ends)) not in declared:
                self._say((*here, "links", position), f"no routing link of {ends[0]} and {ends[1]} is declared")

    def _plain_site_names(self) -> list[str]:
        return [site.name for site in self.loaded.declaration.sites]

    def _remote_copy(self, here: Path, machine: Machine, copy: RemoteCopySettings) -> None:
        if machine.foreign:
            self._say(here, f"{machine.name} is a foreign system; only a node has a copy elsewhere")
        if not copy.to:
            self._say(here, "a copy needs a place: to, an absolute folder or s3://bucket/prefix, and key")
        elif not copy.to.startswith(("/", "s3://")):
            self._say(
                (*here, "to"), f"{copy.to!r} is no place for a copy: name an absolute folder, or s3://bucket/prefix"
            )
        if copy.key is not None and not copy.key.is_absolute():
            sentence = f"expected the absolute path of a file on {machine.name}, which has the passphrase"
            self._say((*here, "key"), sentence)  # without the value, which may be the passphrase itself
        others = [
            one.name
            for one in self.loaded.declaration.machines
            if one is not machine
            and one.remote_copy is not None
            and one.remote_copy.to.rstrip("/") == copy.to.rstrip("/")
        ]
        if others and copy.to.startswith("s3://"):
            self._say((*here, "to"), f"{others[0]} has its copy there too; each node needs a place for itself")

    def _foreign_names(self) -> list[str]:
        return [site.name for site in self.loaded.declaration.foreign_sites]

    def _roles(self, here: Path, machine: Machine) -> None:
        if not machine.sites and not (machine.foreign and machine.foreign_sites):
            self._say(here, "a machine is in a site; name at least one under sites")
        if "client" in machine.roles and len(machine.roles) > 1:
            self._say((*here, "roles"), "a client has no other role; leave 'client' out")
        if "connector" in machine.roles and not machine.foreign_sites:
            self._say((*here, "roles"), "a connector needs foreign_sites: the networks that it connects")
        if "connector" in machine.roles and "routing_server" not in machine.roles:
            self._say((*here, "roles"), "a connector routes into its foreign sites; add the role routing_server")
        if machine.foreign_sites and "connector" not in machine.roles and not machine.foreign:
            self._say((*here, "foreign_sites"), "only a connector or a foreign machine is in a foreign site")
        if "routing_server" in machine.roles and (machine.out_routing_servers or machine.in_routing_servers):
            self._say(here, "a routing server routes for itself; leave out_routing_servers and in_routing_servers out")

    def _routing_server(self, path: Path, name: str, machine: Machine) -> None:
        if not self._exists(path, name, self.machines, self._machine_names, "machine"):
            return
        server = self._machine(name)
        if "routing_server" not in server.roles:
            self._say(path, f"{server.name} is no routing server; give it the role routing_server or name another")
        if fold(machine.name) in self.loaded.doubtful:
            return
        if not {fold(site) for site in server.sites} & {fold(site) for site in machine.sites}:
            self._say(path, f"{server.name} is in none of the sites of {machine.name}; name one of the same site")

    def _repeated(self, path: Path, names: Sequence[str]) -> None:
        for name, count in Counter(fold(name) for name in names).items():
            if count > 1:
                self._say(path, f"{name!r} stands here {count} times")

    def _queues(self) -> None:
        for position, queue in enumerate(self.loaded.declaration.queues):
            here: Path = ("queues", position)
            self._exists((*here, "machine"), queue.machine, self.machines, self._machine_names, "machine")
            self._access(here, queue.access)
            if queue.private:
                self._private_queue(here, queue)
                continue
            for row in ONLY_PRIVATE:
                if getattr(queue, row.name) != row.form.write(row.default):
                    self._say((*here, row.name), "only a private queue has it: the directory does not hold it")

    def _private_queue(self, here: Path, queue: Queue) -> None:
        """Check what the directory would check of a public queue, and what its node would refuse."""
        from qmnode.model.queue_collection import NAMES_OF_NODES

        if queue.name.upper() in NAMES_OF_NODES:
            self._say((*here, "name"), f"{queue.name} is a queue that every node has for itself: take another name")
        if fold(queue.machine) in self.machines and self._machine(queue.machine).foreign:
            self._say((*here, "machine"), f"{queue.machine} is a foreign system; only a node has private queues")
        for name, row in QUEUE.items():
            if row.public and getattr(queue, name) != row.default:
                self._say((*here, name), "only a public queue has it; leave it out")
        for index, entry in enumerate(queue.access or ()):
            if not is_known_to_nodes(entry.to):
                self._say(
                    (*here, "access", index, "to"),
                    f"the node of {queue.machine} keeps this list, and does not know {entry.to!r}; write its SID "
                    "(S-1-5-21-...), an account of the machine (user:alice, group:ops), or everyone, anonymous, "
                    "authenticated-users",
                )

    def _read_by_nodes(self, here: Path, entries: Sequence[AnyAccess] | None) -> None:
        """Warn of a list that hides a site or the enterprise from nodes."""
        if entries is not None and not any(
            fold(entry.to) in _NODES and {"get_properties", "generic_all"}.intersection(entry.allow)
            for entry in entries
        ):
            sentence = (
                "nodes may not read it in Active Directory with this list, and then route by what they remember; add "
                "{to: Everyone, allow: [get_properties, get_permissions]}"
            )
            self.warnings.append(self.loaded.sources.problem((*here, "access"), sentence))

    def _access(self, here: Path, entries: Sequence[AnyAccess] | None) -> None:
        trustees: dict[str, int] = {}
        for index, entry in enumerate(entries or ()):
            if not entry.allow and not entry.deny:
                self._say((*here, "access", index), "neither allows nor denies anything; give allow or deny")
            if trustees.setdefault(fold(entry.to), index) != index:
                self._say((*here, "access", index, "to"), f"{entry.to!r} stands here twice; join the two entries")

    def _lists(self) -> None:
        declared = self.loaded.declaration
        beside = {"user": self.users, "queue alias": self.aliases}
        for section, named, others in (
            ("queue_aliases", self.aliases, ["user"]),
            ("distribution_lists", self.lists, ["user", "queue alias"]),
        ):
            for name, position in named.items():
                if "\\" in name:
                    self._say((section, position, "name"), f"{name!r} would be the path of a queue; leave \\ out")
                for what in others:
                    if name in beside[what]:
                        self._say((section, position, "name"), f"a {what} has this name; give it another name")
        for position, each in enumerate(declared.distribution_lists):
            here: Path = ("distribution_lists", position, "members")
            self._repeated(here, each.members)
            for index, member in enumerate(each.members):
                self._member((*here, index), member)
        for position, each in enumerate(declared.distribution_lists):
            if (way := self._way_back(each.name)) and self.lists.get(fold(each.name)) == position:
                there = " which contains ".join(way)
                self._say(("distribution_lists", position, "members"), f"the list contains itself, by {there}")

    def _member(self, path: Path, member: str) -> None:
        if re.match(r"(direct|public|private|dl)=", fold(member)) or "\\private$\\" in fold(member):
            self._say(
                path,
                f"{member!r} is no public queue, and a list holds public queues, queue aliases and lists "
                "(MS-MQMQ 2.1.5); declare a queue alias for it, and name that",
            )
        elif "\\" in member:
            self._exists(path, member, self.queues, self._queue_names, "queue")
        else:
            aliases = self.loaded.declaration.queue_aliases
            names = [each.name for each in aliases]
            names += [each.name for each in self.loaded.declaration.distribution_lists]
            what = "queue alias or distribution list"
            self._exists(path, member, self.aliases | self.lists, lambda: [*names, *self._queue_names()], what)
            if (position := self.aliases.get(fold(member))) is not None:
                target = aliases[position].format_name
                if parse_single_format_name(target).is_read_only:
                    self._say(
                        path,
                        f"{member!r} stands for {target}, a journal or a dead-letter queue, and nodes would refuse "
                        "every message to the list; leave it out, or let it stand for the queue",
                    )

    def _queue_names(self) -> list[str]:
        return [path_of(queue) for queue in self.loaded.declaration.public_queues]

    def _way_back(self, start: str) -> list[str]:
        """Return the names of lists on a way from a list to itself, or nothing."""
        ways, seen = [[start]], set[str]()
        while ways:
            way = ways.pop()
            for member in self.loaded.declaration.distribution_lists[self.lists[fold(way[-1])]].members:
                if fold(member) == fold(start):
                    return [*way[1:], member]
                if fold(member) in self.lists and fold(member) not in seen:
                    seen.add(fold(member))
                    ways.append([*way, member])
        return []

    def _bridges(self) -> None:
        ledgers: dict[tuple[str, int, str, str], int] = {}
        for position, bridge in enumerate(self.loaded.declaration.bridges):
            here: Path = ("bridges", position)
            if (
                self._exists((*here, "machine"), bridge.machine, self.machines, self._machine_names, "machine")
                and self._machine(bridge.machine).foreign
            ):
                self._say((*here, "machine"), f"{bridge.machine} is a foreign system; only a node has bridges")
            if bridge.ledger:
                ledger = (bridge.host, bridge.port, bridge.virtual_host, bridge.ledger)
                first = ledgers.setdefault(ledger, position)
                if first != position:
                    before = self.loaded.sources.problem(("bridges", first), "")
                    sentence = f"the bridge at {before.file}:{before.line} has this ledger; give each bridge its own"
                    self._say((*here, "ledger"), sentence)
