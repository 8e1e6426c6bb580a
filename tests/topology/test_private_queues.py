"""Private queues of a declaration: never in the directory, and whole in the document of their machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.topology.check import load
from mqenterprise.topology.declaration import machine_document
from mqenterprise.topology.declared_table import declared_table
from mqenterprise.topology.normal_form import Kind
from mqenterprise.topology.problems import DeclarationError
from qmnode.administration.machine_documents import read_document

if TYPE_CHECKING:
    from pathlib import Path

SHOP = {"name": "shop", "sites": ["Bremen"]}
BILLS = {
    "machine": "SHOP", "name": "bills", "private": True, "label": "Bills", "quota": "3MB", "journaling": True,
    "access": [{"to": "Everyone", "allow": ["send"]}, {"to": "user:alice", "allow": ["receive"], "deny": ["delete"]}],
}  # fmt: skip


def declared(folder: Path, *queues: dict[str, Any], **more: Any) -> Path:
    path = folder / "enterprise.yaml"
    sections = {"enterprise": {"name": "Lab"}, "sites": [{"name": "Bremen"}], "machines": [SHOP], "queues": [*queues]}
    path.write_text(yaml.safe_dump(sections | more))
    return path


def sentences(path: Path) -> str:
    with pytest.raises(DeclarationError) as caught:
        load(path)
    return "\n".join(map(str, caught.value.problems))


def test_the_directory_gets_public_queues_alone(tmp_path: Path) -> None:
    checked = load(declared(tmp_path, BILLS, {"machine": "shop", "name": "orders"}))
    names = [one.name for one in declared_table(checked, str) if one.kind is Kind.QUEUE]
    assert names == [("shop", "orders")]


def test_the_document_has_all_that_was_declared_and_a_node_understands_it(tmp_path: Path) -> None:
    document = machine_document(load(declared(tmp_path, BILLS, {"machine": "shop", "name": "o"})).declaration, "Shop")
    queue = {name: BILLS[name] for name in BILLS if name not in ("machine", "private")} | {"quota": 3072}
    assert document == {"addresses": [], "bridges": {}, "queues": [queue]}
    access = document["queues"][0].pop("access")
    access[1]["to"] = "S-1-5-21-1-2-3-4"  # this machine has no alice
    (read,) = read_document({"queues": [document["queues"][0] | {"access": access}]})
    assert (read.name, read.properties["quota"], read.properties["journaling"]) == ("bills", 3072, True)


def test_a_private_queue_may_have_the_name_of_a_public_one(tmp_path: Path) -> None:
    load(declared(tmp_path, BILLS, {"machine": "shop", "name": "bills"}))
    assert "BILLS' is declared at" in sentences(declared(tmp_path, BILLS, BILLS | {"name": "BILLS"}))


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        ({"machine": "shop", "name": r"private$\orders"}, "private: true and the name 'orders'"),
        (BILLS | {"base_priority": 3}, "only a public queue has it"),
        (BILLS | {"access": [{"to": "CN=Alice", "allow": ["send"]}]}, "does not know 'CN=Alice'"),
        (BILLS | {"machine": "shpo"}, "did you mean"),
        (BILLS | {"name": "a;b"}, "cannot hold ;"),
        (BILLS | {"name": "Order_Queue$"}, "is a queue that every node has for itself"),
        (BILLS | {"privat": True}, "privat"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, queue: dict[str, Any], words: str) -> None:
    told = sentences(declared(tmp_path, queue))
    assert words in told and "enterprise.yaml:" in told


def test_a_list_holds_no_private_queue(tmp_path: Path) -> None:
    path = declared(tmp_path, BILLS, distribution_lists=[{"name": "all", "members": [r"shop\private$\bills"]}])
    assert "no public queue" in sentences(path)


def test_the_command_prints_the_document_of_a_machine(tmp_path: Path) -> None:
    path = declared(tmp_path, BILLS)
    printed = CliRunner().invoke(app, ["document", str(path), "SHOP"])
    assert printed.exit_code == 0 and yaml.safe_load(printed.stdout)["queues"][0]["name"] == "bills"
    misspelt = CliRunner().invoke(app, ["document", str(path), "shpo"])
    assert misspelt.exit_code == 1 and "did you mean shop?" in misspelt.stderr


def test_explain_names_the_road_and_the_line(tmp_path: Path) -> None:
    path = declared(tmp_path, BILLS, {"machine": "shop", "name": "bills", "label": "Public"})
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "label: Bills" in text)
    told = CliRunner().invoke(app, ["explain", r"shop\private$\bills.label", "--declared", str(path), "--json"])
    found = json.loads(told.stdout)
    assert "the document of its machine" in found["road"]
    first = found["standings"][0]
    assert (first["value"], first["place"]) == ("Bills", f"{path}:{line}")
    for value, words in (
        (r"shop\private$\bils.label", r"did you mean SHOP\private$\bills"),
        (r"a\private$\b.lable", "label"),
    ):
        wrong = CliRunner().invoke(app, ["explain", value, "--declared", str(path)])
        assert wrong.exit_code == 1 and words in wrong.stderr
