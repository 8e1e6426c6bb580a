"""The roads by which values come to machines: directory, inventory, ``node.yaml`` or default; and the losers."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mqenterprise.topology.check import Checked
from mqenterprise.topology.declaration import SECTIONS, Bridge, path_of
from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import Kind, Reference, Resource, Table, Value, names_in, resource
from mqenterprise.topology.problems import Path, did_you_mean
from qmnode.objects.rows import QUOTA, Door, Property
from qmnode.objects.table import PRIVATE_QUEUE, ROWS, SITE

SETTINGS: Final[Mapping[str, str]] = {
    "quota": "quotas.queue_manager_quota",
    "journal_quota": "quotas.journal_quota",
}
"""Properties of a machine that ``node.yaml`` may set as well, with the setting."""
ROUTING: Final = {"sites", "routing_server", "out_routing_servers", "in_routing_servers", "foreign", "dns_name"}
"""Properties of a machine that its node says routing uses."""
SHOWN_BY_NODES: Final = {*SETTINGS, *ROUTING, "default_time_to_live", "weakened_security"}
"""Properties of machines and the enterprise that a node says it has."""
LOCAL: Final = ("addresses", "bridges")
"""Declared values of a machine that its document holds, as no directory does."""
OF_HOSTS: Final = ("hosts", "failover", "remote_copy")
"""Declared values of a machine that reach its hosts with ``node.yaml``, and the services around it."""
ROLLOUT: Final = "the hosts of its machine, which rollout.yml sets up"
"""The road of those values."""
DOCUMENT: Final = "the document of its machine, which rollout.yml or qmnode apply makes true"
"""The road of private queues, addresses and bridges."""
_LOST: Final = "lost: the document of the machine wins"
_NOT_APPLIED: Final = "not applied: rollout.yml --check shows the change"
_NOT_SHOWN: Final = "holds once the document was applied: mqenterprise plan --nodes compares it"
_NOT_ASKED: Final = "holds once the document was applied: ask the node with --nodes"
_UNASKED: Final = "holds, unless node.yaml says otherwise: ask the node with --nodes"
_DECLARED_AS: Final[Mapping[tuple[Kind, str], tuple[str, ...]]] = {
    **{(Kind.MACHINE, role): ("roles",) for role in ("routing_server", "supporting_server", "directory_server")},
    (Kind.MACHINE, "sites"): ("sites", "foreign_sites"),
    (Kind.SITE, "foreign"): ("name",),
}
"""Properties that declarations write under other names. A site is foreign by its section."""
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    declared: tuple(name for (_, name), names in _DECLARED_AS.items() if declared in names)
    for declared in ("roles", "foreign_sites")
}
"""Names of declarations that no property has, with the properties that each stands for."""
_OF_ONE_NAME: Final = (Kind.MACHINE, Kind.ENTERPRISE, Kind.SITE, Kind.USER, Kind.QUEUE_ALIAS, Kind.DISTRIBUTION_LIST)
FORMS: Final = (
    "MACHINE.PROPERTY, MACHINE\\QUEUE.PROPERTY, SITE.PROPERTY, SITE|SITE.PROPERTY, USER.PROPERTY, ALIAS.PROPERTY or "
    "LIST.PROPERTY"
)


class UnknownValue(ValueError):
    """Nothing has this name; the sentence says what has."""


class From(enum.StrEnum):
    """Where a value stands."""

    DECLARATION = "declaration"
    DIRECTORY = "directory"
    SETTINGS = "node.yaml"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Asked:
    """A property of an object, or of the enterprise at a machine."""

    kind: Kind
    names: tuple[str, ...]
    """Of the object, as they were written; for the enterprise, the machine."""
    name: str
    row: Property | None
    """None for what the directory does not hold."""

    @property
    def machine(self) -> str:
        """The machine, of a property that nodes have."""
        return self.names[0]

    @property
    def queue(self) -> str | None:
        """The name of the queue without its machine."""
        return self.names[1] if self.kind is Kind.QUEUE else None

    @property
    def is_private(self) -> bool:
        """Whether it is a private queue, which no directory holds."""
        return self.kind is Kind.QUEUE and _is_private(self.names)

    @property
    def title(self) -> str:
        """As it was written."""
        joint = "|" if self.kind is Kind.ROUTING_LINK else "\\"
        return f"{joint.join(self.names)}.{self.name}"

    @property
    def reference(self) -> Reference:
        """The object in tables."""
        return resource(self.kind, () if self.kind is Kind.ENTERPRISE else self.names, {}).reference


@dataclass(frozen=True, slots=True)
class Standing:
    """A value, where it stands, and what became of it."""

    where: From
    value: Any
    place: str
    """File and line, LDAP attribute or setting."""
    fate: str
    """``holds``, or why it does not."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The node's value. With ``unknown``, the reason, there is none."""

    value: Any = None
    source: str = ""
    """``directory``, ``settings`` or ``default``; empty where a node does not tell them apart."""
    own: Any = None
    """The value in ``node.yaml``; None if there is none."""
    document: Any = None
    """Addresses, or bridges by name, that documents made, as a document has them."""
    unknown: str = ""


