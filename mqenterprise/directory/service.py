"""An open directory of an enterprise: the connection, a repository for each kind, and the one Enterprise object."""

import contextlib
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from mqenterprise.directory.change_notices import ChangeNotices
from mqenterprise.directory.errors import HalfWritten, ObjectAlreadyExists, ObjectNotFound
from mqenterprise.directory.forest import connection_of
from mqenterprise.directory.gateway import Gateway
from mqenterprise.directory.mapping import ENTERPRISE, default_of
from mqenterprise.directory.names import name_of, split_dn
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
from mqenterprise.directory.settings import DirectorySettings
from qmnode.directory.port import Enterprise
from qmnode.objects.rows import Changes


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
