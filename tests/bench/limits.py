"""A run in a process of its own, on two cores and in 8 GiB: what takes more, with all its processes, is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

MEMORY: Final = 8 << 30
DRIVER: Final = "4g"
_PROJECT: Final = Path(__file__).resolve().parents[2]
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def memory_of(session: int) -> int:
    """Bytes that the processes of a session hold; what they share counts for each."""
    held = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and os.getsid(int(entry.name)) == session:
                held += int((entry / "statm").read_text().split()[1]) * _PAGE
        except OSError:
            continue  # it has ended meanwhile
    return held


def measured(module: str, *arguments: str, most: int = MEMORY) -> dict[str, float]:
    """What ``python -m module arguments`` prints in its last line, with its ``memory``. RuntimeError when it takes more
    than the limits, or fails.
    """
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    command = ["taskset", "-c", cores, sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(_PROJECT)}
    held = 0
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command,
            cwd=_PROJECT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        while process.poll() is None:
            held = max(held, memory_of(process.pid))
            if held > most:
                os.killpg(process.pid, signal.SIGKILL)
                raise RuntimeError(f"it took {held} bytes")
            time.sleep(0.2)
        assert process.stdout is not None
        answer = process.stdout.read()
        if process.returncode:
            log.seek(0)
            raise RuntimeError(log.read()[-2000:])
    found: dict[str, float] = json.loads(answer.splitlines()[-1])
    return found | {"memory": held}
