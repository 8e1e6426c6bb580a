"""``make demo`` keeps its promises and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.demo.chapters import CHAPTERS
from tests.lab.hosts import why_no_hosts
from tests.lab.network import FOLDERS, PREFIX
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(1800)]
PROJECT = Path(__file__).resolve().parents[2]


@contextmanager
def demo(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """It runs, and is interrupted if it still does at the end."""
    command = [sys.executable, "-m", "tests.lab.demo", *arguments]
    process = subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(120)


def labs(process: int) -> list[Path]:
    """The folders of labs that were started by a process, or by nobody any more."""
    return [file.parent for file in FOLDERS.glob(f"{PREFIX}*/owner.json") if f'"pid": {process},' in file.read_text()]


def test_every_promise_is_kept() -> None:
    """On real hosts where this machine can have them: it chooses itself."""
    with demo() as process:
        said, _ = process.communicate(timeout=1700)

    assert process.returncode == 0, said
    assert f"{len(CHAPTERS)} of {len(CHAPTERS)} promises were kept" in said
    assert "ams-shop → ams-router → bre-router → cor-router → cor-warehouse" in said
    assert "BROKEN" not in said
    assert ("with systemd and ssh, in network namespaces" in said) == (why_no_hosts() is None)
    assert not labs(process.pid), "everything was removed"


def test_an_interrupted_demo_leaves_nothing() -> None:
    with demo("--plain") as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any("Starting six hosts" in line for line in lines), "the directory runs, and the first playbook begins"
        (lab,) = labs(process.pid)

        process.send_signal(signal.SIGINT)
        said = process.stdout.read()

        assert process.wait(120) == 130, said
    assert "Interrupted" in said
    assert not lab.exists()
    wait_until(lambda: not processes_of(lab), 30, "its processes have ended")


def processes_of(lab: Path) -> list[int]:
    """Whose command line names a file of the lab."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(lab) in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue  # it has ended meanwhile
    return found
