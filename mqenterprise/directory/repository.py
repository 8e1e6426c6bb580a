"""The interface: raw entries through a connection, and typed values through one repository for each kind of object.

Every call raises :class:`mqenterprise.directory.errors.DirectoryError` and is bounded in time. The calls block; a
node runs them in threads.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from qmnode.directory.port import DirectoryObject

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mqenterprise.directory.entities import (
        DistributionList,
        Enterprise,
        Filter,
        Queue,
        QueueAlias,
        QueueManager,
        QueueManagerSettings,
        RoutingLink,
        Site,
        User,
    )
    from qmnode.structures.guid import Guid

Entity = TypeVar("Entity", bound=DirectoryObject)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as the server gave it: attribute names in lower case, values as bytes."""

    dn: str
    attributes: Mapping[str, tuple[bytes, ...]]

    def first(self, attribute: str) -> bytes | None:
        """The only or first value, or nothing."""
        values = self.attributes.get(attribute.lower())
        return values[0] if values else None


class Scope(enum.Enum):
    """How deep a search goes (RFC 4511 4.5.1.2)."""

    BASE = "BASE"
    LEVEL = "LEVEL"
    SUBTREE = "SUBTREE"


class ChangeKind(enum.Enum):
    """What one change of a modify request does (RFC 4511 4.6)."""

    ADD = "MODIFY_ADD"
    DELETE = "MODIFY_DELETE"
    REPLACE = "MODIFY_REPLACE"


@dataclass(frozen=True, slots=True)
class Change:
    """One change. All changes of one request take effect together or not at all.

    Deleting an exact value that is not there fails with ``ConditionFailed``: with an addition in the same request this
    is compare and set.
    """

    kind: ChangeKind
    attribute: str
    values: tuple[bytes, ...] = ()


class Connection(Protocol):
    """Entries as they are. A write whose outcome is unknown was read back before this said what became of it."""

    @property
    def root(self) -> str:
        """The distinguished name of the directory's root (rootDomainNamingContext)."""
        ...

    def read(self, dn: str, attributes: Collection[str] = ("*",)) -> Entry:
        """One entry. Raises ``ObjectNotFound``."""
        ...

    def search(
        self, base: str, filter: str, attributes: Collection[str] = ("*",), scope: Scope = Scope.SUBTREE
    ) -> Iterator[Entry]:
        """The entries under a base, page by page. Nothing when the base does not exist."""
        ...

    def add(self, dn: str, object_classes: Sequence[str], attributes: Mapping[str, Sequence[bytes]]) -> Entry:
        """Create an entry and read it back with its ``objectGUID``. Raises ``ObjectAlreadyExists``."""
        ...

    def modify(self, dn: str, changes: Sequence[Change]) -> None:
        """Change an entry, atomically. Raises ``ObjectNotFound`` and ``ConditionFailed``."""
        ...

    def delete(self, dn: str, *, tree: bool = False, only_if: tuple[str, bytes] | None = None) -> None:
        """Delete an entry, and with ``tree`` what lies beneath it. Raises ``ObjectNotFound``.

        With ``only_if`` only while an attribute has that value, where the server can tell, else ``ConditionFailed``.
        """
        ...


class Repository(Protocol[Entity]):
    """One kind of object."""

    def get(self, identifier: Guid) -> Entity:
        """The object of that GUID. Raises ``ObjectNotFound``."""
        ...

    def find(self, name: str) -> Entity | None:
        """The object of that name, or nothing.

        A name is what people know the kind by: a site's name, a computer's name, a queue's path name
        (``computer\\queue``), an account's name, and for a routing link the two names of its sites, ``first|second`` in
        either order.
        """
        ...

    def list(self, *filters: Filter, attributes: Collection[str] | None = None) -> Iterator[Entity]:
        """All objects that satisfy all filters, page by page. With ``attributes`` only those fields are read."""
        ...

    def add(self, entity: Entity) -> Entity:
        """Create it. The answer has the GUID and the full path that the directory gave.

        Raises ``ObjectAlreadyExists``. What consists of several entries is created so that the last write makes it
        whole, and adding it again after a cut completes it.
        """
        ...

    def modify(self, entity: Entity, attributes: Collection[str] | None = None) -> None:
        """Write the given fields. Without ``attributes``: read, compare and write the fields that differ."""
        ...

    def delete(self, entity: Entity) -> None:
        """Delete it and what lies beneath it. Raises ``ObjectNotFound``."""
        ...


class QueueManagers(Repository["QueueManager"], Protocol):
    """Queue managers, with what the directory keeps of them for each site."""

    def settings(self, queue_manager: QueueManager) -> Iterator[QueueManagerSettings]:
        """The mSMQSettings objects that name this queue manager, also those that should not be there any more."""
        ...


class DirectoryService(Protocol):
    """An open directory of an enterprise."""

    connection: Connection
    sites: Repository[Site]
    routing_links: Repository[RoutingLink]
    queue_managers: QueueManagers
    queues: Repository[Queue]
    users: Repository[User]
    aliases: Repository[QueueAlias]
    distribution_lists: Repository[DistributionList]

    def enterprise(self) -> Enterprise:
        """The one Enterprise object. Raises ``ObjectNotFound`` when the directory was not prepared."""
        ...

    def prepare(self) -> Enterprise:
        """Create what every enterprise needs and the server lacks: containers and the Enterprise object. Idempotent."""
        ...

    def write_enterprise(self, enterprise: Enterprise, attributes: Collection[str] | None = None) -> None:
        """Write the enterprise's settings."""
        ...

    def close(self) -> None:
        """Give all connections back."""
        ...
