"""Turn a declaration into the normal form."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mqenterprise.topology import access
from mqenterprise.topology.declaration import Enterprise, ForeignSite, Machine, Queue, RoutingLink, Site
from mqenterprise.topology.names import fold
from mqenterprise.topology.problems import DeclarationError, Problem
from mqenterprise.topology.resources import Kind, Table, Value, resource

if TYPE_CHECKING:
    from mqenterprise.topology.check import Checked


def wanted(checked: Checked, canonical: Callable[[str], str | None]) -> Table:
    """Return the table of the declared resources.

    ``canonical`` returns the one name of a user or group in the directory, or None. Raises :class:`DeclarationError`
    with every access entry that names an unknown user or group.
    """
    declared, table = checked.declaration, Table()
    table.put(resource(Kind.ENTERPRISE, (), _enterprise(declared.enterprise)))
    for site in (*declared.sites, *declared.foreign_sites):
        table.put(resource(Kind.SITE, (site.name,), _site(site)))
    for machine in declared.machines:
        table.put(resource(Kind.MACHINE, (machine.name,), _machine(machine)))
    for link in declared.routing_links:
        table.put(resource(Kind.ROUTING_LINK, link.sites, _link(link)))
    for user in declared.users:
        certificates = checked.certificates.get(fold(user.name))
        table.put(resource(Kind.USER, (user.name,), {} if certificates is None else {"certificates": certificates}))
    _queues(checked, canonical, table)
    return table


def values_of(item: Site | Machine | RoutingLink | Queue) -> dict[str, Value]:
    """Return the values of one declared object, without a queue's access list, whose names must be resolved."""
    match item:
        case Machine():
            return _machine(item)
        case RoutingLink():
            return _link(item)
        case Queue():
            return _queue(item)
    return _site(item)


def _site(site: Site) -> dict[str, Value]:
    return {
        "foreign": isinstance(site, ForeignSite),
        "intra_site_replication_interval": site.intra_site_replication_interval,
        "inter_site_replication_interval": site.inter_site_replication_interval,
        "migrated_from_msmq10": site.migrated_from_msmq10,
    }


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=fold))


def _enterprise(enterprise: Enterprise) -> dict[str, Value]:
    return {
        "weakened_security": enterprise.weakened_security,
        "default_time_to_live": enterprise.default_time_to_live,
        "change_notification": enterprise.change_notification,
        "old_directory": enterprise.old_directory,
    }


def _link(link: RoutingLink) -> dict[str, Value]:
    return {"cost": link.cost, "site_gates": _names(link.site_gates), "description": link.description}


def _machine(machine: Machine) -> dict[str, Value]:
    sites = _names((*machine.sites, *machine.foreign_sites))
    serves = {"routing_server", "supporting_server", "directory_server"} & set(machine.roles)
    values: dict[str, Value] = {
        "sites": sites,
        "routing_server": "routing_server" in machine.roles,
        "supporting_server": "supporting_server" in machine.roles,
        "directory_server": "directory_server" in machine.roles,
        # One mSMQSettings object in each site of a machine that serves others (MS-MQDSSM 3.1.6.7.1.9).
        "settings": sites if serves else (),
        "out_routing_servers": _names(machine.out_routing_servers),
        "in_routing_servers": _names(machine.in_routing_servers),
        "quota": machine.quota,
        "journal_quota": machine.journal_quota,
        "foreign": machine.foreign,
        "operating_system": machine.operating_system,
        "version": machine.version,
    }
    if machine.dns_name is not None:
        values["dns_name"] = machine.dns_name
    return values


def _queue(queue: Queue) -> dict[str, Value]:
    return {
        "label": queue.label,
        "type": queue.type,
        "transactional": queue.transactional,
        "journal": queue.journal,
        "quota": queue.quota,
        "journal_quota": queue.journal_quota,
        "authenticate": queue.authenticate,
        "privacy_level": queue.privacy_level,
        "base_priority": queue.base_priority,
        "multicast_address": queue.multicast_address,
    }


def _queues(checked: Checked, canonical: Callable[[str], str | None], table: Table) -> None:
    users = {fold(user.name): user.name for user in checked.declaration.users}
    machines = {fold(machine.name): machine.name for machine in checked.declaration.machines}
    found: list[Problem] = []

    def name(trustee: str) -> str:
        known = canonical(trustee) or users.get(fold(trustee))
        if known is None:
            raise LookupError(trustee)
        return known

    for position, queue in enumerate(checked.declaration.queues):
        values = _queue(queue)
        if queue.access is not None:
            try:
                values["access"] = access.normal(queue.access, name)
            except LookupError as error:
                index = next(i for i, entry in enumerate(queue.access) if entry.to == error.args[0])
                sentence = f"there is no user or group {error.args[0]!r}; declare the user, or create the group first"
                found.append(checked.sources.problem(("queues", position, "access", index, "to"), sentence))
        table.put(resource(Kind.QUEUE, (machines[fold(queue.machine)], queue.name), values))
    if found:
        raise DeclarationError(found)