def _is_private(names: tuple[str, ...]) -> bool:
    return fold(names[1]).startswith("private$\\")


def asked(text: str) -> Asked:
    """Read MACHINE.PROPERTY and its like. Raises :class:`UnknownValue`."""
    whole, dot, name = text.rpartition(".")
    names: tuple[str, ...] = (whole,)
    kinds: tuple[Kind, ...] = _OF_ONE_NAME
    if "\\" in whole:
        names, kinds = tuple(whole.split("\\", 1)), (Kind.QUEUE,)
    elif "|" in whole:
        names, kinds = tuple(whole.split("|", 1)), (Kind.ROUTING_LINK,)
    if not (dot and name and all(names)):
        raise UnknownValue(f"{text!r}: write {FORMS}")
    for kind in kinds:
        row = ROWS[kind].called(name)
        if row is not None and (
            Door.DECLARATION in row.doors or (kind is Kind.QUEUE and row.name in PRIVATE_QUEUE and _is_private(names))
        ):
            return Asked(kind, names, row.name, row)
    if len(names) == 1 and name in (*LOCAL, *OF_HOSTS):
        return Asked(Kind.MACHINE, names, name, None)
    if len(names) == 1 and (parts := _PARTS.get(name)):
        if len(parts) == 1:
            return asked(f"{whole}.{parts[0]}")
        raise UnknownValue(f"each of the {name} is a value of its own: ask for {whole}." + f" or {whole}.".join(parts))
    known = [row.name for kind in kinds for row in ROWS[kind].at(Door.DECLARATION)]
    what = f"a {kinds[0]}" if len(names) > 1 else "a machine, site, user, alias, list or enterprise"
    hint = did_you_mean(name, known + ([] if len(names) > 1 else [*LOCAL, *OF_HOSTS]))
    raise UnknownValue(f"{what} has no declared property {name!r}{hint}")


def located(value: Asked, *tables: Table | None) -> Asked:
    """The value, of a site if machines have the property too and only a site has the name."""
    row = SITE.called(value.name)
    if value.kind in (Kind.MACHINE, Kind.ENTERPRISE) and row is not None:
        machine = resource(Kind.MACHINE, value.names, {}).reference
        site = Asked(Kind.SITE, value.names, row.name, row)
        found = [(machine in table, site.reference in table) for table in tables if table is not None]
        if not any(has for has, _ in found) and any(is_site for _, is_site in found):
            return site
    return value


