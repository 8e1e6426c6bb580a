"""The properties of objects where a type checker or Ansible reads them, from the product's table of rows.

``python -m tests.docs.reference.properties`` writes them between the marks in those files; a test compares them. The
modules name them themselves, as Ansible reads them without the product.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final

import yaml

from mqenterprise.topology.access_lists import BY_KIND
from mqenterprise.topology.declaration import ONLY_PRIVATE
from qmnode.objects.rows import ACCESS, FLAG, GUID, MULTICAST, NO_QUOTA, QUOTA, Changes, Door, Kind, Property, Rows
from qmnode.objects.table import DISTRIBUTION_LIST, MACHINE, QUEUE, QUEUE_ALIAS, ROUTING_LINK, ROWS, SITE
from qmnode.structures.guid import ZERO_GUID

ROOT: Final = Path(__file__).resolve().parents[3]
COLLECTION: Final = ROOT / "playbooks/collections/ansible_collections/mqenterprise/fleet"
_NEXT: Final = "0.2.0"
"""The release of the collection that has the earlier names no more."""
_MODULES: Final[dict[str, tuple[Rows, str, str]]] = {
    "queue": (QUEUE, "queue", "queues"),
    "site": (SITE, "site", "sites"),
    "routing_link": (ROUTING_LINK, "link", "links"),
    "queue_manager": (MACHINE, "queue manager", "queue managers"),
    "queue_alias": (QUEUE_ALIAS, "alias", "aliases"),
    "distribution_list": (DISTRIBUTION_LIST, "list", "lists"),
}
"""The rows of each module, and its words for one object and for several."""
_ROLES: Final = ("routing_server", "supporting_server", "directory_server")
"""Properties of machines that the option ``roles`` has."""
_TYPED: Final = ("qmnode/directory/port.py", "qmnode/model/api.py", "qmnode/model/message.py")
"""The files of the typed interface."""
_SENTENCES: Final = (
    (QUOTA, "in KB, or a size such as C(10MB); C(none) is no limit"),
    (GUID, "a GUID, or C(none)"),
    (MULTICAST, "C(ADDRESS:PORT), or C(none)"),
)
_TRUSTEE: Final = (
    "A user or group by its account or its name in the directory, V(Everyone), V(Anonymous), or C(S-1-...)"
)
_LOCAL: Final = "For a private queue an account of the machine, such as C(user:alice), in place of the directory's"
_MARKED: Final = re.compile(r"^( *)# properties: (\w+)\n.*?^ *# end of properties\n", re.MULTILINE | re.DOTALL)


def files() -> dict[Path, str]:
    """The text of each file with its properties, by its place."""
    made: dict[Path, str] = {}
    for name, (rows, *words) in _MODULES.items():
        own = [row for row in rows.at(Door.DECLARATION) if row.name not in _ROLES and row.form is not ACCESS]
        own += ONLY_PRIVATE if rows is QUEUE else ()
        lists = [row for row in rows.at(Door.DECLARATION) if row.form is ACCESS]
        for module, properties in ((name, [*own, *lists]), (f"{name}_info", own)):
            path = COLLECTION / f"plugins/modules/{module}.py"
            made[path] = _written(path, properties, rows.kind, *words)
    for name in _TYPED:
        made[ROOT / name] = _FIELDS.sub(_fields, (ROOT / name).read_text("utf-8"))
    return made


def _fields(found: re.Match[str]) -> str:
    """The fields of a class: those that it has keep their places, as callers may name them by place."""
    indent, kind, part, present = found.groups()
    choose, line = _PARTS[part]
    lines = {
        row.in_directory if line is _entity else row.name: line(row)
        for row in filter(choose, ROWS[Kind(kind)].values())
    }
    places = [name for name in re.findall(r"^ *(\w+):", present, re.MULTILINE) if name in lines]
    ordered = [lines[name] for name in dict.fromkeys([*places, *lines])]
    return textwrap.indent("\n".join([f"# properties: {kind}, {part}", *ordered, "# end of properties"]), indent) + "\n"


def _typed(row: Property) -> str:
    """A property of a queue manager, with the type of its values."""
    default = int(row.default) if isinstance(row.default, Enum) else row.default
    return f"{row.name}: {'Guid' if row.form is GUID else type(default).__name__}"


def _with_default(row: Property) -> str:
    return f"{_typed(row)} = {_literal(row.default, zeros='ZERO_GUID')}"


def _entity(row: Property) -> str:
    """A field of an object in the directory; a value that it may lack is None."""
    kind, default = row.form.type.__name__, row.default
    if row.form is GUID:
        kind, default = "Guid", None
    elif row.form.unit == "names":
        kind = "tuple[Guid, ...]"
    elif row.form.type is tuple:
        kind = "bytes"
    elif isinstance(default, Enum):
        kind = type(default).__name__
    return f"{row.in_directory}: {kind}{' | None' if default is None else ''} = {_literal(default)}"


def _literal(value: Any, zeros: str = "None") -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if value == NO_QUOTA:
        return "NO_QUOTA"
    return zeros if value == ZERO_GUID else json.dumps(value) if isinstance(value, str) else f"{value!r}"


_PARTS: Final[dict[str, tuple[Callable[[Property], bool], Callable[[Property], str]]]] = {
    "types": (lambda row: Door.NODE in row.doors, _typed),
    "what a sender sets": (lambda row: row.changes is not Changes.NEVER and row.name != "body", _typed),
    "of the first release": (lambda row: _is_shown(row) and not row.added, _with_default),
    "of later releases": (lambda row: _is_shown(row) and row.added, _with_default),
    "in the directory": (lambda row: Door.DIRECTORY in row.doors, _entity),
}
"""The rows of each mark, and the line of one."""
_FIELDS: Final = re.compile(
    rf"^( *)# properties: ([\w ]+), ({'|'.join(_PARTS)})\n(.*?)^ *# end of properties\n", re.MULTILINE | re.DOTALL
)


def _is_shown(row: Property) -> bool:
    return Door.NODE in row.doors and row.is_written


def _written(path: Path, rows: list[Property], kind: Kind, one: str, several: str) -> str:
    text, plural = path.read_text("utf-8"), path.stem.removesuffix(one.rpartition(" ")[2]) + several.rpartition(" ")[2]
    parts: dict[str, Callable[[], list[str]]] = {
        "options": lambda: [line for row in rows for line in _option(row, kind)],
        "results": lambda: [line for row in rows for line in _result(row)],
        "specification": lambda: [line for row in rows for line in _specification(row, kind)],
        "several": lambda: _several(text, plural, one, several),
        "answer": lambda: _answer(path.stem, plural, one),
        "answers": lambda: _answers(plural, several),
    }

    def replaced(found: re.Match[str]) -> str:
        indent, part = found.groups()
        return (
            textwrap.indent("\n".join([f"# properties: {part}", *parts[part](), "# end of properties"]), indent) + "\n"
        )

    return _MARKED.sub(replaced, text)


def _several(text: str, name: str, one: str, several: str) -> list[str]:
    """The option with a list of objects, each of which takes the options of one."""
    named = text.partition('DOCUMENTATION = r"""')[2].partition("  <<: &properties")[0]
    options = yaml.safe_load(named)["options"]
    each = "" if " " in one else f"{one} "
    lines = [
        f"{name}:",
        "  description:",
        f"    - Several {several} in one task, which reads the directory once. All are possible, or none is changed.",
        f"    - Each takes the options of a single {one}. Those beside the list hold for each {each}in it that says",
        "      nothing else.",
        "  type: list",
        "  elements: dict",
        "  suboptions:",
    ]
    for key in (name for name in ("machine", "name", "sites") if name in options):
        required = [] if key == "machine" else ["  required: true"]
        kinds = [f"  {field}: {options[key][field]}" for field in ("type", "elements") if field in options[key]]
        given = [f"{key}:", f"  description: {options[key]['description']}", *kinds, *required]
        lines += [f"    {line}" for line in given]
    return [
        *lines,
        "    state:",
        "      description: Whether it is to be there; by default as O(state) says.",
        "      type: str",
        "      choices: [present, absent]",
        "    <<: *properties",
    ]


