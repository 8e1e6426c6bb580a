"""``qmnode run`` as a process: it starts, answers, reloads, and stops when it is told."""

import asyncio
import faulthandler
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import structlog

import qmnode
from qmnode.commands import foreground
from qmnode.local.remote import RemoteQueueManager
from qmnode.settings.node import ConfigurationError, NodeSettings, read_settings
from tests.lab.nodes import COMMAND, NodeProcess, answers, running_node
from tests.lab.waiting import until

pytestmark = pytest.mark.servers
NAME = r".\private$\orders"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path) as node:
        yield node


async def send(daemon: NodeProcess, body: bytes) -> None:
    async with qmnode.connect(daemon.socket) as qm:
        queue = await qm.open_queue(f"DIRECT=OS:{NAME}", qmnode.Access.SEND)
        await queue.send(qmnode.Message(body, recoverable=True))


async def create_and_send(daemon: NodeProcess, body: bytes) -> None:
    async with qmnode.connect(daemon.socket) as qm:
        await qm.create_queue(NAME)
    await send(daemon, body)


def test_sigterm_stops_it_and_leaves_no_socket(daemon: NodeProcess) -> None:
    asyncio.run(create_and_send(daemon, b"kept"))
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(timeout=300) == 0
    assert not daemon.socket.exists()


async def test_sigterm_ends_waiting_reads_too(daemon: NodeProcess) -> None:
    async with qmnode.connect(daemon.socket, reconnect=0) as qm:
        await qm.create_queue(NAME)
        queue = await qm.open_queue(f"DIRECT=OS:{NAME}")
        waiting = asyncio.create_task(queue.receive())
        assert await qm.queues()
        daemon.process.send_signal(signal.SIGTERM)
        with pytest.raises(qmnode.MessageQueuingError, match="closed"):
            await asyncio.wait_for(waiting, 60)
    assert await asyncio.to_thread(daemon.process.wait, 60) == 0


async def test_who_holds_up_a_stop_is_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreground, "_SLOW_STOP", 0.1)
    never = asyncio.Event()

    async def waits_for_ever() -> None:
        await never.wait()

    held = asyncio.create_task(waits_for_ever(), name="a task that does not end")
    with structlog.testing.capture_logs() as lines:
        foreground._tell_what_holds_up_the_stop()
        await asyncio.sleep(0.3)
    faulthandler.cancel_dump_traceback_later()
    held.cancel()
    (line,) = lines
    assert line["event"] == "stopping takes long"
    assert any(one.startswith("a task that does not end: Event.wait, locks.py:") for one in line["awaited"])


def test_a_second_node_on_the_same_store_is_refused(daemon: NodeProcess) -> None:
    daemon.configure(local={"socket": str(daemon.folder / "other.sock")})
    answer = daemon.command("run", "-c", daemon.config)
    assert answer.returncode == 1
    assert "MQ_ERROR_MESSAGE_STORAGE_FAILED" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.public_report("monero-project/monero#6147", "Mithril-mine/libmdbx#144")
def test_files_of_the_store_never_take_the_numbers_of_closed_streams(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    text = f"{shlex.join(COMMAND)} run --config {node.config}"
    process = subprocess.Popen(["bash", "-c", f"exec {text} 0<&- 1>&- 2>&-"], env=node.environment)
    try:
        asyncio.run(answers(node.socket, process, lambda: "nothing can be heard"))
        files = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)]  # noqa: PTH115
        assert files == [os.devnull] * 3
        asyncio.run(create_and_send(node, b"kept"))
    finally:
        process.terminate()
        assert process.wait(timeout=300) == 0


def test_sighup_takes_over_new_quotas(daemon: NodeProcess) -> None:
    daemon.configure(quotas={"queue_manager_quota": 1})
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for("reloaded")
    with pytest.raises(qmnode.MessageQueuingError, match="1 KB, would be passed"):
        asyncio.run(create_and_send(daemon, bytes(2000)))


async def test_sighup_begins_and_ends_probes(daemon: NodeProcess) -> None:
    async with qmnode.connect(daemon.socket) as qm:
        for probes in ({"orders": {"queue": rf"DIRECT=OS:{NAME}"}}, {}):
            daemon.configure(probes=probes)
            daemon.process.send_signal(signal.SIGHUP)
            await until(partial(_has_probes, qm, [*probes]), "its probes")


async def _has_probes(qm: RemoteQueueManager, names: list[str]) -> bool:
    return [one["name"] for one in (await qm.status()).probes] == names


def test_sighup_with_a_broken_configuration_changes_nothing(daemon: NodeProcess) -> None:
    (daemon.folder / "node.yaml").write_text("quotas: {queue_manager_quota: many}")
    daemon.process.send_signal(signal.SIGHUP)
    assert "queue_manager_quota" in str(daemon.wait_for("the configuration was not reloaded")["reason"])
    asyncio.run(create_and_send(daemon, bytes(2000)))


def test_a_killed_node_comes_back_with_what_it_acknowledged(daemon: NodeProcess) -> None:
    asyncio.run(create_and_send(daemon, b"kept"))
    daemon.kill()

    async def receive() -> bytes:
        async with qmnode.connect(daemon.socket) as qm, await qm.open_queue(f"DIRECT=OS:{NAME}") as queue:
            return (await queue.receive(timeout=60)).body

    daemon.start()
    assert asyncio.run(receive()) == b"kept"


def test_systemd_is_told_when_the_node_is_ready(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.settimeout(120)
        node = NodeProcess(tmp_path, environment={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        node.launch()
        try:
            assert notify.recv(100).splitlines()[0] == b"READY=1"
            node.send_signal(signal.SIGTERM)
            assert notify.recv(100) == b"STOPPING=1"
            assert node.process.wait(240) == 0
        finally:
            node.kill()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no_such: 1", "node.yaml:1: no_such: no such setting\n"),
        ("data_directory: here", "node.yaml:1: data_directory: no such setting (did you mean data?)\n"),
        ("log_level: debug", "log_level: no such setting (did you mean log.level?)\n"),
        ("level: debug", "level: no such setting (did you mean log.level?)\n"),
        ("name: ALPHA", "name: no such setting (did you mean computer_name or directory.name?)\n"),
        (
            "transport: {socket: here}",
            "transport.socket: no such setting (did you mean local.socket or management.socket?)\n",
        ),
        ("transport: {adress: 127.0.0.1}", "transport.adress: no such setting (did you mean address?)\n"),
        ("transport: {messages_per_second: 9}", "transport.messages_per_second: no setting any more: remove it"),
        ("enabled: true", "enabled: no such setting\n"),  # in too many sections
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
    assert expected in f"{caught.value}\n"
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    answer = NodeProcess(tmp_path).command("run", "-c", tmp_path / "none.yaml")
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
