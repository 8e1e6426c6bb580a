"""``qmnode apply`` and ``qmnode document``, and the same over HTTP, at a running node."""

from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import Command
from tests.commands.test_queue_options import ask
from tests.lab.nodes import NodeProcess

DOCUMENT = """queues:
  - name: bills
    label: Bills
    quota: 3MB
    access:
      - {to: everyone, allow: [send, get_properties]}
"""


def test_a_document_is_shown_applied_and_then_nothing_is_left_to_do(
    node: NodeProcess, command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "machine.yml"
    file.write_text(DOCUMENT)
    shown = command("apply", file, "--check")
    assert shown.code == 0 and "+ bills" in shown.out and "everyone: allow get_properties send" in shown.out
    assert "bills" not in command("queue", "list", "*bills*").out
    done = command("apply", file, "--json").json
    assert [(step["action"], step["queue"]) for step in done["steps"]] == [("create", "bills")]
    assert "0 changes, 1 queue as declared" in command("apply", "-", stdin=DOCUMENT.encode()).err
    queue = command("queue", "show", "bills", "--json").json
    assert (queue["label"], queue["quota"], queue["declared"]) == ("Bills", 3072, True)
    rules = command("queue", "acl", "show", "bills", "--json").json["rules"]
    assert [(rule["name"], set(rule["rights"])) for rule in rules] == [("everyone", {"send-message", "get-properties"})]


def test_the_node_prints_its_document(node: NodeProcess, command: Command, queue: str) -> None:
    command("apply", "-", stdin=DOCUMENT.encode())
    printed = command("document").out
    assert "name: bills" in printed and queue not in printed
    assert f"name: {queue}" in command("document", "--all").out
    assert "0 changes" in command("apply", "-", stdin=printed.encode()).err


def test_prune_deletes_what_a_document_made(node: NodeProcess, command: Command, queue: str) -> None:
    command("apply", "-", stdin=DOCUMENT.encode())
    sent = command("send", "bills", "7")
    assert sent.code == 0, sent.err
    kept = command("apply", "-", "--prune", stdin=b"queues: []")
    assert "= bills: it holds 1 message" in kept.out and "--with-messages" in kept.err
    gone = command("apply", "-", "--prune", "--with-messages", stdin=b"queues: []")
    assert "- bills: with 1 message" in gone.out
    left = command("queue", "list", "--kind", "private").out
    assert "bills" not in left and queue in left


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("queues:\n  - name: a\n    lable: x\n", "machine.yml:3: queues[0].lable: unknown: did you mean label?"),
        ("queues:\n  - name: a\n    access: [{to: everyone, allow: [snd]}]\n", "machine.yml:3:"),
        ("queues:\n  - name: a\n    name: b\n", "line 2 and again in line 3"),
        ("queues: [", "machine.yml:1: no YAML"),
        ("- a\n", "expected names with values"),
        ("[" * 5_000, "machine.yml:1: lists and mappings stand in each other more than 100 deep"),
        (
            f"a: &a [{'x,' * 99}]\nb: &b [{'*a,' * 99}]\nc: &c [{'*b,' * 99}]\n[*c]: 1\n",
            "machine.yml:1: aliases stand for",
        ),
        ("queues: &a [*a]\n", "machine.yml:1: an alias stands in the value that it means"),
        ("queues:\n  - name: 2026-13-45\n", "month must be in 1..12"),
        ('queues:\n  - name: a\n    "\\e[31m\\n": x\n', r"machine.yml:3: queues[0].\x1b[31m\n: unknown"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_changes_nothing(
    node: NodeProcess, command: Command, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "machine.yml"
    file.write_text(text)
    before = command("queue", "list").out
    refused = command("apply", file)
    assert refused.code == 2 and words in refused.err and len(refused.err.splitlines()) == 1
    assert command("queue", "list").out == before


def test_the_same_over_http(node: NodeProcess, command: Command) -> None:
    document: dict[str, Any] = {"queues": [{"name": "over-http", "journaling": True}]}
    planned = ask(node, "PUT", "/v1/document?dry_run=true", json=document).json()
    assert [(step["action"], step["queue"]) for step in planned["steps"]] == [("create", "over-http")]
    assert planned == ask(node, "PUT", "/v1/document", json=document).json() | {"dry_run": True}
    assert ask(node, "PUT", "/v1/document", json=document).json()["unchanged"] == 1
    shown = ask(node, "GET", "/v1/document").json()["queues"]
    assert next(queue["journaling"] for queue in shown if queue["name"] == "over-http") is True
    refused = ask(node, "PUT", "/v1/document", json={"queues": [{"name": "x", "lable": "y"}]})
    assert refused.status_code == 400 and "did you mean label" in refused.text
    command("queue", "delete", "over-http", "--yes")
