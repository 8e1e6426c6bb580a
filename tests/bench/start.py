"""Processor time that programs take to start, against a Python that loads their libraries and does nothing.

``run`` counts until its socket answers for the status, ``status`` until it has found that nobody listens. Bytecode is
cached: the first round of each is not counted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qmnode.local.asking import ask
from tests.bench import Comparison, bench

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS: Final = 9
BARS: Final = {"run": 2.6, "status": 5.0}
_PROGRAM: Final = "from qmnode.cli import main; main()"
_LIBRARIES: Final = "import asyncio, pydantic, rocksdict, yaml; pydantic.BaseModel"
_ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _processor_time(process: int) -> float:
    """Seconds that all threads of a process have computed."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def _python(*arguments: str) -> float:
    """Processor time of a Python from its start to its end."""
    with subprocess.Popen(
        [sys.executable, *arguments], env=_ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime


def _run() -> float:
    with tempfile.TemporaryDirectory() as folder:
        socket, configuration = Path(folder) / "node.sock", Path(folder) / "node.yaml"
        settings = {
            "data": f"{folder}/data",
            "computer_name": "ALPHA",
            "local": {"socket": str(socket)},
            "management": {"socket": None},
            "transport": {"enabled": False},
        }
        configuration.write_text(json.dumps(settings))
        node = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, "run", "--config", str(configuration)],
            env=_ENVIRONMENT,
            stderr=subprocess.DEVNULL,
        )
        try:
            ask(socket, "status", wait=60)
            return _processor_time(node.pid)
        finally:
            node.terminate()
            node.wait()


@bench("start")
def start() -> list[Comparison]:
    """Each and its baseline in turns."""
    measured: dict[str, tuple[Callable[[], float], str, Callable[[], float]]] = {
        "run": (_run, "its libraries", lambda: _python("-c", _LIBRARIES)),
        "status": (
            lambda: _python("-c", _PROGRAM, "status", "--socket", "/nowhere"),
            "bare Python",
            lambda: _python("-c", ""),
        ),
    }
    lines = []
    for name, (candidate, what, baseline) in measured.items():
        pairs = [(candidate(), baseline()) for _ in range(ROUNDS + 1)][1:]
        seconds, baseline_seconds = (statistics.median(times) for times in zip(*pairs, strict=True))
        lines.append(Comparison(name, seconds, what, baseline_seconds, BARS[name]))
    return lines
