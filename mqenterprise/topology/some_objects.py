"""Bring some objects of one kind to a state, and leave the rest of the directory as it is.

The given values replace those of the directory. Omitted values stay, or are the defaults of a new object. The result
must keep the rules of a whole declaration, and is carried out as one plan.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from mqenterprise.topology import access_lists, declaration
from mqenterprise.topology.apply import apply_plan
from mqenterprise.topology.check import contradictions
from mqenterprise.topology.declared_table import values_of
from mqenterprise.topology.export import declared_sections
from mqenterprise.topology.ldap_target import LdapTarget
from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import QUOTAS, Kind, Reference, Resource, Table, Value, names_in, resource
from mqenterprise.topology.plan import Action, Note, Plan, Remark, Snapshot, Step, make_plan, needs
from mqenterprise.topology.problems import choices, explain, in_words

Item = dict[str, Any]
"""An object in the form of a declaration."""

_MISSING: Final = "there is no"
"""The beginning of a sentence about a missing object."""
_MODELS: Final = {section: model for section, (model, _) in declaration.SECTIONS.items() if section != "users"}
_NOT_HELD: Final = {
    "addresses",
    "private",
    "probes",
    "remote_copy",
    "hosts",
    "failover",
    *(row.name for row in declaration.ONLY_PRIVATE),
}
"""Properties that no directory holds."""
_SECTIONS: Final = {
    rows.kind: [section for section, (_, other) in declaration.SECTIONS.items() if other is rows]
    for _, rows in declaration.SECTIONS.values()
}
_MORE_THAN_OURS: Final = {
    Kind.SITE: "may hold more than Message Queuing",
    Kind.USER: "may be a person's account",
    Kind.DISTRIBUTION_LIST: "may be a group that gives rights",
}
"""Why objects of a kind that others made are not deleted."""
_LISTED: Final = ("queues", "queue_aliases", "distribution_lists")
"""Sections whose objects lists may contain. No rule about the other sections depends on them."""


class NotPossible(ValueError):
    """The objects cannot be brought to that state; the sentences give the reasons and the remedies."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one object. ``before`` and ``after`` hold all its values, or None where there is no object."""

    name: tuple[str, ...]
    before: Item | None
    after: Item | None
    changed: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of some objects of one kind, and the plan that makes them.

    ``missing`` names the objects that have to exist first, if the changes are only foreseen.
    """

    plan: Plan
    each: tuple[Change, ...]
    """In the order in which the objects were given."""
    missing: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()
    """The entries of access lists that have no effect."""
    not_ours: tuple[Step, ...] = ()
    """The deletions of objects that this tool did not make."""
    wanted: tuple[Resource, ...] = ()
    """The objects as they are to be."""

    @property
    def changed(self) -> bool:
        return any(one.changed for one in self.each)


@dataclass(frozen=True, slots=True)
class _Draft:
    """An object as it is to be."""

    reference: Reference
    place: tuple[str, int] | None
    """Section and position of the object that is there."""
    before: Item | None
    section: str
    item: Item
    model: BaseModel
    after: Item

    @property
    def moves(self) -> bool:
        """Whether it leaves its section, as a site that becomes foreign does."""
        return self.place is not None and self.place[0] != self.section


def items(snapshot: Snapshot, kind: Kind) -> Iterator[Item]:
    """Return all objects of a kind with all their values; a site also says whether it is ``foreign``."""
    sections = declared_sections(snapshot.table, "")
    for section in _SECTIONS[kind]:
        for item in sections.get(section, ()):
            yield _complete(section, item)


def plan_present(
    snapshot: Snapshot, kind: Kind, given: Sequence[Mapping[str, Any]], *, foresee: bool = False
) -> Changes:
    """Plan the changes that give objects these values. Raises :class:`NotPossible` and ``FixedError``.

    With ``foresee``, objects that they refer to may be created first; :attr:`Changes.missing` names the missing ones.
    """
    sections = declared_sections(snapshot.table, "")
    places = _places(sections, kind)
    drafts, wrong = _drafts(sections, places, kind, given)
    if wrong:
        raise NotPossible("\n".join(wrong))
    wrong = _contradicted(sections, drafts)
    wanted = Table()
    for draft in drafts:
        values = values_of(draft.model)
        if isinstance(draft.model, declaration.Site | declaration.Queue) and draft.model.access is not None:
            values["access"] = _access(draft.model, kind, snapshot, wrong)
        name = _written(snapshot.table, kind, names_in(kind, draft.item))
        wanted.put(resource(kind, name, values))
        if kind is Kind.QUEUE:
            draft.after["machine"] = name[0]
    for draft in drafts:
        if wrong and draft.moves:  # no earlier task can make the old one again
            become = "a foreign site" if draft.section == "foreign_sites" else "an ordinary site"
            raise NotPossible(
                f"{draft.item['name']} cannot become {become} while others refer to it: {'; '.join(wrong)}"
            )
    if not all(foresee and sentence.startswith(_MISSING) for sentence in wrong):
        raise NotPossible("\n".join(wrong))
    plan = make_plan(snapshot.directory, wanted, snapshot.table)
    changed = {step.reference for step in plan.steps}
    return Changes(
        Plan(plan.directory, plan.steps),
        tuple(
            Change(names_in(kind, draft.item), draft.before, draft.after, draft.reference in changed)
            for draft in drafts
        ),
        tuple(wrong),
        tuple(remark for remark in plan.remarks if remark.note is Note.DENIES_NOBODY),
        wanted=tuple(wanted),
    )


def _drafts(
    sections: Mapping[str, list[Item]],
    places: Mapping[Reference, tuple[str, int]],
    kind: Kind,
    given: Sequence[Mapping[str, Any]],
) -> tuple[list[_Draft], list[str]]:
    """Return the objects as they are to be, and what is wrong with their own values."""
    drafts: dict[Reference, _Draft] = {}
    wrong: list[str] = []
    for each in given:
        said, foreign = dict(each), each.get("foreign") if kind is Kind.SITE else None
        if kind is Kind.SITE:
            said.pop("foreign", None)
        names = names_in(kind, said)
        reference = resource(kind, names, {}).reference
        title = f"{' - '.join(names)}: " if len(given) > 1 else ""
        if reference in drafts:
            wrong.append(f"{title}it is there twice: say what holds once")
            continue
        place = places.get(reference)
        before = None if place is None else sections[place[0]][place[1]]
        section = _SECTIONS[kind][0] if place is None else place[0]
        if foreign is not None:
            section = _SECTIONS[kind][foreign]
        item = {**(before or {}), **said}
        try:
            model = _validated(section, item)
        except NotPossible as problem:
            wrong += [f"{title}{sentence}" for sentence in str(problem).splitlines()]
            continue
        drafts[reference] = _Draft(
            reference,
            place,
            None if before is None or place is None else _complete(place[0], before),
            section,
            item,
            model,
            _complete(section, item | _normal(model, said)),
        )
    return list(drafts.values()), wrong


def plan_absent(
    snapshot: Snapshot, kind: Kind, names: Sequence[tuple[str, ...]], *, changed: Sequence[Resource] = ()
) -> Changes:
    """Plan the deletion of objects, after those that are ``changed`` first.

    Raises :class:`NotPossible` when something that stays needs one of them.
    """
    leaving = {resource(kind, name, {}).reference: name for name in names}
    if len(leaving) < len(names):
        named = Counter(resource(kind, name, {}).reference for name in names)
        twice = leaving[named.most_common(1)[0][0]]
        raise NotPossible(f"{' - '.join(twice)}: it is there twice: say what holds once")
    needed: dict[Reference, list[str]] = {}
    for other in (snapshot.table.rows | {row.reference: row for row in changed}).values():
        if other.reference not in leaving:
            for reference in leaving.keys() & set(needs(other)):
                needed.setdefault(reference, []).append(other.title)
    sections = declared_sections(snapshot.table, "")
    places = _places(sections, kind)
    each: list[Change] = []
    steps: list[Step] = []
    wrong: list[str] = []
    for reference, name in leaving.items():
        row = snapshot.table.get(reference)
        if row is None:
            each.append(Change(name, None, None, changed=False))
            continue
        if holding := sorted(needed.get(reference, ())):
            more = f" and {len(holding) - 5} more" if len(holding) > 5 else ""
            wrong.append(f"the {row.title} is needed by {', '.join(holding[:5])}{more}: remove or change that first")
        elif kind in _MORE_THAN_OURS and not row.owned:
            wrong.append(
                f"the {row.title} was not made by this tool, and {_MORE_THAN_OURS[kind]}: "
                "delete it with the directory's own tools"
            )
        place = places.get(reference)
        before = {} if place is None else _complete(place[0], sections[place[0]][place[1]])
        each.append(Change(name, before, None, changed=True))
        steps.append(Step(Action.DELETE, reference, row.name, 0, row.values, {}))
    if wrong:
        raise NotPossible("\n".join(wrong))
    ours = tuple(step for step in steps if snapshot.table.rows[step.reference].owned)
    not_ours = tuple(step for step in steps if step not in ours)
    return Changes(Plan(snapshot.directory, ours), tuple(each), not_ours=not_ours)


def carry_out(changes: Changes, target: LdapTarget, *, patience: float) -> None:
    """Carry out changes. Raises ``ApplyError`` and :class:`TargetError`."""
    for step in changes.not_ours:
        target.delete_of_others(step)
    if changes.plan.steps:
        apply_plan(changes.plan, target, _Quiet(), patience=patience, keep_record=False)


class _Quiet:
    """An observer that ignores the progress of a single step."""

    def waiting(self, holder: str) -> None:
        """Ignore the wait: if it takes too long, an error reports it."""

    def begin(self, total: int) -> None:
        """Ignore the start of the single step."""

    def step(self) -> None:
        """Ignore the end of the single step."""


def _places(sections: Mapping[str, list[Item]], kind: Kind) -> dict[Reference, tuple[str, int]]:
    """Return section and position of each object of a kind."""
    return {
        resource(kind, names_in(kind, item), {}).reference: (section, position)
        for section in _SECTIONS[kind]
        for position, item in enumerate(sections.get(section, ()))
    }


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


def _contradicted(sections: Mapping[str, list[Item]], drafts: Sequence[_Draft]) -> list[str]:
    """Return a sentence for each rule of the whole enterprise that the changes would break."""
    before: dict[str, Any] = {name: [_unchecked(name, each) for each in sections.get(name, ())] for name in _MODELS}
    before["users"] = [declaration.User.model_construct(name=each["name"]) for each in sections.get("users", ())]
    after = {name: list(models) for name, models in before.items()}
    left = sorted((draft.place for draft in drafts if draft.place is not None and draft.moves), reverse=True)
    for draft in drafts:
        if draft.place is not None and not draft.moves:
            after[draft.section][draft.place[1]] = draft.model
    for section, position in left:
        del after[section][position]
    for draft in drafts:
        if draft.place is None or draft.moves:
            after[draft.section].append(draft.model)
    if not any(draft.section in _LISTED for draft in drafts):
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

    return access_lists.normal(model.access or (), name, kind)


def _written(table: Table, kind: Kind, name: tuple[str, ...]) -> tuple[str, ...]:
    """Return the name with its references spelled as in the directory."""
    if kind is Kind.QUEUE and (machine := table.get(Reference(Kind.MACHINE, (fold(name[0]),)))) is not None:
        return machine.name[0], name[1]
    return name
