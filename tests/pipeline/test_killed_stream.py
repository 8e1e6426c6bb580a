"""A stream whose driver is killed in the middle of batches, and restarted: the same table as one run would give."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lab.waiting import wait_until
from tests.pipeline.segments import put

pytestmark = [pytest.mark.servers, pytest.mark.soak, pytest.mark.timeout(1200)]  # test_commands has the short one

PROJECT = Path(__file__).resolve().parents[2]
KILLS = 2
LIMIT = 240.0
"""Seconds for a driver to start, or to finish, on a machine that is busy with others."""


class Driver:
    """The streaming driver with everything that it starts, in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self._checkpoint = folder / "checkpoint"
        paths = [str(folder / name) for name in ("segments", "table", "checkpoint")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.streaming", *paths],
            cwd=PROJECT,
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def planned(self) -> int:
        """Batches whose offsets are on disk."""
        return len([one for one in self._checkpoint.glob("offsets/*") if one.name.isdecimal()])

    def wait_for_batches(self, count: int) -> None:
        """Until so many more have begun, or there are no more."""
        batches = self.planned() + count
        wait_until(lambda: self.planned() >= batches or self.has_ended(), LIMIT, "a batch begins")

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """No chance to tidy up, for Java and the workers neither."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(240)


def test_the_table_is_the_same_after_kills(tmp_path: Path, spark: SparkSession) -> None:
    chance = random.Random(20261121)
    segments = str(tmp_path / "segments")
    starts = {1: 1, 2: 1}

    def more(count: int) -> None:
        for _ in range(count):
            node = chance.choice((1, 2))
            first = starts[node]
            starts[node] = first + chance.randrange(5, 60)
            put(segments, range(first, starts[node]), node=node)

    more(12)
    for _ in range(KILLS):
        driver = Driver(tmp_path)
        try:
            driver.wait_for_batches(chance.randrange(1, 3))
        finally:
            if not driver.has_ended():
                driver.kill()
        more(4)
    last = Driver(tmp_path)
    try:
        wait_until(last.has_ended, LIMIT, "the last run ends")
    finally:
        if not last.has_ended():
            last.kill()
    assert last.process.returncode == 0
    streamed = spark.read.parquet(str(tmp_path / "table")).select("node", "offset", "label").collect()
    at_once = spark.read.format("qmnode").schema("node string, offset long, label string").load(segments).collect()
    assert sorted(map(tuple, streamed)) == sorted(map(tuple, at_once))
    assert len(streamed) == starts[1] + starts[2] - 2
