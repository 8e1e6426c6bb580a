"""The C interface from C# under Mono: scenarios of our own, and MSMQ.Messaging as it is published."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.lab.nodes import NodeProcess, running_node
from tests.mqrt.conftest import LIBRARY, OWN, Library, at
from tests.mqrt.test_searches import written

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.servers

VECTORS: Final = OWN.parent / "bodies/vectors/formatters.jsonl"
SOURCE: Final = "MSMQ_MESSAGING_SOURCE"
ASSEMBLIES: Final = ("Transactions", "DirectoryServices", "Drawing", "Configuration", "Design")
RESOURCES: Final = "MSMQ.Properties.Resources.resources"
CONFIGURATION: Final = LIBRARY / "examples/Orders.exe.config"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node")) as process:
        yield process


def compile_to(target: Path, *words: str | Path) -> Path:
    done = subprocess.run(["mcs", f"-out:{target}", *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    target.with_name(target.name + ".config").write_bytes(CONFIGURATION.read_bytes())
    return target


def outcomes(program: Path, library: Library, node: NodeProcess, *words: str | Path) -> list[str]:
    """The lines that the scenarios print."""
    environment = at(node.socket) | {"LD_LIBRARY_PATH": str(library.folder)}
    done = subprocess.run(["mono", program, *words], env=environment, capture_output=True, text=True, timeout=600)
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith("ok ")] == [], done.stderr
    assert done.returncode == 0, done.stderr
    return lines


def test_scenarios_in_csharp_hold(library: Library, node: NodeProcess, tmp_path: Path) -> None:
    sources = [OWN / "Scenarios.cs", OWN / "Check.cs", LIBRARY / "examples/Orders.cs"]
    program = compile_to(tmp_path / "Scenarios.exe", "-warnaserror", "-main:Scenarios", *sources)
    assert len(set(outcomes(program, library, node, VECTORS))) >= 60


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MSMQ.Messaging, from its public source, which MSMQ_MESSAGING_SOURCE names; it is no part of this project."""
    tmp_path = tmp_path_factory.mktemp("assembly")
    source = Path(os.environ.get(SOURCE, ""), "src")
    if SOURCE not in os.environ or not (source / "Messaging").is_dir():
        pytest.skip(f"{SOURCE} names no clone of github.com/weloytty/MSMQ.Messaging")
    writer = compile_to(tmp_path / "Resources.exe", OWN / "Resources.cs")
    subprocess.run(["mono", writer, source / "Properties/Resources.resx", tmp_path / RESOURCES], check=True)
    references = [f"-r:System.{name}" for name in ASSEMBLIES]
    return compile_to(
        tmp_path / "MSMQ.Messaging.dll", "-langversion:latest", "-unsafe", "-target:library",
        f"-resource:{tmp_path / RESOURCES}", *references, *sorted(source.rglob("*.cs")),
    )  # fmt: skip


def beside(assembly: Path, source: str) -> Path:
    """A program that uses MSMQ.Messaging."""
    words = ["-langversion:latest", f"-r:{assembly}", OWN / source, OWN / "Check.cs"]
    return compile_to(assembly.with_name(source).with_suffix(".exe"), *words)


@pytest.mark.soak
def test_msmq_messaging_runs_unmodified(library: Library, node: NodeProcess, assembly: Path) -> None:
    assert len(set(outcomes(beside(assembly, "Messaging.cs"), library, node))) >= 100


@pytest.mark.soak
def test_msmq_messaging_finds_public_queues(library: Library, assembly: Path, tmp_path: Path) -> None:
    directory = {"name": "file", "settings": {"file": str(written(tmp_path / "directory.yaml"))}}
    with running_node(tmp_path / "node", directory=directory) as node:
        assert len(outcomes(beside(assembly, "PublicQueues.cs"), library, node)) == 9


def test_what_stands_for_windows_is_no_more_than_it_says(library: Library) -> None:
    """Each function has its reason before it."""
    names = ["nm", "-D", "--defined-only", library.folder / "libmqrt-windows.so.1"]
    shown = subprocess.run(names, capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in shown.stdout.splitlines()}
    source = (LIBRARY / "windows/windows.c").read_text("utf-8")
    explained = set(re.findall(r"\*/\nMQRT_API \w+ (\w+)\(", source))
    assert exported - explained <= {"OleLoadFromStream", "OleSaveToStream"}  # these share theirs
    assert len(exported) == 5
