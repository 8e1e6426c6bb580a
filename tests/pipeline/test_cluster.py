"""A standalone cluster of Spark: driver, master and two workers are hosts of their own, and some die on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyarrow import parquet

from mqenterprise.pipeline import directory
from mqenterprise.pipeline.simulation.run import simulate
from mqenterprise.pipeline.simulation.writing import TRUTH, write
from mqenterprise.pipeline.tables import Tables
from qmnode.export.places import Place
from tests.lab.network import Network, run, why_no_namespaces
from tests.lab.waiting import wait_until
from tests.pipeline import truth as known
from tests.pipeline.enterprises import RING, ring_traffic

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.servers, pytest.mark.soak]

PROJECT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = ("one", "two")
LIMIT = 480.0
ROWS = ("message_life", "service_levels")


class Cluster:
    """Hosts in network namespaces that share a file system; each knows itself by its own address, as real hosts do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = Network(["driver", "master", *WORKERS])
        self.started: list[subprocess.Popen[bytes]] = []
        (folder / "conf").mkdir()
        (folder / "events").mkdir()
        logged = {"enabled": "true", "compress": "false", "dir": (folder / "events").as_uri()}
        (folder / "conf" / "spark-defaults.conf").write_text(
            "".join(f"spark.eventLog.{name} {value}\n" for name, value in logged.items())
        )
        self.addresses = {host: self.network.add_host(host, host) for host in self.network.sites}
        for host, address in self.addresses.items():
            # What ``ip netns exec`` shows as /etc/hosts in there.
            hosts = Path("/etc/netns", self.network.namespace(host), "hosts")
            hosts.parent.mkdir(parents=True)
            hosts.write_text(f"127.0.0.1 localhost\n{address} {socket.gethostname()}\n")
        self.master = f"spark://{self.addresses['master']}:7077"

    def launch(self, host: str, name: str, *command: str) -> subprocess.Popen[bytes]:
        """A process on a host; what it says is in a file of this name."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        environment |= {"SPARK_HOME": str(SPARK_HOME), "SPARK_DAEMON_MEMORY": "256m"}
        environment |= {"SPARK_CONF_DIR": str(self.folder / "conf"), "PYTHONPATH": str(PROJECT)}
        with (self.folder / name).open("wb") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.network.namespace(host), *command],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.started.append(process)
        return process

    def start(self) -> None:
        """Master and workers, until the master has them."""
        spark = str(SPARK_HOME / "bin" / "spark-class")
        deploy = "org.apache.spark.deploy"
        here = ("--host", self.addresses["master"], "--port", "7077")
        self.launch("master", "master.log", spark, f"{deploy}.master.Master", *here)
        self.said("master.log", "I have been elected leader")
        for host in WORKERS:
            resources = ("--cores", "1", "--memory", "1200m", "--work-dir", str(self.folder / host))
            here = ("--host", self.addresses[host])
            self.launch(host, f"{host}.log", spark, f"{deploy}.worker.Worker", *here, *resources, self.master)
        for host in WORKERS:
            self.said(f"{host}.log", "Successfully registered with master")

    def said(self, name: str, words: str) -> None:
        """Wait until a process has said something."""
        wait_until(lambda: words in self.log(name), LIMIT, f"{words!r} in {name}")

    def log(self, name: str) -> str:
        return (self.folder / name).read_text(errors="replace")

    def analyze(self, source: Path, target: Path, *more: str) -> subprocess.Popen[bytes]:
        command = ("-m", "mqenterprise", "analyze", "service-levels", "--from", str(source), "--to", str(target))
        return self.launch(
            "driver", f"{target.name}.log", sys.executable, *command, "--master", self.master, "--memory", "1g", *more
        )

    def kill(self, host: str, what: str) -> int:
        """Kill the Java processes of a host whose class is so named; how many there were."""
        killed = 0
        for pid in run("ip", "netns", "pids", self.network.namespace(host)).stdout.split():
            with suppress(OSError):
                if what.encode() in Path("/proc", pid, "cmdline").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)
                    killed += 1
        return killed

    def close(self) -> None:
        self.network.close()
        for process in self.started:
            process.wait(240)
        for host in self.addresses:
            hosts = Path("/etc/netns", self.network.namespace(host), "hosts")
            hosts.unlink()
            hosts.parent.rmdir()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if (reason := why_no_namespaces()) is not None:
        pytest.skip(reason)
    hosts = Cluster(tmp_path)
    try:
        hosts.start()
        yield hosts
    finally:
        hosts.close()


def rows(target: Path) -> dict[str, list[str]]:
    found = {}
    for name in ROWS:
        table = Tables(str(target))[name].arrow()
        assert table is not None
        found[name] = sorted(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())
    return found


@pytest.mark.timeout(1800)
def test_a_batch_and_a_stream_on_a_cluster_that_loses_an_executor_and_a_worker(
    cluster: Cluster, tmp_path: Path
) -> None:
    segments = tmp_path / "segments"
    write(simulate(RING, ring_traffic(300, rows=400)), str(segments))

    batch = cluster.analyze(segments, tmp_path / "batch")
    assert batch.wait(LIMIT) == 0, cluster.log("batch.log")

    truth = parquet.read_table(segments / TRUTH).to_pandas()
    known.check_message_life(Tables(str(tmp_path / "batch")), truth, directory.read([Place.open(str(segments))]))
    for host in WORKERS:
        assert list((tmp_path / host).glob("app-*/*")), f"host {host} had no executor"
    (events,) = (tmp_path / "events").rglob("events_1_app-*")
    parts = {int(number) for number in re.findall(r"hashpartitioning\([^)]*, (\d+)\)", events.read_text())}
    assert parts == {1}, "so few rows are one part"

    stream = cluster.analyze(segments, tmp_path / "stream", "--stream", "--interval", "0.5", "--segments", "6")
    life = Tables(str(tmp_path / "stream"))["message_life"]
    wait_until(life.last, LIMIT, "the first commit of the stream")
    assert cluster.kill("one", "CoarseGrainedExecutorBackend") == 1
    first = life.last()
    assert first is not None
    wait_until(lambda: (last := life.last()) and last.version > first.version, LIMIT, "a commit after that")
    assert cluster.kill("two", "java") == 2, "the worker, and its executor"
    cluster.said("stream.log", "Waiting for segments")

    assert stream.poll() is None
    assert rows(tmp_path / "stream") == rows(tmp_path / "batch")
