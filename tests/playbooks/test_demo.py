"""``make demo`` keeps its promises and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import expected, outcomes, session
from tests.lab import releases
from tests.lab.demo.chapters import CHAPTERS
from tests.lab.demo.declared import RECEIVER
from tests.lab.hosts import why_no_hosts
from tests.lab.network import FOLDERS, PREFIX
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(1800)]
PROJECT = Path(__file__).resolve().parents[2]
CHANGED = re.compile(r"changed=[1-9]")
WARNED = re.compile(r"^.*\bwarning\b.*$", re.IGNORECASE | re.MULTILINE)


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


@dataclass(frozen=True)
class Kept:
    """A demo that was left running."""

    code: int
    said: str
    process: int

    @property
    def environment(self) -> Path:
        """The file to source."""
        (found,) = re.findall(r"^  source (\S+)$", self.said, re.MULTILINE)
        return Path(found)

    def shell(self, script: str, cwd: Path = PROJECT, limit: float = 600) -> subprocess.CompletedProcess[str]:
        """What an operator types after sourcing it, in a shell that knows nothing else of it."""
        known = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE", "QMNODE"))}
        return subprocess.run(
            ["bash", "-c", f"source {self.environment}\n{script}"],
            cwd=cwd, env=known | {"ANSIBLE_NOCOLOR": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True, timeout=limit, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    """Run with ``--keep``, and removed by ``stop`` at the end."""
    with demo("--keep") as process:
        said, _ = process.communicate(timeout=1700)
    try:
        made = Kept(process.returncode, said, process.pid)
        if made.code == 0:
            releases.keep(made.environment.parent.parent)
        yield made
    finally:
        with demo("stop") as stopping:
            stopping.communicate(timeout=300)


def test_every_promise_is_kept(kept: Kept) -> None:
    """On real hosts where this machine can have them: it chooses itself."""
    said = kept.said
    assert kept.code == 0, said
    assert f"{len(CHAPTERS)} of {len(CHAPTERS)} promises were kept" in said
    assert "ams-shop → ams-router → bre-router → cor-router → cor-warehouse" in said
    assert "BROKEN" not in said
    assert ("with systemd and ssh, in network namespaces" in said) == (why_no_hosts() is None)


def test_a_healthy_enterprise_is_left_as_it_is_from_any_folder(kept: Kept, tmp_path: Path) -> None:
    """One host of it; the pages roll out to all of them again, from the project's folder."""
    done = kept.shell(f"play=$PWD/playbooks/rollout.yml; cd {tmp_path}; ansible-playbook $play --check -l {RECEIVER}")
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(rf"^{RECEIVER} .*ok=\d", done.stdout, re.MULTILINE), done.stdout[-4000:]
    assert CHANGED.findall(done.stdout) == [], done.stdout[-4000:]


def test_addresses_that_were_printed_outlive_the_host(kept: Kept) -> None:
    (socket,) = re.findall(r"--socket (\S+)", kept.said)
    restart = re.search(r"^  (ssh -F \S+) ", kept.said, re.MULTILINE)
    if restart is None:
        pytest.skip("hosts without ssh are not restarted")
    run = f"{restart[1]} {RECEIVER} systemctl show --property=InvocationID --value qmnode"
    before = kept.shell(run).stdout.strip()
    assert before
    kept.shell(f"{restart[1]} {RECEIVER} systemctl reboot")

    def is_another() -> bool:
        asked = kept.shell(run)
        return asked.returncode == 0 and asked.stdout.strip() not in ("", before)

    wait_until(is_another, 120, "the node was started again with its host")
    look = f"qmnode queue list --socket {socket}"
    wait_until(lambda: kept.shell(look).returncode == 0, 120, "the node answers where it answered")

    assert "payments" in kept.shell(look).stdout


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["quick", "whole"])
def test_the_pages_run_from_top_to_bottom(kept: Kept, whole: bool) -> None:
    """README.md and docs/ as one session: exit codes as they say, no traceback, no warning that is not explained."""
    pages = session(whole=whole)
    assert pages.unexplained == []

    done = kept.shell("\n".join(pages.script), limit=1700)

    for place, command, code, printed in outcomes(done.stdout, pages):
        context = f"{place}: {command}\n{printed[-3000:]}"
        assert code in expected(command), f"{code}\n{context}"
        assert "Traceback (most recent call last)" not in printed, context
        assert WARNED.findall(printed) == [], context
        if command.startswith("ansible-playbook playbooks/rollout.yml"):
            assert CHANGED.findall(printed) == [], context


def test_nothing_of_it_stays(kept: Kept) -> None:
    lab = kept.environment.parent.parent
    with demo("stop") as stopping:
        said, _ = stopping.communicate(timeout=300)

    assert stopping.returncode == 0
    assert f"Removing {lab}" in said
    assert not lab.exists()
    assert processes_of(lab) == []


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
