"""``mqenterprise simulate`` and ``analyze`` as an operator runs them: on a bucket, and killed at any moment."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pyspark
import pytest
from pyarrow import fs
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.commands.pipeline import _cause
from mqenterprise.pipeline.catalogue import JOBS
from mqenterprise.pipeline.simulation.run import simulate
from mqenterprise.pipeline.simulation.writing import write
from mqenterprise.pipeline.tables import Tables
from qmnode.export.places import Place
from tests.lab.aws import ENVIRONMENT, moto
from tests.lab.waiting import wait_until
from tests.pipeline.enterprises import RING, ring_traffic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.lab.aws import Moto

__all__ = ["moto"]

PROJECT = Path(__file__).resolve().parents[2]
CONTOSO = str(PROJECT / "inventory" / "contoso.yaml")
MQENTERPRISE = [sys.executable, "-m", "mqenterprise"]
RUNNER = CliRunner()


def rows(address: str, name: str) -> list[str]:
    table = Tables(address)[name].arrow()
    assert table is not None
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())


@pytest.fixture
def bucket(moto: Moto) -> str:
    """An empty bucket, as an address with everything that a client needs."""
    name = f"segments-{os.urandom(4).hex()}"
    client = boto3.client(
        "s3",
        endpoint_url=moto.url,
        region_name="us-east-1",
        aws_access_key_id=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket=name)
    return f"s3://testing:testing@{name}/FOLDER?endpoint_override={moto.url}&region=us-east-1"


@pytest.mark.servers
def test_segments_tables_and_report_in_a_bucket_are_as_in_a_directory(
    spark: SparkSession, bucket: str, tmp_path: Path
) -> None:
    del spark  # the commands use the session that runs
    places = {"bucket": (bucket.replace("FOLDER", "in"), bucket.replace("FOLDER", "out"))}
    places["directory"] = (str(tmp_path / "in"), str(tmp_path / "out"))
    for source, target in places.values():
        made = RUNNER.invoke(app, ["simulate", CONTOSO, "--to", source, "--messages", "200"])
        assert made.exit_code == 0, made.output
        done = RUNNER.invoke(app, ["analyze", "service-levels", "--from", source, "--to", target])
        assert done.exit_code == 0, done.output
        assert "the report is" in done.output
        assert "testing:testing" not in made.output + done.output, "credentials are not told"

    for name in ("message_life", "service_levels", "backlog"):
        assert rows(places["bucket"][1], name) == rows(places["directory"][1], name)
    place = Place.open(places["bucket"][1])
    with place.file_system.open_input_stream(f"{place.root}/report.html") as stream:
        assert b"where messages went" in stream.read()
    assert isinstance(place.file_system, fs.S3FileSystem)
    missing = re.sub("@[^/]*/", "@no-such-bucket/", bucket)
    for source, target in ((missing, str(tmp_path / "nothing")), (places["bucket"][0], missing)):
        done = RUNNER.invoke(app, ["analyze", "keys", "--from", source, "--to", target])
        assert (done.exit_code, "there is no bucket no-such-bucket" in done.output) == (1, True), done.output


def test_a_job_that_is_not_there_is_named_with_those_that_are() -> None:
    done = RUNNER.invoke(app, ["analyze", "everything", "--from", "a", "--to", "b"])

    assert done.exit_code == 2
    assert "dead-letters" in done.output


STAGES = [
    "Starting Spark",
    "Reading events for queue_names",
    "Reading events for message_life",
    "Deriving key_use",
    "Summing up keys",
    "Summing up certificates",
    "Writing the report",
]


def test_what_is_being_done_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    del spark  # the command uses the session that runs
    (tmp_path / "in").mkdir()
    done = RUNNER.invoke(app, ["analyze", "keys", "--from", str(tmp_path / "in"), "--to", str(tmp_path / "out")])

    assert done.exit_code == 0
    check_stages(done.stderr.splitlines())


def check_stages(said: list[str]) -> None:
    """Tables are made side by side: which of them comes first is left to chance."""
    assert [said[0], said[-1]] == [STAGES[0], STAGES[-1]]
    assert sorted(said) == sorted(STAGES)


NOISE = re.compile("WARN|log level|incubator")


@pytest.mark.soak  # the stream that is killed says nothing of the kind either
@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_nothing_is_said_that_nobody_can_act_on(
    tmp_path: Path, for_little_data: dict[str, str], terminal: bool
) -> None:
    (tmp_path / "in").mkdir()
    reading, writing = os.openpty() if terminal else os.pipe()
    command = [*MQENTERPRISE, "analyze", "keys", "--from", str(tmp_path / "in"), "--to", str(tmp_path / "out")]
    process = subprocess.Popen(
        [*command, "--master", "local[1]", "--memory", "512m"],
        cwd=PROJECT,
        env={**for_little_data, "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.DEVNULL,
        stderr=writing,
    )
    os.close(writing)
    said = b""
    with suppress(OSError):  # a terminal that nobody writes to any more
        while part := os.read(reading, 65_536):
            said += part
    os.close(reading)

    assert process.wait(240) == 0, said
    text = said.decode()
    if not terminal:
        check_stages(text.splitlines())
        return
    assert all(stage in text for stage in STAGES)
    assert re.search(r"\d/5", text), "how far it is"
    assert not NOISE.search(text)


def test_at_a_terminal_one_line_says_how_far_it_is(tmp_path: Path) -> None:
    """The bar that ``analyze`` shows as well, without waiting for Spark."""
    reading, writing = os.openpty()
    process = subprocess.Popen(
        [*MQENTERPRISE, "simulate", CONTOSO, "--to", str(tmp_path / "in"), "--messages", "50"],
        cwd=PROJECT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.DEVNULL,
        stderr=writing,
    )
    os.close(writing)
    said = b""
    with suppress(OSError):  # a terminal that nobody writes to any more
        while part := os.read(reading, 65_536):
            said += part
    os.close(reading)

    assert process.wait(240) == 0, said
    assert re.search(rb"Writing segments.*\d+/\d+", said), said


def test_traffic_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["simulate", CONTOSO, "--to", str(tmp_path), "--traffic", str(tmp_path / "no.yaml")])

    assert done.exit_code == 1
    assert "no.yaml" in done.output


def test_the_help_names_every_job() -> None:
    page = (PROJECT / "man" / "mqenterprise-analyze.1").read_text().replace("\\-", "-")
    assert [job for job in JOBS if not re.search(f"{job}[,;]", page)] == []


def test_help_does_not_load_spark() -> None:
    code = "import sys; from mqenterprise.cli import app; app(['--help'], standalone_mode=False); "
    code += "assert not {'pyspark', 'pandas', 'matplotlib', 'pyarrow'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "analyze" in done.stdout


@pytest.fixture
def streaming(tmp_path: Path, for_little_data: dict[str, str]) -> Iterator[Streaming]:
    run = Streaming(tmp_path, for_little_data)
    yield run
    run.kill()


class Streaming:
    """``analyze --stream`` in a process group of its own, Java and Python workers included."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.source, self.target = folder / "in", folder / "out"
        self._environment = environment
        self._log = (folder / "log").open("ab+")
        self._process: subprocess.Popen[bytes] | None = None

    def command(self, *more: str) -> list[str]:
        where = ["--from", str(self.source), "--to", str(self.target)]
        return [*MQENTERPRISE, "analyze", "message-life", *where, "--master", "local[2]", "--memory", "1g", *more]

    def start(self) -> None:
        command = self.command("--stream", "--segments", "2", "--interval", "0.1")
        self._process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env=self._environment,
            start_new_session=True,
            stdout=self._log,
            stderr=self._log,
        )

    def version(self) -> int:
        last = Tables(str(self.target))["message_life"].last()
        return last.version if last else 0

    def wait_for(self, version: int) -> None:
        process = self._process
        assert process is not None

        def is_there() -> bool:
            if process.poll() is not None:
                pytest.fail(self.said()[-3000:])
            return self.version() >= version

        wait_until(is_there, 420, f"version {version} of the table", 0.05)

    def said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode()

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_a_stream_that_is_killed_and_started_again_gives_the_tables_of_one_run(
    streaming: Streaming, spark: SparkSession, tmp_path: Path, kills: int
) -> None:
    chance = random.Random(5)
    write(simulate(RING, ring_traffic(300, rows=150)), str(streaming.source))
    for _ in range(kills):
        streaming.start()
        streaming.wait_for(streaming.version() + chance.randint(1, 2))
        time.sleep(chance.random())
        streaming.kill()
    said = streaming.said()
    assert "Reading events" in said and not NOISE.search(said), said

    del spark  # the commands use the session that runs
    for target in (streaming.target, tmp_path / "whole"):
        done = RUNNER.invoke(app, ["analyze", "message-life", "--from", str(streaming.source), "--to", str(target)])
        assert done.exit_code == 0, done.output
    assert rows(str(streaming.target), "message_life") == rows(str(tmp_path / "whole"), "message_life")


