"""Failures in groups over nodes: groups of the same reason, queue, sender or exception are one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from qmnode.management.operation_routes import FailureGroup, FailureGroups


@dataclass(slots=True)
class Group:
    """A group over nodes."""

    key: tuple[str, ...]
    where: tuple[str, ...]
    """Criteria that find its messages at each of the machines."""
    machines: list[str] = field(default_factory=list)
    queues: set[str] = field(default_factory=set)
    count: int = 0
    last_hour: int = 0
    hour_before: int = 0
    first: datetime | None = None
    last: datetime | None = None

    def add(self, machine: str, group: FailureGroup) -> None:
        self.machines.append(machine)
        self.queues.update(group.queues)
        self.count += group.count
        self.last_hour += group.last_hour
        self.hour_before += group.hour_before
        self.first = min((one for one in (self.first, group.first) if one), default=None)
        self.last = max((one for one in (self.last, group.last) if one), default=None)

    def document(self, by: Sequence[str]) -> dict[str, Any]:
        """Return the JSON document of the group, whose key has these names."""
        return dict(zip(by, self.key, strict=True)) | {
            "machines": sorted(self.machines),
            "queues": sorted(self.queues),
            "count": self.count,
            "first": None if self.first is None else self.first.isoformat(),
            "last": None if self.last is None else self.last.isoformat(),
            "last_hour": self.last_hour,
            "hour_before": self.hour_before,
            "where": list(self.where),
        }


def merged(answers: Iterable[tuple[str, FailureGroups]], by: Sequence[str]) -> list[Group]:
    """The groups of all machines, the largest first."""
    found: dict[tuple[str, ...], Group] = {}
    for machine, answer in answers:
        for group in answer.groups:
            key = tuple(str(getattr(group, name)) for name in by)
            found.setdefault(key, Group(key, tuple(group.where))).add(machine, group)
    return sorted(found.values(), key=lambda group: (-group.count, group.key))
