"""A plan: the difference of two tables as ordered steps, its inverse, its file format, and the port that it goes to."""

from __future__ import annotations

import enum
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from rich.text import Text

from mqenterprise.topology.loader import described
from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import (
    FIELDS,
    NAMED_BY,
    NAMES,
    QUOTAS,
    Key,
    Kind,
    Reference,
    Resource,
    Table,
    Value,
    rank_of,
    same,
)
from qmnode.objects.rows import NO_QUOTA
from qmnode.objects.table import ROWS
from qmnode.settings.sizes import quota_text

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
"""Version of the plan's file format."""

Values = Mapping[str, Value]


class Action(enum.StrEnum):
    """The kind of a step."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Step:
    """One resource brought from ``before`` to ``after``.

    For an update both hold only the values that differ. ``rank`` orders the steps of a plan: creations and changes
    upwards, then deletions downwards. Steps of the same rank do not depend on each other.
    """

    action: Action
    reference: Reference
    name: tuple[str, ...]
    rank: int
    before: Values = field(default_factory=dict)
    after: Values = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The kind and the name for an operator."""
        return Resource(self.reference, self.name, {}).title


class Note(enum.StrEnum):
    """The reason why a difference is left alone, or why what is declared has no effect."""

    UNMANAGED = "not declared, and not made by this tool: left alone"
    PRUNABLE = "not declared any more: would be deleted with --prune"
    HOLDS_OTHERS = "not declared any more, but holds what this tool did not make: left alone"
    DENIES_NOBODY = "the directory has no such user or group: the denial has no effect, take it out or correct it"