def standings(
    value: Asked, checked: Checked | None, declared: Table | None, present: Table, node: NodeAnswer
) -> tuple[Standing, ...]:
    """Every place where the value stands, with what became of it. Raises :class:`UnknownValue`.

    ``declared`` is the table of the declaration ``checked``, ``present`` that of the directory.
    """
    if value.row is None and value.name in OF_HOSTS:
        return _of_hosts(value, checked)
    if value.row is None:
        return _of_local(value, checked, node)
    if value.is_private:
        return _of_document(value, value.row, checked, node)
    row = value.row
    reference = value.reference
    object_, wanted = present.get(reference), None if declared is None else declared.get(reference)
    if object_ is None and wanted is None:
        known = [each.name[0] for each in present if each.kind is value.kind and len(value.names) == 1]
        raise UnknownValue(
            f"there is no {value.kind} {value.title.rpartition('.')[0]} in the directory or the declaration"
            + (did_you_mean(value.names[0], known) if known else "")
        )
    default = row.form.write(row.default) if row.default is not None else None
    there, held = _value(object_, row)
    winner = _winner(there and not _same(held, default), node)
    holds = "holds" if row.name not in SETTINGS or value.kind is not Kind.MACHINE or node.source else _UNASKED
    found: list[Standing] = []
    line = None if checked is None else _line(value, checked)
    if line is not None and wanted is not None:
        written = _value(wanted, row)[1]
        applied = there and _same(written, held)
        fate = "applied" if applied else "not applied: mqenterprise plan shows the change"
        found.append(Standing(From.DECLARATION, written, line, fate))
    if there:
        if winner is From.DIRECTORY:
            fate = holds
        elif not _same(held, default):
            fate = "lost: the node has quotas.source: local"
        else:
            fate = "is the default" if winner is From.DEFAULT else "equals the default, which declares nothing"
        found.append(Standing(From.DIRECTORY, held, row.attribute, fate))
    if node.own is not None:
        lost = "lost: the directory wins, unless quotas.source is local"
        fate = "holds" if winner is From.SETTINGS else lost
        found.append(Standing(From.SETTINGS, node.own, SETTINGS[row.name], fate))
    found.append(Standing(From.DEFAULT, default, row.section, holds if winner is From.DEFAULT else "not used"))
    return tuple(found)


def _winner(is_declared: bool, node: NodeAnswer) -> From:
    known = {"directory": From.DIRECTORY, "settings": From.SETTINGS, "default": From.DEFAULT}.get(node.source)
    if known is not None:
        return known
    return From.DIRECTORY if is_declared else From.DEFAULT


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return sorted(map(fold, one)) == sorted(map(fold, other))
    return bool(_plain(one) == _plain(other))


def _plain(value: Any) -> Any:
    """A quota that is never reached is a number or null, and an empty text is none."""
    return None if value in (0xFFFFFFFF, "") and not isinstance(value, bool) else value


def _value(found: Resource | None, row: Property) -> tuple[bool, Value]:
    """Whether an object has the property, and the value."""
    for name in (row.name, *row.aliases):
        if found is not None and name in found.values:
            return True, found.values[name]
    return False, None


def _line(value: Asked, checked: Checked) -> str | None:
    """File and line of the value, if the declaration has it."""
    places = list(_places(value, checked))
    if not places:
        return None
    found = max((checked.sources.problem(place, "") for place in places), key=lambda one: one.line)
    return f"{found.file}:{found.line}"


def _places(value: Asked, checked: Checked) -> Iterator[Path]:
    assert value.row is not None
    names = (*_DECLARED_AS.get((value.kind, value.name), (value.name,)), *value.row.aliases)
    declaration = checked.declaration
    items: list[tuple[Path, Any]] = [(("enterprise",), declaration.enterprise)]
    if value.kind is not Kind.ENTERPRISE:
        items = [
            ((section, at), one)
            for section, (_, rows) in SECTIONS.items()
            if rows.kind is value.kind
            for at, one in enumerate(getattr(declaration, section))
            if resource(value.kind, names_in(value.kind, one.__dict__), {}).reference == value.reference
        ]
    for path, item in items:
        if item.model_fields_set.intersection(names):
            yield from ((*path, name) for name in names)


