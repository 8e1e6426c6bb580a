"""The normal form in which declarations and directories are compared: a table of flat resources.

A resource is one declared object. References are names, not GUIDs, so that a declaration that was never applied and a
directory full of GUIDs have the same form. Values are texts, numbers, truth values, None, or sorted tuples of texts:
equal values mean equal objects.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mqenterprise.topology.names import fold
from qmnode.objects.rows import QUOTA, Door, Property
from qmnode.objects.rows import Kind as Kind
from qmnode.objects.table import ROWS

Value = str | int | bool | None | tuple[str, ...]
Key = tuple[str, ...]

RANK = {kind: 2 * rank for rank, kind in enumerate(sorted(Kind, key=lambda kind: kind is not Kind.USER))}
"""Access lists refer to users, a machine to routing servers, a link to sites and machines, a distribution list to
queues. Deletion goes the other way."""


def _types(row: Property) -> tuple[type, ...]:
    return (row.form.type, type(None)) if row.form.nullable or row.default is None else (row.form.type,)


FIELDS: Mapping[Kind, Mapping[str, tuple[type, ...]]] = {
    kind: {row.name: _types(row) for row in rows.at(Door.DECLARATION)}
    | ({"settings": (tuple,)} if kind is Kind.MACHINE else {})
    for kind, rows in ROWS.items()
}
"""The fields of each kind, and the types of their written values. ``settings`` of a machine are sites."""

QUOTAS = frozenset(row.name for rows in ROWS.values() for row in rows.values() if row.form is QUOTA)
"""Fields in KB. None is no quota."""

NAMED_BY: Mapping[Kind, tuple[str, ...]] = dict.fromkeys(ROWS, ("name",)) | {
    Kind.ENTERPRISE: (),
    Kind.ROUTING_LINK: ("sites",),
    Kind.QUEUE: ("machine", "name"),
}
"""The values of a declared object that name it. Those of a link are one, with both sites."""

NAMES = frozenset(
    {"settings", *(row.name for rows in ROWS.values() for row in rows.values() if row.form.unit == "names")}
)
"""Fields that hold names of other resources. They are compared without regard to case, as the directory does."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to a resource: its kind and its folded names."""

    kind: Kind
    key: Key


@dataclass(frozen=True, slots=True)
class Resource:
    """One declared or existing object.

    ``name`` has the names as they are written. ``owned`` means that the directory's entry has our mark; ``partial``
    that it is ours and incomplete, because its creation or deletion was interrupted.
    """

    reference: Reference
    name: tuple[str, ...]
    values: Mapping[str, Value]
    owned: bool = False
    partial: bool = False

    @property
    def kind(self) -> Kind:
        return self.reference.kind

    @property
    def title(self) -> str:
        """The kind and the name for an operator."""
        joint = "\\" if self.kind is Kind.QUEUE else " - "
        return f"{self.kind} {joint.join(self.name)}".strip()

    @property
    def rank(self) -> int:
        """The place in the order of creation."""
        return rank_of(self.kind, self.values)


def rank_of(kind: Kind, values: Mapping[str, Value]) -> int:
    """The place in the order of creation: routing servers come before the machines that refer to them."""
    return RANK[kind] - 1 if kind is Kind.MACHINE and values.get("routing_server") else RANK[kind]


def resource(
    kind: Kind, name: tuple[str, ...], values: Mapping[str, Value], *, owned: bool = False, partial: bool = False
) -> Resource:
    """Make a resource with a key from its names. The two sites of a routing link have no order."""
    if kind is Kind.ROUTING_LINK:
        name = tuple(sorted(name, key=fold))
    key = () if kind is Kind.ENTERPRISE else tuple(fold(part) for part in name)
    return Resource(Reference(kind, key), name, values, owned, partial)


def names_in(kind: Kind, item: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that identify a declared object."""
    names = tuple(item[name] for name in NAMED_BY[kind])
    return tuple(names[0]) if kind is Kind.ROUTING_LINK else names


def named(kind: Kind, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of a declared object that give it these names."""
    return {"sites": list(names)} if kind is Kind.ROUTING_LINK else dict(zip(NAMED_BY[kind], names, strict=True))


def same(field_name: str, one: Value, other: Value) -> bool:
    """Return whether the directory treats two values of a field as equal."""
    if field_name in NAMES and isinstance(one, tuple) and isinstance(other, tuple):
        return sorted(map(fold, one)) == sorted(map(fold, other))
    return one == other


@dataclass(slots=True)
class Table:
    """A collection of resources by reference."""

    rows: dict[Reference, Resource] = field(default_factory=dict)

    def put(self, row: Resource) -> None:
        self.rows[row.reference] = row

    def get(self, reference: Reference) -> Resource | None:
        return self.rows.get(reference)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self.rows.values())

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, reference: object) -> bool:
        return reference in self.rows