@pytest.mark.parametrize(
    ("wrong", "code", "sentence"),
    [
        (["--since", "yesterday"], 2, "'yesterday' is no day: write it as 2026-01-31"),
        (["--master", "cluster"], 2, "'cluster' is no master of Spark's"),
        (["--memory", "much"], 2, "'much' is no size: write it as 2g"),
        (["--from", "nowhere"], 1, "/nowhere: name the directory or bucket that nodes export to"),
        (["--directory", "missing.yaml"], 1, "missing.yaml"),
    ],
)
def test_what_is_mistaken_is_told_before_spark_starts(
    wrong: list[str], code: int, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqenterprise.pipeline.session.open_session", lambda *_, **__: pytest.fail("Spark is started"))
    done = RUNNER.invoke(app, ["analyze", "all", "--from", str(tmp_path), "--to", str(tmp_path / "out"), *wrong])

    assert (done.exit_code, sentence in " ".join(done.output.replace("│", " ").split())) == (code, True), done.output


@pytest.mark.public_report("delta-io/delta-rs#1896", "delta-io/delta-rs#1156")
@pytest.mark.parametrize("folder", ["a%20b", "tables[1]", "a^b", "a|b", "a\\b"])
def test_a_folder_in_which_tables_cannot_be_is_refused_before_spark_starts(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqenterprise.pipeline.session.open_session", lambda *_, **__: pytest.fail("Spark is started"))
    done = RUNNER.invoke(app, ["analyze", "all", "--from", str(tmp_path), "--to", str(tmp_path / folder / "out")])

    assert done.exit_code != 0 and "no tables below a name with" in done.output, done.output
    assert not (tmp_path / folder).exists()
    for other in ("two words", "a=b,c", "{x}", "ä#1?"):
        Tables(str(tmp_path / other))["dead_letters"].last()


def test_of_what_spark_says_the_cause_is_told() -> None:
    said = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):\n"
        '  File "reader.py", line 7, in read\n'
        "qmnode.errors.ConfigurationError: directory.yaml: no such user\n\n SQLSTATE: 38000\n\nJVM stacktrace:\n"
        "org.apache.spark.sql.AnalysisException: something\n\tat org.apache.spark"
    )

    assert _cause(said) == "Spark failed: directory.yaml: no such user"
    assert _cause("[PATH_NOT_FOUND] Path is not there.") == "Spark failed: [PATH_NOT_FOUND] Path is not there."
    assert "--memory" in _cause("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")


