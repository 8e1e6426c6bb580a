"""A node that several hosts can run: its lease, its tokens, and what it says of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import signal
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import qmnode
from qmnode.commands.foreground import check_host
from qmnode.lease import LOST, boot_identifier, boot_time
from qmnode.node import QueueManager
from qmnode.settings.node import ConfigurationError, StorageSettings, read_settings
from qmnode.storage import origin
from qmnode.storage.store import Store
from qmnode.storage.takeovers import KEPT, note_in_ledger, take_over, tokens, violations
from qmnode.version import program_version
from tests.lab.nodes import COMMAND, NodeError, NodeProcess
from tests.lab.waiting import wait_until
from tests.security.certificates import certificate

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = socket.gethostname().partition(".")[0]
HOSTS = [HERE, "cor-b"]
STANDBY = "cor-b unfit: /dev/shared, the device of the store, cannot be read"
NAME = r".\private$\orders"


def promise(path: Path, seconds: float, boot: str = "") -> float:
    """Let the node be active for so long, as a cluster manager does; until when."""
    until = boot_time() + seconds
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{boot or boot_identifier()} {until:.3f}\n{STANDBY}\n")
    fresh.rename(path)
    return until


@contextlib.contextmanager
def renewed(path: Path, lease: float) -> Iterator[None]:
    """The lease is renewed meanwhile."""
    ended = threading.Event()
    promise(path, lease)

    def renew() -> None:
        while not ended.wait(lease / 20):
            promise(path, lease)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def clustered(folder: Path, lease: float = 5.0) -> NodeProcess:
    """A node whose lease somebody else renews."""
    file, ledger = folder / "lease", folder / "ledger"
    settings = {"hosts": HOSTS, "lease": lease, "lease_file": str(file), "ledger": str(ledger)}
    return NodeProcess(folder, computer_name="ALPHA", failover=settings)


def test_a_stopped_node_is_killed_by_the_kernel_and_never_wakes(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, computer_name="ALPHA", failover={"hosts": HOSTS, "lease": 3})
    node.start()
    node.send_signal(signal.SIGSTOP)
    assert node.process.wait(120) == -signal.SIGKILL
    assert "run out" not in node.said()


def test_a_node_whose_lease_is_not_renewed_ends_and_says_why(tmp_path: Path) -> None:
    node = clustered(tmp_path)
    with renewed(tmp_path / "lease", 5):
        node.start()
        status = json.loads(node.command("status", "--json").stdout)
    found = status["failover"]
    assert node.process.wait(120) == LOST
    assert "was not renewed" in node.said().partition("the lease has run out")[0]
    assert (found["host"], found["hosts"], found["token"], found["before"]) == (HERE, HOSTS, 1, "")
    assert 0 < found["lease_left"] <= 5.1
    assert found["standbys"] == [STANDBY]
    assert f"failover: {STANDBY}" in status["warnings"]


HANGS = "import signal, time; signal.signal(signal.SIGUSR2, lambda *_: time.sleep(3600)); "
"""Before a program: the signal keeps the thread of its event loop from ever making a turn again."""


def test_a_node_whose_event_loop_hangs_ends_though_the_cluster_renews_its_lease(tmp_path: Path) -> None:
    node = clustered(tmp_path, 3.0)
    node._launcher = (*COMMAND[:2], HANGS + COMMAND[2])
    with renewed(tmp_path / "lease", 3.0):
        node.start()
        node.send_signal(signal.SIGUSR2)
        assert node.process.wait(120) == LOST
    assert "the event loop has made no turn for" in node.said()


def test_what_an_operators_check_of_a_standby_said_is_shown(tmp_path: Path) -> None:
    settings = {"hosts": HOSTS, "lease": 3, "standbys": str(tmp_path / "standbys")}
    node = NodeProcess(tmp_path, computer_name="ALPHA", failover=settings)
    node.start()

    def said() -> list[str]:
        status = json.loads(node.command("status", "--json").stdout)
        assert (f"failover: {STANDBY}" in status["warnings"]) == bool(status["failover"]["standbys"])
        return list(status["failover"]["standbys"])

    try:
        assert said() == []
        (tmp_path / "standbys").write_text(f"{STANDBY}\n")
        wait_until(lambda: said() == [STANDBY], 60, "the node shows it")
    finally:
        node.stop()


def test_status_says_who_is_active_since_when(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, computer_name="ALPHA", failover={"hosts": HOSTS})
    node.start()
    node.kill()
    node.start()
    said = node.command("status").stdout
    node.stop()
    assert f"{HERE} is active since" in said
    assert f"after {HERE}, token 2; lease" in " ".join(said.split())
    assert "standby cor-b" in " ".join(said.split())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (None, "cannot be read: No such file"),
        ("", "does not say"),
        ("{boot} tomorrow", "does not say"),
        ("{boot} nan", "was not renewed"),
        ("{boot} 1.5", "was not renewed"),
        ("{boot} inf", "promises"),
        ("{boot} {late}", "promises"),
        ("another {soon}", "another boot"),
    ],
)
def test_without_a_valid_lease_it_does_not_start(tmp_path: Path, line: str | None, reason: str) -> None:
    node = clustered(tmp_path)
    if line is not None:
        soon, late = boot_time() + 4, boot_time() + 500
        (tmp_path / "lease").write_text(line.format(boot=boot_identifier(), soon=soon, late=late) + "\n")
    with pytest.raises(NodeError, match=reason):
        node.start()
    assert node.process.returncode == 1
    assert not (tmp_path / "store").exists()


def test_a_host_that_is_none_of_them_starts_nothing(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, computer_name="ALPHA", failover={"hosts": ["cor-a", "cor-b"]})
    with pytest.raises(NodeError, match="start the node on one of its hosts"):
        node.start()
    assert node.process.returncode == 2
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("failover", "reason"),
    [
        ({"hosts": ["cor-a", "COR-A.contoso.test"]}, "one host twice"),
        ({"lease_file": "/run/lease"}, "no hosts"),
        ({"hosts": ["a"], "lease_file": "lease"}, "absolute path"),
        ({"hosts": ["a"], "lease": 0.5}, "greater than or equal to 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, failover: object, reason: str) -> None:
    (tmp_path / "node.yaml").write_text(json.dumps({"failover": failover}))
    with pytest.raises(ConfigurationError, match=reason):
        read_settings(tmp_path / "node.yaml")


class Hosts:
    """Two hosts that open one store in turn."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self._monkeypatch, self._folder = path, monkeypatch, path.parent

    def on(self, host: str, path: Path | None = None) -> Store:
        """The store, opened on a host."""
        machine = self._folder / f"{host}.machine"
        machine.write_text(f"{host}\n")
        self._monkeypatch.setattr(origin, "_MACHINE_ID", machine)
        self._monkeypatch.setattr(socket, "gethostname", lambda: f"{host}.contoso.test")
        return Store.open(path or self.path, StorageSettings())


