"""Bring one object of the enterprise to a state, and leave the rest of the directory as it is.

The given values replace those of the directory. Omitted values stay, or are the defaults of a new object. The result
must keep the rules of a whole declaration, and is carried out as a plan of one step.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from mqenterprise.directory.errors import ObjectNotFound
from mqenterprise.directory.service import EnterpriseDirectory
from mqenterprise.topology import access, declaration
from mqenterprise.topology.check import contradictions
from mqenterprise.topology.explain import choices, explain
from mqenterprise.topology.export import declared_sections
from mqenterprise.topology.ldap_target import LdapTarget
from mqenterprise.topology.names import fold
from mqenterprise.topology.plan import Action, Note, Plan, Remark, Step, make_plan, needs
from mqenterprise.topology.problems import in_words
from mqenterprise.topology.resources import QUOTAS, Kind, Reference, Resource, Table, Value, resource
from mqenterprise.topology.session import apply_plan
from mqenterprise.topology.target import Snapshot
from mqenterprise.topology.wanted import values_of

Item = dict[str, Any]
"""An object in the form of a declaration."""

_MISSING: Final = "there is no"
"""The beginning of a sentence about a missing object."""
_MODELS: Final = {section: model for section, (model, _) in declaration.SECTIONS.items() if section != "users"}
_NOT_HELD: Final = {"addresses", "private", *(row.name for row in declaration.ONLY_PRIVATE)}
"""Properties that no directory holds."""
_SECTIONS: Final = {
    rows.kind: [section for section, (_, other) in declaration.SECTIONS.items() if other is rows]
    for _, rows in declaration.SECTIONS.values()
}
_LISTED: Final = ("queues", "queue_aliases", "distribution_lists")
"""Sections whose objects lists may contain. No rule about the other sections depends on them."""


class NotPossible(ValueError):
    """The object cannot be brought to that state; the sentences give the reasons and the remedies."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one object: no step, or one step.

    ``before`` and ``after`` hold all its values, or None where there is no object. ``missing`` names the objects that
    have to exist first, if the change is only foreseen.
    """

    plan: Plan
    before: Item | None
    after: Item | None
    missing: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()
    """The entries of its access list that have no effect."""

    @property
    def changed(self) -> bool:
        return bool(self.plan.steps)


def names_in(kind: Kind, item: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that identify an item."""
    match kind:
        case Kind.ROUTING_LINK:
            return tuple(item["sites"])
        case Kind.QUEUE:
            return (item["machine"], item["name"])
    return (item["name"],)


def items(snapshot: Snapshot, kind: Kind) -> Iterator[Item]:
    """Return all objects of a kind with all their values; a site also says whether it is ``foreign``."""
    sections = declared_sections(snapshot.table, "")
    for section in _SECTIONS[kind]:
        for item in sections.get(section, ()):
            yield _complete(section, item)


def plan_present(snapshot: Snapshot, kind: Kind, said: Mapping[str, Any], *, foresee: bool = False) -> Change:
    """Plan the change that gives an object these values. Raises :class:`NotPossible` and ``FixedError``.

    With ``foresee``, objects that it refers to may be created first; :attr:`Change.missing` names the missing ones.
    """
    sections = declared_sections(snapshot.table, "")
    said, foreign = dict(said), said.get("foreign") if kind is Kind.SITE else None
    if kind is Kind.SITE:
        said.pop("foreign", None)
    reference = resource(kind, names_in(kind, said), {}).reference
    place = _find(sections, kind, reference)
    before = None if place is None else sections[place[0]][place[1]]
    section = _SECTIONS[kind][0] if place is None else place[0]
    if foreign is not None:
        section = _SECTIONS[kind][foreign]
    item = {**(before or {}), **said}
    model = _validated(section, item)
    wrong = _contradicted(sections, place, section, model)
    values = values_of(model)
    if isinstance(model, declaration.Site | declaration.Queue) and model.access is not None:
        values["access"] = _access(model, kind, snapshot, wrong)
    if wrong and place is not None and place[0] != section:  # no earlier task can make the old one again
        become = "a foreign site" if foreign else "an ordinary site"
        raise NotPossible(f"{item['name']} cannot become {become} while others refer to it: {'; '.join(wrong)}")
    if not all(foresee and sentence.startswith(_MISSING) for sentence in wrong):
        raise NotPossible("\n".join(wrong))
    name = _written(snapshot.table, kind, names_in(kind, item))
    plan = make_plan(snapshot.directory, _table(resource(kind, name, values)), snapshot.table)
    return Change(
        Plan(plan.directory, plan.steps),
        None if before is None or place is None else _complete(place[0], before),
        _complete(section, item | _normal(model, said)),
        tuple(wrong),
        tuple(remark for remark in plan.remarks if remark.note is Note.DENIES_NOBODY),
    )