def test_a_day_of_a_moment_is_that_in_utc(tmp_path: Path, spark: SparkSession) -> None:
    del spark  # the command uses the session that runs
    source, target = str(tmp_path / "in"), str(tmp_path / "out")
    write(simulate(RING, ring_traffic(60)), source)
    done = RUNNER.invoke(
        app, ["analyze", "dead-letters", "--from", source, "--to", target, "--since", "2026-01-02T01:00:00+02:00"]
    )

    assert done.exit_code == 0, done.output
    table = Tables(target)["message_life"].arrow()
    assert table is not None
    assert set(table.column("date").to_pylist()) == {"2026-01-01", "2026-01-02"}
    report = (tmp_path / "out" / "report.html").read_text()
    assert "messages sent since 2026-01-01" in report
    assert f"<b>{table.num_rows}</b><span>messages sent" in report


@pytest.mark.soak  # the stream that is killed starts a Spark of its own, test_cluster a driver
@pytest.mark.timeout(600)
def test_spark_submit_runs_the_command(tmp_path: Path, for_little_data: dict[str, str]) -> None:
    write(simulate(RING, ring_traffic(40)), str(tmp_path / "in"))
    main = str(PROJECT / "mqenterprise" / "__main__.py")
    submit = [str(Path(pyspark.__file__).with_name("bin") / "spark-submit"), "--master", "local[2]", main]
    done = subprocess.run(
        [*submit, "analyze", "message-life", "--from", str(tmp_path / "in"), "--to", str(tmp_path / "out")],
        cwd=tmp_path,
        env={
            **for_little_data,
            "PYTHONPATH": str(PROJECT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert len(rows(str(tmp_path / "out"), "message_life")) == 40
