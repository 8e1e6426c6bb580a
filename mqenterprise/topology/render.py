"""Show plans to people: a coloured diff, the resources left alone with the reason, and a summary."""

from collections import Counter
from collections.abc import Iterator

from rich.text import Text

from mqenterprise.topology.certificates import described
from mqenterprise.topology.plan import Action, Note, Plan, Step
from mqenterprise.topology.resources import QUOTAS, Value
from qmnode.settings.sizes import quota_text

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
