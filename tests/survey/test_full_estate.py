"""A whole estate: two domains, five sites, twenty queue managers, a hundred queues and a hundred thousand messages."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest

from mqenterprise.topology.check import load
from tests.survey.estate_lab import BODIES, EstateLab, Made, certificate, run_all

pytestmark = [pytest.mark.servers, pytest.mark.soak, pytest.mark.timed]

DOMAINS = {
    "dc=contoso,dc=test": ("A", {"Bremen": 4, "Ulm": 4, "Kiel": 4}),
    "dc=fabrikam,dc=test": ("B", {"Wien": 4, "Graz": 4}),
}
DOWN = {"A04": "refuses", "A08": "silent", "B04": "unknown"}
PUBLIC, PRIVATE = 2, 3
MESSAGES = 100_000
SAMPLE = 100
LIMIT = 60.0
"""Seconds."""
EVERYONE = [{"to": "Everyone", "allow": ["generic_all"]}]


def _machines(prefix: str, sites: dict[str, int]) -> dict[str, str]:
    """The names of machines with their sites."""
    placed = [site for site, count in sites.items() for _ in range(count)]
    return {f"{prefix}{number:02}": site for number, site in enumerate(placed, 1)}


def _declared(lab: EstateLab, prefix: str, sites: dict[str, int]) -> dict[str, Any]:
    machines = _machines(prefix, sites)
    hosts = {"refuses": lab.address, "silent": lab.silent_address, "unknown": lambda name: f"{name}.invalid"}
    gates = {site: min(name for name, where in machines.items() if where == site) for site in sites}
    names = list(sites)
    return {
        "enterprise": {"name": prefix},
        "sites": [{"name": site} for site in sites],
        "routing_links": [
            {"sites": [names[0], other], "cost": cost, "site_gates": [gates[names[0]]]}
            for cost, other in enumerate(names[1:], 1)
        ],
        "machines": [
            {
                "name": name,
                "sites": [site],
                "dns_name": hosts[DOWN[name]](name) if name in DOWN else lab.address(name),
                "roles": ["routing_server"] if name in gates.values() else ["client"],
            }
            for name, site in machines.items()
        ],
        "queues": [
            {"machine": name, "name": f"public{number}", "access": EVERYONE, "label": f"of {name}"}
            for name in machines
            for number in range(PUBLIC)
        ],
        "users": [{"name": f"{prefix}user{days}", "certificates": [certificate(days)]} for days in (5, 50, 500)],
    }


def _export(lab: EstateLab, name: str) -> dict[str, Any]:
    """Private queues of a machine, as PowerShell exports them."""
    rows = [
        {
            "Queue": {
                "QueueName": f"private$\\private{number}", "MachineName": name, "Label": f"{name} {number}",
                "Transactional": number == 0, "UseJournalQueue": False, "Authenticate": False,
                "MaximumQueueSize": 4294967295, "MaximumJournalSize": 4294967295, "EncryptionRequired": 1,
                "MessageCount": 5,
            },
            "Acl": [{"AccountName": "Everyone", "Access": "Allow", "Right": "WriteMessage"}],
        }
        for number in range(PRIVATE)
    ]  # fmt: skip
    file = lab.folder / f"{name}.json"
    file.write_text(json.dumps(rows), "utf-16")
    return {"file": file, "rows": rows}


def test_a_whole_estate_is_surveyed_in_a_minute_without_a_write() -> None:
    with EstateLab() as lab:
        files = [lab.add_directory(root, _declared(lab, *shape)) for root, shape in DOMAINS.items()]
        up = {name: root for root, shape in DOMAINS.items() for name in _machines(*shape) if name not in DOWN}
        for name, root in up.items():
            lab.add_machine(name, root)
        lab.ready()
        exported = [_export(lab, name) for name in DOWN]
        left = MESSAGES - 5 * PRIVATE * len(DOWN)
        queues = [(name, number, private) for name in up for private in (False, True)
                  for number in range(PRIVATE if private else PUBLIC)]  # fmt: skip
        names = list(BODIES)
        filled = []
        for place, (name, number, private) in enumerate(queues):
            count = left // (len(queues) - place)
            left -= count
            bodies = [names[(place * 5 + each * 7) % len(names)] for each in range(count)]
            made = Made(name, f"{'private' if private else 'public'}{number}", private, bodies,
                        transactional=private and number == 0)  # fmt: skip
            filled.append(lab.fill(made, create=private))
        for begin in range(0, len(filled), 10):
            run_all(*filled[begin : begin + 10])
        lab.log_operations()

        output = lab.folder / "out"
        began = time.monotonic()
        arguments = [each for file in files for each in ("--directory", file)]
        arguments += [each for one in exported for each in ("--export", one["file"])]
        done = lab.survey(*arguments, *lab.account, "--sample", SAMPLE, "--timeout", 600, "--output", output)
        took = time.monotonic() - began
        report = json.loads((output / "report.json").read_text("utf-8"))
        print(f"\nsurveyed in {took:.1f} s: {done.stdout}")

        operations = lab.operations()
        assert not {"ADD", "MOD", "DEL", "MODRDN", "PASSMOD"} & operations.keys(), operations
        assert operations["SRCH"] > 20
        totals = report["totals"]
        assert (totals["sites"], totals["machines"], totals["machines_silent"]) == (5, 20, 3)
        assert (totals["queues"], totals["private_queues"], totals["public_queues"]) == (100, 60, 40)
        assert totals["messages"] == MESSAGES
        assert {one["name"] for one in report["machines"] if one["answer"] != "answered"} == DOWN.keys()
        found = {one["path"].casefold(): one for one in report["queues"]}
        whole: Counter[str] = Counter()
        for made in lab.made:
            one = found[made.path.casefold()]
            assert one["messages"] == len(made.bodies), made.path
            assert Counter(one["sample"]["formats"]) == made.seen(SAMPLE), made.path
            whole += made.seen(SAMPLE)
        assert report["formats"] == dict(whole)
        assert len(whole) == len(BODIES)
        assert sorted(one["user"] for one in report["certificates"]) == ["Auser5", "Auser50", "Buser5", "Buser50"]
        declaration = load(output / "estate.yaml").declaration
        assert len(declaration.queues) == 100
        assert len(declaration.machines) == 20
        lists = {(one.machine, one.name): one.access for one in declaration.queues if one.private and one.access}
        assert len(lists) == PRIVATE * len(DOWN)
        assert took < LIMIT, f"{took:.1f} s"
