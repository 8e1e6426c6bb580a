"""The normal form in which declarations and directories are compared: a table of flat resources.

A resource is one declared object. References are names, not GUIDs, so that a declaration that was never applied and a
directory full of GUIDs have the same form. Values are texts, numbers, truth values, None, or sorted tuples of texts:
equal values mean equal objects.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mqenterprise.topology.names import fold

Value = str | int | bool | None | tuple[str, ...]
Key = tuple[str, ...]


class Kind(enum.StrEnum):
    """The kinds of declared objects in the order of creation, by dependency. Deletion goes the other way."""

    ENTERPRISE = "enterprise"
    SITE = "site"
    USER = "user"
    MACHINE = "machine"
    ROUTING_LINK = "routing link"
    QUEUE = "queue"


RANK = {kind: 2 * rank for rank, kind in enumerate(Kind)}
"""A machine refers to routing servers, a link to sites and machines, a queue's access list to users."""

_FLAG, _NUMBER, _TEXT, _LIST = (bool,), (int,), (str,), (tuple,)
_OPTIONAL_TEXT = (str, type(None))
FIELDS: Mapping[Kind, Mapping[str, tuple[type, ...]]] = {
    Kind.ENTERPRISE: {
        **dict.fromkeys(("weakened_security", "change_notification", "old_directory"), _FLAG),
        "default_time_to_live": _NUMBER,
    },
    Kind.SITE: {
        **dict.fromkeys(("foreign", "migrated_from_msmq10"), _FLAG),
        **dict.fromkeys(("intra_site_replication_interval", "inter_site_replication_interval"), _NUMBER),
    },
    Kind.USER: {"certificates": _LIST},
    Kind.MACHINE: {
        **dict.fromkeys(("sites", "settings", "out_routing_servers", "in_routing_servers"), _LIST),
        **dict.fromkeys(("routing_server", "supporting_server", "directory_server", "foreign"), _FLAG),
        **dict.fromkeys(("quota", "journal_quota"), _NUMBER),
        **dict.fromkeys(("operating_system", "version"), _TEXT),
        "dns_name": _OPTIONAL_TEXT,
    },
    Kind.ROUTING_LINK: {"cost": _NUMBER, "site_gates": _LIST, "description": _TEXT},
    Kind.QUEUE: {
        **dict.fromkeys(("transactional", "journal", "authenticate"), _FLAG),
        **dict.fromkeys(("quota", "journal_quota", "base_priority"), _NUMBER),
        **dict.fromkeys(("label", "privacy_level"), _TEXT),
        **dict.fromkeys(("type", "multicast_address"), _OPTIONAL_TEXT),
        "access": (tuple, type(None)),
    },
}
"""The fields of each kind, and their types."""

NAME_PARTS: Mapping[Kind, int] = dict.fromkeys(Kind, 1) | {
    Kind.ENTERPRISE: 0,
    Kind.ROUTING_LINK: 2,
    Kind.QUEUE: 2,
}
"""The number of parts in the name of each kind."""

NAMES = frozenset({"sites", "settings", "site_gates", "out_routing_servers", "in_routing_servers"})
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
