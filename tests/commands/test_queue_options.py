"""Every property of a queue has one name at the command line and over HTTP, and rows say which values they refuse."""

from typing import Any

import httpx
import pytest

from qmnode.objects.rows import FLAG, GUID, MULTICAST, Door, Property
from qmnode.objects.table import QUEUE
from tests.commands.conftest import Command
from tests.lab.nodes import NodeProcess

KIND = "7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e"
ROWS = {row.name: row for row in QUEUE.at(Door.NODE) if row.is_written}


def value_of(row: Property) -> tuple[Any, tuple[str, ...]]:
    """A value other than the default, as in documents, and the words for it at the command line."""
    form = row.form
    if row.public:
        return row.default, (row.option, str(row.default))  # another one is for public queues
    if form is FLAG:
        return True, (row.option,)
    value: Any = min(form.most or 60, 60) if form.type is int else next(iter(form.choices), "Orders")
    value = KIND if form is GUID else "234.1.1.1:8001" if form is MULTICAST else value
    return value, (row.option, str(value))


def ask(node: NodeProcess, method: str, path: str, **options: Any) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(node.management_socket)), timeout=60) as client:
        return client.request(method, f"http://node{path}", **options)


def test_a_queue_is_created_with_every_property_by_its_one_name(node: NodeProcess, command: Command) -> None:
    expected = {name: value_of(row)[0] for name, row in ROWS.items()}
    words = [word for row in ROWS.values() for word in value_of(row)[1]]
    created = command("queue", "create", "by-option", *words, "--json")
    assert created.err == "" and expected.items() <= created.json.items()
    document = ask(node, "POST", "/v1/queues", json={"name": "by-document", **expected}).json()
    assert expected.items() <= document.items()


@pytest.mark.parametrize("words", [("set", "orders", "--label", "x"), ("delete", r".\private$\orders", "--yes")])
def test_a_login_to_the_directory_is_refused_for_a_private_queue(command: Command, words: tuple[str, ...]) -> None:
    answer = command("queue", *words, "--user", "alice")
    assert answer.code == 2 and r"is a private queue, and the public one is .\orders" in " ".join(answer.err.split())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("multicast_address", "garbage", "224.0.0.0 to 239.255.255.255"),
        ("multicast_address", "10.0.0.1:8001", "224.0.0.0 to 239.255.255.255"),
        ("base_priority", "9", "only a public queue has another"),
        ("base_priority", "40000", "32767"),
        ("duplicate_window", "604801", "604800"),
        ("max_deliveries", "256", "255"),
        ("retry_pause", "604801", "604800"),
        ("retry_factor", "101", "100"),
        ("label", "x" * 125, "124 UTF-16 units"),
        ("type", "orders", "hexadecimal digits"),
        ("quota", "4294967295", "4294967294"),
        ("privacy_level", "much", "optional"),
    ],
)
def test_a_value_that_the_row_refuses_is_refused_at_every_door_with_its_words(
    node: NodeProcess, queue: str, command: Command, name: str, value: str, words: str
) -> None:
    written: Any = int(value) if value.isdecimal() else value
    for how in (("create", "never-made"), ("set", queue)):
        answer = command("queue", *how, f"{QUEUE[name].option}={value}")
        assert answer.code and words in " ".join(answer.err.split()), answer.err
    for method, path, body in (("POST", "/v1/queues", {"name": "never-made"}), ("PATCH", f"/v1/queues/{queue}", {})):
        response = ask(node, method, path, json=body | {name: written})
        assert response.status_code in (400, 422) and words in response.text
    assert "never-made" not in command("queue", "list").out


def test_none_is_null_at_every_door(node: NodeProcess, queue: str, command: Command) -> None:
    none = {name: row for name, row in ROWS.items() if row.form.nullable}
    given = [word for row in none.values() for word in value_of(row)[1]]
    words = [word for row in none.values() for word in (row.option, "none")]
    assert command("queue", "set", queue, *given).code == 0
    by_option = command("queue", "set", queue, *words, "--json").json
    assert command("queue", "set", queue, *given).code == 0
    for shown in (by_option, *(set_by_document(node, queue, dict.fromkeys(none, word)) for word in (None, "None"))):
        assert {name: shown[name] or None for name in none} == dict.fromkeys(none)


def set_by_document(node: NodeProcess, queue: str, values: dict[str, Any]) -> Any:
    return ask(node, "PATCH", f"/v1/queues/{queue}", json=values).json()


@pytest.mark.parametrize(
    ("old", "new", "name", "value"),
    [
        (("--journal",), "--journaling", "journaling", True),
        (("--no-journal",), "--journaling", "journaling", False),
        (("--authenticate",), "--authentication", "authentication", True),
        (("--no-authenticated",), "--authentication", "authentication", False),
        (("--privacy", "body"), "--privacy-level", "privacy_level", "body"),
        (("--multicast", "234.1.1.1:8001"), "--multicast-address", "multicast_address", "234.1.1.1:8001"),
    ],
)
def test_an_option_of_an_earlier_release_works_and_says_its_name_of_now(
    queue: str, command: Command, old: tuple[str, ...], new: str, name: str, value: Any
) -> None:
    changed = command("queue", "set", queue, *old, "--json")
    assert changed.json[name] == value and f" is {new} now" in changed.err
    assert old[0] not in command("queue", "set", "--help").out.split()


def test_the_two_names_of_an_option_are_not_given_together(queue: str, command: Command) -> None:
    refused = command("queue", "set", queue, "--journaling", "--no-journal")
    assert refused.code == 2 and "use one of the two names" in refused.err and "--journaling / --journal" in refused.err