def _of_document(value: Asked, row: Property, checked: Checked | None, node: NodeAnswer) -> tuple[Standing, ...]:
    default = row.form.write(row.default) if row.default is not None else None
    nothing = Standing(From.DEFAULT, default, row.section, "holds")
    if checked is None:
        return (nothing,)
    path = fold("\\".join(value.names))
    private = [(at, queue) for at, queue in enumerate(checked.declaration.queues) if queue.private]
    for at, queue in private:
        if fold(path_of(queue)) != path:
            continue
        names = queue.model_fields_set.intersection((row.name, *row.aliases))
        if not names:
            return (nothing,)
        place = checked.sources.problem(("queues", at, *names), "")
        written = queue.model_dump(mode="json")[row.name]
        if row.form is QUOTA and written == "none":
            written = None
        fate = _NOT_ASKED if row.name != "access" else _NOT_SHOWN
        if not node.unknown:
            fate = "applied" if _same(written, node.value) else _NOT_APPLIED
        found = Standing(From.DECLARATION, written, f"{place.file}:{place.line}", fate)
        return (found, Standing(From.DEFAULT, default, row.section, "not used"))
    known = [path_of(queue) for _, queue in private]
    raise UnknownValue(
        f"there is no private queue {value.title.rpartition('.')[0]} in the declaration"
        + did_you_mean("\\".join(value.names), known)
    )


def _of_hosts(value: Asked, checked: Checked | None) -> tuple[Standing, ...]:
    if checked is not None:
        for at, machine in enumerate(checked.declaration.machines):
            if fold(machine.name) == fold(value.machine) and value.name in machine.model_fields_set:
                place = checked.sources.problem(("machines", at, value.name), "")
                written = machine.model_dump(mode="json", exclude_unset=True)[value.name]
                fate = "holds once it was rolled out: rollout.yml --check shows the change"
                declared = Standing(From.DECLARATION, written, f"{place.file}:{place.line}", fate)
                return (declared, Standing(From.DEFAULT, (), "", "not used"))
    return (Standing(From.DEFAULT, (), "", "holds"),)


def _of_local(value: Asked, checked: Checked | None, node: NodeAnswer) -> tuple[Standing, ...]:
    """Addresses, or the bridges one by one: declared, in ``node.yaml``, or none."""
    found = [*_declared_local(value, checked, node)]
    if value.name == "addresses" and node.own:
        found.append(Standing(From.SETTINGS, tuple(node.own), "addresses", _LOST if node.document else "holds"))
    elif value.name == "bridges":
        for name in node.own or ():
            fate = _LOST if name in (node.document or ()) else "holds"
            found.append(Standing(From.SETTINGS, name, f"bridges.{name}", fate))
    found.append(Standing(From.DEFAULT, (), "", "not used" if found else "holds"))
    return tuple(found)


def _declared_local(value: Asked, checked: Checked | None, node: NodeAnswer) -> Iterator[Standing]:
    if checked is None:
        return

    def standing(written: Any, path: Path, *, applied: bool) -> Standing:
        fate = _NOT_ASKED if node.unknown else "applied" if applied else _NOT_APPLIED
        place = checked.sources.problem(path, "")
        return Standing(From.DECLARATION, written, f"{place.file}:{place.line}", fate)

    declaration = checked.declaration
    if value.name == "addresses":
        for at, machine in enumerate(declaration.machines):
            if fold(machine.name) == fold(value.machine) and machine.addresses:
                applied = tuple(node.document or ()) == machine.addresses
                yield standing(machine.addresses, ("machines", at, "addresses"), applied=applied)
        return
    for at, bridge in enumerate(declaration.bridges):
        if fold(bridge.machine) == fold(value.machine):
            present = (node.document or {}).get(bridge.name)
            applied = present is not None and _is_bridge(present, bridge)
            yield standing(bridge.name, ("bridges", at), applied=applied)


def _is_bridge(present: Mapping[str, Any], bridge: Bridge) -> bool:
    return dict(present) == bridge.model_dump(mode="json", exclude_defaults=True, exclude={"machine", "name"})
