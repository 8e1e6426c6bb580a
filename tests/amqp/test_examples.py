"""The smallest programs of docs/amqp.md, run as they stand there but for the address of the door."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.amqp.foreign import go, jms, rhea, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.amqp.conftest import Door

pytestmark = [pytest.mark.servers, pytest.mark.slow]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "amqp.md"


def example(language: str, port: int) -> str:
    """The program in this language, for the door at this port."""
    (program,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert "localhost" in program
    return str(program).replace("localhost", "127.0.0.1").replace("5672", str(port))


@pytest.mark.parametrize(
    ("language", "libraries", "file", "command"),
    [
        ("python", None, "example.py", [sys.executable, "example.py"]),
        ("javascript", rhea, "example.js", ["node", "example.js"]),
        ("go", go, "example.go", ["go", "run", "example.go"]),
        ("java", jms, "Example.java", ["java", "-cp", "lib/*", "Example.java"]),
    ],
)
async def test_the_smallest_program_sends_and_receives(
    door: Door, tmp_path: Path, language: str, libraries: Callable[[], Path] | None, file: str, command: list[str]
) -> None:
    place = libraries() if libraries is not None else tmp_path
    (place / file).write_text(example(language, door.door.port))
    output = await run(*command, cwd=place, seconds=300)
    assert output.splitlines()[-1] == "order 7"
    assert await door.bodies("orders") == []


def test_the_example_that_is_not_run_says_so() -> None:
    before, _, _ = PAGE.read_text("utf-8").partition("```csharp")
    assert "has not been run" in before.splitlines()[-2]
