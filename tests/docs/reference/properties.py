"""The properties of objects in the collection's modules, from the product's table of rows.

``python -m tests.docs.reference.properties`` writes them between the marks in those files; a test compares them. The
modules name them themselves, as Ansible reads them without the product.
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from mqenterprise.topology.access import BY_KIND
from mqenterprise.topology.declaration import ONLY_PRIVATE
from qmnode.objects.rows import FLAG, GUID, MULTICAST, QUOTA, Changes, Door, Kind, Property, Rows
from qmnode.objects.table import DISTRIBUTION_LIST, MACHINE, QUEUE, QUEUE_ALIAS, ROUTING_LINK, SITE

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parents[3]
COLLECTION: Final = ROOT / "playbooks/collections/ansible_collections/mqenterprise/fleet"
_NEXT: Final = "0.2.0"
"""The release of the collection that has the earlier names no more."""
_MODULES: Final[dict[str, tuple[Rows, tuple[str, ...]]]] = {
    "queue": (QUEUE, ("access",)),
    "site": (SITE, ("access",)),
    "routing_link": (ROUTING_LINK, ()),
    "queue_manager": (MACHINE, ("routing_server", "supporting_server", "directory_server")),
    "queue_alias": (QUEUE_ALIAS, ()),
    "distribution_list": (DISTRIBUTION_LIST, ()),
}
"""The rows of each module, but for those that it describes itself."""
_SENTENCES: Final = (
    (QUOTA, "in KB, or a size such as C(10MB); C(none) is no limit"),
    (GUID, "a GUID, or C(none)"),
    (MULTICAST, "C(ADDRESS:PORT), or C(none)"),
)
_ACCESS: Final = re.compile(r"^( *)# rights: (\w+)\n.*?^ *# end of rights\n", re.MULTILINE | re.DOTALL)
_MARKED: Final = re.compile(r"^( *)# properties: (\w+)\n.*?^ *# end of properties\n", re.MULTILINE | re.DOTALL)


def files() -> dict[Path, str]:
    """The text of each file with its properties, by its place."""
    made: dict[Path, str] = {}
    for name, (rows, other) in _MODULES.items():
        own = [row for row in rows.at(Door.DECLARATION) if row.name not in other]
        own += ONLY_PRIVATE if rows is QUEUE else ()
        for module in (name, f"{name}_info"):
            path = COLLECTION / f"plugins/modules/{module}.py"
            made[path] = _with_rights(_written(path, own), rows.kind)
    return made


def _written(path: Path, rows: list[Property]) -> str:
    parts: dict[str, Callable[[Property], list[str]]] = {
        "options": _option,
        "results": _result,
        "specification": _specification,
    }

    def replaced(found: re.Match[str]) -> str:
        indent, part = found.groups()
        lines = [f"# properties: {part}", *(line for row in rows for line in parts[part](row))]
        return textwrap.indent("\n".join([*lines, "# end of properties"]), indent) + "\n"

    return _MARKED.sub(replaced, path.read_text("utf-8"))


def _with_rights(text: str, kind: Kind) -> str:
    """The text of a module with the rights that entries of its access list may name."""

    def replaced(found: re.Match[str]) -> str:
        indent, part = found.groups()
        lines = [f"- {name}" if part == "names" else f'"{name}",' for name in BY_KIND[kind]]
        return textwrap.indent("\n".join([f"# rights: {part}", *lines, "# end of rights"]), indent) + "\n"

    return _ACCESS.sub(replaced, text)


def _option(row: Property) -> list[str]:
    words = [row.sentence, *(sentence for form, sentence in _SENTENCES if form is row.form)]
    if row.form.type is int and row.form is not QUOTA:
        words.append(f"from {row.form.least} to {row.form.most}")
    elif row.form.type is tuple and row.form.most is not None:
        words.append(f"at most {row.form.most}")
    if row.changes is Changes.ONCE:
        words.append("fixed when it is created")
    lines = _described("; ".join(words))
    lines += [f"  {name}: {_listed(value)}" for name, value in _kind(row).items()]
    if row.aliases:
        lines.append(f"  aliases: {_listed(list(row.aliases))}")
    return [f"{row.name}:", *lines]


def _result(row: Property) -> list[str]:
    returned = "for private queues" if row in ONLY_PRIVATE else "always"
    none = "; none is no limit" if row.form is QUOTA else ""
    kind = {"type": "int"} if row.form is QUOTA else _kind(row)
    unit = f", in {row.form.unit}" if row.form is QUOTA else ""
    lines = [f"  {name}: {value}" for name, value in kind.items() if name != "choices"]
    return [f"{row.name}:", *_described(f"{row.sentence}{unit}{none}"), *lines, f"  returned: {returned}"]


def _described(text: str) -> list[str]:
    (first, *more) = textwrap.wrap(f"{text}.", 100)
    if not more and ": " not in first:
        return [f"  description: {first}"]
    text = yaml.safe_dump([f"{text}."], width=100, allow_unicode=True).rstrip()
    return ["  description:", *textwrap.indent(text, "    ").splitlines()]


def _kind(row: Property) -> dict[str, Any]:
    """The type of an option; quotas are texts with a unit."""
    if row.form.type is tuple:
        return {"type": "list", "elements": "str"}
    if row.form.choices:
        return {"type": "str", "choices": list(row.form.choices)}
    return {"type": "bool" if row.form is FLAG else "int" if row.form.type is int and row.form is not QUOTA else "str"}


def _listed(value: Any) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, list) else str(value)


def _specification(row: Property) -> list[str]:
    values = _kind(row)
    if row.aliases:
        gone = [{"name": each, "version": _NEXT, "collection_name": "mqenterprise.fleet"} for each in row.aliases]
        values |= {"aliases": list(row.aliases), "deprecated_aliases": gone}
    line = f"{json.dumps(row.name)}: {json.dumps(values)},"
    if len(line) <= 110:
        return [line]
    lines = [f"{json.dumps(row.name)}: {{"]
    for name, value in values.items():
        if name == "deprecated_aliases":
            lines += [f'    "{name}": [', *(f"        {json.dumps(each)}," for each in value), "    ],"]
        else:
            lines.append(f'    "{name}": {json.dumps(value)},')
    return [*lines, "},"]


if __name__ == "__main__":
    for place, text in files().items():
        place.write_text(text, "utf-8")
