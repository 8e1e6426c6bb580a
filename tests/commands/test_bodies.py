"""Bodies and headers on the command line: shown decoded, and written as programs of .NET read them."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

import qmnode
from tests.commands.conftest import Command
from tests.lab.nodes import NodeProcess
from tests.lab.terminal import at_a_terminal


@pytest.fixture
def queue(daemon: NodeProcess, request: pytest.FixtureRequest) -> str:
    """An empty queue."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:100]

    async def create() -> None:
        async with qmnode.connect(daemon.socket) as qm:
            await qm.create_queue(rf".\private$\{name}", journaling=True)

    asyncio.run(create())
    return name


def send(daemon: NodeProcess, queue: str, *messages: qmnode.Message) -> None:
    async def work() -> None:
        async with (
            qmnode.connect(daemon.socket) as qm,
            await qm.open_queue(rf"DIRECT=OS:.\private$\{queue}", qmnode.Access.SEND) as opened,
        ):
            await opened.send_many(messages)

    asyncio.run(work())


ORDER = {"Order": {"Id": "7", "Lines": {"string": ["a", "b"]}}}


def test_json_has_format_value_and_headers(command: Command, daemon: NodeProcess, queue: str) -> None:
    send(
        daemon,
        queue,
        qmnode.Message.from_value(ORDER),
        qmnode.Message.from_value("text", format="VT_BSTR"),
        qmnode.Message.from_value({"a": 1}, format="rebus", headers={"rbs2-msg-id": "9"}),
        qmnode.Message(b"\x00\xff"),
    )
    found = command("peek", queue, "--socket", daemon.socket, "--json").documents
    keys = ("format", "decoded", "headers", "headers_format", "undecoded")
    assert [tuple(one[key] for key in keys) for one in found] == [
        ("xml", ORDER, None, None, None),
        ("VT_BSTR", "text", None, None, None),
        ("json", {"a": 1}, {"rbs2-msg-id": "9"}, "rebus", None),
        (None, None, None, None, "the bytes are of no known format"),
    ]
    assert found[2]["extension"]


def test_decoded_names_the_format_and_shows_headers_and_value(
    command: Command, daemon: NodeProcess, queue: str
) -> None:
    headers = {"NServiceBus.ExceptionInfo.Message": "no stock"}
    send(daemon, queue, qmnode.Message.from_value({"a": 1}, format="nservicebus", headers=headers, label="order"))
    shown = command("peek", queue, "--socket", daemon.socket, "--show", "decoded").out
    assert "order  json  nservicebus" in shown
    assert "NServiceBus.ExceptionInfo.Message: no stock" in shown
    assert '"a": 1' in shown


@pytest.mark.parametrize("arguments", [["peek"], ["receive"], ["journal"]])
def test_at_a_terminal_bodies_are_decoded(
    daemon: NodeProcess, queue: str, arguments: list[str], command: Command
) -> None:
    send(daemon, queue, qmnode.Message.from_value(ORDER))
    if arguments == ["journal"]:
        assert command("receive", queue, "--socket", daemon.socket).code == 0
    program = [sys.executable, "-c", "from qmnode.cli import main; main()"]
    _, shown = at_a_terminal([*program, *arguments, queue, "--socket", str(daemon.socket)])
    assert "xml" in shown
    assert '"Id": "7"' in shown


def test_in_a_pipe_receive_prints_the_text_as_before(command: Command, daemon: NodeProcess, queue: str) -> None:
    send(daemon, queue, qmnode.Message(b"<a/>"))
    assert command("receive", queue, "--socket", daemon.socket).out == "<a/>\n"


def test_a_body_that_cannot_be_decoded_is_shown_as_it_is_with_the_reason(
    command: Command, daemon: NodeProcess, queue: str
) -> None:
    bomb = b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'
    send(daemon, queue, qmnode.Message(bomb), qmnode.Message(b"abc", body_type=3), qmnode.Message(b"fine"))
    answer = command("peek", queue, "--socket", daemon.socket, "--show", "decoded")
    assert answer.code == 0
    assert "not decoded: it has a document type declaration" in answer.err
    assert "not decoded: the body type has 4 bytes, and the body 3" in answer.err
    assert bomb.decode() in answer.out
    assert "fine" in answer.out


