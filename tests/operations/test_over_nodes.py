"""``mqenterprise message`` and ``job`` over two nodes that run, and a third one that is down."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import mqenterprise.cli
import qmnode
from tests.lab.nodes import NodeProcess
from tests.management.conftest import OPERATOR, READER, write_certificate, write_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.servers]
DOWN = "127.0.0.1:9"


@dataclass
class Enterprise:
    """Two nodes, a machine that is down, and a person with a token."""

    folder: Path
    nodes: dict[str, NodeProcess]
    nodes_file: Path

    def run(self, *words: object, code: int = 0) -> tuple[str, str]:
        """Output and errors of a command."""
        output, errors, ended = io.StringIO(), io.StringIO(), 0
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr(sys, "argv", ["mqenterprise", *map(str, words)])
            patch.setenv("MQENTERPRISE_NODES", str(self.nodes_file))
            try:
                mqenterprise.cli.main()
            except SystemExit as end:
                ended = end.code if isinstance(end.code, int) else int(bool(end.code))
        assert ended == code, f"{words}: {ended}: {output.getvalue()} {errors.getvalue()}"
        return output.getvalue(), errors.getvalue()

    def rows(self, *words: object, code: int = 0) -> list[dict[str, Any]]:
        """The JSON lines of a command."""
        return [json.loads(line) for line in self.run(*words, "--json", code=code)[0].splitlines()]

    def audit(self, machine: str) -> list[dict[str, Any]]:
        """The audit log of a node."""
        return [json.loads(line) for line in (self.nodes[machine].folder / "audit.log").read_text().splitlines()]


@pytest.fixture(scope="module")
def enterprise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enterprise]:
    folder = tmp_path_factory.mktemp("operations")
    certificate, key = write_certificate(folder)
    tokens = write_tokens(folder)
    nodes = {}
    machines: dict[str, Any] = {"GAMMA": {"address": DOWN}}
    try:
        for name in ("ALPHA", "BETA"):
            home = folder / name
            home.mkdir()
            nodes[name] = node = NodeProcess(
                home,
                computer_name=name,
                management={
                    "socket": str(home / "management.sock"),
                    "listen": "127.0.0.1:0",
                    "tokens": str(tokens),
                    "certificate": str(certificate),
                    "private_key": str(key),
                    "audit_log": str(home / "audit.log"),
                },
            )
            node.launch()
            listening = node.wait_for("management API", has="port")
            machines[name] = {"address": f"127.0.0.1:{listening['port']}"}
            node.wait_for("ready")
        (folder / "my.token").write_text(f"{OPERATOR}\n")
        (folder / "my.token").chmod(0o600)
        (folder / "reader.token").write_text(READER)
        (folder / "reader.token").chmod(0o600)
        settings = {
            "authority": "certificate.pem", "token_file": "my.token", "connect_timeout": 2, "machines": machines
        }  # fmt: skip
        (folder / "nodes.yaml").write_text(json.dumps(settings))
        (folder / "reader.yaml").write_text(json.dumps(settings | {"token_file": "reader.token"}))
        yield Enterprise(folder, nodes, folder / "nodes.yaml")
    finally:
        for node in nodes.values():
            if node.running:
                node.stop()


def fill(enterprise: Enterprise, queue: str, *messages: qmnode.Message, at: str = "", count: int = 3) -> None:
    """A queue at each node, or at one, with these messages, or with some numbers."""

    async def at_node(machine: str) -> None:
        async with await enterprise.nodes[machine].connect() as qm:
            await qm.create_queue(rf".\private$\{queue}")
            numbered = [qmnode.Message(b"%d" % n, label=f"{machine} {n}", recoverable=True) for n in range(count)]
            async with await qm.open_queue(rf"DIRECT=OS:.\private$\{queue}", qmnode.Access.SEND) as opened:
                if messages or numbered:
                    await opened.send_many(list(messages) or numbered)

    for machine in [at] if at else enterprise.nodes:
        asyncio.run(at_node(machine))


BOTH = ("--machine", "ALPHA", "--machine", "beta")


def test_a_search_finds_at_all_nodes_in_their_orders(enterprise: Enterprise) -> None:
    fill(enterprise, "find")

    found = enterprise.rows("message", "find", "find", "--where", "larger=1", *BOTH)

    for machine in ("ALPHA", "BETA"):
        labels = [row["message"]["label"] for row in found if row["machine"] == machine]
        assert labels == [f"{machine} {n}" for n in range(3)]
    one = enterprise.rows("message", "find", "find", "--where", "label=BETA 1", *BOTH)
    assert [row["message"]["label"] for row in one] == ["BETA 1"]


def test_a_search_goes_on_with_its_cursor_and_repeats_nothing(enterprise: Enterprise) -> None:
    fill(enterprise, "pages", count=5)
    seen, cursor = [], ""
    for _ in range(10):
        more = ["--cursor", cursor] if cursor else []
        output, errors = enterprise.run("message", "find", "pages", "-n", 3, *BOTH, *more)
        seen += [line.split()[-2:] for line in output.splitlines()]
        _, separator, rest = errors.partition("--cursor '")
        if not separator:
            break
        cursor = rest.partition("'")[0]

    assert sorted(seen) == sorted([name, str(n)] for name in ("ALPHA", "BETA") for n in range(5))


def test_a_node_that_is_down_is_named_and_holds_up_no_other(enterprise: Enterprise) -> None:
    fill(enterprise, "down")
    began = time.monotonic()

    output, errors = enterprise.run("message", "find", "down", *BOTH, "-m", "GAMMA", code=1)

    assert len(output.splitlines()) == 6 and "GAMMA: it is unavailable" in errors and "GAMMA:" in errors
    assert time.monotonic() - began < 30  # as long as a request to it might take
    _, errors = enterprise.run("job", "list", *BOTH, "-m", "GAMMA", code=1)
    assert "GAMMA: it is unavailable" in errors


def test_jobs_at_all_nodes_are_watched_listed_and_taken_back(enterprise: Enterprise) -> None:
    fill(enterprise, "from")
    fill(enterprise, "into", count=0)

    moved = enterprise.rows("message", "move", "from", "--to", "into", "--where", "label=* 1", *BOTH)
    names = [f"{job['machine']}/{job['job']}" for job in moved]
    listed = {f"{job['machine']}/{job['job']}": job["state"] for job in enterprise.rows("job", "list", *BOTH)}
    log, _ = enterprise.run("job", "show", *names, "--log")
    undone = enterprise.run("job", "undo", *names)[1]
    left = enterprise.rows("message", "find", "from", *BOTH)

    assert [job["done"] for job in moved] == [1, 1] and {listed[name] for name in names} == {"done"}
    assert log.count("moved") == 2 and undone.count("taken back") == 2
    assert sorted(row["message"]["label"] for row in left) == [f"{m} {n}" for m in ("ALPHA", "BETA") for n in range(3)]


def test_the_person_who_asked_is_authorised_and_audited_at_each_node(enterprise: Enterprise) -> None:
    fill(enterprise, "audited")
    reader = ("--nodes", enterprise.folder / "reader.yaml")

    enterprise.run("message", "delete", "audited", "--where", "label=* 2", "--yes", *BOTH)
    _, refused = enterprise.run("message", "delete", "audited", "--all-messages", "--yes", *BOTH, *reader, code=1)
    _, bodies = enterprise.run("message", "find", "audited", "--where", "body=1", *BOTH, *reader, code=1)

    for machine in ("ALPHA", "BETA"):
        done, denied = (entry for entry in enterprise.audit(machine)[-2:])
        assert (done["who"], done["action"], done["outcome"]) == ("alice", "start_job", "done")
        assert (denied["who"], denied["outcome"]) == ("grafana", "denied")
    assert refused.count("grafana") == 2 and bodies.count("ACCESS_DENIED") == 2


def test_an_export_of_nodes_is_imported_at_another_once(enterprise: Enterprise) -> None:
    fill(enterprise, "export")
    file = enterprise.folder / "export.ndjson"

    enterprise.run("message", "export", "export", "--output", file, *BOTH)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    fill(enterprise, "imported", count=0)
    _, first = enterprise.run("message", "import", file, "--machine", "BETA", "--to", "imported")
    _, again = enterprise.run("message", "import", file, "--machine", "BETA", "--to", "imported", code=1)

    assert sorted((line["machine"], line["label"]) for line in lines) == sorted(
        (name, f"{name} {n}") for name in ("ALPHA", "BETA") for n in range(3)
    )
    assert "6 sent" in first and "6 known" in again


def test_failures_of_all_nodes_are_one_group_and_one_is_edited(enterprise: Enterprise) -> None:
    headers = {"NServiceBus.ExceptionInfo.ExceptionType": "System.TimeoutException", "NServiceBus.FailedQ": "sales@."}
    message = qmnode.Message.from_value({"Id": 7}, format="nservicebus", headers=headers)
    fill(enterprise, "error", message.copy(recoverable=True))
    fill(enterprise, "sales", count=0)

    (group,) = enterprise.rows("message", "failures", *BOTH)
    found = enterprise.rows("message", "find", "error", "-m", "ALPHA")[0]["message"]
    place = found["lookup_identifier"]
    enterprise.run("message", "edit", "error", place, "-m", "ALPHA", "--value", '{"Id": 8}', "--label", "mended")
    where = [word for text in group["where"] for word in ("--where", text)]
    returned = enterprise.rows("message", "return", "error", *where, *BOTH)
    there = enterprise.rows("message", "find", "sales", *BOTH)
    place = next(row["message"]["lookup_identifier"] for row in there if row["machine"] == "ALPHA")
    shown = enterprise.run("message", "show", "sales", place, "-m", "ALPHA")[0]

    assert group["reason"] == "System.TimeoutException" and group["count"] == 2
    assert sorted(group["machines"]) == ["ALPHA", "BETA"]
    assert [job["done"] for job in returned] == [1, 1] and len(there) == 2
    assert "mended" in shown and '"Id": 8' in shown


def test_mistakes_have_a_sentence_that_says_what_to_do(enterprise: Enterprise) -> None:
    broken = enterprise.folder / "broken.yaml"
    open_token = enterprise.folder / "open.token"
    open_token.write_text(OPERATOR)
    open_token.chmod(0o644)
    settings = json.loads(enterprise.nodes_file.read_text())
    for change, word in (
        ({"token_file": "open.token"}, "chmod 600"),
        ({"token_file": "none.token"}, "cannot be read"),
        ({"token_file": None}, "management.tokens"),
        ({"authority": "nodes.yaml"}, "authority"),
        ({"authority": None}, "certificate is not believed"),
        ({"machines": {"ALPHA": {"address": "http://x"}}}, "HOST:PORT"),
        ({"machines": {"ALPHA": {"address": "a:99999"}}}, "65535"),
        ({"colour": "red"}, "colour"),
    ):
        broken.write_text(json.dumps(settings | change))
        _, errors = enterprise.run("message", "find", "*", "-m", "ALPHA", "--nodes", broken, code=1)
        assert word in errors and "Traceback" not in errors, (change, errors)
    for words, code, word in (
        (("message", "find", "orders"), 2, "--all"),
        (("message", "find", "orders", "--all", "-m", "ALPHA"), 2, "leave out"),
        (("message", "find", "no-such", *BOTH), 1, "no queue"),
        (("message", "find", "*", "--where", "colour=red", *BOTH), 2, "colour"),
        (("message", "find", "*", "--cursor", "x", *BOTH), 1, "cursor"),
        (("message", "find", "*", "--cursor", "ALPHA:../..", *BOTH), 1, "cursor"),
        (("message", "move", "find", "--to", "x", *BOTH), 2, "--all-messages"),
        (("message", "move", "find", "0x1", "--to", "x", *BOTH), 2, "one machine"),
        (("message", "delete", "find", "--all-messages", *BOTH), 2, "--yes"),
        (("message", "failures", "--by", "colour", *BOTH), 2, "colour"),
        (("message", "show", "find", "../../x", "-m", "ALPHA"), 2, "lookup"),
        (("job", "show", "7"), 1, "MACHINE/NUMBER"),
        (("job", "show", "ALPHA/999"), 1, "no job 999"),
        (("job", "list", "--state", "odd", *BOTH), 2, "paused"),
    ):
        _, errors = enterprise.run(*words, code=code)
        assert word in errors and "Traceback" not in errors, (words, errors)


def test_a_queue_that_only_some_nodes_have_is_no_failure(enterprise: Enterprise) -> None:
    fill(enterprise, "only-here", at="ALPHA", count=1)

    output, errors = enterprise.run("message", "find", "only-here", *BOTH)

    assert len(output.splitlines()) == 1 and "BETA: " in errors and "QUEUE_NOT_FOUND" in errors


def test_a_message_is_traced_at_all_nodes_and_the_one_that_is_down_is_named(enterprise: Enterprise) -> None:
    label = f"traced {time.monotonic_ns()}"
    assert enterprise.nodes["BETA"].command("queue", "create", "traced").returncode == 0
    assert enterprise.nodes["BETA"].command("send", "traced", "x", "--label", label).returncode == 0
    machines = ("--machine", "ALPHA", "--machine", "BETA", "--machine", "GAMMA")
    (found,) = enterprise.rows("trace", "--label", label, *machines)
    (step,) = found["steps"]
    assert (step["machine"], step["reason"], step["label"]) == ("BETA", "receiver", label)
    assert list(found["unknown"]) == ["GAMMA"] and found["waits"] == [step]
    (again,) = enterprise.rows("trace", step["message"], *machines)
    assert again["steps"] == found["steps"]
    shown, errors = enterprise.run("trace", step["message"], *machines)
    assert "BETA" in shown and "GAMMA: not known" in errors
    _, errors = enterprise.run("trace", "--label", "nothing has this", *machines, code=1)
    assert "no node knows the message" in errors
    assert "say which message" in enterprise.run("trace", code=2)[1]
    local = json.loads(enterprise.nodes["BETA"].command("trace", step["message"], "--json").stdout)
    assert [place["identifier"] for place in local["places"]] == [step["message"]]
    assert enterprise.nodes["ALPHA"].command("trace", step["message"]).returncode == 1
