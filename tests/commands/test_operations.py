"""``qmnode message`` and ``qmnode job``, as an administrator uses them."""

import json

from tests.commands.conftest import Command


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