def active(store: Store, host: str) -> None:
    take_over(store, ("cor-a", "cor-b"), host=host, boot="b", process=f"{host}{random.random()}", version="1")


def test_a_store_that_moves_between_its_hosts_is_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(tmp_path / "store", monkeypatch)
    with hosts.on("cor-a") as store:
        active(store, "cor-a")
    for host in ("cor-b", "cor-a", "cor-b"):
        with hosts.on(host) as store:
            assert origin.copy_notice(store) is None
            active(store, host)
            assert [token.number for token in tokens(store)] == list(range(1, len(tokens(store)) + 1))
    with hosts.on("cor-c") as store:
        assert "it is a copy" in (origin.copy_notice(store) or "")


def test_a_store_that_was_copied_on_one_of_its_hosts_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(tmp_path / "store", monkeypatch)
    with hosts.on("cor-a") as store:
        active(store, "cor-a")
    with hosts.on("cor-a") as store:
        assert origin.copy_notice(store) is None
    shutil.copytree(tmp_path / "store", tmp_path / "other")
    with hosts.on("cor-b", tmp_path / "other") as store:
        assert "it is a copy" in (origin.copy_notice(store) or "")


def test_a_process_takes_over_once(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        for _ in range(2):
            token, before = take_over(store, ("cor-a",), host="cor-a", boot="b", process="p", version="1")
            assert (token.number, before) == (1, [])


def test_a_store_keeps_the_last_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmnode.storage.takeovers.KEPT", 3)
    with Store.open(tmp_path / "store") as store:
        for _ in range(7):
            active(store, "cor-a")
        assert [token.number for token in tokens(store)] == [4, 5, 6, 7]
    assert KEPT >= 100


def test_two_active_hosts_are_found_by_the_ledger(tmp_path: Path) -> None:
    """Each wrote the next token from what its own page cache held; the store has one of the two."""
    ledger = tmp_path / "ledger"
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        both = ("cor-a", "cor-b")
        note_in_ledger(ledger, take_over(one, both, host="cor-a", boot="b", process="p", version="1")[0])
        take_over(two, both, host="cor-b", boot="c", process="q", version="1")
        assert violations(ledger, "cor-a", tokens(one)) == []
        (sentence,) = violations(ledger, "cor-a", tokens(two))
    assert "token 1, which the store has as one of cor-b: two hosts were active at once" in sentence
    with ledger.open("a") as file:
        file.write('{"number": 2, "ho')
    assert len(violations(ledger, "cor-a", [])) == 1


def test_a_violation_is_a_trouble_of_the_node(tmp_path: Path) -> None:
    node = clustered(tmp_path, 60.0)
    with renewed(tmp_path / "lease", 60):
        (tmp_path / "ledger").write_text(
            json.dumps(
                {"number": 5, "host": HERE, "boot": "b", "process": "p", "before": "", "time": 1.0, "version": "1"}
            )
            + "\n"
        )
        node.start()
        found = json.loads(node.command("status", "--json").stdout)
        node.stop()
    (sentence,) = found["failover"]["violations"]
    assert "was active from 1970-01-01 00:00:01 UTC on with token 5, which the store does not have" in sentence
    assert f"failover: {sentence}" in found["warnings"]


@pytest.mark.soak
@pytest.mark.timed
def test_no_acknowledgment_leaves_after_the_lease(tmp_path: Path) -> None:
    """Fifty pauses that end around the moment at which the lease does."""
    seed = random.Random(51)
    rounds, late, acknowledged = 50, 0, 0
    for _ in range(rounds):
        node = clustered(tmp_path, 4.0)
        (tmp_path / "lease").unlink(missing_ok=True)
        with renewed(tmp_path / "lease", 4):
            node.start()
        until = promise(tmp_path / "lease", 4)
        times = asyncio.run(_send_while_paused(node, until, seed))
        node.process.wait(60)
        acknowledged += len(times)
        late += sum(moment > until + 0.005 for moment in times)
    print(f"{rounds} pauses, {acknowledged} acknowledged, {late} after the lease")
    assert acknowledged > rounds
    assert late == 0


async def _send_while_paused(node: NodeProcess, until: float, seed: random.Random) -> list[float]:
    times: list[float] = []
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.suppress(OSError, qmnode.MessageQueuingError):
            qm = await stack.enter_async_context(qmnode.connect(node.socket))
            with contextlib.suppress(qmnode.MessageQueuingError):
                await qm.create_queue(NAME)
            queue = await qm.open_queue(f"DIRECT=OS:{NAME}", qmnode.Access.SEND)

            async def send() -> None:
                with contextlib.suppress(OSError, qmnode.MessageQueuingError):
                    while True:
                        await queue.send(qmnode.Message(b"x", recoverable=True))
                        times.append(boot_time())

            sending = [asyncio.create_task(send()) for _ in range(4)]
            await asyncio.sleep(max(0.0, until - boot_time() - seed.uniform(1.2, 2.5)))
            node.send_signal(signal.SIGSTOP)
            await asyncio.sleep(max(0.0, until - boot_time() + seed.uniform(-0.03, 0.3)))
            node.send_signal(signal.SIGCONT)
            await asyncio.wait(sending, timeout=30)
            for task in sending:
                task.cancel()
    return times


async def test_an_embedded_queue_manager_has_none_of_it(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store") as qm:
        assert (await qm.status()).failover == {}


def check(tmp_path: Path, capsys: pytest.CaptureFixture[str], **settings: object) -> tuple[int, str]:
    """The exit code and the line of ``qmnode run --check``."""
    values = {"data": str(tmp_path), "failover": {"hosts": HOSTS}} | settings
    (tmp_path / "node.yaml").write_text(json.dumps(values))
    code = check_host(tmp_path / "node.yaml")
    return code, capsys.readouterr().out


def test_a_standby_says_that_it_is_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, line = check(tmp_path, capsys)
    assert (code, line.startswith(f"fit: qmnode {program_version()}, clock ")) == (0, True)
    assert list(tmp_path.iterdir()) == [tmp_path / "node.yaml"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"failover": {"hosts": ["cor-a", "cor-b"]}}, "one of its hosts"),
        (
            {"failover": {"hosts": HOSTS, "device": "/dev/not-there"}},
            "/dev/not-there, the device of the store, cannot be read: No such file or directory; ",
        ),
        ({"data": "/var/lib/not-there"}, "no directory /var/lib/not-there"),
        ({"tls": "ended"}, "ends on"),
        ({"tls": "none"}, "cannot be read: No such file"),
        ({"tls": "wrong"}, "is no certificate in PEM"),
    ],
)
def test_a_standby_says_why_it_is_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, object], reason: str
) -> None:
    if kind := settings.get("tls"):
        file = tmp_path / "certificate.pem"
        if kind != "none":
            file.write_bytes(certificate("cor-a", 0, "authority", hours=20) if kind == "ended" else b"text")
        tls = {"certificate": str(file), "private_key": str(file), "authorities": str(file)}
        settings = {"security": {"tls": tls}}
    code, line = check(tmp_path, capsys, **settings)
    assert (code, line.startswith("unfit: "), reason in line) == (1, True, True), line
