"""An open directory of an enterprise: the connection, the domains of its forest, and a repository for each kind.

Objects of other domains are found through the global catalogue, which has every object of the forest but only some of
its attributes. So they are read from a controller of the domain that holds them, and changed there.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.entries import Change, Entry, Scope
from mqenterprise.directory.errors import DirectoryUnavailable, HalfWritten, ObjectAlreadyExists, ObjectNotFound
from mqenterprise.directory.gateway import ChangeNotices, Gateway
from mqenterprise.directory.ldap_names import child, name_of, normalized, split_dn
from mqenterprise.directory.mapping import ENTERPRISE, default_of
from mqenterprise.directory.repositories import (
    EnterpriseRepository,
    QueueAliasRepository,
    QueueManagerRepository,
    QueueRepository,
    References,
    Repository,
    RoutingLinkRepository,
    SiteRepository,
    UserRepository,
)
from mqenterprise.directory.settings import CATALOGUE, DirectorySettings
from qmnode.directory.port import Enterprise
from qmnode.objects.rows import Changes
from qmnode.structures.guid import guid_from_text

DOMAINS_FOR: Final = 3600.0
"""Seconds for which the list of the forest's domains is good."""
_BY_GUID: Final = "<GUID="
_DOMAINS: Final = "(&(objectClass=crossRef)(nETBIOSName=*))"
"""The crossRef objects of domains (MS-ADTS 6.1.1.2.1.1); those of other naming contexts have no NetBIOS name."""


