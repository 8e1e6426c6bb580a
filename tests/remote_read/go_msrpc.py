"""The client with the generated stubs of go-msrpc: built once with the modules that its go.sum pins."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

from tests.amqp.foreign import PLACE, alone, installed

CLIENTS = Path(__file__).parent / "clients"
GOLDEN = Path(__file__).parent / "golden"
NEEDED = (1, 25)
TOOLCHAIN = "golang.org/toolchain@v0.0.1-go1.25.0.linux-{}"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def go() -> str:
    """A Go that go-msrpc can be built with: that of the machine or, if it is older, one that it downloads as a module.

    Go switches toolchains by itself only since 1.21; Debian 12 has 1.19.
    """
    found = shutil.which("go")
    assert found is not None, "go is not installed: run .ci/packages as root, which `make test` does"
    said = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    version = re.match(r"go(\d+)\.(\d+)", said)
    if version is not None and (int(version[1]), int(version[2])) >= NEEDED:
        return found
    return downloaded(found)


def downloaded(found: str) -> str:
    """Download a toolchain, which the checksum database of Go vouches for. Modules have no executable files."""
    place = PLACE / "go-toolchain"
    program = place / "go" / "bin" / "go"
    with alone(place):
        if not (place / "complete").exists():
            module = TOOLCHAIN.format(ARCHITECTURES[platform.machine()])
            command = [found, "mod", "download", "-json", module]
            output = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=600, check=True).stdout
            shutil.rmtree(place / "go", ignore_errors=True)
            shutil.copytree(json.loads(output)["Dir"], place / "go")
            for file in (place / "go").rglob("*"):
                file.chmod(
                    0o755 if file.is_dir() or file.parent.name in _PROGRAMS else file.stat().st_mode | stat.S_IWUSR
                )
            (place / "complete").touch()
    return str(program)


_PROGRAMS = ("bin", "linux_amd64", "linux_arm64")


def client() -> Path:
    """The program."""
    os.environ.setdefault("GOFLAGS", "-mod=readonly")
    return installed("msrpc", go(), "build", "-o", "client", ".", sources=CLIENTS) / "client"


def call(*arguments: str) -> str:
    """What it prints; it ends well."""
    done = subprocess.run([str(client()), *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


async def answers(*arguments: str) -> list[Any]:
    """The answers that it prints."""
    output = await asyncio.to_thread(call, *arguments)
    return [json.loads(line) for line in output.splitlines()]


def golden(name: str) -> list[str]:
    """The lines of a golden file."""
    return [line for line in (GOLDEN / name).read_text("utf-8").splitlines() if not line.startswith("#")]


def same_but_for_referents(ours: bytes, theirs: bytes) -> bool:
    """Whether stub data agree. The numbers of pointers that are not null are free (C706 14.3.10)."""
    if len(ours) != len(theirs):
        return False
    words = [(ours[place : place + 4], theirs[place : place + 4]) for place in range(0, len(ours), 4)]
    return all(one == other or (one[2:4] == b"\x02\x00" and any(other)) for one, other in words)
