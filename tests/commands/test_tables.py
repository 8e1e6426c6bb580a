"""Tables: what a terminal of 80 columns gets, and what a pipe gets."""

import io
import os
import pty
import re
import subprocess
from contextlib import redirect_stdout

import pytest
from rich.cells import cell_len

from qmnode.commands.output import print_facts
from qmnode.commands.table_writer import print_row, print_table
from tests.commands.conftest import Command
from tests.lab.nodes import COMMAND, NodeProcess

LOOKUP = "0x400000000000012"
DIRECT = r"DIRECT=OS:warehouse-17.emea.example.com\private$\incoming-orders"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


@pytest.mark.parametrize("label", ["order 1", "l" * 124, "two words " * 12, "宛先" * 40, ""])
def test_a_terminal_gets_unbroken_identifiers_and_text_in_lines(terminal: Terminal, label: str) -> None:
    with redirect_stdout(terminal):
        print_table(
            ("lookup", "label", "priority", "arrived"),
            [(LOOKUP, label, 3, "2026-01-31 08:00:00")],
            right=("priority",), whole=("lookup", "arrived"), drop=("priority",),
        )  # fmt: skip
    lines = terminal.getvalue().splitlines()
    assert all(cell_len(line) <= 80 for line in lines)
    assert lines[2].startswith(LOOKUP) and "2026-01-31 08:00:00" in lines[2]
    joined = "".join(
        line.removeprefix(LOOKUP).replace("2026-01-31 08:00:00", "").replace(" 3 ", "") for line in lines[2:]
    )
    assert joined.replace(" ", "") == label.replace(" ", "")


def test_a_terminal_loses_the_least_important_columns_and_is_told_so(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ("queue", "type", "messages", "size", "transactional")
    row = (r".\private$\orders-of-the-northern-warehouse", "private", 1_000_000, "1023.9 MiB", True)
    for wide in (False, True):
        with redirect_stdout(terminal):
            print_table(columns, [row], whole=("queue",), drop=("transactional", "type"), wide=wide)
    narrow, shown = terminal.getvalue().split("queue")[1:]
    assert "transactional" not in narrow and "messages" in narrow and row[0] in narrow
    assert "transactional" in shown and row[0] in shown
    assert capsys.readouterr().err == "not shown in 80 columns: transactional; --wide shows all\n"


def test_an_identifier_that_is_longer_than_the_terminal_is_still_on_one_line(terminal: Terminal) -> None:
    long = DIRECT * 2
    with redirect_stdout(terminal):
        print_table(("queue", "messages"), [(long, 1), ("orders", 2)], right=("messages",), whole=("queue",))
    lines = terminal.getvalue().splitlines()
    assert [line.split() for line in lines[2:]] == [[long], ["1"], ["orders", "2"]]
    assert all(len(line) <= 80 for line in lines[3:])


NAMES = ("in", r".\private$\incoming-orders-of-the-north", DIRECT, "宛先" * 12, "")


@pytest.mark.parametrize("columns", [40, 60, 80, 132])
@pytest.mark.parametrize("second", NAMES)
@pytest.mark.parametrize("first", NAMES)
def test_long_names_push_no_cell_out_of_its_column(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, first: str, second: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    names = ("queue", "messages", "peer", "state")
    rows = [(first, 12, second, "connected"), ("orders", 2, "beta", "idle")]
    with redirect_stdout(terminal):
        print_table(names, rows, right=("messages",), whole=("queue", "peer"))
    head, _, *lines = terminal.getvalue().splitlines()
    state, number = head.index("state"), head.index("messages") + len("messages")
    assert len(head) <= columns
    assert [cell_len(line) for line in lines if cell_len(line) > columns] == [
        cell_len(name) for name in (first, second) if cell_len(name) > columns
    ]
    for text in ("connected", "idle"):
        assert [cell_len(line.partition(text)[0]) for line in lines if text in line] == [state]
    ends = [cell_len(line[: match.end()]) for line in lines if (match := re.search(r"(?<!\S)(12|2)(?!\S)", line))]
    assert ends == [number, number]
    assert all(any(name in line for line in lines) for name in (first, second))


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize(
    "value", ["x", "", DIRECT, "8d5e6aa1-66ed-40b4-88e3-fbda1aa994a5", "two words " * 20, "宛先" * 30]
)
def test_facts_are_whole_whatever_the_width_of_the_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, value: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with redirect_stdout(terminal):
        print_facts({"computer_name": "ALPHA", "outgoing_queue_count": value, "last": True})
    first, *lines, last = terminal.getvalue().splitlines()
    assert (first, last) == ("computer name         ALPHA", "last                  yes")
    assert lines[0].startswith("outgoing queue count")
    words = " ".join(lines).removeprefix("outgoing queue count").split()
    assert words == value.split()
    assert all(cell_len(line) <= columns for line in lines if len(line.split()) != 1)


@pytest.mark.parametrize("label", ["a\nb", "a\tb", "a\r\nqueue\t1", "a\x85b\u2028c", "\x1b[2Ja", ["x\ny", "z"]])
def test_a_label_cannot_forge_a_line_or_a_cell_in_a_pipe(label: object, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("queue", "label", "size"), [("orders", label, "1 B")])
    print_row("orders", label, None)
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading == "queue\tlabel\tsize"
    assert [row.count("\t") for row in rows] == [2, 2] and all(row.startswith("orders\t") for row in rows)


def test_lists_of_a_node_fit_80_columns_in_a_terminal_and_are_lines_in_a_pipe(
    node: NodeProcess, queue: str, command: Command
) -> None:
    assert command("queue", "set", queue, "--label", "first\tsecond").code == 0
    assert command("send", DIRECT, "x", "--label", "an order of the northern warehouse, to be packed today").code == 0
    assert command("send", queue, "x", "--label", "line\nqueue\tforged").code == 0
    (message,) = command("peek", queue, "--json").documents

    piped = [line.split("\t") for line in command("queue", "list").out.splitlines()]
    assert {len(cells) for cells in piped} == {9} and piped[0][0] == "queue"
    assert [cells[-2] for cells in piped if cells[0].endswith(queue.lower()) or cells[0].endswith(queue)] == [
        r"first\tsecond"
    ]
    assert command("peek", queue, "--show", "table").out.count("\n") == 2

    assert DIRECT in in_terminal(node, "queue", "list")
    peeked = in_terminal(node, "peek", queue, "--show", "table")
    assert all(len(line) <= 80 for line in peeked.splitlines()) and message["lookup_identifier"] in peeked


def in_terminal(node: NodeProcess, *words: str) -> str:
    """What a command shows in a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "80", "QMNODE_SOCKET": str(node.socket)}
    with subprocess.Popen([*COMMAND, *words], stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:
            pass  # the terminal's end
        finally:
            os.close(ours)
        process.communicate()
    return shown.decode().replace("\r\n", "\n")
