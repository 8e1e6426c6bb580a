"""Turn a declaration into the normal form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, get_args

from pydantic import BaseModel

from mqenterprise.topology import access
from mqenterprise.topology.declaration import (
    AnyAccess,
    DistributionList,
    Enterprise,
    ForeignSite,
    Machine,
    Queue,
    QueueAlias,
    Role,
    RoutingLink,
    Site,
)
from mqenterprise.topology.names import fold
from mqenterprise.topology.problems import DeclarationError, Problem
from mqenterprise.topology.resources import FIELDS, NAMES, Kind, Table, Value, resource

if TYPE_CHECKING:
    from mqenterprise.topology.check import Checked


def wanted(checked: Checked, canonical: Callable[[str], str | None]) -> Table:
    """Return the table of the declared resources.

    ``canonical`` returns the one name of a user or group in the directory, or None. Raises :class:`DeclarationError`
    with every access entry that names an unknown user or group.
    """
    declared, table = checked.declaration, Table()
    lists = _Lists(checked, canonical)
    enterprise = _plain(Kind.ENTERPRISE, declared.enterprise)
    table.put(resource(Kind.ENTERPRISE, (), enterprise | lists.of(declared.enterprise, Kind.ENTERPRISE, "enterprise")))
    for section, sites in (("sites", declared.sites), ("foreign_sites", declared.foreign_sites)):
        for position, site in enumerate(sites):
            values = _site(site) | lists.of(site, Kind.SITE, section, position)
            table.put(resource(Kind.SITE, (site.name,), values))
    for machine in declared.machines:
        table.put(resource(Kind.MACHINE, (machine.name,), _machine(machine)))
    for link in declared.routing_links:
        table.put(resource(Kind.ROUTING_LINK, link.sites, _plain(Kind.ROUTING_LINK, link)))
    for user in declared.users:
        certificates = checked.certificates.get(fold(user.name))
        table.put(resource(Kind.USER, (user.name,), {} if certificates is None else {"certificates": certificates}))
    machines = {fold(machine.name): machine.name for machine in declared.machines}
    for position, queue in enumerate(declared.queues):
        if queue.private:
            continue
        values = _plain(Kind.QUEUE, queue) | lists.of(queue, Kind.QUEUE, "queues", position)
        table.put(resource(Kind.QUEUE, (machines[fold(queue.machine)], queue.name), values))
    for alias in declared.queue_aliases:
        table.put(resource(Kind.QUEUE_ALIAS, (alias.name,), values_of(alias)))
    for each in declared.distribution_lists:
        table.put(resource(Kind.DISTRIBUTION_LIST, (each.name,), values_of(each)))
    if lists.found:
        raise DeclarationError(lists.found)
    return table


def values_of(item: Site | Machine | RoutingLink | Queue | QueueAlias | DistributionList) -> dict[str, Value]:
    """Return the values of one declared object, without its access list, whose names must be resolved."""
    match item:
        case Machine():
            return _machine(item)
        case RoutingLink():
            return _plain(Kind.ROUTING_LINK, item)
        case Queue():
            return _plain(Kind.QUEUE, item)
        case QueueAlias():
            return {"format_name": item.format_name}
        case DistributionList():
            return {"members": _names(item.members)}
    return _site(item)


_MODELS: Final[dict[Kind, type[BaseModel]]] = {
    Kind.ENTERPRISE: Enterprise,
    Kind.SITE: Site,
    Kind.ROUTING_LINK: RoutingLink,
    Kind.MACHINE: Machine,
    Kind.QUEUE: Queue,
}
_PLAIN: Final = {
    kind: tuple(name for name in FIELDS[kind] if name in model.model_fields and name != "access")
    for kind, model in _MODELS.items()
}
"""Fields whose values are the declared ones."""
_DECLARED: Final = {kind: attrgetter(*names) for kind, names in _PLAIN.items()}
_NAMES: Final = {kind: NAMES.intersection(names) for kind, names in _PLAIN.items()}
_ROLES: Final = tuple(name for name in FIELDS[Kind.MACHINE] if name in get_args(Role))


def _plain(kind: Kind, item: BaseModel) -> dict[str, Value]:
    values: dict[str, Value] = dict(zip(_PLAIN[kind], _DECLARED[kind](item), strict=True))
    for name in _NAMES[kind]:
        values[name] = _names(values[name])
    return values


def _names(names: object) -> tuple[str, ...]:
    return tuple(sorted(names, key=fold)) if isinstance(names, tuple) else ()


def _site(site: Site) -> dict[str, Value]:
    return {"foreign": isinstance(site, ForeignSite), **_plain(Kind.SITE, site)}


def _machine(machine: Machine) -> dict[str, Value]:
    sites = _names((*machine.sites, *machine.foreign_sites))
    roles: dict[str, Value] = {name: name in machine.roles for name in _ROLES}
    # One mSMQSettings object in each site of a machine that serves others (MS-MQDSSM 3.1.6.7.1.9).
    serves = any(roles.values())
    values = _plain(Kind.MACHINE, machine) | roles | {"sites": sites, "settings": sites if serves else ()}
    if machine.dns_name is None:
        del values["dns_name"]
    return values


class _Lists:
    """Access lists in normal form, and the problems with their names."""

    def __init__(self, checked: Checked, canonical: Callable[[str], str | None]) -> None:
        self._checked, self._canonical = checked, canonical
        self._users = {fold(user.name): user.name for user in checked.declaration.users}
        self.found: list[Problem] = []

    def _name(self, trustee: str) -> str:
        known = self._canonical(trustee) or self._users.get(fold(trustee))
        if known is None:
            raise LookupError(trustee)
        return known

    def of(self, item: Enterprise | Site | Queue, kind: Kind, *place: str | int) -> dict[str, Value]:
        """Return the access list of a declared object as a value; none if it is not declared."""
        if item.access is None:
            return {}
        entries: Sequence[AnyAccess] = item.access
        try:
            return {"access": access.normal(entries, self._name, kind)}
        except LookupError as error:
            index = next(i for i, entry in enumerate(entries) if entry.to == error.args[0])
            sentence = f"there is no user or group {error.args[0]!r}; declare the user, or create the group first"
            self.found.append(self._checked.sources.problem((*place, "access", index, "to"), sentence))
            return {}