def _answer(name: str, several: str, one: str) -> list[str]:
    return [
        f"{name}:",
        f"  description: The {one} as it is now, or would be; none when it is absent.",
        f"  returned: success, without O({several})",
        "  type: dict",
    ]


def _answers(name: str, several: str) -> list[str]:
    return [
        f"{name}:",
        f"  description: The {several} as they are now, in the order of the list; each says whether it C(changed).",
        f"  returned: success, with O({name})",
        "  type: list",
        "  elements: dict",
    ]


def _option(row: Property, kind: Kind) -> list[str]:
    if row.form is ACCESS:
        return _entries(kind)
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


def _entries(kind: Kind) -> list[str]:
    """The option with an access list."""
    whose = f"{_TRUSTEE}. {_LOCAL}" if kind is Kind.QUEUE else _TRUSTEE
    rights = {"allow": ["&rights", *(f"  - {name}" for name in BY_KIND[kind])], "deny": ["*rights"]}
    lines = ["  to:", *(f"  {line}" for line in _described(whose)), "    type: str", "    required: true"]
    for (name, (first, *more)), said in zip(rights.items(), ("has", "is refused"), strict=True):
        lines += [
            f"  {name}:",
            f"    description: Rights that it {said}.",
            "    type: list",
            "    elements: str",
            "    default: []",
            f"    choices: {first}",
            *(f"    {line}" for line in more),
        ]
    return [
        "access:",
        "  description: The whole access list. When it is not given, the access list is left as it is.",
        "  type: list",
        "  elements: dict",
        "  suboptions:",
        *(f"  {line}" for line in lines),
    ]


def _result(row: Property) -> list[str]:
    if row.form is ACCESS:
        given = ["  description: The access list, when it was given.", "  type: list", "  elements: dict"]
        return ["access:", *given, "  returned: when access was given"]
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


def _specification(row: Property, kind: Kind) -> list[str]:
    if row.form is ACCESS:
        names = [f'                "{name}",' for name in BY_KIND[kind]]
        lists = [
            [
                f'        "{name}": {{',
                *(
                    f'            "{key}": {value},'
                    for key, value in (("type", '"list"'), ("elements", '"str"'), ("default", "[]"))
                ),
                '            "choices": [',
                *names,
                "            ],",
                "        },",
            ]
            for name in ("allow", "deny")
        ]
        first = ['"access": {', '    "type": "list",', '    "elements": "dict",', '    "options": {']
        return [*first, '        "to": {"type": "str", "required": True},', *lists[0], *lists[1], "    },", "},"]
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