@dataclass(frozen=True, slots=True)
class Remark:
    """A resource of the directory that a plan leaves alone, or the declared entry without an effect, and the reason."""

    note: Note
    title: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered steps, the differences that are left alone, and the directory that the plan is for."""

    directory: str
    steps: tuple[Step, ...]
    remarks: tuple[Remark, ...] = ()

    def inverse(self) -> Plan:
        """Return the plan that undoes this one."""
        # The settings of the enterprise exist as long as the directory does.
        lasting = Reference(Kind.ENTERPRISE, ())
        steps = (step for step in self.steps if step.action is not Action.CREATE or step.reference != lasting)
        return Plan(self.directory, order(_inverse(step) for step in steps))


class PlanFileError(ValueError):
    """The file is not a plan; the message says why."""


class FixedError(ValueError):
    """The directory cannot change this property of an existing object; the message names the way out."""


_HIGHEST = 1_000
_ACCOUNT: Final = "S-1-5-21-"
"""The SIDs of users and groups of a domain begin with it."""
SERVICES = frozenset({"routing_server", "supporting_server", "directory_server"})
"""The services of a machine: values that its settings objects repeat (MS-MQDSSM 3.1.6.7.1.9)."""


def make_plan(directory: str, wanted: Table, actual: Table, *, prune: bool = False) -> Plan:
    """Return the steps that turn ``actual`` into ``wanted``. Raises FixedError if a change needs a new object."""
    steps: list[Step] = []
    fixed: list[str] = []
    depths = _depths(wanted)
    for row in wanted:
        present, rank = actual.get(row.reference), row.rank + depths.get(row.reference, 0)
        if present is None or present.partial:
            steps.append(Step(Action.CREATE, row.reference, row.name, rank, {}, row.values))
            continue
        changed = [name for name, value in row.values.items() if not same(name, value, present.values.get(name))]
        if not changed:
            continue
        if row.kind is Kind.QUEUE and "transactional" in changed:
            fixed.append(f"{row.title}: a queue stays transactional or not as it was created; delete it first")
        if row.kind is Kind.MACHINE and SERVICES.intersection(changed) and "settings" not in changed:
            changed.append("settings")  # settings objects repeat the services, even where the sites stay the same
        before = {name: present.values.get(name) for name in changed}
        after = {name: row.values[name] for name in changed}
        steps.append(Step(Action.UPDATE, row.reference, present.name, rank, before, after))
    if fixed:
        raise FixedError("\n".join(fixed))
    deletions, remarks = _left_over(wanted, actual, prune)
    return Plan(directory, order((*steps, *deletions)), (*remarks, *_denials_of_nobody(wanted)))


def _denials_of_nobody(wanted: Table) -> Iterator[Remark]:
    """Yield a remark for each denial of a user or group that has no name in the directory, but only a SID."""
    for row in wanted:
        lines = row.values.get("access")
        for line in lines if isinstance(lines, tuple) else ():
            trustee, _, rest = line.rpartition(": ")
            if rest.startswith("deny ") and trustee.upper().startswith(_ACCOUNT):
                yield Remark(Note.DENIES_NOBODY, f"{row.title}, {trustee}")


def _left_over(wanted: Table, actual: Table, prune: bool) -> tuple[list[Step], list[Remark]]:
    left = [row for row in actual if row.reference not in wanted and row.kind is not Kind.ENTERPRISE]
    holding = _holders_of_others(wanted, left)
    depths = _depths(actual)
    steps: list[Step] = []
    remarks: list[Remark] = []
    for row in left:
        if not row.owned:
            if row.kind is Kind.USER and not row.values.get("certificates"):
                continue  # most users of a directory have nothing to do with Message Queuing
            remarks.append(Remark(Note.UNMANAGED, row.title))
        elif row.reference in holding:
            remarks.append(Remark(Note.HOLDS_OTHERS, row.title))
        elif not prune:
            remarks.append(Remark(Note.PRUNABLE, row.title))
        else:
            rank = _HIGHEST - row.rank - depths.get(row.reference, 0)
            steps.append(Step(Action.DELETE, row.reference, row.name, rank, row.values, {}))
    return steps, sorted(remarks, key=lambda remark: (remark.note.name, remark.title))


def _depths(table: Table) -> dict[Reference, int]:
    """Return how many lists are in each other below each list, as lists come after those that they contain."""
    lists = {row.reference: row for row in table if row.kind is Kind.DISTRIBUTION_LIST}
    depths = dict.fromkeys(lists, 0)
    for _ in lists:
        deeper = {
            reference: 1 + max((depths[one] for one in needs(row) if one in depths), default=-1)
            for reference, row in lists.items()
        }
        if deeper == depths:
            break
        depths = deeper
    return depths


def _holders_of_others(wanted: Table, left: Iterable[Resource]) -> set[Reference]:
    """Return undeclared resources that must stay because others that stay are in them or refer to them."""
    staying = [*wanted, *(row for row in left if not row.owned)]
    held: set[Reference] = set()
    while staying:
        grown = {reference for row in staying for reference in needs(row)} - held
        held |= grown
        staying = [row for row in left if row.reference in grown]
    return held


def needs(row: Resource) -> Iterable[Reference]:
    """Return the resources that a resource depends on: its container and those that it names."""
    match row.kind:
        case Kind.QUEUE:
            yield Reference(Kind.MACHINE, row.reference.key[:1])
        case Kind.ROUTING_LINK:
            for site in row.reference.key:
                yield Reference(Kind.SITE, (site,))
        case Kind.DISTRIBUTION_LIST:
            members = row.values.get("members")
            for member in members if isinstance(members, tuple) else ():
                yield from recipients(member)
    for name in NAMES - {"members"}:
        kind = Kind.SITE if name in ("sites", "settings") else Kind.MACHINE
        value = row.values.get(name)
        for target in value if isinstance(value, tuple) else ():
            yield Reference(kind, (fold(target),))


def recipients(member: str) -> tuple[Reference, ...]:
    """Return what a member of a distribution list can be: the queue of this path, or the alias or list of the name."""
    machine, backslash, queue = member.partition("\\")
    if backslash:
        return (Reference(Kind.QUEUE, (fold(machine), fold(queue))),)
    return tuple(Reference(kind, (fold(member),)) for kind in (Kind.QUEUE_ALIAS, Kind.DISTRIBUTION_LIST))


def order(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Sort steps into the order in which they can be carried out. Equal plans get the same order."""
    return tuple(sorted(steps, key=lambda step: (step.rank, step.reference.kind, step.reference.key)))


def _inverse(step: Step) -> Step:
    match step.action:
        case Action.CREATE:
            return Step(Action.DELETE, step.reference, step.name, _HIGHEST - step.rank, step.after, {})
        case Action.DELETE:
            return Step(Action.CREATE, step.reference, step.name, _HIGHEST - step.rank, {}, step.before)
    # A machine that becomes an ordinary one again may refer to routing servers that are created again.
    turned = "routing_server" in step.before
    rank = rank_of(step.reference.kind, step.before) if turned else step.rank
    return Step(Action.UPDATE, step.reference, step.name, rank, step.after, step.before)


class Standing(enum.Enum):
    """The state of the directory with regard to a step that was planned earlier."""

    PENDING = "to do"
    DONE = "done already"
    MOVED_ON = "changed since"