def plan_absent(snapshot: Snapshot, kind: Kind, name: tuple[str, ...]) -> Change:
    """Plan the deletion of an object. Raises :class:`NotPossible` when something that stays needs it."""
    row = snapshot.table.get(resource(kind, name, {}).reference)
    if row is None:
        return Change(Plan(snapshot.directory, ()), None, None)
    holding = sorted(other.title for other in snapshot.table if row.reference in set(needs(other)))
    if holding:
        more = f" and {len(holding) - 5} more" if len(holding) > 5 else ""
        raise NotPossible(f"the {row.title} is needed by {', '.join(holding[:5])}{more}: remove or change that first")
    if kind is Kind.SITE and not row.owned:
        raise NotPossible(
            f"the {row.title} was not made by this tool, and may hold more than Message Queuing: "
            "delete it with the directory's own tools"
        )
    place = _find(sections := declared_sections(snapshot.table, ""), kind, row.reference)
    before = {} if place is None else _complete(place[0], sections[place[0]][place[1]])
    step = Step(Action.DELETE, row.reference, row.name, 0, row.values, {})
    return Change(Plan(snapshot.directory, (step,)), before, None)


def carry_out(change: Change, target: LdapTarget, service: EnterpriseDirectory, *, patience: float) -> None:
    """Carry out a change unless it is done. Raises ``ApplyError``, :class:`TargetError` and ``DirectoryError``."""
    if not change.changed:
        return
    step = change.plan.steps[0]
    if step.action is Action.DELETE and not _owned(target, step.reference):
        _delete(service, step)
        return
    apply_plan(change.plan, target, _Quiet(), patience=patience, keep_record=False)


class _Quiet:
    """An observer that ignores the progress of a single step."""

    def waiting(self, holder: str) -> None:
        """Ignore the wait: if it takes too long, an error reports it."""

    def begin(self, total: int) -> None:
        """Ignore the start of the single step."""

    def step(self) -> None:
        """Ignore the end of the single step."""


def _owned(target: LdapTarget, reference: Reference) -> bool:
    row = target.snapshot().table.get(reference)
    return row is not None and row.owned


def _delete(service: EnterpriseDirectory, step: Step) -> None:
    """Delete, on request, an object that others made: a queue, a link, an alias, a queue manager without queues."""
    repositories: dict[Kind, tuple[Any, str]] = {
        Kind.QUEUE: (service.queues, "\\"),
        Kind.ROUTING_LINK: (service.routing_links, "|"),
        Kind.MACHINE: (service.queue_managers, ""),
        Kind.QUEUE_ALIAS: (service.queue_aliases, ""),
    }
    repository, joint = repositories[step.reference.kind]
    found = repository.find(joint.join(step.name))
    if found is None:
        return
    try:
        repository.delete(found)
    except ObjectNotFound:
        return


def _find(sections: Mapping[str, list[Item]], kind: Kind, reference: Reference) -> tuple[str, int] | None:
    for section in _SECTIONS[kind]:
        for position, item in enumerate(sections.get(section, ())):
            if resource(kind, names_in(kind, item), {}).reference == reference:
                return section, position
    return None


