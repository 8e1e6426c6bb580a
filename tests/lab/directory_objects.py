"""Objects of a real directory that the product creates, changes and deletes by declarations alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from mqenterprise.directory.gateway import MARK
from mqenterprise.directory.ldap_names import escape_filter, normalized, parent_of
from mqenterprise.directory.mapping import Refers
from qmnode.directory.port import Enterprise, QueueManager, RoutingLink, Site, User
from qmnode.objects.rows import Changes

if TYPE_CHECKING:
    from mqenterprise.directory.mapping import Attribute, Values
    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from mqenterprise.directory.repositories import Repository

Object = TypeVar("Object", Site, RoutingLink, User)


def create(directory: EnterpriseDirectory, new: Object) -> Object:
    """Create the object through the gateway, as an apply does, and return it as it is read."""
    gateway, repository = directory.gateway, _repository(directory, new)
    rows = [row for row in repository.mapping.attributes if row.changes is not Changes.NEVER]
    attributes = {row.name: values for row in rows if (values := _encoded(directory, row, new))}
    if isinstance(new, Site):
        entry = gateway.create_site(gateway.writer, new.name, attributes)
    elif isinstance(new, RoutingLink):
        entry = gateway.create_link(gateway.writer, (new.site1_identifier, new.site2_identifier), attributes)
    else:
        if new.security_identifier is not None and not directory.connection.dialect.gives_guid:
            attributes["objectSid"] = (new.security_identifier,)
        entry = gateway.create_user(gateway.writer, new.name, new.name, attributes)
    return repository.at(entry.dn)


def change(directory: EnterpriseDirectory, present: Object | QueueManager | Enterprise, **values: Any) -> None:
    """Write fields of an object that was read."""
    repository, changed = _repository(directory, present), replace(present, **values)
    attributes = {
        row.name: _encoded(directory, row, changed) for name in values if (row := repository.mapping.of(name))
    }
    directory.gateway.writer.change(str(present.full_path), attributes)


def delete(directory: EnterpriseDirectory, present: Object | QueueManager) -> None:
    """Delete an object through the gateway, as an apply does; the directory remembers no GUID of it any more."""
    gateway, connection, dn = directory.gateway, directory.connection, str(present.full_path)
    if isinstance(present, Site):
        gateway.delete_site(gateway.writer, dn)
    elif isinstance(present, QueueManager):
        filter = f"(&(objectClass=mSMQSettings)(mSMQQMID={escape_filter(bytes(present.identifier or b''))}))"
        settings = [entry.dn for entry in connection.search(connection.dialect.contexts.sites, filter, ("1.1",))]
        is_ours = gateway.writer.is_ours(connection.read(parent_of(dn), (MARK,)))
        gateway.delete_queue_manager(gateway.writer, parent_of(dn), dn, settings, (), is_ours)
    else:
        gateway.writer.remove(dn)
    directory.sites._references._by_dn.pop(normalized(dn), None)


def _encoded(directory: EnterpriseDirectory, row: Attribute, of: Object | QueueManager | Enterprise) -> Values:
    value = getattr(of, row.field)
    if row.refers is None:
        return row.codec.encode(value)
    named = directory.sites if row.refers is Refers.SITE else directory.queue_managers
    guids = (value,) if isinstance(value, bytes) else value
    return tuple(str(named.get(guid).full_path).encode() for guid in guids)


def _repository(directory: EnterpriseDirectory, of: Object | QueueManager | Enterprise) -> Repository[Any]:
    repositories = {
        Site: directory.sites,
        RoutingLink: directory.routing_links,
        User: directory.users,
        QueueManager: directory.queue_managers,
        Enterprise: directory._enterprises,
    }
    return repositories[type(of)]
