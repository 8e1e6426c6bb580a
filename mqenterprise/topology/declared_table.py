"""Turn a declaration into the normal form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, get_args

from pydantic import BaseModel

from mqenterprise.topology import access_lists
from mqenterprise.topology.declaration import (
    SECTIONS,
    AnyAccess,
    Enterprise,
    ForeignSite,
    Machine,
    Queue,
    Role,
    Site,
    User,
)
from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import FIELDS, NAMES, Kind, Table, Value, names_in, resource
from mqenterprise.topology.problems import DeclarationError, Problem

if TYPE_CHECKING:
    from mqenterprise.topology.check import Checked


def declared_table(checked: Checked, canonical: Callable[[str], str | None]) -> Table:
    """Return the table of the declared resources.

    ``canonical`` returns the one name of a user or group in the directory, or None. Raises :class:`DeclarationError`
    with every access entry that names an unknown user or group.
    """
    declared, table, lists = checked.declaration, Table(), _Lists(checked, canonical)
    enterprise = _plain(Kind.ENTERPRISE, declared.enterprise)
    table.put(resource(Kind.ENTERPRISE, (), enterprise | lists.of(declared.enterprise, Kind.ENTERPRISE, "enterprise")))
    machines = {fold(machine.name): machine.name for machine in declared.machines}
    for section, (_, rows) in SECTIONS.items():
        kind = rows.kind
        for position, item in enumerate(getattr(declared, section)):
            name = names_in(kind, item.__dict__)
            match item:
                case User():
                    certificates = checked.certificates.get(fold(item.name))
                    values: dict[str, Value] = {} if certificates is None else {"certificates": certificates}
                case Queue(private=True):
                    continue
                case Site() | Queue():
                    values = values_of(item) | lists.of(item, kind, section, position)
                    name = (machines[fold(name[0])], name[1]) if kind is Kind.QUEUE else name
                case _:
                    values = values_of(item)
            table.put(resource(kind, name, values))
    if lists.found:
        raise DeclarationError(lists.found)
    return table


def values_of(item: BaseModel) -> dict[str, Value]:
    """Return the values of one declared object, without its access list, whose names must be resolved."""
    match item:
        case Machine():
            return _machine(item)
        case Site():
            return {"foreign": isinstance(item, ForeignSite), **_plain(Kind.SITE, item)}
    return _plain(_KINDS[type(item)], item)


_KINDS: Final = {model: rows.kind for model, rows in SECTIONS.values()}
_PLAIN: Final = {
    kind: tuple(name for name in FIELDS[kind] if name in model.model_fields and name != "access")
    for model, kind in ({Enterprise: Kind.ENTERPRISE} | _KINDS).items()
}
"""Fields whose values are the declared ones."""
_NAMES: Final = {kind: NAMES.intersection(names) for kind, names in _PLAIN.items()}
ROLES: Final = tuple(name for name in FIELDS[Kind.MACHINE] if name in get_args(Role))


def _plain(kind: Kind, item: BaseModel) -> dict[str, Value]:
    declared = item.__dict__
    values: dict[str, Value] = {name: declared[name] for name in _PLAIN[kind]}
    for name in _NAMES[kind]:
        values[name] = _names(values[name])
    return values


def _names(names: object) -> tuple[str, ...]:
    return tuple(sorted(names, key=fold)) if isinstance(names, tuple) else ()


def _machine(machine: Machine) -> dict[str, Value]:
    sites = _names((*machine.sites, *machine.foreign_sites))
    roles: dict[str, Value] = {name: name in machine.roles for name in ROLES}
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
            return {"access": access_lists.normal(entries, self._name, kind)}
        except LookupError as error:
            index = next(i for i, entry in enumerate(entries) if entry.to == error.args[0])
            sentence = f"there is no user or group {error.args[0]!r}; declare the user, or create the group first"
            self.found.append(self._checked.sources.problem((*place, "access", index, "to"), sentence))
            return {}
