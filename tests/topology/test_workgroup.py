"""Enterprises without a directory: what validate refuses, and what commands that need a directory say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.topology.check import load
from mqenterprise.topology.declaration import machine_document
from mqenterprise.topology.problems import DeclarationError
from mqenterprise.topology.schema import enterprise_schema

ROOT = Path(__file__).parents[2]
FLEET: dict[str, Any] = {
    "enterprise": {"name": "Fleet"},
    "directory": "none",
    "machines": [{"name": "sales", "dns_name": "sales.fleet.test"}, {"name": "billing", "sites": ["Oslo"]}],
    "sites": [{"name": "Oslo"}],
    "queues": [{"machine": "sales", "name": "input", "private": True, "transactional": True}],
}
QUEUE = FLEET["queues"][0]
INSTEAD = "has no directory; 'mqenterprise document FILE MACHINE' prints what each machine has"


def declared(folder: Path, **sections: Any) -> Path:
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(FLEET | sections, sort_keys=False))
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        load(path)
    return [str(problem).removeprefix(f"{path}:") for problem in caught.value.problems]


def run(*arguments: object) -> tuple[int, list[str]]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stderr.splitlines()


def test_private_queues_and_machines_with_or_without_sites_are_valid(tmp_path: Path) -> None:
    path = declared(tmp_path)
    assert load(path).declaration.is_workgroup
    assert jsonschema_rs.validator_for(json.loads(enterprise_schema())).is_valid(yaml.safe_load(path.read_text()))
    done = CliRunner().invoke(app, ["validate", str(path)])
    assert done.stdout == "Fleet is valid: 1 site, 2 machines, 1 queue.\n"
    printed = CliRunner().invoke(app, ["document", str(path), "sales"])
    assert yaml.safe_load(printed.stdout)["queues"] == [{"name": "input", "transactional": True}]


def test_the_sample_of_endpoints_is_valid_and_each_has_the_queues_of_its_machine() -> None:
    sample = ROOT / "inventory/fleet.yaml"
    assert jsonschema_rs.validator_for(json.loads(enterprise_schema())).is_valid(yaml.safe_load(sample.read_text()))
    checked = load(sample)
    assert (checked.notes, checked.warnings) == ((), ())
    names = {
        machine.name: [queue["name"] for queue in machine_document(checked.declaration, machine.name)["queues"]]
        for machine in checked.declaration.machines
    }
    assert len(names) == 6
    assert (names["sales"], names["ops"]) == (["Sales"], ["error", "audit"])


@pytest.mark.parametrize(
    ("sections", "where", "why", "remedy"),
    [
        # Encryption and signatures by published keys.
        ({"queues": [QUEUE | {"privacy_level": "body"}]}, "queues[0].privacy_level", "encrypted with keys", "TLS"),
        ({"queues": [QUEUE | {"authentication": True}]}, "queues[0].authentication", "signatures are", "leave it out"),
        ({"users": [{"name": "Ann"}]}, "users[0]", "signatures are verified with certificates", "delete the user"),
        # Routing.
        (
            {"routing_links": [{"sites": ["Oslo", "Bremen"], "cost": 1, "site_gates": ["sales"]}]},
            "routing_links[0]", "routing needs a directory", "delete the link",
        ),
        ({"foreign_sites": [{"name": "Mainframe"}]}, "foreign_sites[0]", "routing needs a directory", "use a bridge"),
        (
            {"machines": [{"name": "sales", "roles": ["routing_server"]}]},
            "machines[0].roles[0]", "routing needs a directory", "leave the role out",
        ),
        (
            {"machines": [{"name": "sales", "out_routing_servers": ["sales"]}]},
            "machines[0].out_routing_servers", "routing needs a directory", "leave it out",
        ),
        # Distribution lists, aliases and public queues.
        ({"distribution_lists": [{"name": "all"}]}, "distribution_lists[0]", "a distribution list is", "direct names"),
        (
            {"queue_aliases": [{"name": "a", "format_name": r"DIRECT=OS:x\private$\y"}]},
            "queue_aliases[0]", "a queue alias is", "direct name",
        ),
        ({"queues": [{"machine": "sales", "name": "input"}]}, "queues[0]", "a public queue is", "add private: true"),
        # Values that would reach no node.
        (
            {"machines": [{"name": "sales", "quota": "none"}]},
            "machines[0].quota", "the directory brings it", "quotas.queue_manager_quota",
        ),
        ({"sites": [{"name": "Oslo", "inter_site_replication_interval": 20}]}, "sites[0].inter_site", "only", "leave"),
        ({"enterprise": {"name": "F", "default_time_to_live": 9}}, "enterprise.default", "directory", "programs set"),
        ({"enterprise": {"name": "F", "access": []}}, "enterprise.access", "only a directory holds it", "leave it out"),
    ],
)  # fmt: skip
def test_what_needs_a_directory_is_refused_with_line_reason_and_remedy(
    tmp_path: Path, sections: dict[str, Any], where: str, why: str, remedy: str
) -> None:
    base = {"queues": [QUEUE]} | ({} if "machines" not in sections else {"sites": []}) | sections
    path = declared(tmp_path, **base)
    (problem,) = problems(path)
    line, rest = problem.split(": ", 1)
    assert rest.startswith(where) and why in rest and remedy in rest
    name = next(iter(sections))
    assert int(line) > path.read_text().splitlines().index(next(x for x in path.read_text().splitlines() if name in x))
    with_directory = yaml.safe_load(path.read_text()) | {"directory": "ldap"}
    path.write_text(yaml.safe_dump(with_directory, sort_keys=False))
    try:
        load(path)
    except DeclarationError as error:
        assert all(why not in problem.sentence for problem in error.problems)


@pytest.mark.parametrize("written", ["nothing", None, False])
def test_another_word_is_refused_with_those_that_there_are(tmp_path: Path, written: object) -> None:
    assert any(
        "directory: " in one and "'ldap' or 'none'" in one for one in problems(declared(tmp_path, directory=written))
    )


def test_it_stands_in_one_file(tmp_path: Path) -> None:
    declared(tmp_path)
    (tmp_path / "zz.yaml").write_text("\ndirectory: none\n")
    with pytest.raises(DeclarationError, match=r"zz\.yaml:2: directory: 'directory' stands in .*fleet\.yaml already"):
        load(tmp_path)


@pytest.mark.parametrize("command", ["plan", "apply", "drift", "show"])
def test_a_command_that_needs_a_directory_says_in_one_line_what_to_use(tmp_path: Path, command: str) -> None:
    code, (line,) = run(command, declared(tmp_path))
    assert code == 1 and INSTEAD in line and "fleet.yaml:3: " in line


def test_routes_and_values_of_the_directory_are_refused_and_values_of_documents_explained(tmp_path: Path) -> None:
    path = declared(tmp_path)
    code, (line,) = run("route", "explain", "sales", "billing", "--declared", path)
    assert code == 1 and INSTEAD in line
    code, (line,) = run("explain", "sales.quota", "--declared", path)
    assert code == 1 and INSTEAD in line
    assert run("explain", r"sales\private$\input.transactional", "--declared", path)[0] == 0


@pytest.mark.parametrize(
    "command", [("keys", "status"), ("queue", "list"), ("certificate", "list", "Ann"), ("export",)]
)
def test_the_declaration_named_as_directory_is_told_so(tmp_path: Path, command: tuple[str, ...]) -> None:
    code, (line,) = run(*command, "--directory", declared(tmp_path))
    assert code == 1 and "declares an enterprise without a directory; 'mqenterprise document" in line
