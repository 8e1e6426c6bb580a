"""An open directory of an enterprise: the connection, a repository for each kind, and the one Enterprise object."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from mqenterprise.directory.change_notices import ChangeNotices
from mqenterprise.directory.entries import Entry
from mqenterprise.directory.errors import HalfWritten, ObjectAlreadyExists, ObjectNotFound
from mqenterprise.directory.forest import connection_of
from mqenterprise.directory.mapping import ENTERPRISE
from mqenterprise.directory.names import name_of, split_dn
from mqenterprise.directory.objects import ObjectRepository
from mqenterprise.directory.queue_managers import QueueManagerRepository
from mqenterprise.directory.references import References
from mqenterprise.directory.repositories import (
    QueueRepository,
    RoutingLinkRepository,
    SiteRepository,
    UserRepository,
)
from mqenterprise.directory.settings import DirectorySettings
from qmnode.directory.port import Enterprise


class _EnterpriseRepository(ObjectRepository[Enterprise]):
    """The one object of its kind (MS-MQDSSM 2.2.3)."""

    mapping = ENTERPRISE

    def _base(self) -> str:
        return self._connection.dialect.contexts.enterprise

    def _dn(self, entity: Enterprise) -> str:
        return self._base()

    def _by_name(self, name: str) -> Iterator[Entry]:
        yield self._connection.read(self._base(), self.mapping.names(None))


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
        self.sites = SiteRepository(self.connection, references)
        self.routing_links = RoutingLinkRepository(self.connection, references)
        self.queue_managers = QueueManagerRepository(self.connection, references, self.notices)
        self.queues = QueueRepository(self.connection, references, self.notices)
        self.users = UserRepository(self.connection, references)
        self._enterprises = _EnterpriseRepository(self.connection, references)

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
        found = self._enterprises.at(self.connection.dialect.contexts.enterprise)
        return replace(found, name=self.connection.root)  # 3.1.6.11.3.1

    def write_enterprise(self, enterprise: Enterprise, attributes: Collection[str] | None = None) -> None:
        """Write the enterprise's settings."""
        self._enterprises.modify(replace(enterprise, full_path=None, identifier=None), attributes)

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
            self._enterprises.add(Enterprise())
            return self.enterprise()

    def half_written(self) -> tuple[HalfWritten, ...]:
        """The entries that listings left out so far, with the reason of each."""
        repositories: tuple[ObjectRepository[Any], ...] = (
            self.sites,
            self.routing_links,
            self.queue_managers,
            self.queues,
            self.users,
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