def test_limits_come_from_the_configuration(command: Command, daemon: NodeProcess, queue: str, tmp_path: Path) -> None:
    send(daemon, queue, qmnode.Message(b"<a><b/><b/><b/></a>"))
    (tmp_path / "node.yml").write_text("bodies: {nodes: 2}\n")
    options = ("--socket", daemon.socket, "--config", tmp_path / "node.yml", "--json")
    assert "bodies.nodes" in command("peek", queue, *options).json["undecoded"]


@pytest.mark.parametrize(
    ("arguments", "format", "value"),
    [
        (["hello", "--format", "xml"], "xml", "hello"),
        (["42", "--format", "xml"], "xml", 42),
        (['{"Order": {"Id": 7}}', "--format", "xml"], "xml", {"Order": {"Id": "7"}}),
        (["<Order><Id>7</Id></Order>", "--format", "xml"], "xml", {"Order": {"Id": "7"}}),
        (["42", "--format", "VT_BSTR"], "VT_BSTR", "42"),
        (["42", "--format", "vt_i4"], "VT_I4", 42),
        (["1.5", "--format", "VT_CY"], "VT_CY", Decimal("1.5")),
        (["AAEC", "--format", "VT_VECTOR|VT_UI1"], "VT_VECTOR|VT_UI1", b"\0\1\2"),
        (["2026-05-06", "--format", "VT_DATE"], "VT_DATE", datetime(2026, 5, 6)),
        (["true", "--format", "activex"], "VT_BOOL", True),
        (["hello", "--format", "activex"], "VT_LPWSTR", "hello"),
        (['{"a": [1]}', "--format", "rebus", "--header", "rbs2-msg-id=5"], "json", {"a": [1]}),
        (["<a>1</a>", "--format", "nservicebus", "--header", "A=b=c"], "xml", {"a": "1"}),
    ],
)
def test_send_writes_a_format(
    command: Command, daemon: NodeProcess, queue: str, arguments: list[str], format: str, value: object
) -> None:
    assert command("send", queue, *arguments, "--socket", daemon.socket).code == 0

    async def receive() -> qmnode.Message:
        async with (
            qmnode.connect(daemon.socket) as qm,
            await qm.open_queue(rf"DIRECT=OS:.\private$\{queue}") as opened,
        ):
            return await opened.receive(0)

    message = asyncio.run(receive())
    assert (message.decoded().format, message.decoded().value) == (format, value)
    assert dict(message.headers) == dict(one.split("=", 1) for one in arguments if "=" in one and one[0] in "rA")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["x", "--format", "VT_I4"], "is no VT_I4"),
        (["x", "--format", "pigeon"], "is no format"),
        (["x", "--format", "binary"], "only read"),
        (["{", "--format", "json"], "no JSON"),
        (["x", "--header", "a=b"], "--header needs --format"),
        (["x", "--format", "rebus", "--header", "a"], "is no NAME=VALUE"),
        (["x", "--format", "xml", "--utf16"], "leave out --utf16"),
        (["x", "--format", "rebus", "--extension", "e"], "leave out --extension"),
        (["<a><b></a>", "--format", "xml"], "well-formed"),
        (['{"a": {"@xmlns": null}}', "--format", "xml"], "cannot be written as XML"),
        (['{"a": 1, "a": 2}', "--format", "xml"], "the name 'a' is twice"),
        (['[{"b": [], "a": 1, "b": 2}]', "--format", "json"], "the name 'b' is twice"),
        (['{"a": {"b": 1, "b": 1}}', "--format", "activex"], "the name 'b' is twice"),
        (["0001-01-01", "--format", "VT_DATE_OLE"], "years 100 to 9999"),
        (["x", "--format", "XML"], "nservicebus, rebus or a body type such as VT_BSTR"),
        (["x", "--format", ""], "'' is no format"),
        (["\udcff", "--format", "text"], "the body is no UTF-8"),
        (["!", "--format", "VT_VECTOR|VT_UI1"], "is no VT_VECTOR|VT_UI1"),
    ],
)
def test_what_cannot_be_written_is_refused(
    command: Command, daemon: NodeProcess, queue: str, arguments: list[str], sentence: str
) -> None:
    answer = command("send", queue, *arguments, "--socket", daemon.socket)
    assert answer.code == 2
    assert sentence in " ".join(answer.err.split())


