"""Export a directory as a declaration whose plan against it is empty."""

import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel

from mqenterprise.topology import access_lists, declaration
from mqenterprise.topology.check import load
from mqenterprise.topology.declared_table import ROLES
from mqenterprise.topology.loader import as_pem
from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import QUOTAS, Kind, Resource, Table, named
from mqenterprise.topology.plan import recipients
from mqenterprise.topology.problems import DeclarationError
from qmnode.structures.names import machine_address

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_SECTIONS: Final = {rows.kind: section for section, (_, rows) in reversed(declaration.SECTIONS.items())}
"""The section of each kind; of sites the first one."""
Item = dict[str, Any]


def export(table: Table, name: str, documents: Mapping[str, Item] | None = None, unasked: Iterable[str] = ()) -> str:
    """Return the contents of the directory as YAML, with what the documents of machines have.

    ``documents`` are by machine; ``unasked`` says which nodes did not give theirs, and why.

    Objects that cannot be declared, such as a machine in a deleted site, are left out and listed in comments at the
    top. A plan leaves them alone because they are not declared.
    """
    sections = declared_sections(table, name)
    for machine, document in (documents or {}).items():
        for each in document["queues"]:
            place = {"machine": machine, "name": each["name"], "private": True}
            sections.setdefault("queues", []).append(place | each | place)
        for bridge, each in document["bridges"].items():
            place = {"machine": machine, "name": bridge}
            sections.setdefault("bridges", []).append(place | each | place)
        for item in sections.get("machines", ()):
            if fold(item["name"]) == fold(machine) and (addresses := [*filter(machine_address, document["addresses"])]):
                item["addresses"] = addresses
    left_out = [printable(f"# left out: the document of {sentence}") + "\n" for sentence in unasked]
    for item in sections.get("distribution_lists", ()):
        for member in [one for one in item.get("members", ()) if not _stands_for(one, table)]:
            item["members"].remove(member)
            sentence = f"distribution_lists {item['name']}: its member {member}, which is gone"
            left_out.append(printable(f"# left out: {sentence}") + "\n")
    return written(sections, left_out)


def written(sections: dict[str, Any], left_out: list[str]) -> str:
    """Return sections as YAML that is valid. Comments at the top list what cannot be declared."""
    while True:
        text = yaml.dump(sections, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=120)
        wrong = _refused(text)
        if not wrong:
            break
        for section, position, sentence in sorted(wrong, reverse=True):
            item = sections[section].pop(position)
            left_out.append(f"# left out: {printable(f'{section} {_named(item)}: {sentence}')}\n")
    return "".join(sorted(left_out)) + text


def printable(text: str) -> str:
    """Return the text in one line: names in a directory are other people's, and a comment ends with its line."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _named(item: Item) -> str:
    if "private" in item:
        return f"{item['machine']}\\private$\\{item['name']}"
    return " - ".join(item["sites"]) if "cost" in item else str(item["name"])


def _refused(text: str) -> set[tuple[str, int, str]]:
    """Return the items that cannot be declared: section, position, and the first reason."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "export.yaml"
        file.write_text(text, "utf-8")
        try:
            load(file)
        except DeclarationError as error:
            wrong: dict[tuple[str, int], str] = {}
            for problem in error.problems:
                place = re.match(r"(\w+)\[(\d+)\]", problem.where)
                if place is None:
                    raise
                wrong.setdefault((place[1], int(place[2])), problem.sentence)
            return {(section, position, sentence) for (section, position), sentence in wrong.items()}
    return set()


def declared_sections(table: Table, name: str) -> dict[str, Any]:
    """Return a table in the form of a declaration, section by section, without values that equal the default."""
    rows = sorted((row for row in table if not row.partial), key=lambda row: row.reference.key)
    sections: dict[str, Any] = {"enterprise": {"name": name}, **{section: [] for section in declaration.SECTIONS}}
    foreign = {row.reference.key[0] for row in rows if row.kind is Kind.SITE and row.values["foreign"]}
    for row in rows:
        if row.kind is Kind.ENTERPRISE:
            sections["enterprise"] |= _changed(declaration.Enterprise, row.values) | _access(row)
        elif row.kind is not Kind.USER or row.owned or row.values.get("certificates"):
            section = "foreign_sites" if row.kind is Kind.SITE and row.values["foreign"] else _SECTIONS[row.kind]
            sections[section].append(_item(row, foreign))
    return {section: items for section, items in sections.items() if items}


def _item(row: Resource, foreign: set[str]) -> Item:
    """Return an object as it is declared."""
    match row.kind:
        case Kind.MACHINE:
            return _machine(row, foreign)
        case Kind.USER:
            return _user(row)
    model = declaration.SECTIONS[_SECTIONS[row.kind]][0]
    return named(row.kind, row.name) | _changed(model, row.values) | _access(row)


def _changed(model: type[BaseModel], values: Any, *but: str) -> Item:
    """Return the values that differ from the model's defaults, as they are declared."""
    return {
        name: list(values[name])
        if isinstance(values[name], tuple)
        else "none"
        if values[name] is None and name in QUOTAS
        else values[name]
        for name, field in model.model_fields.items()
        if name in values and name not in ("access", *but) and values[name] != field.default
    }


def _machine(row: Resource, foreign: set[str]) -> Item:
    values = row.values
    sites = values["sites"] if isinstance(values["sites"], tuple) else ()
    item: Item = {"name": row.name[0], "sites": [site for site in sites if fold(site) not in foreign]}
    networks = [site for site in sites if fold(site) in foreign]
    roles = [role for role in ROLES if values[role]]
    if networks:
        item["foreign_sites"] = networks
        if not values["foreign"]:
            roles.append("connector")
    if roles:
        item["roles"] = roles
    return item | _changed(declaration.Machine, values, "sites", "name")


def _user(row: Resource) -> Item:
    certificates = row.values.get("certificates")
    encoded = certificates if isinstance(certificates, tuple) else ()
    return {"name": row.name[0]} | ({"certificates": [as_pem(text) for text in encoded]} if encoded else {})


def _stands_for(member: str, table: Table) -> bool:
    """Whether a member of a distribution list is an object of the directory, and not the name of one that is gone."""
    return any(one in table for one in recipients(member))


def _access(row: Resource) -> Item:
    lines = row.values.get("access")
    # A machine can write what no access list is. A declaration without one leaves it as it is.
    if isinstance(lines, tuple) and access_lists.is_understood(lines):
        return {"access": access_lists.declared(lines)}
    return {}
