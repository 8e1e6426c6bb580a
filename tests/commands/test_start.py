"""What starting costs: modules that ``qmnode run`` and ``qmnode status`` load, and waiting for a node that starts."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import qmnode
from qmnode.commands.fast_start import quick
from qmnode.errors import MessageQueuingError
from qmnode.local.asking import ask
from qmnode.management.documents import NodeDocument, QuotaDocument
from qmnode.version import program_version
from tests.adversary import wire
from tests.adversary.nodes import letter
from tests.adversary.peer import session
from tests.commands.conftest import Command
from tests.lab.nodes import NodeProcess, launch, running_node
from tests.lab.waiting import holds
from tests.transport.conftest import loopback_address

_PROGRAM = "from qmnode.cli import main; main()"


def loaded(code: str, *arguments: str) -> set[str]:
    """Names of the packages and modules that a program imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    lines = (line for line in done.stderr.splitlines() if line.startswith("import time:"))
    return {line.rpartition("|")[2].strip() for line in lines}


def test_status_loads_no_library(tmp_path: Path) -> None:
    modules = loaded(_PROGRAM, "status", "--socket", str(tmp_path / "nobody"))
    assert "qmnode.local.asking" in modules
    heavy = {"asyncio", "cryptography", "fastapi", "pydantic", "rich", "rocksdict", "structlog", "typer", "yaml"}
    assert modules & heavy == set()


def test_a_command_loads_nothing_that_only_a_node_needs(tmp_path: Path) -> None:
    modules = loaded(_PROGRAM, "queue", "list", "--socket", str(tmp_path / "nobody"))
    assert "qmnode.management.documents" in modules
    assert modules & {"fastapi", "qmnode.model.queue", "qmnode.settings.node", "rocksdict"} == set()


def test_run_answers_before_it_loads_what_serves_http_and_what_few_nodes_use() -> None:
    modules = loaded(_PROGRAM, "run", "--config", "/nowhere/node.yaml")
    assert "qmnode.local.server" in modules
    heavy = {"attr", "dotenv", "pydantic_settings", "pygments", "rich.console"}
    assert modules & heavy == set()
    heavy = {"fastapi", "gssapi", "prometheus_client", "pyarrow", "spnego", "starlette", "typer", "uvicorn"}
    assert modules & heavy == set()
    assert modules & {"qmnode.dcerpc.pdu", "qmnode.export.exporter", "qmnode.management.server"} == set()
    others = {"cryptography", "qmnode.delivery.network", "qmnode.protocol.session", "qmnode.routing.router"}
    assert modules & others == set()


def node_file(directory: Path) -> Path:
    """The settings of a node that is alone, on ``node.sock``."""
    settings = {
        "data": str(directory / "data"),
        "computer_name": "ALPHA",
        "transport": {"enabled": False},
        "local": {"socket": str(directory / "node.sock")},
        "management": {"socket": None},
    }
    path = directory / "node.yaml"
    path.write_text(json.dumps(settings))
    return path


_GATE = """
import os, sys
open(os.environ["GATE"]).read()  # a pipe that nobody has opened yet
sys.path.remove(os.path.dirname(os.path.dirname(__file__)))
del sys.modules[__name__]
__import__(__name__)
"""


@contextmanager
def node_that_loads(library: str, folder: Path) -> Iterator[tuple[Path, Path]]:
    """A node's socket, and the pipe that it waits for where it loads a library."""
    package, pipe = folder / "first" / library, folder / "pipe"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(_GATE)
    os.mkfifo(pipe)
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "GATE": str(pipe)}
    node = launch(node_file(folder), folder / "log", environment)
    try:
        yield folder / "node.sock", pipe
    finally:
        node.kill()
        node.wait()


@pytest.mark.parametrize("library", ["fastapi", "cryptography"])
async def test_status_is_answered_while_a_library_is_loaded_and_says_that_the_node_is_not_ready(
    tmp_path: Path, library: str, command: Command
) -> None:
    with node_that_loads(library, tmp_path) as (socket, _):
        assert (await status_while_starting(socket))["computer_name"] == "ALPHA"
        answer = await asyncio.to_thread(command, "status", "--socket", socket, "--wait", "0.2")
        assert answer.code == 3 and "still starts after 0.2 s" in answer.err


async def status_while_starting(socket: Path) -> dict[str, Any]:
    """The status of a node as soon as it gives one, which is before its other doors answer."""
    found: dict[str, Any] = {}

    async def answers() -> bool:
        try:
            found.update(await asyncio.to_thread(ask, socket, "status"))
        except MessageQueuingError:
            return False
        return True

    await holds(answers, 120, "the node answers for its status")
    assert found["ready"] is False
    return found


