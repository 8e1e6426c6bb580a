"""No message and no name ends a listing, whatever the output can hold; a listing that is a part says so."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from qmnode.cli import main
from tests.lab.nodes import running_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lab.nodes import NodeProcess

HALF = '{"rbs2-msg-id":"1","rbs2-error-details":"x \\ud83d"}'
BODIES = ('{"half": "\\udc00", "é": "ü"}', "日本語 🚀", '"\\ud800"', "last")
QUEUE = "größe🚀"
ENCODINGS = ("ascii", "latin-1", "cp932", "utf-8")


class Answer(NamedTuple):
    code: int
    out: bytes
    err: bytes


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, daemon: NodeProcess) -> Callable[..., Answer]:
    """Run ``qmnode`` with an output of another encoding, as a pipe has it."""

    def command(*arguments: str, encoding: str = "utf-8", stdin: bytes = b"") -> Answer:
        streams = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}
        streams["stderr"].reconfigure(errors="backslashreplace")  # as Python's own is
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        for name, stream in streams.items():
            monkeypatch.setattr(sys, name, stream)
        monkeypatch.setattr(sys, "argv", ["qmnode", *arguments, "--socket", str(daemon.socket)])
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        for stream in streams.values():
            stream.flush()
        return Answer(code, *(stream.buffer.getvalue() for stream in streams.values()))  # type: ignore[attr-defined]

    return command


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node"), managed=True) as node:
        yield node


@pytest.fixture
def messages(run: Callable[..., Answer]) -> None:
    """Messages that few outputs can hold, in a queue with such a name."""
    if run("queue", "create", QUEUE).code == 0:
        for body in BODIES:
            sent = run("send", QUEUE, body, "--label", "naïve 🚀", "--extension", HALF)
            assert not sent.code, sent.err


@pytest.mark.usefixtures("messages")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_listing_has_all_messages(run: Callable[..., Answer], encoding: str) -> None:
    for command in (
        ("peek", QUEUE, "--show", "decoded"),
        ("message", "find", "*", "--show", "decoded"),
        ("message", "failures", QUEUE),
        ("queue", "list"),
        ("peek", QUEUE),
    ):
        found = run(*command, encoding=encoding)
        assert found.code == 0, found.err
        if "decoded" in command:
            assert found.out.count(b"rbs2-error-details") == len(BODIES)
            assert b"last" in found.out


@pytest.mark.usefixtures("messages")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_json_is_json_in_every_output(run: Callable[..., Answer], encoding: str) -> None:
    for command in (("message", "find", "*"), ("peek", QUEUE), ("queue", "list"), ("message", "export", "*")):
        found = run(*command, *([] if "export" in command else ["--json"]), encoding=encoding)
        assert found.code == 0, found.err
        documents = [json.loads(line) for line in found.out.decode(encoding).splitlines()]
        if "list" in command:
            assert any(QUEUE in str(one) for one in documents)
        else:
            assert [one["label"] for one in documents] == ["naïve 🚀"] * len(BODIES)
        if "find" in command:
            assert all(one["headers"]["rbs2-msg-id"] == "1" for one in documents)


@pytest.mark.usefixtures("messages")
def test_a_receive_passes_them(run: Callable[..., Answer], daemon: NodeProcess) -> None:
    """In a process of its own, with Python's own output for LANG=C."""
    assert run("queue", "create", "receiving").code == 0
    for body in BODIES:
        assert run("send", "receiving", body, "--extension", HALF).code == 0
    program = "import sys; from qmnode.cli import main; sys.argv[0] = 'qmnode'; main()"
    arguments = ("receive", "receiving", "--all", "--show", "decoded", "--socket", str(daemon.socket))
    c_locale = {"LANG": "C", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, check=False, env={**os.environ, **c_locale}
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(b"rbs2-error-details") == len(BODIES)
    assert b"4 received" in ended.stderr


@pytest.mark.usefixtures("messages")
def test_the_management_api_gives_them_too(daemon: NodeProcess) -> None:
    import httpx

    transport = httpx.HTTPTransport(uds=str(daemon.management_socket))
    with httpx.Client(transport=transport, base_url="http://node") as client:
        answer = client.get(f"/v1/queues/{QUEUE}/messages", params={"body": "decoded"})
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["messages"]) == len(BODIES)
        for content in (b'{"queues": ["\\ud800"], "kind": "delete"}', b'{"kind": "\\udfff"}', b'["\\ud83d"]'):
            answer = client.post("/v1/jobs", content=content, headers={"content-type": "application/json"})
            assert 400 <= answer.status_code < 500, answer.text


def test_a_part_says_that_it_is_one(run: Callable[..., Answer], capfd: pytest.CaptureFixture[str]) -> None:
    lines = "".join(f"{number}\n" for number in range(25)).encode()
    for name, options in (("parts", []), ("dying", ["--dead-letter"])):
        assert run("queue", "create", name, "--journaling").code == 0
        assert run("send", name, "--lines", *options, stdin=lines).code == 0
    assert run("queue", "purge", "dying", "--yes").code == 0
    for command in (("peek", "parts"), ("dead-letter", "list")):
        part = run(*command)
        assert part.code == 0
        assert b"20 of 25; --count" in part.err, part.err
        whole = run(*command, "--count", "25")
        assert b"--count" not in whole.err
        assert len(run(*command, "--json", "--count", "30").out.splitlines()) == 25
    assert run("receive", "parts", "--all").code == 0
    assert b"20 of 25; --count" in run("journal", "parts").err
    assert "Traceback" not in capfd.readouterr().err
