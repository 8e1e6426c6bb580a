"""What each command does with a running node, what it prints, and its exit codes."""

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

import qmnode
import qmnode.settings.node
from qmnode.commands.command_table import COMMANDS
from qmnode.local.remote import RemoteQueueManager
from tests.commands.conftest import Command
from tests.lab.nodes import NodeProcess

pytestmark = pytest.mark.servers

OUTGOING = r"DIRECT=OS:beta\private$\orders"


def test_the_status_for_people_and_programs(node: NodeProcess, command: Command) -> None:
    assert "ALPHA" in command("status").out
    status = command("status", "--json").json
    assert (status["computer_name"], status["quotas"]["quota"]) == ("ALPHA", 1048576)
    assert status["event_loop"] in ("asyncio", "uvloop")


def test_the_node_is_found_by_its_configuration(
    daemon: NodeProcess, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QMNODE_SOCKET", raising=False)
    assert command("status", "--config", daemon.config, "--json").json["computer_name"] == "ALPHA"
    assert command("status", "--socket", daemon.folder / "node.sock", "--json").code == 0


def test_a_configuration_given_wins_over_the_environment_and_a_socket_given_over_both(
    node: NodeProcess, command: Command, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(f"local: {{socket: {tmp_path / 'other.sock'}}}")
    for words in (("status", "--json"), ("status",), ("queue", "list"), ("queue", "purge", "orders", "--yes")):
        answer = command(*words, "--config", other)
        assert (answer.code, str(tmp_path / "other.sock") in answer.err) == (3, True)
    assert command("status", "--config", tmp_path / "nope.yaml").code == 2
    assert command("queue", "list", "--config", tmp_path / "nope.yaml").code == 2
    for words in (("status",), ("queue", "list")):
        assert command(*words, "--config", other, "--socket", node.socket).code == 0
        assert command(*words).code == 0


def test_an_empty_variable_names_no_socket(
    daemon: NodeProcess, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QMNODE_SOCKET", "")
    monkeypatch.setenv("QMNODE_LOCAL__SOCKET", str(daemon.socket))
    assert command("queue", "list").code == 0
    assert command("status").code == 0


def test_messages_that_no_connection_will_take_are_a_warning(node: NodeProcess, command: Command) -> None:
    assert command("status", "--json").json["warnings"] == []
    assert command("send", OUTGOING, "order 7").code == 0
    status = command("status", "--json").json
    assert status["warnings"] == ["network: 1 message waits for other machines, but transport.enabled is false"]
    assert status["warnings"][0] in command("status").out
    assert command("queue", "purge", OUTGOING, "--yes").code == 0
    assert command("status", "--json").json["warnings"] == []


def test_a_node_that_cannot_be_reached_is_exit_code_3(command: Command, tmp_path: Path) -> None:
    answer = command("status", "--socket", tmp_path / "none.sock")
    assert (answer.code, answer.out) == (3, "")
    assert "MQ_ERROR_SERVICE_NOT_AVAILABLE (0xC00E000B)" in answer.err


def test_a_configuration_that_cannot_be_used_is_exit_code_2(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QMNODE_SOCKET", raising=False)
    (tmp_path / "node.yaml").write_text("quotas: 7")
    answer = command("status", "--config", tmp_path / "node.yaml")
    assert (answer.code, "quotas" in answer.err) == (2, True)


def test_a_queue_through_its_life(node: NodeProcess, command: Command) -> None:
    created = command(
        *("queue", "create", "life", "--transactional", "--label", "Life", "--quota", "100"),
        *("--privacy-level", "body", "--multicast-address", "234.1.1.1:8001", "--json"),
    ).json
    assert (created["pathname"], created["transactional"], created["quota"]) == (r"ALPHA\private$\life", True, 100)
    assert (created["privacy_level"], created["multicast_address"]) == ("body", "234.1.1.1:8001")
    options = ("--quota", "none", "--journaling", "--duplicate-window", "600")
    changed = command("queue", "set", "life", *options, "--json").json
    assert (changed["quota"], changed["journaling"], changed["label"]) == (None, True, "Life")
    assert changed["duplicate_window"] == 600
    assert command("queue", "show", "life", "--json").json == changed | {"incoming_sequences": []}
    assert "Life" in command("queue", "list", "*LIFE").out
    listed = command("queue", "list", "--kind", "private", "--json").json["queues"]
    assert r"ALPHA\private$\life" in [queue["pathname"] for queue in listed]
    assert command("queue", "delete", "life", "--yes").code == 0
    gone = command("queue", "show", "life")
    assert (gone.code, "MQ_ERROR_QUEUE_NOT_FOUND (0xC00E0003)" in gone.err) == (1, True)


DOMAIN_USER = "S-1-5-21-1-2-3-4"


@pytest.mark.parametrize(
    ("owner", "sid"),
    [*((who, "S-1-22-1-4711") for who in ("4711", "uid:4711")), ("root", "S-1-22-1-0"), (DOMAIN_USER, DOMAIN_USER)],
)
def test_a_queue_is_created_for_another_user(node: NodeProcess, command: Command, owner: str, sid: str) -> None:
    assert command("queue", "create", "theirs", "--for", owner).code == 0
    access = command("queue", "acl", "show", "theirs", "--json").json
    assert access["owner"] == sid
    rights = {rule["trustee"]: rule["rights"] for rule in access["rules"]}
    assert rights[sid] == ["full-control"]
    assert "receive-message" not in rights["S-1-1-0"]
    assert command("queue", "acl", "allow", "theirs", "administrators", "full-control").code == 0
    assert command("queue", "delete", "theirs", "--yes").code == 0


def test_a_queue_for_nobody_is_not_created(node: NodeProcess, command: Command) -> None:
    refused = command("queue", "create", "theirs", "--for", "no-such-user")
    assert (refused.code, "no-such-user" in refused.err) == (1, True)
    assert command("queue", "show", "theirs").code == 1


def test_what_deletes_asks_first(queue: str, command: Command) -> None:
    for verb in ("delete", "purge"):
        answer = command("queue", verb, queue)
        assert (answer.code, "--yes" in answer.err) == (2, True)
    assert command("queue", "show", queue).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("queue", "create"),
        ("queue", "create", "x", "--quota", "much"),
        ("queue", "create", "x", "--type", "no-guid"),
        ("queue", "set", "x"),
        ("queue", "explode", "x"),
        ("send", "x", "body", "--lines"),
        ("send", "x", "--file", "/none"),
        ("send", "x", "--priority", "8"),
        ("receive", "x", "--count", "0"),
        ("move", "x", "first", "--to", "x;y"),
        ("dead-letter", "retry"),
        ("no-such-command",),
    ],
)
def test_wrong_usage_is_exit_code_2(node: NodeProcess, command: Command, arguments: tuple[str, ...]) -> None:
    assert command(*arguments).code == 2


def test_a_message_is_sent_peeked_and_received(queue: str, command: Command) -> None:
    sent = command("send", queue, "Grüße", "--label", "first", "--priority", "6", "--json").json
    (peeked,) = command("peek", queue, "--json").documents
    assert (peeked["identifier"], peeked["text"], peeked["priority"]) == (sent["identifier"], "Grüße", 6)
    assert "first" in command("peek", queue).out
    received = command("receive", queue)
    assert (received.code, received.out) == (0, "Grüße\n")
    journal = command("journal", queue, "--json").documents
    assert [message["text"] for message in journal] == ["Grüße"]
    assert command("queue", "purge", f"{queue};journal", "--yes").code == 0
    assert command("journal", queue, "--json").documents == []


def test_an_empty_queue_is_exit_code_4(queue: str, command: Command) -> None:
    for verb in ("receive", "peek"):
        answer = command(verb, queue, "--timeout", "0.05")
        assert (answer.code, "MQ_ERROR_IO_TIMEOUT" in answer.err) == (4, True)


def test_lines_become_messages_and_come_back(queue: str, command: Command) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(1200))
    assert command("send", queue, "--lines", stdin=lines).err == "1200 sent\n"
    page = command("peek", queue, "--count", "3", "--json").documents
    rest = command("peek", queue, "--count", "1", "--after", page[-1]["lookup_identifier"], "--json").documents
    assert [message["text"] for message in page + rest] == ["line 0", "line 1", "line 2", "line 3"]
    assert command("receive", queue, "--all").out.encode() == lines


def test_files_go_through_unchanged(queue: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes("\N{SNOWMAN}\r\n\0".encode())
    command("send", queue, "--file", tmp_path / "body")
    assert command("receive", queue, "--show", "raw").out == "\N{SNOWMAN}\r\n\0"
    command("send", queue, "--file", "-", stdin=b"\xff\x00")
    assert command("receive", queue, "--json").json["base64"] == "/wA="


def test_strings_for_windows_are_utf_16(queue: str, command: Command) -> None:
    command("send", queue, "wide", "--utf16")
    message = command("receive", queue, "--json").json
    assert (message["text"], message["body_type"], message["body_size"]) == ("wide", 31, 8)


def test_messages_move_to_a_subqueue(queue: str, command: Command) -> None:
    command("send", queue, "a")
    (message,) = command("peek", queue, "--json").documents
    assert command("move", queue, message["lookup_identifier"], "--to", f"{queue};later").code == 0
    assert command("receive", f"{queue};later").out == "a\n"
    again = command("move", queue, message["lookup_identifier"], "--to", f"{queue};later")
    assert (again.code, "MQ_ERROR_MESSAGE_NOT_FOUND" in again.err) == (1, True)


def test_an_outgoing_queue_with_transactional_messages_is_not_called_non_transactional(
    node: NodeProcess, command: Command
) -> None:
    assert command("send", OUTGOING, "one", "--transactional").code == 0
    (row,) = (line for line in command("queue", "list", "--kind", "outgoing").out.splitlines() if OUTGOING in line)
    shown = command("queue", "show", OUTGOING).out
    assert row.split("\t")[6] == "-"
    assert re.search(r"^transactional +-", shown, re.MULTILINE)
    assert command("queue", "purge", OUTGOING, "--yes").code == 0


def test_an_outgoing_queue_is_paused_and_purged(node: NodeProcess, command: Command) -> None:
    assert command("send", OUTGOING, "a").code == 0
    assert command("queue", "pause", OUTGOING).code == 0
    assert command("queue", "show", OUTGOING, "--json").json["state"] == "on hold"
    assert len(command("peek", OUTGOING, "--json").documents) == 1
    assert command("queue", "resume", OUTGOING).code == 0
    assert command("queue", "purge", OUTGOING, "--yes").code == 0
    assert command("peek", OUTGOING).code == 4


def test_a_queue_is_paused_and_its_receivers_wait(node: NodeProcess, queue: str, command: Command) -> None:
    assert command("queue", "pause", queue).code == 0
    assert command("send", queue, "a").code == 0
    assert command("queue", "show", queue, "--json").json["state"] == "on hold"
    (row,) = (line for line in command("queue", "list").out.splitlines() if f"\\{queue}\t" in line)
    assert "private (on hold)" in row
    assert "paused" in row
    assert command("receive", queue, "--timeout", "0").code == 4
    assert len(command("peek", queue, "--json").documents) == 1
    assert command("queue", "resume", queue).code == 0
    assert command("receive", queue).out == "a\n"


def test_dead_letters_are_listed_written_out_and_sent_again(queue: str, command: Command, tmp_path: Path) -> None:
    for body in ("one", "two"):
        command("send", queue, body, "--dead-letter")
    command("queue", "purge", queue, "--yes")
    letters = command("dead-letter", "list", "--json").documents
    assert [letter["message_class"] for letter in letters] == ["MQMSG_CLASS_NACK_Q_PURGED"] * 2
    assert command("dead-letter", "export", "--output", tmp_path / "letters").err == "2 written\n"
    exported = [json.loads(line) for line in (tmp_path / "letters").read_text().splitlines()]
    assert [base64.b64decode(letter["base64"]) for letter in exported] == [b"one", b"two"]
    assert command("dead-letter", "retry", letters[0]["lookup_identifier"]).code == 0
    assert command("receive", queue).out == "one\n"
    failed = command("dead-letter", "retry", "--all", "--to", "nowhere", "--json")
    assert (failed.code, failed.json["name"]) == (1, "MQ_ERROR_QUEUE_NOT_FOUND")
    assert command("dead-letter", "retry", "--all").code == 0
    assert command("dead-letter", "list", "--json").documents == []


def test_a_dead_letter_goes_to_the_queue_that_was_named(queue: str, command: Command) -> None:
    command("queue", "create", "undelivered")
    command("send", queue, "one", "--dead-letter", "--dead-letter-queue", "undelivered")
    command("queue", "purge", queue, "--yes")
    dead = command("receive", "undelivered", "--json").json
    assert (dead["text"], dead["message_class"]) == ("one", "MQMSG_CLASS_NACK_Q_PURGED")
    assert dead["dead_letter_queue"] == r".\private$\undelivered"
    assert not any(one["dead_letter_queue"] for one in command("dead-letter", "list", "--json").documents)


def test_open_transactions_are_listed(node: NodeProcess, command: Command) -> None:
    command("queue", "create", "exact", "--transactional")

    async def begin() -> RemoteQueueManager:
        manager = await qmnode.connect()
        queue = await manager.open_queue(r"DIRECT=OS:.\private$\exact", qmnode.Access.SEND)
        await queue.send(qmnode.Message(b"a"), manager.transaction())
        return manager

    with asyncio.Runner() as runner:
        manager = runner.run(begin())
        (found,) = command("transaction", "list", "--json").json["transactions"]
        assert (found["state"], found["in_doubt"]) == ("active", False)
        runner.run(manager.close())


def test_a_backup_is_verified_restored_and_started(
    queue: str, node: NodeProcess, command: Command, tmp_path: Path
) -> None:
    command("send", queue, "kept")
    assert command("backup", tmp_path / "backup").code == 0
    assert command("verify", "--data", tmp_path / "backup").code == 0
    assert command("restore", tmp_path / "backup", "--data", tmp_path / "copy").code == 0
    report = command("verify", "--data", tmp_path / "copy", "--json").json
    assert (report["messages"] >= 1, report["findings"]) == (True, [])
    again = command("restore", tmp_path / "backup", "--data", tmp_path / "copy")
    assert (again.code, "not empty" in again.err) == (1, True)
    busy = command("verify", "--config", node.config)
    assert (busy.code, "in use" in busy.err) == (1, True)


def test_init_makes_a_node_and_overwrites_nothing(command: Command, tmp_path: Path) -> None:
    arguments = ("init", "-c", tmp_path / "node.yaml", "--data", tmp_path / "data", "--run-directory", tmp_path)
    made = command(*arguments, "--computer-name", "BETA", "--json").json
    assert made["computer_name"] == "BETA"
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert command("verify", "--config", tmp_path / "node.yaml").code == 0
    text = (tmp_path / "node.yaml").read_text()
    assert command(*arguments).code == 1
    assert (tmp_path / "node.yaml").read_text() == text


def _below(words: tuple[str, ...], command: Any) -> list[tuple[str, ...]]:
    inner = getattr(command, "commands", {})
    return [found for name, sub in inner.items() for found in _below((*words, name), sub)] or [words]


def _every_command() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, row in COMMANDS.items():
        loaded = row.load(name)
        found += _below((name,), loaded)
    return found


def test_every_command_has_help_with_an_example(command: Command) -> None:
    for arguments in _every_command():
        answer = command(*arguments, "--help")
        assert answer.code == 0
        assert "Usage" in answer.out
        if arguments[0] != "run":
            assert re.search(r"\nExamples?:\n  qmnode ", answer.out), arguments


def test_names_of_commands_complete(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_QMNODE_COMPLETE", "complete_bash")
    for words, expected in (
        ("qmnode dead", "dead-letter"),
        ("qmnode queue pu", "purge"),
        ("qmnode send --la", "--label"),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        answer = command()
        assert (expected in answer.out.split(), "Usage" in answer.out) == (True, False)


def test_who_may_use_a_queue_is_shown_and_changed(queue: str, command: Command) -> None:
    user = "S-1-5-21-1-2-3-1104"
    assert command("queue", "acl", "show", queue).code == 0
    denied = command("queue", "acl", "deny", queue, "anonymous", "send-message", "--json").json
    assert (denied["rules"][0]["kind"], denied["rules"][0]["name"]) == ("deny", "anonymous")
    allowed = command("queue", "acl", "allow", queue, user, "send-message", "peek-message", "--json").json
    assert ("allow", ["peek-message", "send-message"]) in [(rule["kind"], rule["rights"]) for rule in allowed["rules"]]
    removed = command("queue", "acl", "remove", queue, user, "full-control", "--json").json
    assert user not in [rule["trustee"] for rule in removed["rules"]]
    assert command("queue", "acl", "allow", queue, user, "everything").code == 2
    nobody = command("queue", "acl", "allow", queue, "somebody", "read")
    assert (nobody.code, "MQ_ERROR_ILLEGAL_USER" in nobody.err) == (1, True)


def test_a_public_queue_has_no_private_in_its_name(node: NodeProcess, command: Command) -> None:
    refused = command("queue", "create", "published", "--public")
    assert refused.code == 1 and r".\published would be a public queue" in refused.err
    assert command("queue", "create", r".\private$\published", "--public").code == 2


def test_a_dash_is_standard_input_as_everywhere(node: NodeProcess, command: Command) -> None:
    command("queue", "create", "dash")
    command("send", "dash", "-", stdin=b"from a pipe")
    assert command("receive", "dash").out == "from a pipe\n"


def test_a_code_is_named_once_and_the_right_form_is_shown(node: NodeProcess) -> None:
    async def opened() -> None:
        async with qmnode.connect(node.folder / "node.sock") as manager:
            await manager.open_queue(r".\private$\orders")

    with pytest.raises(qmnode.MessageQueuingError, match=r"is opened as DIRECT=OS:\.\\private\$\\orders") as refused:
        asyncio.run(opened())
    assert str(refused.value).count("MQ_ERROR_ILLEGAL_FORMATNAME") == 1


def test_the_host_s_qualified_name_means_the_node(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: "alpha.example")
    config = tmp_path / "node.yaml"
    command("init", "--config", config, "--data", tmp_path / "data", "--run-directory", tmp_path)
    assert qmnode.settings.node.read_settings(config).other_names == ("alpha.example",)
