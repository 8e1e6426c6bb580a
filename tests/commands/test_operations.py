"""``qmnode message`` and ``qmnode job``, as an administrator uses them."""

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import Command
from tests.lab.nodes import COMMAND, PROJECT, NodeProcess


def send_json(command: Command, queue: str, number: int) -> None:
    value = json.dumps({"Order": {"Id": number}})
    assert command("send", queue, value, "--label", f"order {number}").code == 0


def test_messages_are_found_in_many_queues_and_shown(command: Command, queue: str) -> None:
    for number in range(3):
        send_json(command, queue, number)

    found = command("message", "find", f"{queue[:-2]}*", "--where", "value.Order.Id=1", "--json")
    nothing = command("message", "find", queue, "--where", "label=invoice*")
    table = command("message", "find", queue, "--count", 2)

    (document,) = found.documents
    assert document["label"] == "order 1" and document["queue"].endswith(queue)
    assert "1 message found among 3 of 3" in found.err
    assert (nothing.code, nothing.out) == (1, "") and "0 messages found" in nothing.err
    assert "order 0" in table.out and "order 1" in table.out and "--cursor" in table.err
    shown = command("message", "show", queue, document["lookup_identifier"])
    assert "order 1" in shown.out and '"Id": 1' in shown.out and "claimed sender" in shown.out
    cursor = table.err.rpartition("--cursor ")[2].strip()
    assert "order 2" in command("message", "find", queue, "--cursor", cursor).out


def test_a_mistake_in_where_is_named(command: Command, queue: str) -> None:
    for where, word in (
        ("colour=red", "colour"),
        ("label", "NAME=VALUE"),
        ("older=soon", "15m"),
        ("priority=x", "number"),
    ):
        answer = command("message", "find", queue, "--where", where)
        assert answer.code == 2 and word in answer.err, where
    assert command("message", "find", queue, "--where", "priority=99").code == 1
    assert command("message", "find", "no-such-queue").code == 1


def test_messages_are_moved_watched_and_taken_back(command: Command, queue: str) -> None:
    for number in range(3):
        send_json(command, queue, number)
    target = f"{queue};later"

    planned = command("message", "move", queue, "--to", target, "--where", "label=order 1", "--dry-run")
    moved = command("message", "move", queue, "--to", target, "--where", "label=order 1", "--json")
    job = moved.json["job"]
    listed = command("job", "list")
    log = command("job", "show", job, "--log")
    undone = command("job", "undo", job)

    assert planned.code == 0 and "would be done" in planned.err and "1 message would be moved" in planned.err
    assert moved.code == 0 and moved.json["done"] == 1 and f"job {job} is done: 1 message moved" in moved.err
    assert str(job) in listed.out and "moved" in log.out and "as it is" in log.out
    assert undone.code == 0
    assert "order 1" in command("peek", queue).out
    assert command("job", "show", job).out.startswith("job")


def test_choosing_nothing_or_everything_twice_is_wrong_usage(command: Command, queue: str) -> None:
    for words in ((), ("--all", "--where", "label=x"), ("0x1", "--all")):
        answer = command("message", "delete", queue, *words, "--yes")
        assert answer.code == 2 and "--all" in answer.err
    assert command("message", "delete", queue, "--all", stdin=b"").code == 2, "nobody was asked"
    assert command("message", "delete", queue, "0x1", "--yes").code == 1, "that message is not there"
    assert command("job", "show", 4711).code == 1


@pytest.mark.parametrize(
    "edit",
    [
        {"label": "second"},
        {"priority": 6},
        {"text": "order 8"},
        {"decoded": {"Id": 8}},
        {"time_to_be_received": 60},
        {"response_queue": r"DIRECT=OS:other\private$\q"},
        {"lable": "second"},
    ],
)
def test_an_edited_export_is_refused_with_what_to_do(
    command: Command, queue: str, tmp_path: Path, edit: dict[str, Any]
) -> None:
    command("send", queue, '{"Id": 7}', "--label", "first", "--time-to-reach-queue", "60")
    (line,) = command("message", "export", queue).documents
    file = tmp_path / "edited.ndjson"
    as_it_was = line | {"queue": f"{queue}-copy"}
    file.write_text("".join(json.dumps(one) + "\n" for one in (line | edit, as_it_was)))
    assert command("queue", "create", f"{queue}-copy").code == 0

    done = command("message", "import", str(file), "--to", f"{queue}-copy")

    (name,) = edit
    assert (done.code, done.err.count("undo the edit")) == (1, 1)
    assert f"line 1: its packet, of which the message is made, has another {name}:" in done.err
    assert "1 refused, 1 sent" in done.err
    assert len(command("receive", f"{queue}-copy", "--all", "--json").documents) == 1


