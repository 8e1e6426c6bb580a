"""Clients that nobody here wrote, each with a program of its own: what they send is what they receive."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.amqp.conftest import SECRET

if TYPE_CHECKING:
    from tests.amqp.conftest import Door

pytestmark = [pytest.mark.servers, pytest.mark.slow]

CLIENTS = Path(__file__).parent / "clients"
PLACE = Path(__file__).resolve().parents[2] / ".clients"
"""Their libraries, which the package managers bring once."""


def installed(name: str, *command: str) -> Path:
    """The folder of a client with its libraries; the test is skipped where these cannot be had."""
    place = PLACE / name
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    if not (place / "complete").exists():
        place.mkdir(parents=True, exist_ok=True)
        for file in (CLIENTS / name).iterdir():
            shutil.copy(file, place)
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            pytest.skip(
                f"{' '.join(command)} cannot get the client's libraries: {done.stderr[-500:]}{done.stdout[-500:]}"
            )
        (place / "complete").touch()
    for file in (CLIENTS / name).iterdir():
        shutil.copy(file, place)
    return place


async def run(*command: str, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_rhea_for_javascript(door: Door) -> None:
    place = installed("rhea", "npm", "ci", "--no-audit", "--no-fund")
    output = await run("node", "client.js", str(door.door.port), "orders", cwd=place)
    assert output.splitlines() == ["refused: amqp:not-found", "done"]
    assert await door.bodies("orders") == []


async def test_go_amqp(door: Door) -> None:
    place = installed("go", "go", "build", "-o", "client", ".")
    output = await run("go", "run", ".", door.url, "orders", cwd=place)
    assert output.splitlines() == ["refused: true", "done"]
    assert await door.bodies("orders") == []
    assert await door.bodies(r".\SYSTEM$;DEADLETTER") == [b"go"]


async def test_qpid_jms_browses_and_moves_in_transactions(door: Door) -> None:
    place = installed("jms", "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
    output = await run("java", "-cp", "lib/*", "Client.java", f"{door.url}?jms.username=x", cwd=place)
    assert output.splitlines()[-2:] == ["refused: InvalidDestinationException", "done"]
    assert await door.bodies("orders") == []
    done = [message.decoded().value for message in await door.messages("done")]
    assert done == [str(number) for number in range(20)]
    assert await door.bodies("exact") == []


async def test_the_client_of_the_azure_sdk(door: Door) -> None:
    output = await run(
        sys.executable, str(CLIENTS / "azure_client.py"), str(door.door.port), "orders", "ops", SECRET, cwd=CLIENTS
    )
    assert output.splitlines() == ["done"]
