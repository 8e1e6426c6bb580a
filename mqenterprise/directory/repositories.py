"""Sites, routing links, queues and users: each is one entry. Queue managers are more and live apart."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mqenterprise.directory.entries import Entry, Scope
from mqenterprise.directory.errors import ConstraintViolated, ObjectNotFound
from mqenterprise.directory.mapping import QUEUE, ROUTING_LINK, SITE, USER, Refers
from mqenterprise.directory.names import (
    child,
    escape_filter,
    join_queue_name,
    name_of,
    parent_of,
    split_pathname,
    split_queue_name,
)
from mqenterprise.directory.new_descriptors import NewDescriptors
from mqenterprise.directory.objects import ObjectRepository
from qmnode.directory.port import Queue, RoutingLink, Site, User
from qmnode.structures.change_notification import ChangeEvent
from qmnode.structures.guid import ZERO_GUID, guid_to_text

if TYPE_CHECKING:
    from mqenterprise.directory.change_notices import ChangeNotices
    from mqenterprise.directory.connection import LdapConnection
    from mqenterprise.directory.references import References

HIGHEST_COST = 999_999


class SiteRepository(ObjectRepository[Site]):
    """Sites and foreign sites, under CN=Sites of the configuration."""

    mapping = SITE

    def __init__(self, connection: LdapConnection, references: References) -> None:
        super().__init__(connection, references)
        self._descriptors = NewDescriptors(connection)

    def _new_attributes(self, entity: Site) -> dict[str, Sequence[bytes]]:
        attributes = super()._new_attributes(entity)
        if entity.security is None:
            attributes["nTSecurityDescriptor"] = self._descriptors.site()
        return attributes

    def _base(self) -> str:
        return self._connection.dialect.contexts.sites

    def _dn(self, entity: Site) -> str:
        if not entity.name:
            raise ConstraintViolated("a site must have a name")
        return child(entity.name, self._base())

    def _by_name(self, name: str) -> Iterator[Entry]:
        filter = f"(&(objectClass=site)(cn={escape_filter(name)}))"
        return self._connection.search(self._base(), filter, self.mapping.names(None), Scope.LEVEL)

    def _decoded(self, entry: Entry, attributes: Collection[str] | None, **more: Any) -> Site:
        site = super()._decoded(entry, attributes, **more)
        if site.identifier is not None:
            self._references.note(entry.dn, site.identifier)
        return site


class RoutingLinkRepository(ObjectRepository[RoutingLink]):
    """Routing links, under the Enterprise object."""

    mapping = ROUTING_LINK

    def _base(self) -> str:
        return self._connection.dialect.contexts.enterprise

    def _dn(self, entity: RoutingLink) -> str:
        self._check(entity)
        digits = (guid_to_text(guid).replace("-", "") for guid in (entity.site1_identifier, entity.site2_identifier))
        return child("".join(digits), self._base())  # 3.1.6.1.4.2

    def _by_name(self, name: str) -> Iterator[Entry]:
        first, _, second = name.partition("|")
        ends = [self._site_dn(end) for end in (first, second)]
        one, two = (escape_filter(end) for end in ends)
        either = f"(|(&(mSMQSite1={one})(mSMQSite2={two}))(&(mSMQSite1={two})(mSMQSite2={one})))"
        return self._connection.search(self._base(), f"(&(objectClass=mSMQSiteLink){either})", self.mapping.names(None))

    def _site_dn(self, name: str) -> str:
        return child(name, self._connection.dialect.contexts.sites)

    def modify(self, entity: RoutingLink, attributes: Collection[str] | None = None) -> None:
        self._check(entity)
        super().modify(entity, attributes)

    @staticmethod
    def _check(link: RoutingLink) -> None:
        """Check what the servers do not (MS-MQDMPR 3.1.1.8)."""
        if not 1 <= link.actual_cost <= HIGHEST_COST:
            raise ConstraintViolated(f"the cost of a routing link is 1 to {HIGHEST_COST:,}, not {link.actual_cost:,}")
        if link.site1_identifier == link.site2_identifier:
            raise ConstraintViolated("a routing link joins two different sites")


class QueueRepository(ObjectRepository[Queue]):
    """Public queues, each under the mSMQConfiguration object of its queue manager, which is notified of changes."""

    mapping = QUEUE

    def __init__(self, connection: LdapConnection, references: References, notices: ChangeNotices) -> None:
        super().__init__(connection, references)
        self._notices = notices
        self._descriptors = NewDescriptors(connection)

    def add(self, entity: Queue) -> Queue:
        added = super().add(entity)
        self._notify(ChangeEvent.QUEUE_CREATED, added)
        return added

    def modify(self, entity: Queue, attributes: Collection[str] | None = None) -> None:
        super().modify(entity, attributes)
        self._notify(ChangeEvent.QUEUE_CHANGED, entity)

    def delete(self, entity: Queue) -> None:
        known = self.at(self._located(entity), ("identifier",)) if self._notices.wanted else entity
        super().delete(entity)
        self._notify(ChangeEvent.QUEUE_DELETED, known)

    def _notify(self, event: ChangeEvent, queue: Queue) -> None:
        if self._notices.wanted and queue.identifier is not None:
            owner = self._references.guid_of(parent_of(self._located(queue)), Refers.QUEUE_MANAGER)
            self._notices.note(event, queue.identifier, owner)

    def _dn(self, entity: Queue) -> str:
        computer, queue = split_pathname(entity.pathname)
        return child(split_queue_name(queue)[0], self._configuration_dn(computer))

    def _configuration_dn(self, computer: str) -> str:
        """Where the queue manager of a computer is. Mostly in CN=Computers, which costs no search."""
        usual = child("msmq", child(computer, self._connection.dialect.contexts.computers))
        try:
            self._references.guid_of(usual, Refers.QUEUE_MANAGER)
        except ObjectNotFound:
            for dn in configurations_of(self._connection, computer):
                return dn
            raise ObjectNotFound(
                f"there is no queue manager on a computer named {computer!r} in the directory"
            ) from None
        return usual

    def _by_name(self, name: str) -> Iterator[Entry]:
        computer, queue = split_pathname(name)
        cn = split_queue_name(queue)[0]
        names = self.mapping.names(None)
        usual = child(cn, child("msmq", child(computer, self._connection.dialect.contexts.computers)))
        try:
            yield self._connection.read(usual, names)
        except ObjectNotFound:
            for dn in configurations_of(self._connection, computer):
                yield from self._connection.search(dn, f"(&(objectClass=mSMQQueue)(cn={escape_filter(cn)}))", names)

    def of(self, computer: str, attributes: Collection[str] | None = None) -> Iterator[Queue]:
        """The public queues of one computer. Raises ``ObjectNotFound`` when it has no queue manager."""
        dn = self._configuration_dn(computer)
        for entry in self._connection.search(dn, "(objectClass=mSMQQueue)", self.mapping.names(attributes)):
            yield self._complete(entry, attributes)

    def _new_attributes(self, entity: Queue) -> dict[str, Sequence[bytes]]:
        attributes = super()._new_attributes(entity)
        computer, queue = split_pathname(entity.pathname)
        if ";" in queue:
            raise ConstraintViolated(f"{queue!r} is no name of a public queue: what follows a semicolon is a subqueue")
        if extension := split_queue_name(queue)[1]:
            attributes["mSMQQueueNameExt"] = (extension.encode(),)
        if entity.security is None:
            attributes["nTSecurityDescriptor"] = self._descriptors.queue(parent_of(self._configuration_dn(computer)))
        return attributes

    def _computed(self, entry: Entry, attributes: Collection[str] | None) -> Mapping[str, Any]:
        extension = entry.first("mSMQQueueNameExt") or b""
        queue = join_queue_name(name_of(entry.dn), extension.decode())
        computed = {"pathname": f"{name_of(entry.dn, 2)}\\{queue}".lower()}  # 3.1.6.11.2.1
        # One more read, so only for who asks for it by name: looking a queue up stays one search.
        if attributes is not None and "qualified_pathname" in attributes:
            computer = self._connection.read(parent_of(entry.dn, 2), ("dNSHostName",)).first("dNSHostName")
            computed["qualified_pathname"] = f"{computer.decode()}\\{queue}".lower() if computer else ""
        return computed

    def _different(self, entity: Queue, dn: str) -> tuple[str, ...]:
        # An application type of zeros and none are the same (3.1.6.11.2).
        if entity.type == ZERO_GUID:
            entity = replace(entity, type=None)
        return tuple(name for name in super()._different(entity, dn) if name not in self.mapping.computed)


class UserRepository(ObjectRepository[User]):
    """Users: those that the directory has, found wherever they are, and those that we add, under CN=Users."""

    mapping = USER

    def _dn(self, entity: User) -> str:
        if not entity.name:
            raise ConstraintViolated("a user must have a name")
        return child(entity.name, self._connection.dialect.contexts.users)

    def _by_name(self, name: str) -> Iterator[Entry]:
        text = escape_filter(name)
        filter = f"(&(objectClass=user)(!(objectClass=computer))(|(sAMAccountName={text})(cn={text})))"
        return self._connection.search(self._base(), filter, self.mapping.names(None))

    def _computed(self, entry: Entry, attributes: Collection[str] | None) -> Mapping[str, Any]:
        account = entry.first("sAMAccountName") or entry.first("cn")
        return {"name": account.decode() if account else name_of(entry.dn)}

    def _computed_attributes(self, entity: User) -> dict[str, Sequence[bytes]]:
        return {}

    def _new_attributes(self, entity: User) -> dict[str, Sequence[bytes]]:
        dialect = self._connection.dialect
        account = {**super()._new_attributes(entity), **dialect.account("user", entity.name)}
        if entity.security_identifier is not None and not dialect.gives_guid:
            account["objectSid"] = (entity.security_identifier,)
        return account

    def _added(self, entity: User, entry: Entry) -> User:
        return replace(self.at(entry.dn), annotation=entity.annotation)

    def _different(self, entity: User, dn: str) -> tuple[str, ...]:
        return tuple(name for name in super()._different(entity, dn) if name != "name")

    def list(self, *filters: Any, attributes: Collection[str] | None = None) -> Iterator[User]:
        """All users. A computer is a user to the schema and not to us."""
        return (
            user
            for user in super().list(*filters, attributes=attributes)
            if user.full_path is not None and not user.name.endswith("$")
        )


def configurations_of(connection: LdapConnection, computer: str) -> Iterator[str]:
    """The mSMQConfiguration objects of computers of that name, wherever in the domain they are."""
    domain = connection.dialect.contexts.domain
    filter = f"(&(objectClass=computer)(cn={escape_filter(computer)}))"
    for entry in connection.search(domain, filter, ("1.1",)):
        dn = child("msmq", entry.dn)
        try:
            connection.read(dn, ("1.1",))
        except ObjectNotFound:
            continue
        yield dn