def _complete(section: str, item: Item) -> Item:
    """Return an item with every value that the directory holds, including defaults."""
    model = _MODELS[section]
    fields = model.model_fields.items()
    values = {name: field.default for name, field in fields if not field.is_required() and name not in _NOT_HELD}
    foreign = {"foreign": section == "foreign_sites"} if model in (declaration.Site, declaration.ForeignSite) else {}
    values |= item | foreign
    values |= {name: None for name in QUOTAS.intersection(values) if values[name] == "none"}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _normal(model: BaseModel, said: Mapping[str, Any]) -> Item:
    """Return the single values that are given, in the form in which the directory's are shown."""
    values = {name: getattr(model, name) for name in said}
    return {name: value for name, value in values.items() if not isinstance(value, tuple)}


def _validated(section: str, item: Item) -> BaseModel:
    try:
        return _MODELS[section].model_validate(item)
    except ValidationError as error:
        found = (explain(fault | {"loc": (section, 0, *fault["loc"])}, choices(section)) for fault in error.errors())
        raise NotPossible("\n".join(_sentence(path[2:], sentence) for path, sentence in found)) from None


def _sentence(path: tuple[str | int, ...], sentence: str) -> str:
    return f"{in_words(path)}: {sentence}" if path else sentence


def _contradicted(
    sections: Mapping[str, list[Item]], place: tuple[str, int] | None, section: str, model: BaseModel
) -> list[str]:
    """Return a sentence for each rule of the whole enterprise that the change would break."""
    before: dict[str, Any] = {name: [_unchecked(name, each) for each in sections.get(name, ())] for name in _MODELS}
    before["users"] = [declaration.User.model_construct(name=each["name"]) for each in sections.get("users", ())]
    after = {name: list(models) for name, models in before.items()}
    if place is not None and place[0] == section:
        after[section][place[1]] = model
    else:
        after[section].append(model)
        if place is not None:
            del after[place[0]][place[1]]
    if section not in _LISTED:
        for name in _LISTED:
            before[name] = after[name] = []
    # Older faults of the directory are not this object's faults, but it may share a fault with another object.
    told = Counter(_without_hint(problem.sentence) for problem in contradictions(_declaration(before)))
    found: dict[str, None] = {}
    for problem in contradictions(_declaration(after)):
        fault = _without_hint(problem.sentence)
        if not told[fault]:
            found[problem.sentence] = None
        told[fault] = max(0, told[fault] - 1)
    return list(found)


def _without_hint(sentence: str) -> str:
    """Return a sentence without the names that are known, of which the change may be one."""
    return sentence.partition(" (known: ")[0].partition(" (did you mean ")[0]


def _unchecked(section: str, item: Item) -> BaseModel:
    """Take the directory's objects without checks: its servers accepted them, and no rule needs other access lists."""
    return _MODELS[section].model_construct(**{name: value for name, value in item.items() if name != "access"})


def _declaration(sections: Mapping[str, Any]) -> declaration.Declaration:
    enterprise = declaration.Enterprise.model_construct(name="")
    return declaration.Declaration.model_construct(enterprise=enterprise, **sections)


def _access(model: declaration.Site | declaration.Queue, kind: Kind, snapshot: Snapshot, wrong: list[str]) -> Value:
    def name(trustee: str) -> str:
        known = snapshot.canonical(trustee)
        if known is None:
            wrong.append(f"{_MISSING} user or group {trustee!r}; create it first")
        return known or trustee

    return access.normal(model.access or (), name, kind)


def _written(table: Table, kind: Kind, name: tuple[str, ...]) -> tuple[str, ...]:
    """Return the name with its references spelled as in the directory."""
    if kind is Kind.QUEUE and (machine := table.get(Reference(Kind.MACHINE, (fold(name[0]),)))) is not None:
        return machine.name[0], name[1]
    return name


def _table(row: Resource) -> Table:
    table = Table()
    table.put(row)
    return table
