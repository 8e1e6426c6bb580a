"""The collection's modules, inventory plug-in and roles, from their documentation.

``python -m tests.docs.reference.modules`` writes the README of each module into ``docs/modules/`` of the collection; a
test compares them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, Final

import yaml

from tests.docs.reference.markdown import table

ROOT: Final = Path(__file__).resolve().parents[3]
COLLECTION: Final = ROOT / "playbooks/collections/ansible_collections/mqenterprise/fleet"
MODULES: Final = COLLECTION / "plugins/modules"
_MARKUP: Final = (
    (re.compile(r"\b[CVOIE]\(([^()]*(?:\([^()]*\)[^()]*)*)\)"), r"`\1`"),
    (re.compile(r"\bM\(([^()]*)\)"), r"`\1`"),
    (re.compile(r"\bB\(([^()]*)\)"), r"**\1**"),
    (re.compile(r"\bU\(([^()]*)\)"), r"\1"),
)


class _Loader(yaml.SafeLoader):
    """Keeps what is merged into a mapping behind what the mapping has itself."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        own = [pair for pair in node.value if pair[0].tag != "tag:yaml.org,2002:merge"]
        names = {key.value for key, _ in own}
        super().flatten_mapping(node)
        node.value = own + [pair for pair in node.value if pair[0].value not in names]


def documented(path: Path) -> dict[str, Any]:
    """DOCUMENTATION with the fragments that it names, EXAMPLES and RETURN of a plug-in."""
    values = _strings(ast.parse(path.read_text()).body)
    said: dict[str, Any] = yaml.load(values["DOCUMENTATION"], _Loader)
    fragments = said.get("extends_documentation_fragment", [])
    options = dict(said.get("options", {}))
    for name in [fragments] if isinstance(fragments, str) else fragments:
        if name.count(".") < 2:
            continue  # of Ansible itself
        _, _, fragment, *part = name.split(".")
        file = COLLECTION / "plugins/doc_fragments" / f"{fragment}.py"
        if not file.exists():
            continue
        body = next(one for one in ast.parse(file.read_text()).body if isinstance(one, ast.ClassDef)).body
        more = yaml.safe_load(_strings(body)[(part or ["DOCUMENTATION"])[0].upper()])
        options |= {key: one for key, one in more.get("options", {}).items() if key not in options}
    return said | {
        "options": options,
        "examples": values.get("EXAMPLES", "").strip("\n"),
        "returns": yaml.safe_load(values.get("RETURN", "")) or {},
    }


def _strings(body: list[ast.stmt]) -> dict[str, str]:
    return {
        one.targets[0].id: one.value.value
        for one in body
        if isinstance(one, ast.Assign)
        and isinstance(one.targets[0], ast.Name)
        and isinstance(one.value, ast.Constant)
        and isinstance(one.value.value, str)
    }


def names() -> list[str]:
    """The modules in alphabetical order."""
    return sorted(path.stem for path in MODULES.glob("[a-z]*.py"))


def readme(name: str, *, level: int = 1) -> str:
    """The page of one module."""
    said = documented(MODULES / f"{name}.py")
    mark = "#" * level
    lines = [f"{mark} {name}", "", f"{_text(said['short_description'])}.", ""]
    lines += [*_listed(said["description"]), "", f"{mark}# Options", ""]
    lines += table(["option", "type", "default", "meaning"], list(_options(said["options"])))
    lines += ["", f"{mark}# Examples", "", "```yaml", said["examples"], "```", ""]
    if said["returns"]:
        lines += [f"{mark}# Return values", ""]
        rows = [[f"`{key}`", one.get("type", ""), _joined(one["description"])] for key, one in said["returns"].items()]
        lines += table(["key", "type", "meaning"], rows)
    return "\n".join(lines).rstrip() + "\n"


def _options(options: dict[str, Any], prefix: str = "") -> list[list[str]]:
    rows: list[list[str]] = []
    for name, one in options.items():
        kind = f"list of {one['elements']}" if one.get("elements") else str(one.get("type", "str"))
        default = "required" if one.get("required") else f"`{one['default']}`" if "default" in one else ""
        meaning = _joined(one["description"])
        if "choices" in one:
            meaning += " One of " + ", ".join(f"`{choice}`" for choice in one["choices"]) + "."
        rows.append([f"`{prefix}{name}`", kind, default, meaning])
        own = {key: each for key, each in one.get("suboptions", {}).items() if each is not options.get(key)}
        rows += _options(own, f"{prefix}{name}.")
    return rows


def _listed(said: str | list[str]) -> list[str]:
    return [_text(said)] if isinstance(said, str) else [f"- {_text(one)}" for one in said]


def _joined(said: str | list[str]) -> str:
    return _text(said if isinstance(said, str) else " ".join(said))


def _text(said: str) -> str:
    for pattern, replacement in _MARKUP:
        said = pattern.sub(replacement, said)
    return " ".join(str(said).split())


def page() -> str:
    """All modules, the inventory plug-in, and the variables of the roles."""
    lines = [
        "# Ansible modules and roles",
        "",
        "The collection `mqenterprise.fleet`. The same is printed by `ansible-doc mqenterprise.fleet.NAME`.",
        "",
    ]
    rows = [
        [f"[`{one}`](#{one})", _text(documented(MODULES / f"{one}.py")["short_description"]) + "."] for one in names()
    ]
    lines += table(["module", "purpose"], rows)
    for name in names():
        lines += ["", readme(name, level=2)]
    inventory = documented(COLLECTION / "plugins/inventory/directory.py")
    lines += ["", "## Inventory plug-in directory", "", *_listed(inventory["description"]), ""]
    lines += table(["option", "type", "default", "meaning"], _options(inventory["options"]))
    for role in sorted(path for path in (COLLECTION / "roles").iterdir() if path.is_dir()):
        said = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]
        lines += [
            "",
            f"## Role {role.name}",
            "",
            f"{_text(said['short_description'])}.",
            "",
            *_listed(said["description"]),
            "",
        ]
        lines += table(["variable", "type", "default", "meaning"], _options(said.get("options", {})))
    return "\n".join(lines) + "\n"


def readmes() -> dict[Path, str]:
    """The READMEs of all modules, and the list of them, by their places."""
    folder = COLLECTION / "docs/modules"
    lines = ["# Modules of mqenterprise.fleet", ""]
    rows = [
        [f"[{one}]({one}.md)", _text(documented(MODULES / f"{one}.py")["short_description"]) + "."] for one in names()
    ]
    lines += table(["module", "purpose"], rows)
    note = "<!-- generated by python -m tests.docs.reference.modules -->\n"
    made = {folder / f"{name}.md": note + readme(name) for name in names()}
    return made | {folder / "README.md": note + "\n".join(lines) + "\n"}


if __name__ == "__main__":
    for place, text in readmes().items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
