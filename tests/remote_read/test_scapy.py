"""scapy reads our queues over RemoteRead, with stubs that midl-to-scapy made of the specification."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qmnode.dcerpc.ndr import NDR, NDR64
from tests.amqp.foreign import installed
from tests.remote_read.remoteread_answers import answers_of, every_answer
from tests.remote_read.remoteread_stubs import OURS, VOID

if TYPE_CHECKING:
    from tests.remote_read.conftest import Remote

HERE = Path(__file__).parent
GOLDEN = HERE / "golden" / "remoteread.txt"
REPRESENTATIONS = {one.name: one for one in (NDR, NDR64)}


def scapy() -> Path:
    """The folder of the client. Its libraries, which are under the GPL, are loaded by its own process alone."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--target", "libraries", "-r", "requirements.txt")
    return installed("scapy", *pip, sources=HERE / "clients")


def run(program: str, *arguments: str) -> str:
    place = scapy()
    command = [sys.executable, str(place / program), str(place / "libraries"), *arguments]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300, check=True).stdout


def golden() -> list[str]:
    return [line for line in GOLDEN.read_text("utf-8").splitlines() if not line.startswith("#")]


def test_stubs_have_the_bytes_that_scapy_once_wrote() -> None:
    seen = set()
    for line in golden():
        name, representation, digits = line.split()
        stub = bytes.fromhex(digits.strip("-"))
        ours = OURS[name]
        assert ours.encode(REPRESENTATIONS[representation]) == (stub[:-4] if name in VOID else stub), line
        assert type(ours).decode(stub, REPRESENTATIONS[representation]) == ours
        seen.add((name, representation))
    assert seen == {(name, one) for name in OURS for one in REPRESENTATIONS}


@pytest.mark.servers
def test_our_stubs_are_those_that_scapy_writes() -> None:
    assert run("stubs.py").splitlines() == golden()


@pytest.mark.servers
@pytest.mark.parametrize("representation", REPRESENTATIONS)
async def test_scapy_calls_every_method(remote: Remote, representation: str) -> None:
    await remote.send(b"one", b"two", b"three")
    queue = r"OS:SERVING\private$\orders"
    output = await asyncio.to_thread(run, "remote_read.py", remote.address, str(remote.port), representation, queue)
    assert answers_of(output) == every_answer(remote.port)
    moved = await remote.manager.open_queue(r"DIRECT=OS:.\private$\orders;later")
    assert (await moved.receive(0)).body == b"one"
