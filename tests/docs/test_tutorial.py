"""The tutorial, from its second part on, done in a clean shell with a network of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import PROJECT, blocks

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/tutorial.md"
EXPECTED = (
    "Dear Bremen",
    "invoice 1",
    "6 created",
    "order 7",
    "order 8",
    "outgoing",
    "alpha (Amsterdam) sends to beta",
)


def script() -> str:
    """Every block but the installation, as one session; a failing command ends it."""
    text = (PROJECT / PAGE).read_text("utf-8").splitlines()
    begin = text.index("## 2. One node")
    lines = [
        "set -eu",
        "trap 'kill $(jobs -p) 2>/dev/null || true; mqenterprise directory down || true' EXIT",
        "ip link set lo up",
        # Root's private directory, which another run on this machine may have as well.
        "mkdir -p /var/lib/mqenterprise; mount -t tmpfs tmpfs /var/lib/mqenterprise",
    ]
    for block in blocks(PAGE):
        if block.line > begin and block.language in {"sh", "python"}:
            code = "\n".join(block.lines)
            lines.append(f"python <<'EXAMPLE'\n{code}\nEXAMPLE" if block.language == "python" else code)
    return "\n".join(lines)


def shown() -> list[str]:
    """The lines of output that the page shows. Those with a time of day are left out, and the rules of tables, which a
    pipe does not get; it gets a tab where a terminal gets blanks."""
    lines = [" ".join(line.split()) for block in blocks(PAGE) if block.language == "text" for line in block.lines]
    return [line for line in lines if not re.search(r"\d\d:\d\d:\d\d|^[─ ]+$", line)]


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.servers
@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root")
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    assert shutil.which("slapd"), "Debian's package slapd is missing"
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, module in (("qmnode", "qmnode.cli"), ("mqenterprise", "mqenterprise.cli")):
        (commands / name).write_text(f"#!{sys.executable}\nfrom {module} import main\nmain()\n")
        (commands / name).chmod(0o755)
    (commands / "python").symlink_to(sys.executable)
    folder = tmp_path / "tour"
    folder.mkdir()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("QMNODE_", "MQENTERPRISE_"))
    }
    environment |= {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path[1:]]),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    with (tmp_path / "log").open("w+") as log:
        done = subprocess.run(
            ["unshare", "--net", "--mount", "bash", "-c", script()],
            cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=1700, check=False,
        )  # fmt: skip
        log.seek(0)
        said = log.read()
    assert done.returncode == 0, said
    assert [one for one in EXPECTED if one not in said] == [], said
    printed = {" ".join(line.split()) for line in said.splitlines()}
    assert [line for line in shown() if line not in printed] == [], said
