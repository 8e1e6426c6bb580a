"""The C interface against a node: each function, property and error that can be made is a scenario in C."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from tests.lab.nodes import NodeProcess, running_node
from tests.mqrt.conftest import LIBRARY, OWN, Library, at
from tests.mqrt.headers import headers

if TYPE_CHECKING:
    from collections.abc import Iterator

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
