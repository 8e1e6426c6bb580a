"""The C interface against a node: each function, property and error that can be made is a scenario in C."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.lab.nodes import NodeProcess, running_node
from tests.mqrt.conftest import LIBRARY, OWN, Library, at
from tests.mqrt.headers import headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SOURCE: Final = OWN / "scenarios.c"
_SCENARIO: Final = re.compile(
    r"^(?:SCENARIO|FAULTY|NUMBER_COMES_THROUGH|TEXT_COMES_THROUGH|SMALL)\((?!name[,)])(\w+)", re.MULTILINE
)
NAMES: Final = _SCENARIO.findall(SOURCE.read_text("utf-8"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all of them."""
    with running_node(tmp_path_factory.mktemp("node")) as process:
        yield process


def compiled(library: Library) -> str:
    """The program with the scenarios."""
    (library.folder / "scenarios.list").write_text("".join(f"ENTRY({name})\n" for name in NAMES))
    return str(library.program(SOURCE))


@pytest.fixture(scope="module")
def outcomes(library: Library, node: NodeProcess) -> dict[str, str]:
    """What each scenario printed, by its name; those behind one that ended the program have nothing."""
    run = subprocess.run([compiled(library), "s"], env=at(node.socket), capture_output=True, text=True, timeout=300)
    lines = [line.removeprefix("not ").removeprefix("ok ") for line in run.stdout.splitlines()]
    return {name: problem for name, _, problem in (line.partition(": ") for line in lines)} | {"": run.stderr}


@pytest.mark.servers
@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_holds(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes.get(name, f"it did not end: {outcomes['']}") == ""


@pytest.mark.servers
def test_the_example_in_c_runs(library: Library, node: NodeProcess, tmp_path: Path) -> None:
    """Against the library as it is installed, and as pkg-config names it."""
    staged = {"BUILD": library.folder, "DESTDIR": tmp_path, "PREFIX": "/usr", "CFLAGS": " ".join(library.flags)}
    words = [f"{name}={value}" for name, value in staged.items()]
    subprocess.run(["make", "-s", "-C", str(LIBRARY), "install", *words], check=True)
    (description,) = (tmp_path / "usr/lib/pkgconfig").iterdir()
    libs, flags = (line.partition(": ")[2] for line in description.read_text("utf-8").splitlines()[-2:])
    where = [
        word.replace("${libdir}", "/usr/lib").replace("${includedir}", "/usr/include/mqrt") for word in libs.split()
    ]
    program = tmp_path / "orders"
    subprocess.run(
        [
            "gcc",
            LIBRARY / "examples/orders.c",
            f"-I{tmp_path}/usr/include/mqrt",
            f"-L{tmp_path}/usr/lib",
            "-lmqrt",
            "-pthread",
            "-o",
            program,
        ],
        check=True,
    )
    assert flags.endswith("-I${includedir}")
    assert where == ["-L/usr/lib", "-lmqrt"]
    printed = run([program], node, LD_LIBRARY_PATH=f"{tmp_path}/usr/lib")
    assert printed == [
        "peeked: seven screws", "peeked: a hammer", "received: seven screws", "called back: a hammer",
        "error: 0xC00E0003 MQ_ERROR_QUEUE_NOT_FOUND",
    ]  # fmt: skip


@pytest.mark.servers
def test_the_example_in_python_runs(library: Library, node: NodeProcess) -> None:
    words = [sys.executable, LIBRARY / "examples/orders.py"]
    assert run(words, node, MQRT=str(library.folder / "libmqrt.so.1")) == ["received: seven screws"]


@pytest.mark.servers
def test_the_example_in_csharp_runs_under_mono(library: Library, node: NodeProcess, tmp_path: Path) -> None:
    program = tmp_path / "Orders.exe"
    subprocess.run(["mcs", "-warnaserror", f"-out:{program}", LIBRARY / "examples/Orders.cs"], check=True)
    shutil.copy(LIBRARY / "examples/Orders.exe.config", tmp_path)
    assert run(["mono", program], node, LD_LIBRARY_PATH=str(library.folder)) == [
        "peeked: seven screws", "received and given back: seven screws", "received: seven screws",
        "called back: a hammer", "a private queue: orders-in-csharp", "error: 0xC00E0003",
    ]  # fmt: skip


def run(words: Sequence[str | Path], node: NodeProcess, **environment: str) -> list[str]:
    """The lines that a program prints beside the node."""
    done = subprocess.run(words, env=at(node.socket) | environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_each_scenario_has_a_name_of_its_own() -> None:
    assert len(NAMES) == len(set(NAMES)) > 120


def test_the_headers_are_made_from_the_declarations_of_the_node() -> None:
    stale = [place for place, text in headers().items() if (LIBRARY / place).read_text("utf-8") != text]
    assert stale == [], "run python -m tests.mqrt.headers"


def test_the_library_exports_what_its_header_declares_and_nothing_else(library: Library) -> None:
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", library.folder / "libmqrt.so"], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in shown.stdout.splitlines()}
    header = (LIBRARY / "include/mq.h").read_text("utf-8")
    assert exported == set(re.findall(r"^MQRT_API .*?\b(\w+)\(", header, re.MULTILINE))