def test_an_export_of_delayed_messages_is_imported_and_delivered_at_once(
    command: Command, queue: str, tmp_path: Path
) -> None:
    file = tmp_path / "delayed.ndjson"
    assert command("send", queue, "later", "--in", "2h").code == 0
    assert command("message", "export", "delayed$", "--output", file).code == 0
    assert command("message", "delete", "delayed$", "--all", "--yes").code == 0

    done = command("message", "import", file, "--to", queue)

    assert (done.code, command("receive", queue).out) == (0, "later\n"), done.err


def test_a_dead_letter_is_shown_with_its_reason(command: Command, queue: str) -> None:
    assert command("send", queue, "deleted", "--dead-letter", "--label", queue).code == 0
    assert command("message", "delete", queue, "--all", "--yes").code == 0

    shown = command("dead-letter", "list", "--show", "decoded").out.splitlines()

    (head,) = [line for line in shown if f"  {queue}  " in line]
    assert "NACK_Q_PURGED" in head


def test_an_export_is_imported_once_and_edited(command: Command, queue: str, tmp_path: Path) -> None:
    for number in range(3):
        send_json(command, queue, number)
    file = tmp_path / "orders.ndjson"
    assert command("message", "export", queue, "--output", file).code == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["decoded"]["Order"]["Id"] for line in lines] == [0, 1, 2] and all(line["packet"] for line in lines)
    file.write_text(file.read_text() + '{"packet": 7}\nno JSON\n\n' + "[" * 5000 + "\n")
    with file.open("a") as more:
        more.write(f'{{"label": "x", "label": "y", "packet": "{lines[0]["packet"]}"}}\n')

    planned = command("message", "import", file, "--dry-run")
    first = command("message", "import", file)
    second = command("message", "import", file, "--json")

    assert planned.code == 1 and "3 would be sent" in planned.err
    assert first.code == 1 and "4 refused, 3 sent" in first.err and "the name 'label' is twice" in first.err
    assert "line 4: it is no exported message" in first.err
    assert "3 known, 4 refused" in second.err
    assert [one["result"] for one in second.documents] == ["known"] * 3 or "known" in second.out
    found = command("message", "find", queue, "--where", "label=order 2", "--json").documents
    assert len(found) == 2
    place = found[0]["lookup_identifier"]
    edited = command("message", "edit", queue, place, "--value", '{"Order": {"Id": 99}}', "--label", "edited")
    assert edited.code == 0 and "not kept: it gets another identifier" in edited.err
    assert command("message", "find", queue, "--where", "value.Order.Id=99", "--json").documents[0]["label"] == "edited"
    assert command("message", "edit", queue, place, "--label", "again").code == 1
    twice = command("message", "edit", queue, place, "--value", '{"Order": {"Id": 1, "Id": 2}}')
    assert twice.code == 2 and "the name 'Id' is twice" in twice.err
    assert command("message", "import", tmp_path / "missing").code == 1


def test_failures_are_shown_in_groups_with_their_criteria(command: Command, queue: str) -> None:
    headers = ("--header", "NServiceBus.ExceptionInfo.ExceptionType=System.Timeout")
    assert command("send", queue, "{}", "--format", "nservicebus", *headers).code == 0

    shown = command("message", "failures", queue, "--by", "reason")

    assert "System.Timeout" in shown.out
    assert "--where 'header.NServiceBus.ExceptionInfo.ExceptionType=System.Timeout'" in shown.err
    assert command("message", "failures").code == 0


def test_top_shows_the_fullest_queues_and_their_growth(command: Command, queue: str) -> None:
    for number in range(3):
        send_json(command, queue, number)

    shown = command("top", "--interval", 0.1, "--times", 1)
    answer = command("top", "--interval", 0.1, "--times", 2, "--json", "--count", 50)

    assert queue in shown.out and "+0.0" in shown.out
    assert len(answer.documents) == 2
    (found,) = [one for one in answer.documents[0]["queues"] if one["queue"].endswith(queue)]
    assert (found["messages"], found["change"]) == (3, 0.0)