@pytest.mark.parametrize(("wrong", "sent"), [(1, 0), (501, 500)])
def test_a_line_that_cannot_be_written_is_named_with_how_many_were_sent(
    command: Command, daemon: NodeProcess, queue: str, wrong: int, sent: int
) -> None:
    lines = b"".join(b"x\n" if number == wrong else b"7\n" for number in range(1, 601))
    answer = command("send", queue, "--lines", "--format", "VT_I4", "--socket", daemon.socket, stdin=lines)
    assert f"line {wrong}: 'x' is no VT_I4" in " ".join(answer.err.split())
    assert answer.code == (1 if sent else 2)
    assert len(answer.out.splitlines()) == sent
    assert ("500 sent, of the rest nothing" in answer.err) == bool(sent)
    assert len(command("peek", queue, "--count", "1000", "--socket", daemon.socket, "--json").documents) == sent


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["decode"], "Default: decoded at a terminal, else short."),
        (["decode"], "docs/decode.md lists the keys"),
        (["peek"], "in a pipe table, or text for receive."),
        (
            ["send"],
            "Without a body, --file or --lines, the body is read from standard input, unless that is a terminal.",
        ),
        (["send"], "Default: only if the queue is a transactional one of this node."),
        (["peek"], "Without both, the environment variable QMNODE_SOCKET counts"),
        (["init"], "Default: the host's name."),
    ],
)
def test_help_names_what_holds_without_an_option(command: Command, arguments: list[str], sentence: str) -> None:
    shown = command(*arguments, "--help").out
    assert sentence.replace(" ", "") in "".join(letter for letter in shown if not letter.isspace() and letter != "│")


def test_decode_shows_bodies_of_a_capture(command: Command, daemon: NodeProcess, queue: str, tmp_path: Path) -> None:
    send(daemon, queue, qmnode.Message.from_value({"a": 1}, format="rebus", headers={"rbs2-msg-id": "9"}))

    async def packet() -> bytes:
        async with (
            qmnode.connect(daemon.socket) as qm,
            await qm.open_queue(rf"DIRECT=OS:.\private$\{queue}") as opened,
        ):
            return (await opened.receive(0)).packet

    (tmp_path / "packet.bin").write_bytes(asyncio.run(packet()))
    shown = command("decode", tmp_path / "packet.bin", "--show", "decoded").out
    assert "rbs2-msg-id: 9" in shown
    assert '"a": 1' in shown
    found = json.loads(command("decode", tmp_path / "packet.bin", "--show", "decoded", "--json").out)
    assert (found["format"], found["decoded"], found["headers"]) == ("json", {"a": 1}, {"rbs2-msg-id": "9"})


def test_damaged_headers_are_shown_with_the_reason(command: Command, daemon: NodeProcess, queue: str) -> None:
    send(daemon, queue, qmnode.Message(b'{"a":1}', extension=b'{"rbs2-msg-id":"9","rbs2-retries":5,"rbs2-ret'))
    (document,) = command("peek", queue, "--socket", daemon.socket, "--json").documents
    place = document["lookup_identifier"]
    shown = command("message", "show", queue, place, "--socket", daemon.socket)
    assert "rbs2-msg-id: 9" in shown.out
    reason = "column 37 (char 36), after the header 'rbs2-retries'; the header 'rbs2-retries' is a number, and no text"
    assert reason in " ".join(shown.err.split())


def test_a_header_that_is_null_is_shown_as_null_and_found(command: Command, daemon: NodeProcess, queue: str) -> None:
    send(daemon, queue, qmnode.Message(b'{"a":1}', extension=b'{"rbs2-msg-id":"9","tenant":null,"region":""}'))
    socket = ("--socket", daemon.socket)
    (document,) = command("peek", queue, *socket, "--json").documents
    assert document["headers"] == {"rbs2-msg-id": "9", "tenant": None, "region": ""}
    lines = command("message", "show", queue, document["lookup_identifier"], *socket).out.splitlines()
    assert "  tenant: null" in lines and "  region: " in lines
    assert command("message", "find", queue, "--where", "header.tenant", *socket).code == 0
    assert command("message", "edit", queue, document["lookup_identifier"], "--header", "own=1", *socket).code == 0
    (document,) = command("peek", queue, *socket, "--json").documents
    assert document["headers"] == {"rbs2-msg-id": "9", "tenant": None, "region": "", "own": "1"}
