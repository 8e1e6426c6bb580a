"""``qmnode send``: where the body comes from, what a message has beside it, and what a terminal is spared."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import Command
from tests.lab.nodes import PROJECT, NodeProcess
from tests.lab.terminal import at_a_terminal

pytestmark = pytest.mark.servers

QMNODE = [sys.executable, "-c", "from qmnode.cli import main; main()"]
HOSTILE = "a\x1b[31mred\x1b[0m\x9b2J\x07\u202eb\u2028\x7fc"


def shell(line: str, node: NodeProcess) -> subprocess.CompletedProcess[bytes]:
    """A line for the shell in which $q is the command."""
    words = " ".join(f"'{word}'" for word in QMNODE)
    return subprocess.run(
        ["bash", "-c", line.replace("$q", words)],
        capture_output=True,
        timeout=240,
        cwd=PROJECT,
        env={**os.environ, "QMNODE_SOCKET": str(node.socket)},
        check=False,
    )


def only_body(queue: str, command: Command) -> bytes:
    (document,) = command("receive", queue, "--all", "--json").documents
    return document["text"].encode() if document["text"] is not None else base64.b64decode(document["base64"])


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("echo hello | $q send QUEUE", b"hello\n"),
        ("printf hello | $q send QUEUE --label x", b"hello"),
        (r"printf '\377\0\r\n' | $q send QUEUE", b"\xff\0\r\n"),
        ("printf hello > @body; $q send QUEUE < @body", b"hello"),
        ("$q send QUEUE < /dev/null", b""),
        ("$q send QUEUE <&-", b""),
        ("$q send QUEUE body <&-", b"body"),
        ("echo ignored | $q send QUEUE body", b"body"),
        ("echo ignored | $q send QUEUE ''", b""),
        ("printf '1\\n2\\n' | while read line; do [ $line = 2 ] || $q send QUEUE $line; done", b"1"),
        ("printf '1\\n2\\n' | while read line; do $q send QUEUE; done", b"2\n"),
        ("echo hello | $q send QUEUE -", b"hello\n"),
        ("echo hello | $q send QUEUE --file -", b"hello\n"),
        ("printf 'gr\\303\\274n' | $q send QUEUE --utf16", "grün".encode()),
        ("head -c 4000000 /dev/zero | $q send QUEUE", bytes(4_000_000)),
    ],
)
def test_standard_input_is_the_body_when_none_is_given(
    line: str, body: bytes, queue: str, node: NodeProcess, command: Command, tmp_path: Path
) -> None:
    answer = shell(line.replace("QUEUE", f"'{queue}'").replace("@body", str(tmp_path / "body")), node)
    assert (answer.returncode, answer.stderr) == (0, b"1 sent\n")
    assert only_body(queue, command) == body


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("yes | $q send QUEUE", "standard input has more than 4194304 bytes"),
        ("yes | $q send QUEUE -", "standard input has more than 4194304 bytes"),
        ("$q send QUEUE --file /dev/zero", "/dev/zero has more than 4194304 bytes"),
        ("head -c 5000000 /dev/zero | $q send QUEUE --lines", "line 1 of standard input has more than 4194304 bytes"),
        ("$q send QUEUE --lines <&-", "standard input is closed"),
        ("$q send QUEUE - <&-", "standard input is closed"),
        ("$q send QUEUE --file -  <&-", "standard input is closed"),
        ("$q send QUEUE --file /tmp", "/tmp cannot be read: Is a directory"),
        ("$q send QUEUE x --extension @/none", "/none cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_a_body_is_refused_in_a_line(
    line: str, reason: str, queue: str, node: NodeProcess, command: Command
) -> None:
    answer = shell(line.replace("QUEUE", f"'{queue}'"), node)
    assert answer.returncode == 2
    assert reason in " ".join(answer.stderr.decode().replace("│", " ").split())
    assert b"Traceback" not in answer.stderr
    assert command("peek", queue).code == 4


def test_at_a_terminal_a_message_without_a_body_is_empty(queue: str, node: NodeProcess, command: Command) -> None:
    code, out = at_a_terminal([*QMNODE, "send", queue], environment={"QMNODE_SOCKET": str(node.socket)})
    assert (code, "1 sent" in out) == (0, True)
    assert only_body(queue, command) == b""


def test_many_long_lines_go_in_batches_that_fit(queue: str, node: NodeProcess, command: Command) -> None:
    lines = b"".join(b"%d" % number + bytes(1_000_000) + b"\n" for number in range(80))
    assert command("send", queue, "--lines", "--label", "long", stdin=lines).err == "80 sent\n"


def test_what_a_message_has_beside_its_body(queue: str, command: Command, tmp_path: Path) -> None:
    request = command("send", queue, "request", "--json").json["identifier"]
    command("receive", queue)
    (tmp_path / "more").write_bytes(b"\0\xff")
    more = ("--app-specific", "4294967295", "--correlation", request, "--extension", f"@{tmp_path / 'more'}")
    assert command("send", queue, "answer", "--body-type", "VT_BSTR", *more).code == 0
    answer = command("receive", queue, "--json").json
    guid, number = request.split("\\")
    expected = bytes.fromhex(guid.replace("-", ""))
    identifier = (
        expected[3::-1] + expected[5:3:-1] + expected[7:5:-1] + expected[8:] + int(number).to_bytes(4, "little")
    )
    assert answer["correlation_identifier"] == identifier.hex()
    assert (answer["app_specific"], answer["body_type"], answer["text"]) == (4294967295, 8, "answer")
    assert (answer["extension"], answer["extension_size"], answer["body_size"]) == ("AP8=", 2, 12)
    command("send", queue, "again", "--correlation", identifier.hex(), "--body-type", "0x2011", "--extension", "text")
    again = command("receive", queue, "--json").json
    assert (again["correlation_identifier"], again["body_type"]) == (identifier.hex(), 0x2011)
    assert base64.b64decode(again["extension"]) == b"text"


@pytest.mark.public_report("Particular/NServiceBus#1202")
@pytest.mark.parametrize(
    "arguments",
    [
        ("--body-type", "word"),
        ("--body-type", "-1"),
        ("--body-type", "0x100000000"),
        ("--correlation", "seven"),
        ("--correlation", "00"),
        ("--correlation", "7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e\\"),
        ("--correlation", "hello\\1"),
        ("--correlation", "7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e\\99999999999"),
        ("--app-specific", "4294967296"),
    ],
)
def test_values_that_a_message_cannot_have_are_wrong_usage(
    arguments: tuple[str, ...], queue: str, command: Command
) -> None:
    answer = command("send", queue, "x", *arguments)
    assert (answer.code, arguments[0] in answer.err) == (2, True)
    assert command("peek", queue).code == 4


def test_no_escape_sequence_reaches_a_terminal_and_json_loses_nothing(
    queue: str, node: NodeProcess, command: Command, tmp_path: Path
) -> None:
    def acting(text: str) -> list[str]:
        return re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]", text)

    environment = {"QMNODE_SOCKET": str(node.socket)}
    command("queue", "set", queue, "--label", HOSTILE)
    command("send", queue, HOSTILE, "--label", HOSTILE, "--dead-letter")
    for arguments in (
        ("peek", queue, "--show", "text"),
        ("peek", queue, "--show", "raw"),
        ("peek", queue),
        ("peek", queue, "--json"),
        ("queue", "show", queue),
        ("queue", "list", "--json"),
        ("queue", "show", HOSTILE.replace("\x07", "")),
    ):
        _, out = at_a_terminal([*QMNODE, *arguments], environment=environment)
        assert acting(out) == [], arguments
        assert r"\x1b[31mred" in out or r"\u001b[31mred" in out, arguments
    in_a_pipe = command("peek", queue, "--json")
    assert acting(in_a_pipe.out) == []
    assert (in_a_pipe.json["text"], in_a_pipe.json["label"]) == (HOSTILE, HOSTILE)
    assert command("peek", queue, "--show", "text").out == HOSTILE + "\n"
    command("queue", "purge", queue, "--yes")
    command("dead-letter", "export", "--output", tmp_path / "letters")
    written = (tmp_path / "letters").read_text("utf-8")
    assert acting(written) == []
    assert HOSTILE in [json.loads(line)["label"] for line in written.split("\n") if line]
    command("queue", "purge", r"system$;deadletter", "--yes")


@pytest.mark.parametrize(
    ("written", "kilobytes", "shown"),
    [
        ("10MB", 10240, "10 MiB"),
        ("10 mib", 10240, "10 MiB"),
        ("1.5G", 1572864, "1536 MiB"),
        ("102400", 102400, "100 MiB"),
        ("100KB", 100, "100 KiB"),
        ("1TB", 1 << 30, "1 TiB"),
        ("0", 0, "0 KiB"),
        ("none", None, "none"),
    ],
)
def test_quotas_are_read_and_shown_with_units(
    written: str, kilobytes: int | None, shown: str, queue: str, command: Command
) -> None:
    assert command("queue", "set", queue, "--quota", written, "--json").json["quota"] == kilobytes
    table = command("queue", "show", queue).out
    assert re.search(r"^quota +(.*?) *$", table, re.MULTILINE)[1] == shown  # type: ignore[index]
    assert command("queue", "set", queue, "--quota", shown, "--json").json["quota"] == kilobytes


@pytest.mark.parametrize("written", ["10XB", "MB", "-1", "1e3", "0.5KB", "4294967295", "4TB", "10MBB", "", "١MB"])
def test_what_is_no_quota_is_wrong_usage(written: str, queue: str, command: Command) -> None:
    answer = command("queue", "set", queue, f"--journal-quota={written}")
    assert (answer.code, "--journal-quota" in answer.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--acknowledge", "3"), ["--acknowledge has no effect without --admin-queue"]),
        (("--admin-queue", "answers"), ["--admin-queue has no effect without --acknowledge"]),
        (("--hash", "sha512"), ["--hash has no effect without --authenticated"]),
        (("--dead-letter-queue", "answers"), ["--dead-letter-queue has no effect without --dead-letter"]),
        (
            ("--transactional", "--priority", "5", "--express"),
            [
                "--priority has no effect: transactional messages arrive in the order in which they were sent",
                "--express has no effect: transactional messages are always kept on disk",
            ],
        ),
        (("--priority", "5", "--express", "--no-transactional"), []),
        (("--acknowledge", "1", "--admin-queue", "answers", "--dead-letter"), []),
    ],
)
def test_an_option_without_an_effect_is_named(
    queue: str, command: Command, options: tuple[str, ...], said: list[str]
) -> None:
    name = queue
    if "--transactional" in options:
        name = f"{queue}-tx"
        assert command("queue", "create", name, "--transactional").code == 0
    sent = command("send", name, "x", *options)
    assert sent.code == 0
    assert [line for line in sent.err.splitlines() if "no effect" in line] == said
    (found,) = command("receive", name, "--all", "--json").documents
    if "--transactional" in options:
        assert (found["priority"], found["recoverable"]) == (0, True)


def test_a_message_is_sent_for_later_found_and_cancelled(queue: str, command: Command) -> None:
    assert command("send", queue, "at", "--at", "2100-01-01T00:00:00", "--express").code == 0
    assert command("send", queue, "in", "--in", "2h").code == 0
    assert command("send", queue, "now", "--in", "0s").code == 0
    assert only_body(queue, command) == b"now"
    found = command("message", "find", "delayed$", "--where", "destination=*" + queue, "--json").documents
    assert [one["text"] for one in found] == ["at", "in"]
    assert found[0]["delivery_time"] == "2100-01-01T00:00:00Z"
    (listed,) = [one for one in command("queue", "list", "--json").json["queues"] if "delayed$" in one["pathname"]]
    assert (listed["queue_type"], listed["message_count"]) == ("system", 2)
    table = command("message", "find", "delayed$", "--where", "body=at").out.splitlines()
    assert [line.split("\t")[-2:] for line in table] == [
        ["delivery", "destination"],
        ["2100-01-01 00:00:00", rf"DIRECT=OS:.\private$\{queue}"],
    ]
    assert "2100-01-01" in command("message", "show", "delayed$", found[0]["lookup_identifier"]).out
    assert command("message", "move", "delayed$", "--to", queue, "--where", "body=at").code == 0
    assert only_body(queue, command) == b"at"
    assert command("send", queue, "back", "--in", "3h").code == 0
    assert command("message", "return", "delayed$", "--where", "body=back").code == 0
    assert only_body(queue, command) == b"back"
    assert command("message", "delete", "delayed$", "--where", "body=in", "--yes").code == 0
    assert command("message", "find", "delayed$", "--json").documents == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--at", "tomorrow"), "write a time such as"),
        (("--at", "1066-10-14"), "--at: "),
        (("--in", "-5s"), "write 90s, 15m, 2h or 3d"),
        (("--in", "90000d"), "--in: "),
        (("--in", "1h", "--at", "2100-01-01"), "only one of them"),
    ],
)
def test_what_is_no_delivery_time_is_wrong_usage(
    options: tuple[str, ...], reason: str, queue: str, command: Command
) -> None:
    answer = command("send", queue, "m", *options)
    assert (answer.code, command("peek", queue).code) == (2, 4)
    assert reason in " ".join(answer.err.replace("│", " ").split())


def test_nobody_sends_to_the_queue_of_delayed_messages(queue: str, command: Command) -> None:
    answer = command("send", "delayed$", "m")
    assert answer.code != 0
    assert "deliver_at or deliver_in" in " ".join(answer.err.split())