@pytest.mark.public_report("Particular/NServiceBus#37", "Particular/ServiceControl#913")
def test_a_failed_message_returns_to_the_queue_that_its_header_names_and_to_no_other(
    command: Command, queue: str
) -> None:
    name = command("status", "--json").json["computer_name"]
    for number, failed in enumerate((f"{queue}@{name}", f"{queue}@{name.lower()}.", f"{queue}@localhost", queue)):
        more = ("--header", f"NServiceBus.FailedQ={failed}", "--header", "NServiceBus.ReplyToAddress=elsewhere@beta")
        assert command("queue", "create", f"errors{number}").code == 0
        command("send", f"errors{number}", "{}", "--format", "nservicebus", *more)
        assert command("message", "return", f"errors{number}", "--all").code == 0, failed
        command("queue", "delete", f"errors{number}", "--yes")
    assert len(command("peek", queue, "--json").documents) == 4
    command("send", queue, "{}", "--format", "nservicebus", "--header", f"NServiceBus.FailedQ={queue}.Retries@{name}")
    answer = command("message", "return", queue, "--where", "header.NServiceBus.FailedQ=*Retries*")
    assert answer.code == 1 and "there is no queue" in answer.err
    assert len(command("peek", queue, "--json").documents) == 5, "it stays where it was"


@pytest.mark.public_report("Particular/NServiceBus#4630", "Particular/NServiceBus#1921")
def test_a_queue_with_the_longest_name_can_be_used_everywhere(node: NodeProcess, command: Command) -> None:
    long = "n" * 124
    assert command("queue", "create", f"{long}n").code == 1
    assert command("queue", "create", long).code == 0
    assert command("queue", "acl", "allow", long, "everyone", "send-message").code == 0
    given = ("--response-queue", long, "--admin-queue", long, "--acknowledge", 3)
    assert command("send", long, "hello", *given).code == 0
    (shown,) = command("peek", long, "--count", 1, "--json").documents
    assert shown["response_queue"].endswith(long)
    assert command("receive", long).out == "hello\n"
    classes = [one["message_class"] for one in command("receive", long, "--all", "--json").documents]
    assert classes == ["MQMSG_CLASS_ACK_REACH_QUEUE", "MQMSG_CLASS_ACK_RECEIVE"]
    assert command("queue", "delete", long, "--yes").code == 0


@pytest.mark.public_report("rabbitmq/rabbitmq-management#438", "edenhill/kcat#272")
@pytest.mark.parametrize(
    "line",
    ["qmnode receive QUEUE --all > /dev/full", "qmnode receive QUEUE --all | true", "qmnode receive QUEUE --all >&-"],
)
def test_messages_whose_output_cannot_be_written_stay(
    node: NodeProcess, queue: str, command: Command, line: str
) -> None:
    command("send", queue, "--lines", stdin=b"x\n" * 3000)
    text = line.replace("qmnode", shlex.join(COMMAND)).replace("QUEUE", queue)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "QMNODE_SOCKET": str(node.socket)}
    ended = subprocess.run(["bash", "-c", f"set -o pipefail; {text}"], capture_output=True, text=True, env=environment)
    assert ended.returncode != 0 and "Traceback" not in ended.stderr
    assert command("queue", "show", queue, "--json").json["message_count"] == 3000


@pytest.mark.public_report("rabbitmq/rabbitmq-server#656", "rabbitmq/rabbitmq-management#351")
@pytest.mark.parametrize("name", ["orders\n", "\norders", "a\tb", "a\x00b", "a\x85b"])
def test_no_queue_gets_a_name_with_control_characters(node: NodeProcess, command: Command, name: str) -> None:
    answer = command("queue", "create", name)
    assert answer.code == 1 and "without control character" in answer.err and answer.err.count("\n") == 1


@pytest.mark.public_report("Particular/ServiceControl#301")
def test_a_response_queue_of_an_unknown_machine_hides_no_message(command: Command, queue: str) -> None:
    name = r"PRIVATE=11111111-b456-4c5c-bf32-2a1c7bde45b1\00000011"
    for more in (("--response-queue", name), ("--admin-queue", name), ()):
        assert command("send", queue, "x", *more).code == 0
    first, _, _ = command("peek", queue, "--json").documents
    assert first["response_queue"] == name
    assert name in command("message", "show", queue, first["lookup_identifier"]).out
    assert command("receive", queue, "--all").out == "x\nx\nx\n"
