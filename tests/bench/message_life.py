"""Message life over 1 and 10 million events, each in a process of its own, on two cores and in 8 GiB: a run that takes
more memory, with all its processes together, is ended. Spark's session is started before anything is measured.

``python -m tests.bench.message_life PLACE`` is the run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Final

from mqenterprise.pipeline.analysis import Analysis
from mqenterprise.pipeline.directory import DirectoryTables
from mqenterprise.pipeline.session import open_session
from mqenterprise.pipeline.simulation.run import simulate
from mqenterprise.pipeline.simulation.writing import write
from tests.bench import Comparison, bench
from tests.pipeline.enterprises import RING, ring_traffic

EVENTS: Final = (1_000_000, 10_000_000)
EVENTS_OF_A_MESSAGE: Final = 8.5
"""At least: some more than are needed are simulated."""
SECONDS: Final = 300.0
MEMORY: Final = 8 << 30
DRIVER: Final = "4g"
GROWTH: Final = 1.2
"""Of an event's cost from the small run to the large one, at most."""
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


def run(place: str) -> dict[str, float]:
    """Message life, once."""
    spark = open_session("local[2]", memory=DRIVER)
    spark.range(1).count()
    start = perf_counter()
    with tempfile.TemporaryDirectory(prefix="qmnode-bench-") as target:
        summed = Analysis(spark, [place], target, DirectoryTables(), now=datetime(2026, 2, 1, tzinfo=UTC)).run(
            "message-life"
        )
        return {"events": summed.events, "seconds": perf_counter() - start}


def measured(place: Path) -> dict[str, float]:
    """The run in its limits. RuntimeError when it takes more, or fails."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    command = ["taskset", "-c", cores, sys.executable, "-m", "tests.bench.message_life", str(place)]
    environment = {**os.environ, "PYTHONPATH": str(_PROJECT)}
    most = 0
    with (
        (place / "log").open("w+") as log,
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
            most = max(most, memory_of(process.pid))
            if most > MEMORY:
                os.killpg(process.pid, signal.SIGKILL)
                raise RuntimeError(f"it took {most} bytes")
            time.sleep(0.2)
        assert process.stdout is not None
        answer = process.stdout.read()
        if process.returncode:
            log.seek(0)
            raise RuntimeError(log.read()[-2000:])
    found: dict[str, float] = json.loads(answer.splitlines()[-1])
    return found | {"memory": most}


@bench("message life")
def message_life() -> list[Comparison]:
    """Seconds for each event and in all, and memory as if bytes were microseconds."""
    found = []
    for events in EVENTS:
        with tempfile.TemporaryDirectory(prefix="qmnode-bench-") as name:
            traffic = ring_traffic(int(events / EVENTS_OF_A_MESSAGE), rows=1 << 17)
            write(simulate(RING, traffic), name)
            found.append(measured(Path(name)))
    small, large = found
    each = [one["seconds"] / one["events"] for one in found]
    return [
        Comparison(f"{large['events']:,} events", large["seconds"], "the bar", SECONDS, 1.0),
        Comparison("their memory, bytes", large["memory"] / 1e6, "the bar", MEMORY / 1e6, 1.0),
        Comparison("one of them", each[1], f"one of {small['events']:,}", each[0], GROWTH),
    ]


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])), flush=True)
