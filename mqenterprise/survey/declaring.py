"""The declaration of a surveyed estate: valid, with a comment wherever a value is guessed or unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from mqenterprise.survey.estate import PROPERTIES, Answer, Estate, Queue
from mqenterprise.topology.declaration import ONLY_PRIVATE
from mqenterprise.topology.export import export, printable, written
from mqenterprise.topology.names import MAXIMUM_LABEL, fold
from mqenterprise.topology.normal_form import QUOTAS, Table
from qmnode.objects.table import QUEUE
from qmnode.structures.names import cut_utf16, machine_address

_ITEM: Final = re.compile(r"- machine: (.+)\n  name: (.+)\n  private: true\n")
_FREE: Final = frozenset(row.name for row in ONLY_PRIVATE)
_DEFAULTS: Final = {name: QUEUE[name].form.write(QUEUE[name].default) for name in PROPERTIES} | dict.fromkeys(
    QUOTAS.intersection(PROPERTIES), "none"
)


def declaration_of(estate: Estate) -> str:
    """Return the estate as YAML. Guesses are in comments beside their queue, and the rest in comments at the top."""
    documents: dict[str, dict[str, Any]] = {}
    remarks: dict[tuple[str, str], list[str]] = {}
    for queue in estate.queues.values():
        if queue.private:
            item, said = _item(queue)
            document = documents.setdefault(queue.machine, {"queues": [], "bridges": {}, "addresses": []})
            document["queues"].append(item)
            remarks[fold(queue.machine), fold(queue.name)] = said
    if estate.tables:
        merged = Table()
        for table in reversed(estate.tables):
            merged.rows.update(table.rows)
        text = export(merged, estate.name, documents)
    else:
        text = written(_workgroup(estate, documents), [])
    return "".join(f"# {printable(line)}\n" for line in _head(estate)) + _with_remarks(text, remarks)


def _workgroup(estate: Estate, documents: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    machines = []
    for machine in estate.machines.values():
        address = machine_address(machine.host) if machine.host else None
        machines.append({"name": machine.name} | ({"addresses": [address]} if address else {}))
    queues = [
        {"machine": machine, "name": item["name"], "private": True} | item
        for machine, document in documents.items()
        for item in document["queues"]
    ]
    sections = {"machines": machines, "queues": queues}
    return {"enterprise": {"name": estate.name}, "directory": "none"} | {
        section: items for section, items in sections.items() if items
    }


def _item(queue: Queue) -> tuple[dict[str, Any], list[str]]:
    """A private queue as it is declared, and what is to be said of it."""
    values = dict(queue.values)
    remarks: list[str] = []
    if "transactional" not in values and queue.endpoint:
        values["transactional"] = True
        remarks.append("guessed: transactional, because queues of NServiceBus are")
    if "journaling" not in values and queue.journal_messages:
        values["journaling"] = True
        remarks.append("guessed: journaling, because its journal has messages")
    label = str(values.get("label", ""))
    if len(label) > MAXIMUM_LABEL:
        values["label"] = cut_utf16(label, MAXIMUM_LABEL)
        remarks.append(f"guessed: the label is cut to {MAXIMUM_LABEL} characters")
    if values.pop("multicast_address", ""):
        remarks.append("left out: its multicast address, because nodes do not speak multicast")
    unknown = [name for name in queue.unknown if name not in values and name not in ("type", "multicast_address")]
    if unknown:
        remarks.append(
            f"unknown: {', '.join(unknown)}: the default is declared. MS-MQMR does not show it: export it from Windows"
        )
    item: dict[str, Any] = {"name": queue.name}
    item |= {
        name: value
        for name, value in values.items()
        if name not in _FREE and name != "base_priority" and value is not None and value != _DEFAULTS.get(name)
    }
    if queue.access:
        item["access"] = queue.access
    return item, remarks


def _head(estate: Estate) -> Iterator[str]:
    yield "Surveyed by 'mqenterprise survey'. Check each line that says guessed or unknown before you apply it."
    if len(estate.domains) > 1:
        yield f"surveyed from {len(estate.domains)} directories: apply it where a catalogue joins them, or in parts"
    for name in estate.other_domains:
        yield f"not surveyed: the domain {name}: give a --directory for it, if it has queue managers"
    for machine in sorted(estate.machines.values(), key=lambda one: fold(one.name)):
        if machine.answer in (Answer.DENIED, Answer.UNAVAILABLE):
            yield f"unknown: private queues of {machine.name}, unless a file lists them: {machine.reason}"


def _with_remarks(text: str, remarks: Mapping[tuple[str, str], list[str]]) -> str:
    """Put what is to be said of private queues above them."""

    def commented(found: re.Match[str]) -> str:
        machine, name = (str(yaml.safe_load(found[place])) for place in (1, 2))
        said = remarks.get((fold(machine), fold(name)), ())
        return "".join(f"# {printable(line)}\n" for line in said) + found[0]

    return _ITEM.sub(commented, text)
