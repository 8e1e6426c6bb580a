"""The door matrix of the command line: each command on queues, as users of the machine, against a node that runs."""

from __future__ import annotations

import importlib
import json
import os
import selectors
import socket
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import typer

from qmnode.commands.command_table import COMMANDS
from qmnode.security.principals import unix_user
from qmnode.structures.security_descriptor import AUTHENTICATED_USERS, BUILTIN_ADMINISTRATORS, EVERYONE, LOCAL
from qmnode.structures.security_descriptor import QueueAccess as Right
from qmnode.sync import connect
from tests.commands.conftest import Answer, Command, command
from tests.doors.expectation import Accounts, Matrix, Who, allowed, described, descriptors
from tests.lab.nodes import running_node

__all__ = ["command"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")

OWNER, STRANGER = 60_001, 60_003
HERE = frozenset({EVERYONE, AUTHENTICATED_USERS, LOCAL})
PRINCIPALS = {
    "owner": (OWNER, Who(HERE | {unix_user(OWNER)})),
    "stranger": (STRANGER, Who(HERE | {unix_user(STRANGER)})),
    "root": (0, Who(HERE | {unix_user(0), BUILTIN_ADMINISTRATORS}, repairs=True)),
}
ACCOUNTS = Accounts(unix_user(OWNER), unix_user(1), unix_user(2))
TRIED = ("default", "nobody", "open")
DESCRIPTORS = {text: entries for text, entries in descriptors(ACCOUNTS).items() if text in TRIED}
NAMES = {f"q{number}": text for number, text in enumerate(DESCRIPTORS)}
PROPERTIES, PERMISSIONS = Right.MQSEC_GET_QUEUE_PROPERTIES, Right.MQSEC_GET_QUEUE_PERMISSIONS
CHANGE, SET = Right.MQSEC_CHANGE_QUEUE_PERMISSIONS, Right.MQSEC_SET_QUEUE_PROPERTIES
RECEIVE, PEEK, WRITE = Right.MQSEC_RECEIVE_MESSAGE, Right.MQSEC_PEEK_MESSAGE, Right.MQSEC_WRITE_MESSAGE
NOBODY = "S-1-5-21-4-4-4-4"
PLACE = "0x123456789abcdef"

ROWS: dict[str, tuple[Right, str]] = {
    # The rights that a command needs, and its arguments.
    "queue set": (SET, "{q} --label x"),
    "queue show": (PROPERTIES, "{q}"),
    "queue refused": (PROPERTIES, "{q}"),
    "queue purge": (RECEIVE, "{q} --yes"),
    "queue acl show": (PERMISSIONS, "{q}"),
    "queue acl allow": (PERMISSIONS | CHANGE, "{q} " + NOBODY + " send-message"),
    "queue acl remove": (PERMISSIONS | CHANGE, "{q} " + NOBODY + " full-control"),
    "queue acl deny": (PERMISSIONS | CHANGE, "{q} anonymous receive-message"),
    "queue acl close": (PERMISSIONS, "{q}"),
    "send": (WRITE, "{q} x"),
    "receive": (RECEIVE, "{q}"),
    "peek": (PEEK, "{q}"),
    "journal": (PEEK, "{q}"),
    "move": (RECEIVE | WRITE, "{q} " + PLACE + " --to {q};later"),
    "message find": (PEEK, "{q}"),
    "message show": (PEEK, "{q} " + PLACE),
    "message edit": (RECEIVE, "{q} " + PLACE + " --label x"),
    "message move": (RECEIVE | WRITE, "{q} --to {q} --all --dry-run"),
    "message copy": (PEEK | WRITE, "{q} --to {q} --all --dry-run"),
    "message delete": (RECEIVE, "{q} --all --dry-run --yes"),
    "message return": (RECEIVE, "{q} --all --dry-run"),
    "message replay": (PEEK, "{q} --all --dry-run"),
    "message export": (PEEK, "{q}"),
    "message failures": (PEEK, "{q}"),
    "queue delete": (Right.MQSEC_DELETE_QUEUE, "{q} --yes"),
}
REPAIRS = {
    "queue show", "queue refused", "queue acl show", "queue acl allow", "queue acl remove", "queue acl deny",
    "queue acl close",
}  # fmt: skip
EVERYBODY = frozenset(PRINCIPALS)
ADMINISTRATORS = frozenset({"root"})
LATER = r"DIRECT=OS:elsewhere\private$\orders"
MACHINE: dict[str, tuple[frozenset[str], str]] = {
    "status": (EVERYBODY, ""),
    "connect": (ADMINISTRATORS, ""),
    "disconnect": (ADMINISTRATORS, ""),
    "queue create": (EVERYBODY, "made-by-{who}"),
    "queue list": (EVERYBODY, ""),
    "queue pause": (ADMINISTRATORS, LATER),
    "queue resume": (ADMINISTRATORS, LATER),
    "job list": (EVERYBODY, ""),
    "job show": (ADMINISTRATORS | {"owner"}, "{job}"),
    "job pause": (ADMINISTRATORS | {"owner"}, "{job}"),
    "job resume": (ADMINISTRATORS | {"owner"}, "{job}"),
    "job cancel": (ADMINISTRATORS | {"owner"}, "{job}"),
    "job undo": (ADMINISTRATORS | {"owner"}, "{job}"),
    "trace": (EVERYBODY, "--label nothing"),
    "top": (EVERYBODY, "--times 1"),
    "dead-letter list": (ADMINISTRATORS, ""),
    "dead-letter retry": (ADMINISTRATORS, PLACE),
    "dead-letter export": (ADMINISTRATORS, ""),
    "transaction list": (EVERYBODY, ""),
    "sequence list": (EVERYBODY, ""),
    "sequence reset": (ADMINISTRATORS, "01234567-89ab-cdef-0123-456789abcdef --yes"),
    "apply": (ADMINISTRATORS, "/dev/null --check"),
    "document": (ADMINISTRATORS, "--all"),
    "backup": (ADMINISTRATORS, "{folder}/backup-by-{who}"),
}
NO_DOOR = {
    "init": "writes files as the user that calls it",
    "run": "is the node",
    "restore": "writes files as the user that calls it",
    "verify": "reads files as the user that calls it",
    "salvage": "reads files as the user that calls it",
    "decode": "reads a file",
    "message import": "the engine's import, which the matrix over HTTP plays with each descriptor",
}


def leaves(found: Any, path: tuple[str, ...]) -> Iterator[str]:
    """The commands beneath one."""
    beneath = getattr(found, "commands", None)
    if beneath:
        for name, one in beneath.items():
            yield from leaves(one, (*path, name))
    else:
        yield " ".join(path)


def commands() -> set[str]:
    """All commands that there are."""
    names: set[str] = set()
    for name, row in COMMANDS.items():
        module, _, attribute = row.target.partition(":")
        app = getattr(importlib.import_module(module), attribute.partition("/")[0])
        names |= set(leaves(typer.main.get_command(app), (name,)))
    return names


def without_row(found: set[str]) -> set[str]:
    return found - {*ROWS, *MACHINE, *NO_DOOR}


def test_every_command_has_a_row() -> None:
    assert commands() == {*ROWS, *MACHINE, *NO_DOOR}


def test_a_command_without_a_row_is_found() -> None:
    app = typer.Typer()
    app.command("open")(lambda: None)
    app.command("shut")(lambda: None)
    assert without_row(commands() | set(leaves(typer.main.get_command(app), ("backdoor",)))) == {
        "backdoor open",
        "backdoor shut",
    }


def relayed(listener: socket.socket, node: Path, user: int) -> None:
    """Pass connections on to the node as another user, in a process of its own, for as long as that lives."""
    os.setgroups([user])
    os.setgid(user)
    os.setuid(user)
    others: dict[socket.socket, socket.socket] = {}
    with selectors.DefaultSelector() as waiting:
        waiting.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is listener:
                    near, _ = listener.accept()
                    far = socket.socket(socket.AF_UNIX)
                    far.connect(str(node))
                    others |= {near: far, far: near}
                    for one in (near, far):
                        waiting.register(one, selectors.EVENT_READ)
                    continue
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if one not in others:
                    continue
                data = one.recv(65536)
                if data:
                    others[one].sendall(data)
                    continue
                for end in (one, others.pop(one)):
                    others.pop(end, None)
                    waiting.unregister(end)
                    end.close()


@pytest.fixture(scope="module")
def doors() -> Iterator[dict[str, Path]]:
    """The socket of a node for each principal, and the folder that all may enter."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        local = {"socket": str(place / "node.sock"), "mode": 0o666}
        with running_node(place / "node", local=local) as node:
            node.socket = place / "node.sock"
            with connect(place / "node.sock") as manager:
                for name, text in NAMES.items():
                    security = described(DESCRIPTORS[text], unix_user(OWNER))
                    manager.create_queue(rf".\private$\{name}", security=security)
            found, children = {}, []
            for who, (user, _) in PRINCIPALS.items():
                found[who] = place / f"{who}.sock"
                listener = socket.socket(socket.AF_UNIX)
                listener.bind(str(found[who]))
                listener.listen(50)
                child = os.fork()
                if not child:
                    try:
                        relayed(listener, place / "node.sock", user)
                    finally:
                        os._exit(0)
                children.append(child)
                listener.close()
            yield found
            for child in children:
                os.kill(child, 9)
                os.waitpid(child, 0)


def is_granted(answer: Answer) -> bool:
    assert answer.code != 2, answer.err  # the arguments are right
    assert "Traceback" not in answer.err
    said = answer.out + answer.err
    return "MQ_ERROR_ACCESS_DENIED" not in said and "it may not be read" not in said


def restore(doors: dict[str, Path], name: str) -> None:
    """Give a queue its descriptor again, and make it anew if it was deleted."""
    security = described(DESCRIPTORS[NAMES[name]], unix_user(OWNER))
    with connect(doors["root"]) as manager:
        try:
            manager.set_queue(rf".\private$\{name}", security=security)
        except Exception:
            manager.create_queue(rf".\private$\{name}", security=security)


@pytest.mark.slow
def test_no_denied_principal_succeeds_and_no_allowed_one_fails(
    doors: dict[str, Path],
    command: Command,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix = Matrix("the command line")
    for (operation, (rights, arguments)), (principal, (_, who)), (name, text) in product(
        ROWS.items(), PRINCIPALS.items(), NAMES.items()
    ):
        monkeypatch.setenv("QMNODE_SOCKET", str(doors[principal]))
        expected = allowed(DESCRIPTORS[text], who, unix_user(OWNER), int(rights), repairs=operation in REPAIRS)
        answer = command(*operation.split(), *arguments.format(q=name).split())
        matrix.count(f"{principal}, {operation}, {text}", expected, is_granted(answer))
        if operation.startswith(("queue acl", "queue delete")):
            restore(doors, name)
    monkeypatch.setenv("QMNODE_SOCKET", str(doors["owner"]))
    (mine,) = [name for name, text in NAMES.items() if text == "default"]
    job = json.loads(command("message", "delete", mine, "--all", "--dry-run", "--yes", "--json").out)["job"]
    command("send", LATER, "x")
    folder = doors["root"].parent
    for (operation, (may, arguments)), principal in product(MACHINE.items(), PRINCIPALS):
        monkeypatch.setenv("QMNODE_SOCKET", str(doors[principal]))
        filled = arguments.format(who=principal, job=job, folder=folder)
        answer = command(*operation.split(), *filled.split())
        matrix.count(f"{principal}, {operation}", principal in may, is_granted(answer))
    with capsys.disabled():
        print(matrix.report())
    assert not matrix.wrong, "\n".join(matrix.wrong[:60])
    assert matrix.cells == (len(ROWS) * len(NAMES) + len(MACHINE)) * len(PRINCIPALS)
