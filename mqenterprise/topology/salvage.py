"""Salvage a declaration with invalid values, so that all the rest of it can still be checked.

An invalid value is replaced by its default, or, where a value is required, by a stand-in that refers to nothing. Every
item thus keeps its position, and its references are checked together with those of the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mqenterprise.topology import declaration
from mqenterprise.topology.names import fold
from qmnode.objects.table import ROUTING_LINK

_MODELS: dict[str, type[BaseModel]] = {name: model for name, (model, _) in declaration.SECTIONS.items()} | {
    "bridges": declaration.Bridge
}
_NAMED = ("sites", "foreign_sites", "machines")
_ACCEPTED: dict[str, Any] = {
    **dict.fromkeys(("name", "machine", "queue", "address"), "x"),
    "sites": ("x", "y"),
    "cost": ROUTING_LINK["cost"].default,
    "direction": "out",
    "peer": "amqp://x",
    "format_name": r"DIRECT=OS:x\x",
}
"""For each required value, one that its model accepts."""


def salvage(
    joined: Mapping[str, Any], errors: Sequence[ErrorDetails]
) -> tuple[declaration.Declaration, frozenset[str]] | None:
    """Return the declaration without its invalid values, and the folded names about which nothing more is reported.

    Return None when the errors are not those of single items.
    """
    sections: dict[str, Any] = dict(joined)
    doubtful: set[str] = set()
    wrong: dict[tuple[str, int], set[str]] = {}
    for error in errors:
        match error["loc"]:
            case ("enterprise", *_):
                sections["enterprise"] = declaration.Enterprise(name="x")
            case ("directory",):
                del sections["directory"]
            case (str(section), int(position), *rest) if section in _MODELS:
                wrong.setdefault((section, position), set()).update(str(step) for step in rest[:1])
            case _:
                return None
    for section in {section for section, _ in wrong}:
        sections[section] = list(sections[section])
    try:
        for (section, position), fields in wrong.items():
            item = _mended(section, position, joined[section][position], fields, doubtful)
            sections[section][position] = item
        return declaration.Declaration.model_validate(sections), frozenset(doubtful)
    except ValidationError:
        return None


def _mended(section: str, position: int, given: object, fields: set[str], doubtful: set[str]) -> BaseModel:
    model = _MODELS[section]
    raw: dict[Any, Any] = given if isinstance(given, dict) else {}
    kept = model.model_fields.keys() - fields
    if not fields:  # they do not fit together
        kept = {name for name, info in model.model_fields.items() if info.is_required()}
    values = {name: raw[name] for name in model.model_fields if name in raw and name in kept}
    replaced: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        if name in values or not info.is_required():
            continue
        values[name] = _ACCEPTED[name]
        if name == "sites":  # no name can hold a NUL
            replaced[name] = (f"\0{section}/{position}/0", f"\0{section}/{position}/1")
            doubtful.update(replaced[name])
        elif name not in ("cost", "format_name"):
            replaced[name] = raw[name] if isinstance(raw.get(name), str) else f"\0{section}/{position}"
            doubtful.add(fold(replaced[name]))
    mended = model.model_validate(values)
    if section in _NAMED:
        doubtful.add(fold(replaced.get("name", values["name"])))
    return mended.model_copy(update=replaced)