async def test_calls_wait_for_what_is_loaded_after_the_socket_answers(tmp_path: Path) -> None:
    name = r".\private$\orders"
    with node_that_loads("cryptography", tmp_path) as (socket, pipe):
        await status_while_starting(socket)
        async with qmnode.connect(socket) as manager:
            calls = [asyncio.create_task(manager.create_queue(name)), asyncio.create_task(manager.queue(name))]
            assert (await manager.status()).queue_count == 0
            assert not any(call.done() for call in calls)
            await asyncio.to_thread(pipe.write_text, "load it now")
            created, found = await asyncio.wait_for(asyncio.gather(*calls), 60)
            assert created == found
            assert (await manager.status()).queue_count == 1
    assert "Traceback" not in (tmp_path / "log").read_text("utf-8")


def test_status_prints_the_documents_of_the_management_api(command: Command, daemon: NodeProcess) -> None:
    async def ask() -> dict[str, object]:
        async with qmnode.connect(daemon.socket) as qm:
            found = await qm.status()
        node, quotas = NodeDocument.of(found, program_version()), QuotaDocument.of(found)
        return {**node.model_dump(mode="json"), "quotas": quotas.model_dump(mode="json")}

    printed = command("status", "--socket", daemon.socket, "--json").json
    expected = asyncio.run(ask())
    assert list(printed) == list(expected)
    for changing in ("disk_free_bytes",):
        printed.pop(changing), expected.pop(changing)
    assert printed == expected


async def test_status_shows_what_strangers_take_of_the_shares(command: Command, tmp_path: Path) -> None:
    address, size = loopback_address(), 300_000
    with running_node(tmp_path / "met", managed=True, transport={"address": address}) as node:
        async with session(loopback_address(), address, wire.identifier()) as peer:
            peer.send(letter(address, body=bytes(size))[:-1])

            async def is_held() -> bool:
                async with qmnode.connect(node.socket) as manager:
                    return (await manager.status()).shares["held_bytes"]["used"]["stranger"] >= size

            await holds(is_held, 60, "the node holds the bytes")
            text = command("status", "--socket", node.socket).out
            (line,) = (line for line in text.splitlines() if line.startswith("share of held bytes"))
            assert re.search(r" 29\d\.\d KiB of .*, strangers 29\d\.\d KiB of ", line), line
            share = command("status", "--socket", node.socket, "--json").json["shares"]["held_bytes"]
            assert (share["unit"], share["refused"]["stranger"]) == ("bytes", 0)
            assert share["reserve"] == share["total"] * 5 // 8
            transport = httpx.HTTPTransport(uds=str(node.management_socket))
            with httpx.Client(transport=transport, base_url="http://node", timeout=60) as client:
                assert client.get("/v1/node").json()["shares"]["held_bytes"] == share


@pytest.mark.parametrize(
    "words", [("--socket={}", "--json"), ("--json", "--socket", "{}"), ("--wait=1", "--socket", "{}")]
)
def test_plain_command_lines_of_status_are_read_quickly(daemon: NodeProcess, words: tuple[str, ...]) -> None:
    assert quick(["status", *(word.format(daemon.socket) for word in words)]) == 0


@pytest.mark.parametrize(
    "words",
    [
        [], ["--help"], ["send", "orders"], ["status", "--help"], ["status", "--wait", "soon"], ["status", "--wait"],
        ["status", "--wait=-1"], ["status", "orders"], ["status", "--json=yes"], ["status", "--json", "--json"],
        ["run", "--config"], ["run", "--config", "--help"], ["run", "--socket", "x"],
        ["run", "--config", "a", "-c", "b"],
    ],
)  # fmt: skip
def test_all_other_command_lines_go_the_common_way(words: list[str]) -> None:
    assert quick(words) is None


def test_status_of_nobody_waits_no_longer_than_it_is_told(command: Command, tmp_path: Path) -> None:
    answer = command("status", "--socket", tmp_path / "nobody", "--wait", "0.2")
    assert answer.code == 3
    assert "qmnode run" in answer.err
    assert command("status", "--socket", tmp_path / "nobody", "--wait", "soon").code == 2


def test_status_waits_for_a_node_that_starts(tmp_path: Path) -> None:
    socket, configuration = tmp_path / "node.sock", node_file(tmp_path)
    command = [sys.executable, "-c", _PROGRAM]
    asked = subprocess.Popen(
        [*command, "status", "--wait", "120", "--json", "--socket", str(socket)], stdout=subprocess.PIPE
    )
    node = launch(configuration, tmp_path / "log", os.environ)
    try:
        printed, _ = asked.communicate(timeout=150)
    finally:
        asked.kill()
        node.terminate()
        node.wait(240)
    assert asked.returncode == 0
    assert (json.loads(printed)["computer_name"], json.loads(printed)["ready"]) == ("ALPHA", True)
    assert node.returncode == 0
