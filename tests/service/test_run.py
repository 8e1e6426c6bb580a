"""``qmnode run`` as a process: it starts, answers, reloads, and stops when it is told."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import qmnode
from qmnode.settings.node import ConfigurationError, NodeSettings, read_settings

PROJECT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.servers

COMMAND = [sys.executable, "-c", "from qmnode.cli import main; main()", "run"]
NAME = r".\private$\orders"


@dataclass
class Daemon:
    process: subprocess.Popen[str]
    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "node.sock"

    def wait_for(self, event: str) -> dict[str, object]:
        """The next line of the log that says so."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            entry: dict[str, object] = json.loads(line)
            if entry["event"] == event:
                return entry
        raise AssertionError(f"the node ended without saying {event!r}: exit code {self.process.wait()}")


def configuration(folder: Path, **more: object) -> Path:
    path = folder / "node.yaml"
    settings = {
        "data": str(folder / "store"),
        "local": {"socket": str(folder / "node.sock")},
        "management": {"socket": str(folder / "management.sock")},
        "transport": {"enabled": False},
        **more,
    }
    path.write_text(json.dumps(settings))
    return path


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PROJECT), **more}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    config = configuration(tmp_path)
    with subprocess.Popen(
        [*COMMAND, "--config", str(config)], stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        daemon = Daemon(process, tmp_path)
        try:
            daemon.wait_for("ready")
            yield daemon
        finally:
            process.kill()


async def send(daemon: Daemon, body: bytes) -> None:
    async with qmnode.connect(daemon.socket) as qm:
        queue = await qm.open_queue(f"DIRECT=OS:{NAME}", qmnode.Access.SEND)
        await queue.send(qmnode.Message(body, recoverable=True))


async def create_and_send(daemon: Daemon, body: bytes) -> None:
    async with qmnode.connect(daemon.socket) as qm:
        await qm.create_queue(NAME)
    await send(daemon, body)


@pytest.mark.timed
def test_sigterm_stops_it_in_seconds_and_leaves_no_socket(daemon: Daemon) -> None:
    asyncio.run(create_and_send(daemon, b"kept"))
    start = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(timeout=60) == 0
    assert time.monotonic() - start < 5
    assert not daemon.socket.exists()


async def test_sigterm_ends_waiting_reads_too(daemon: Daemon) -> None:
    async with qmnode.connect(daemon.socket) as qm:
        await qm.create_queue(NAME)
        queue = await qm.open_queue(f"DIRECT=OS:{NAME}")
        waiting = asyncio.create_task(queue.receive())
        assert await qm.queues()
        daemon.process.send_signal(signal.SIGTERM)
        with pytest.raises(qmnode.MessageQueuingError, match="closed"):
            await asyncio.wait_for(waiting, 60)
    assert await asyncio.to_thread(daemon.process.wait, 60) == 0


def test_a_second_node_on_the_same_store_is_refused(daemon: Daemon) -> None:
    config = configuration(daemon.folder, local={"socket": str(daemon.folder / "other.sock")})
    answer = subprocess.run(
        [*COMMAND, "-c", str(config)], capture_output=True, text=True, env=environment(), timeout=30
    )
    assert answer.returncode == 1
    assert "MQ_ERROR_MESSAGE_STORAGE_FAILED" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_sighup_takes_over_new_quotas(daemon: Daemon) -> None:
    configuration(daemon.folder, quotas={"queue_manager_quota": 1})
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for("reloaded")
    with pytest.raises(qmnode.MessageQueuingError, match="1 KB, would be passed"):
        asyncio.run(create_and_send(daemon, bytes(2000)))


def test_sighup_with_a_broken_configuration_changes_nothing(daemon: Daemon) -> None:
    (daemon.folder / "node.yaml").write_text("quotas: {queue_manager_quota: many}")
    daemon.process.send_signal(signal.SIGHUP)
    assert "queue_manager_quota" in str(daemon.wait_for("the configuration was not reloaded")["reason"])
    asyncio.run(create_and_send(daemon, bytes(2000)))


def test_a_killed_node_comes_back_with_what_it_acknowledged(daemon: Daemon) -> None:
    asyncio.run(create_and_send(daemon, b"kept"))
    daemon.process.kill()
    daemon.process.wait()

    async def receive() -> bytes:
        async with qmnode.connect(daemon.socket) as qm, await qm.open_queue(f"DIRECT=OS:{NAME}") as queue:
            return (await queue.receive(timeout=60)).body

    with subprocess.Popen(
        [*COMMAND, "-c", str(daemon.folder / "node.yaml")], stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            Daemon(process, daemon.folder).wait_for("ready")
            assert asyncio.run(receive()) == b"kept"
        finally:
            process.kill()


def test_systemd_is_told_when_the_node_is_ready(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.settimeout(30)
        with subprocess.Popen(
            [*COMMAND, "-c", str(configuration(tmp_path))],
            stderr=subprocess.DEVNULL,
            env=environment(NOTIFY_SOCKET=str(tmp_path / "notify")),
        ) as process:
            try:
                assert notify.recv(100).splitlines()[0] == b"READY=1"
                process.send_signal(signal.SIGTERM)
                assert notify.recv(100) == b"STOPPING=1"
                assert process.wait(60) == 0
            finally:
                process.kill()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no_such: 1", "node.yaml:1: no_such: no such setting"),
        ("quotas: {queue_manager_quota: -1}", "quotas.queue_manager_quota"),
        ("management: {listen: '0.0.0.0:8443'}", "it needs tokens, certificate, private_key too"),
        ("- a list", "expected settings by name"),
        ("{", "node.yaml"),
        ("storage: {sync: sometimes}", "storage.sync"),
    ],
)
def test_settings_that_cannot_be_used_are_explained(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_settings(path)
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    answer = subprocess.run(
        [*COMMAND, "-c", str(tmp_path / "none.yaml")], capture_output=True, text=True, env=environment(), timeout=30
    )
    assert (answer.returncode, "none.yaml" in answer.stderr) == (2, True)


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMNODE_STORAGE__SYNC", "thread")
    monkeypatch.setenv("QMNODE_DATA", "/elsewhere")
    path = tmp_path / "node.yaml"
    path.write_text("data: /here\nstorage: {sync: inline, identifier_block: 77}\n")
    settings = read_settings(path)
    assert (settings.storage.sync, settings.storage.identifier_block, str(settings.data)) == (
        "thread",
        77,
        "/elsewhere",
    )


def test_the_default_quota_is_a_gibibyte_not_a_mebibyte() -> None:
    assert NodeSettings().quotas.queue_manager_quota * 1024 == 1 << 30