def standing(step: Step, actual: Table) -> Standing:
    """Return whether a step is pending, done (by an interrupted apply), or overtaken by another change.

    A half-done step is pending: the object is ours and incomplete, or each field has its old or its new value.
    """
    row = actual.get(step.reference)
    if row is None:
        by_action = {Action.CREATE: Standing.PENDING, Action.DELETE: Standing.DONE, Action.UPDATE: Standing.MOVED_ON}
        return by_action[step.action]
    if step.action is Action.DELETE:
        kept = (name for name in step.before if name != "settings")  # the first thing that a deletion takes
        intact = row.partial or all(same(name, step.before[name], row.values.get(name)) for name in kept)
        return Standing.PENDING if row.owned and intact else Standing.MOVED_ON
    new = [same(name, value, row.values.get(name)) for name, value in step.after.items()]
    if all(new) and not row.partial:
        return Standing.DONE
    if step.action is Action.CREATE:
        return Standing.PENDING if row.owned else Standing.MOVED_ON
    # A change of a machine writes the settings objects last, so they may be behind.
    old = [name == "settings" or same(name, step.before.get(name), row.values.get(name)) for name in step.after]
    return Standing.PENDING if all(o or n for o, n in zip(old, new, strict=True)) else Standing.MOVED_ON


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain data, as in `plan --json` and in plan files."""
    return {
        "format": FORMAT,
        "directory": plan.directory,
        "steps": [
            {
                "action": str(step.action),
                "kind": str(step.reference.kind),
                "name": list(step.name),
                "rank": step.rank,
                "before": dict(step.before),
                "after": dict(step.after),
            }
            for step in plan.steps
        ],
        "remarks": [{"note": remark.note.name.lower(), "name": remark.title} for remark in plan.remarks],
    }


def from_json(text: str) -> Plan:
    """Read a plan from the text of its file. Raises :class:`PlanFileError`."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise PlanFileError(f"not a plan: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PlanFileError(f"not a plan of format {FORMAT}; make it anew with 'mqenterprise plan --save'")
    try:
        return Plan(str(data["directory"]), tuple(_step(step) for step in data["steps"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanFileError(f"not a plan: {type(error).__name__}: {error}") from None


def _step(data: Mapping[str, Any]) -> Step:
    name = tuple(str(part) for part in data["name"])
    kind = Kind(data["kind"])
    if not FIELDS[kind]:
        raise TypeError(f"a plan has no {kind}")
    key: Key = () if kind is Kind.ENTERPRISE else tuple(fold(part) for part in name)
    before, after = (dict(_value(kind, k, v) for k, v in data[side].items()) for side in ("before", "after"))
    for field_name, value in after.items():
        # Python counts a truth value as a number; a plan does not.
        if type(value) not in FIELDS[kind].get(field_name, ()):
            raise TypeError(f"{value!r} is no {field_name} of a {kind}")
    if not all(name) or len(name) != (2 if kind is Kind.ROUTING_LINK else len(NAMED_BY[kind])):
        raise TypeError(f"{list(name)} is no name of a {kind}")
    return Step(Action(data["action"]), Reference(kind, key), name, int(data["rank"]), before, after)


def _value(kind: Kind, name: str, value: object) -> tuple[str, Value]:
    """Return a field and its value, of which plans of earlier releases have another form."""
    row = ROWS[kind].called(name)
    name = name if row is None else row.name
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return name, tuple(value)
    if value is None or isinstance(value, str | bool | int):
        return name, None if name in QUOTAS and value == NO_QUOTA else value
    raise TypeError(f"{value!r} is no value of a plan")


SIGNS = {Action.CREATE: ("+", "green"), Action.UPDATE: ("~", "yellow"), Action.DELETE: ("-", "red")}
WORDS = {Action.CREATE: "to create", Action.UPDATE: "to change", Action.DELETE: "to delete"}
DONE = {Action.CREATE: "created", Action.UPDATE: "changed", Action.DELETE: "deleted"}
MANY = 200
"""From this number of steps, new and deleted objects are shown by name only, unless all details are requested."""


def plan_lines(plan: Plan, *, full: bool = False, nodes: bool = False) -> Iterator[Text]:
    """Yield the lines that show a plan, and with ``nodes`` one after which there may be something to do at nodes."""
    brief = len(plan.steps) > MANY and not full
    for step in plan.steps:
        sign, style = SIGNS[step.action]
        yield Text(f"{sign} {step.title}", style=style)
        if step.action is Action.UPDATE or (step.action is Action.CREATE and not brief):
            yield from _fields(step)
    for remark in plan.remarks:
        yield Text(f"  {remark.title}: {remark.note}", style="dim")
    yield Text(summary(plan, nodes=nodes), style="bold")


def summary(plan: Plan, *, nodes: bool = False) -> str:
    """Return the number of steps of each kind, in words; with ``nodes``, there may be something to do at nodes."""
    prunable = sum(remark.note is Note.PRUNABLE for remark in plan.remarks)
    if not plan.steps and not prunable:
        return "The directory is as declared." if nodes else "Nothing to do: the directory is as declared."
    if not plan.steps:
        return f"All that is declared is there. Not declared, and removed with --prune: {prunable}."
    counts = Counter(step.action for step in plan.steps)
    parts = [f"{counts[action]} {WORDS[action]}" for action in Action if counts[action]]
    return f"{', '.join(parts)}." + (f" {prunable} more with --prune." if prunable else "")


def done_summary(plan: Plan) -> str:
    """Return the number of objects that an apply created, changed and deleted."""
    counts = Counter(step.action for step in plan.steps)
    return ", ".join(f"{counts[action]} {DONE[action]}" for action in Action if counts[action]) + "."


def _fields(step: Step) -> Iterator[Text]:
    for name, new in step.after.items():
        if step.action is Action.CREATE:
            if name in QUOTAS or new not in (None, "", ()):
                yield Text(f"    {name}: {shown(name, new)}")
            continue
        old = step.before.get(name)
        if isinstance(old, tuple) or isinstance(new, tuple):
            yield Text(f"    {name}:")
            yield from _items(name, old, new)
        else:
            line = Text(f"    {name}: ")
            line.append(shown(name, old), "red").append(" -> ").append(shown(name, new), "green")
            yield line


def _items(name: str, old: Value, new: Value) -> Iterator[Text]:
    before = old if isinstance(old, tuple) else ()
    after = new if isinstance(new, tuple) else ()
    for item in before:
        if item not in after:
            yield Text(f"      - {shown(name, item)}", style="red")
    for item in after:
        if item not in before:
            yield Text(f"      + {shown(name, item)}", style="green")


def shown(name: str, value: Value) -> str:
    """Return a value for display. Control characters and the like are escaped, to protect the terminal."""
    match value:
        case int() | None if name in QUOTAS:
            return quota_text(value)
        case None | () | "":
            return "(none)"
        case bool():
            return "yes" if value else "no"
        case tuple():
            return ", ".join(shown(name, item) for item in value)
        case str() if name == "certificates":
            return described(value)
        case str():
            return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
    return str(value)


def check_metrics_file(path: Path) -> None:
    """Raise ValueError if the file's name or folder is not one that metrics can be written to."""
    if path.suffix != ".prom":
        raise ValueError(f"{path}: the name must end in .prom, or the textfile collector of Prometheus passes over it")
    if not path.parent.is_dir():
        raise ValueError(
            f"{path}: there is no folder {path.parent}. Name the one that the textfile collector of Prometheus reads"
        )


def write_metrics(path: Path, plan: Plan, machines: int) -> None:
    """Replace the file as a whole.

    ``machines`` is the number of nodes that differ from their documents. The time of a check that failed stays that of
    the last one that did not. Raises OSError if the file cannot be written.
    """
    registry = CollectorRegistry()
    changes = Gauge(
        "mqenterprise_drift_changes",
        "Changes that would make the directory as it is declared.",
        ["action"],
        registry=registry,
    )
    counts = Counter(step.action for step in plan.steps)
    for action in Action:
        changes.labels(action=action.value).set(counts[action])
    Gauge("mqenterprise_drift_machines", "Nodes that differ from their documents.", registry=registry).set(machines)
    Gauge(
        "mqenterprise_drift_checked_timestamp_seconds", "When the directory was last compared.", registry=registry
    ).set(time.time())
    write_to_textfile(str(path), registry)


class TargetError(Exception):
    """The directory refused an operation; the message says which and why."""


class TargetUnavailable(TargetError):
    """The directory is unavailable. Finished steps remain; another run continues from there."""


class ConflictingChange(TargetError):
    """The object is not in its planned state: someone else changed it since the plan was made."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The directory at one time: its identity, its contents, and the meaning of its names.

    ``canonical`` returns the one name of a user or group that is known under any of its names, or None.
    """

    directory: str
    table: Table
    canonical: Callable[[str], str | None]


class Target(Protocol):
    """A directory that is read as a whole and changed one step at a time."""

    def snapshot(self, users: Collection[str] = ()) -> Snapshot:
        """Read everything that can be declared. Raises :class:`TargetError`.

        Of the directory's many users, only those with certificates, with our mark, or named here are read.
        """

    def prepare(self) -> None:
        """Create the containers and settings that must exist before the first step. Idempotent."""

    def carry_out(self, step: Step, token: int) -> None:
        """Carry out one step. It is idempotent, also on an object of ours that an interruption left incomplete.

        ``token`` is the fencing token of the lease and is written into the mark. An object with a later token is not
        touched. Called from several threads after one :meth:`snapshot`. Raises :class:`TargetError`.
        """

    def lease_entry(self) -> LeaseEntry:
        """Return the entry that holds the lease."""


class LeaseEntry(Protocol):
    """One text in the directory that only changes by compare and set."""

    def read(self) -> str | None:
        """Return the text, or None when there is none yet. Raises :class:`TargetError`."""

    def swap(self, old: str | None, new: str) -> bool:
        """Replace ``old`` by ``new``. Return False if the text is no longer ``old``. Raises :class:`TargetError`."""
