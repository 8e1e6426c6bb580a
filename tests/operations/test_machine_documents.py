"""Private queues of a declaration, compared with a running node and brought to it; another node is down."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

import qmnode
from mqenterprise.cli import app
from mqenterprise.commands.directory_option import directory_settings
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.operations.machine_documents import bring_queues
from mqenterprise.operations.nodes import chosen_nodes
from mqenterprise.operations.settings import load_settings
from qmnode.structures.security_descriptor import EVERYONE, Acl, QueueAccess, SecurityDescriptor, allow
from tests.operations.managed import managed_node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from tests.lab.nodes import NodeProcess

pytestmark = [
    pytest.mark.servers,
    pytest.mark.one_server(reason="what nodes are asked does not depend on the directory's product"),
]
BILLS = {
    "machine": "docs-a", "name": "bills", "private": True, "label": "Bills", "quota": "3MB", "duplicate_window": 60,
    "access": [{"to": "everyone", "allow": ["generic_all"]}],
}  # fmt: skip
ORDERS = {"machine": "docs-a", "name": "orders", "private": True, "transactional": True}
SENDERS = SecurityDescriptor(dacl=Acl.of(allow(EVERYONE, QueueAccess.MQSEC_WRITE_MESSAGE))).write()
AT_B = {"machine": "docs-b", "name": "bills", "private": True}


class Enterprise:
    """A directory, the node DOCS-A, and the machine DOCS-B, which is down."""

    def __init__(self, folder: Path, slapd: EmbeddedDirectory, node: NodeProcess) -> None:
        self.folder, self.node = folder, node
        settings = slapd.client_settings().model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        (folder / "directory.yaml").write_text(yaml.safe_dump(settings))

    def run(
        self, command: str, *queues: dict[str, Any], words: tuple[str, ...] = (), code: int = 0, **local: Any
    ) -> str:
        """Standard output and errors of a command about a declaration with these queues.

        ``local`` has addresses of DOCS-A and bridges.
        """
        file = self.folder / "enterprise.yaml"
        machines: list[dict[str, Any]] = [{"name": name, "sites": ["Docs"]} for name in ("docs-a", "docs-b")]
        machines[0]["addresses"] = local.pop("addresses", [])
        sections = {"enterprise": {"name": "E"}, "sites": [{"name": "Docs"}], "machines": machines}
        file.write_text(yaml.safe_dump(sections | {"queues": list(queues)} | local))
        return self.say(command, str(file), *words, code=code)

    def say(self, command: str, *words: str, code: int = 0) -> str:
        names = ("--directory", str(self.folder / "directory.yaml"), "--nodes", str(self.folder / "nodes.yaml"))
        answer = CliRunner().invoke(app, [command, *words, *names])
        assert answer.exit_code == code, answer.output
        return answer.output

    def at_node(self, work: Any) -> Any:
        async def there() -> Any:
            async with qmnode.connect(self.node.socket) as qm:
                return await work(qm)

        return asyncio.run(there())


@pytest.fixture(scope="module")
def enterprise(slapd: EmbeddedDirectory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enterprise]:
    folder = tmp_path_factory.mktemp("documents")
    with managed_node(folder, "DOCS-A", down=("docs-b",)) as node, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        lab = Enterprise(folder, slapd, node)
        lab.run("apply")
        yield lab
        lab.say("apply", str(bare(folder)), "--prune")


def bare(folder: Path) -> Path:
    file = folder / "bare.yaml"
    file.write_text("enterprise: {name: E}")
    return file


def test_queues_are_planned_applied_and_then_as_declared(enterprise: Enterprise) -> None:
    planned = enterprise.run("plan", BILLS, ORDERS, code=2)
    assert r"+ queue docs-a\private$\bills" in planned and "duplicate_window: 60" in planned
    assert "docs-b: it is unavailable" in planned, "a node of which nothing is declared is named as well"

    applied = enterprise.run("apply", BILLS, ORDERS)
    again = enterprise.run("apply", BILLS, ORDERS, words=("--json",))

    assert "Documents of machines: 2 changes made at 1 node." in applied
    (first, second) = json.JSONDecoder().raw_decode(again)[0]["machines"]
    assert (first["machine"], first["steps"], first["unchanged"]) == ("docs-a", [], 2)
    assert "no connection" in second["error"]
    made = enterprise.at_node(lambda qm: qm.queue(r".\private$\bills"))
    assert (made.label, made.quota, made.duplicate_window) == ("Bills", 3072, 60)
    enterprise.run("plan", BILLS, ORDERS)


def test_a_queue_that_was_changed_by_hand_is_drift(enterprise: Enterprise) -> None:
    enterprise.run("apply", BILLS, ORDERS)
    enterprise.at_node(lambda qm: qm.set_queue(r".\private$\bills", label="Mine", security=SENDERS))

    drifted = enterprise.run("drift", BILLS, ORDERS, code=2)

    said = ("The directory is as declared.", "All that is declared is there.")  # others may have left lists there
    assert any(line.startswith(said) for line in drifted.splitlines()), "there is something to do all the same"
    assert r"~ queue docs-a\private$\bills" in drifted and "label: Mine -> Bills" in drifted and "access:" in drifted
    enterprise.run("apply", BILLS, ORDERS)
    enterprise.run("drift", BILLS, ORDERS)


def test_a_machine_that_should_have_queues_and_does_not_answer_fails_the_command(enterprise: Enterprise) -> None:
    for command in ("plan", "drift", "apply"):
        answer = enterprise.run(command, BILLS, ORDERS, AT_B, code=1)
        assert "docs-b: it is unavailable" in answer, command


def test_what_is_declared_no_longer_is_named_and_goes_with_prune_alone(enterprise: Enterprise) -> None:
    """Also the last one of a machine; never with messages in it unless the operator says so."""
    enterprise.run("apply", BILLS)

    async def send(qm: Any) -> None:
        async with await qm.open_queue(r"DIRECT=OS:.\private$\bills", qmnode.Access.SEND) as queue:
            await queue.send(qmnode.Message(b"7", recoverable=True))

    enterprise.at_node(send)
    left = enterprise.run("plan")
    assert r"docs-a\private$\bills: not declared any more: would be deleted with --prune" in left
    enterprise.run("apply")
    kept = enterprise.run("apply", words=("--prune",))
    assert r"= queue docs-a\private$\bills: it holds 1 message" in kept
    gone = enterprise.run("apply", words=("--prune", "--with-messages"))
    assert r"- queue docs-a\private$\bills" in gone
    assert "bills" not in str(enterprise.at_node(lambda qm: qm.queues([qmnode.QueueType.PRIVATE])))


def test_an_export_has_private_queues_and_says_whose_are_missing(enterprise: Enterprise) -> None:
    enterprise.run("apply", BILLS, ORDERS)
    file = enterprise.folder / "exported.yaml"

    told = enterprise.say("export", "--output", str(file), code=1)

    assert "docs-b: it is unavailable" in told
    assert "# left out: the document of docs-b: it is unavailable" in file.read_text().replace("DOCS-B", "docs-b")
    found = {queue["name"]: queue for queue in yaml.safe_load(file.read_text())["queues"] if queue.get("private")}
    assert found["bills"]["access"] == BILLS["access"] and found["bills"]["quota"] == 3072
    enterprise.say("plan", str(file))


def test_what_a_directory_cannot_hold_is_refused_of_a_public_queue(enterprise: Enterprise) -> None:
    public = {"machine": "docs-a", "name": "public", "duplicate_window": 60}
    assert "only a private queue has it" in enterprise.run("plan", public, code=1)


def test_an_enterprise_without_a_directory_needs_the_nodes_alone(enterprise: Enterprise) -> None:
    file = enterprise.folder / "workgroup.yaml"
    queues = [{"machine": "docs-a", "name": "alone", "private": True}]
    values = {"enterprise": {"name": "E"}, "directory": "none", "machines": [{"name": "docs-a"}], "queues": queues}
    file.write_text(yaml.safe_dump(values))

    assert r"+ queue docs-a\private$\alone" in enterprise.say("plan", str(file), code=2)
    assert "directory" not in enterprise.say("apply", str(file))
    enterprise.say("drift", str(file))
    assert "has no directory" in enterprise.say("plan", str(file), "--save", str(file) + ".plan", code=1)


OUT = {"machine": "docs-a", "name": "out", "direction": "out", "queue": "orders", "address": "orders"}
BRIDGE = OUT | {"peer": "amqp://127.0.0.1:9"}


def test_addresses_and_bridges_are_planned_applied_drift_and_go(enterprise: Enterprise) -> None:
    local: dict[str, Any] = {"addresses": ["192.0.2.7"], "bridges": [BRIDGE]}
    planned = enterprise.run("plan", code=2, **local)
    names = ("--directory", str(enterprise.folder / "directory.yaml"))
    unasked = CliRunner().invoke(app, ["plan", str(enterprise.folder / "enterprise.yaml"), *names])
    assert "1 bridge not in the directory" in unasked.output
    assert "+ addresses of docs-a\n    addresses: 192.0.2.7" in planned
    assert "+ bridge out of docs-a\n" in planned and "    peer: amqp://127.0.0.1:9" in planned

    enterprise.run("apply", **local)

    enterprise.run("drift", **local)
    status = enterprise.at_node(lambda qm: qm.status())
    assert [bridge.name for bridge in status.bridges] == ["out"]
    by_hand = {"addresses": ["192.0.2.9"], "bridges": {}}
    enterprise.at_node(lambda qm: qm.operations.apply_document(by_hand))
    drifted = enterprise.run("drift", code=2, **local)
    assert "addresses: 192.0.2.9 -> 192.0.2.7" in drifted and "+ bridge out of docs-a" in drifted
    enterprise.run("apply", **local)

    gone = enterprise.run("apply")

    assert "- addresses of docs-a" in gone and "- bridge out of docs-a" in gone
    assert not enterprise.at_node(lambda qm: qm.status()).bridges


def test_explain_has_line_road_and_what_the_node_has(enterprise: Enterprise) -> None:
    local: dict[str, Any] = {"addresses": ["192.0.2.7"], "bridges": [BRIDGE]}
    enterprise.run("apply", **local)
    file = str(enterprise.folder / "enterprise.yaml")
    for value, shown in (("addresses", ["192.0.2.7"]), ("bridges", ["out"])):
        found = json.loads(enterprise.say("explain", f"docs-a.{value}", "--declared", file, "--json"))
        assert "the document of its machine" in found["road"]
        assert [(one["where"], one["fate"]) for one in found["standings"]] == [
            ("declaration", "applied"), ("default", "not used"),
        ]  # fmt: skip
        assert f"{file}:" in found["standings"][0]["place"] and found["node"]["value"] == shown
    enterprise.run("apply")


def test_an_export_has_the_addresses_and_bridges_of_nodes(enterprise: Enterprise) -> None:
    local: dict[str, Any] = {"addresses": ["192.0.2.7"], "bridges": [BRIDGE]}
    enterprise.run("apply", **local)
    file = enterprise.folder / "with-bridges.yaml"
    enterprise.say("export", "--output", str(file), code=1)
    exported = yaml.safe_load(file.read_text())
    (machine,) = [one for one in exported["machines"] if one["name"].lower() == "docs-a"]
    assert machine["addresses"] == ["192.0.2.7"]
    assert [one | {"machine": "docs-a"} for one in exported["bridges"]] == [BRIDGE]
    enterprise.run("apply")


def test_a_token_brings_no_password_to_a_new_peer(enterprise: Enterprise) -> None:
    secret = BRIDGE | {"user": "shop", "password_file": "/etc/qmnode/broker.password"}
    assert "+ bridge out of docs-a" in enterprise.run("plan", code=2, bridges=[secret])
    refused = enterprise.run("apply", code=1, bridges=[secret])
    assert "bridge out: root and the account of the node alone may log in to a peer" in refused
    assert not enterprise.at_node(lambda qm: qm.status()).bridges


def test_prune_leaves_queues_alone_that_no_document_made(enterprise: Enterprise) -> None:
    """Such as those of the module ``queue``, which brings one queue at a time."""
    settings = load_settings(enterprise.folder / "nodes.yaml")
    with EnterpriseDirectory(directory_settings(enterprise.folder / "directory.yaml")) as directory:
        nodes = chosen_nodes(settings, lambda: nullcontext(directory), machines=["docs-a"], site=None)
    bring_queues(settings, nodes[0], {"by-module": {"label": "Mine"}}, dry_run=False)
    enterprise.run("apply", BILLS | {"name": "by-module", "label": "Declared since"})

    pruned = enterprise.run("apply", words=("--prune",))

    assert "by-module" not in pruned
    assert enterprise.at_node(lambda qm: qm.queue(r".\private$\by-module")).label == "Declared since"


def test_explain_of_an_access_list_names_the_command_that_compares_it(enterprise: Enterprise) -> None:
    enterprise.run("apply", BILLS)
    told = enterprise.say(
        "explain", r"docs-a\private$\bills.access", "--declared", str(enterprise.folder / "enterprise.yaml")
    )
    assert "plan --nodes compares it" in told and "ask the node with --nodes" not in told
