"""Objects of a real directory that the product creates by declarations alone: sites, routing links and users."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from qmnode.directory.port import Enterprise, RoutingLink, Site, User
from qmnode.objects.rows import Changes

if TYPE_CHECKING:
    from mqenterprise.directory.mapping import Attribute, Values
    from mqenterprise.directory.repositories import Repository
    from mqenterprise.directory.service import EnterpriseDirectory

Object = TypeVar("Object", Site, RoutingLink, User)


def create(directory: EnterpriseDirectory, new: Object) -> Object:
    """Create the object through the gateway, as an apply does, and return it as it is read."""
    gateway, repository = directory.gateway, _repository(directory, new)
    rows = [row for row in repository.mapping.attributes if row.changes is not Changes.NEVER]
    attributes = {row.name: values for row in rows if (values := _encoded(repository, row, new))}
    if isinstance(new, Site):
        entry = gateway.create_site(gateway.writer, new.name, attributes)
    elif isinstance(new, RoutingLink):
        entry = gateway.create_link(gateway.writer, (new.site1_identifier, new.site2_identifier), attributes)
    else:
        if new.security_identifier is not None and not directory.connection.dialect.gives_guid:
            attributes["objectSid"] = (new.security_identifier,)
        entry = gateway.create_user(gateway.writer, new.name, new.name, attributes)
    return repository.at(entry.dn)


def change(directory: EnterpriseDirectory, present: Object | Enterprise, **values: Any) -> None:
    """Write fields of an object that was read."""
    repository, changed = _repository(directory, present), replace(present, **values)
    attributes = {
        row.name: _encoded(repository, row, changed) for name in values if (row := repository.mapping.of(name))
    }
    directory.gateway.writer.change(str(present.full_path), attributes)


def _encoded(repository: Repository[Any], row: Attribute, of: Object | Enterprise) -> Values:
    value = getattr(of, row.field)
    if row.refers is None:
        return row.codec.encode(value)
    named = (value,) if isinstance(value, bytes) else value
    return tuple(repository._references.dn_of(guid, row.refers).encode() for guid in named)


def _repository(directory: EnterpriseDirectory, of: Object | Enterprise) -> Repository[Any]:
    repositories = {
        Site: directory.sites,
        RoutingLink: directory.routing_links,
        User: directory.users,
        Enterprise: directory._enterprises,
    }
    return repositories[type(of)]