def connection_of(
    settings: DirectorySettings,
    servers: Callable[[], Sequence[str]] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> LdapConnection:
    """The connection to a directory, or to all domains of a forest if the settings name a global catalogue."""
    if settings.catalogue is None:
        return LdapConnection(settings, servers, clock)
    return ForestConnection(settings, servers, clock)


class ForestConnection(LdapConnection):
    """The domain of the settings, and through it the others of its forest. Safe for threads."""

    def __init__(
        self,
        settings: DirectorySettings,
        servers: Callable[[], Sequence[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settings, servers, clock)
        self._clock = clock
        self._catalogue = LdapConnection(settings.of_domain(CATALOGUE), None, clock)
        self._forest_lock = threading.Lock()
        self._names: tuple[dict[str, str], float] | None = None
        """The DNS names of the other domains by their normalized roots, and when they were read."""
        self._others: dict[str, LdapConnection] = {}

    def close(self) -> None:
        super().close()
        self._catalogue.close()
        with self._forest_lock:
            others, self._others = self._others, {}
        for other in others.values():
            other.close()

    # Reading

    def read(self, dn: str, attributes: Collection[str] = ("*",)) -> Entry:
        if dn.startswith(_BY_GUID):
            return self._read_by_guid(dn, attributes)
        holder = self._holder(dn)
        return super().read(dn, attributes) if holder is None else holder.read(dn, attributes)

    def _read_by_guid(self, dn: str, attributes: Collection[str]) -> Entry:
        try:
            return super().read(dn, attributes)
        except ObjectNotFound:
            base, filter, is_base = self._catalogue.dialect.by_guid(guid_from_text(dn[len(_BY_GUID) : -1]))
            scope = Scope.BASE if is_base else Scope.SUBTREE
            for found in self._catalogue.search(base, filter, ("1.1",), scope):
                holder = self._holder(found.dn)
                if holder is not None:
                    return holder.read(found.dn, attributes)
            raise

    def search(
        self, base: str, filter: str, attributes: Collection[str] = ("*",), scope: Scope = Scope.SUBTREE
    ) -> Iterator[Entry]:
        """As in one domain. A search of the whole domain goes on in all others that have something of it.

        Raises ``DirectoryUnavailable`` rather than leave out what cannot be read now.
        """
        holder = self._holder(base)
        if holder is not None:
            yield from holder.search(base, filter, attributes, scope)
            return
        yield from super().search(base, filter, attributes, scope)
        if scope is Scope.SUBTREE and normalized(base) == normalized(self.dialect.contexts.domain):
            for root in self._with_matches(filter):
                other = self._holder(root)
                if other is not None:
                    yield from other.search(root, filter, attributes, scope)

    def _with_matches(self, filter: str) -> list[str]:
        """The roots of the other domains in which the catalogue finds something."""
        dialect = self._catalogue.dialect
        base = "" if dialect.gives_guid else dialect.contexts.root  # the catalogue of Active Directory has all trees
        left, found = dict(self._domains()), []
        for entry in self._catalogue.search(base, filter, ("1.1",)):
            root = self._root_of(entry.dn)
            if root in left:
                found.append(root)
                del left[root]
                if not left:
                    break
        return found

    # Writing

    def add(self, dn: str, object_classes: Sequence[str], attributes: Mapping[str, Sequence[bytes]]) -> Entry:
        holder = self._holder(dn)
        return (
            super().add(dn, object_classes, attributes)
            if holder is None
            else holder.add(dn, object_classes, attributes)
        )

    def modify(self, dn: str, changes: Sequence[Change]) -> None:
        holder = self._holder(dn)
        if holder is None:
            super().modify(dn, changes)
        else:
            holder.modify(dn, changes)

    def delete(self, dn: str, *, tree: bool = False, only_if: tuple[str, bytes] | None = None) -> None:
        holder = self._holder(dn)
        if holder is None:
            super().delete(dn, tree=tree, only_if=only_if)
        else:
            holder.delete(dn, tree=tree, only_if=only_if)

    def set_password(self, dn: str, secret: str) -> None:
        holder = self._holder(dn)
        if holder is None:
            super().set_password(dn, secret)
        else:
            holder.set_password(dn, secret)

    # The domains

    def _holder(self, dn: str) -> LdapConnection | None:
        """The connection to the other domain that holds an object; None for what our own controller holds."""
        if not dn or dn.startswith("<"):
            return None
        contexts, place = self.dialect.contexts, normalized(dn)
        own = (normalized(contexts.domain), normalized(contexts.configuration))
        nearest = max((len(one) for one in own if _is_in(place, one)), default=0)
        root = self._root_of(dn)
        return None if root is None or len(root) <= nearest else self._other(root)

    def _root_of(self, dn: str) -> str | None:
        place = normalized(dn)
        return max((root for root in self._domains() if _is_in(place, root)), key=len, default=None)

    def _domains(self) -> Mapping[str, str]:
        """The other domains of the forest: normalized roots and DNS names."""
        known = self._names
        if known is not None and self._clock() - known[1] < DOMAINS_FOR:
            return known[0]
        contexts = self.dialect.contexts
        partitions = child("Partitions", contexts.configuration)
        found: dict[str, str] = {}
        for entry in super().search(partitions, _DOMAINS, ("nCName", "dnsRoot"), Scope.LEVEL):
            root, name = entry.first("nCName"), entry.first("dnsRoot")
            if not root or not name:
                continue
            domain = normalized(root.decode("utf-8", "replace"))
            if domain != normalized(contexts.domain):
                found[domain] = name.decode("utf-8", "replace").lower()
        self._names = found, self._clock()
        return found

    def _other(self, root: str) -> LdapConnection:
        with self._forest_lock:
            other = self._others.get(root)
            if other is None:
                settings = self.settings.of_domain(self._domains()[root])
                other = self._others[root] = LdapConnection(settings, None, self._clock)
        if normalized(other.dialect.contexts.domain) != root:
            raise DirectoryUnavailable(
                f"{other.server_name()} holds {other.dialect.contexts.domain} and not {root}: correct domains in the "
                "directory's settings"
            )
        return other


def _is_in(place: str, root: str) -> bool:
    return place == root or place.endswith("," + root)


class EnterpriseDirectory:
    """An open directory of an enterprise: a repository for each kind of object. A context manager."""

    def __init__(
        self,
        settings: DirectorySettings,
        servers: Callable[[], Sequence[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.connection = connection_of(settings, servers, clock)
        references = References(self.connection, clock)
        self.notices = ChangeNotices(settings.notify_through, self.connection.server_name)
        self.gateway = Gateway(self.connection, self.notices)
        self.sites = SiteRepository(self.gateway, references)
        self.routing_links = RoutingLinkRepository(self.gateway, references)
        self.queue_managers = QueueManagerRepository(self.gateway, references)
        self.queues = QueueRepository(self.gateway, references)
        self.users = UserRepository(self.gateway, references)
        self.queue_aliases = QueueAliasRepository(self.gateway, references)
        self._enterprises = EnterpriseRepository(self.gateway, references)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Notify the owners of changed objects, and give all connections back."""
        self.notices.send()
        self.connection.close()

    def enterprise(self) -> Enterprise:
        """The one Enterprise object. Raises ``ObjectNotFound`` when the directory was not prepared."""
        return self._enterprises.at(self.connection.dialect.contexts.enterprise)

    def prepare(self) -> Enterprise:
        """Create the containers and Enterprise object that the server lacks. Idempotent. Active Directory has them."""
        contexts = self.connection.dialect.contexts
        if not self.connection.dialect.gives_guid:
            self._ensure_root(contexts.root)
            for dn, object_class in (
                (contexts.configuration, "configuration"),
                (contexts.sites, "sitesContainer"),
                (contexts.services, "container"),
                (contexts.computers, "container"),
                (contexts.users, "container"),
            ):
                self._ensure(dn, ("top", object_class))
        try:
            return self.enterprise()
        except ObjectNotFound:
            rows = [row for row in ENTERPRISE.attributes if row.changes is not Changes.NEVER]
            defaults = {row.name: row.codec.encode(default_of(Enterprise, row.field)) for row in rows}
            self.gateway.writer.create(contexts.enterprise, ("top", ENTERPRISE.object_class), defaults)
            return self.enterprise()

    def half_written(self) -> tuple[HalfWritten, ...]:
        """The entries that listings left out so far, with the reason of each."""
        repositories: tuple[Repository[Any], ...] = (
            self.sites,
            self.routing_links,
            self.queue_managers,
            self.queues,
            self.users,
            self.queue_aliases,
        )
        return tuple(problem for repository in repositories for problem in repository.half_written)

    def _ensure_root(self, root: str) -> None:
        try:
            self.connection.read(root, ("1.1",))
        except ObjectNotFound:
            attribute = split_dn(root)[0].partition("=")[0].lower()
            name = name_of(root).encode()
            classes = ("top", "organization", "dcObject") if attribute == "dc" else ("top", "organization")
            values = {"o": (name,), **({"dc": (name,)} if attribute == "dc" else {})}
            self.connection.add(root, classes, values)

    def _ensure(self, dn: str, classes: Sequence[str]) -> None:
        try:
            self.connection.read(dn, ("1.1",))
        except ObjectNotFound:
            with contextlib.suppress(ObjectAlreadyExists):
                self.connection.add(dn, classes, {})
