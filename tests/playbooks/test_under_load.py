"""A stream of transactional messages over three sites, while every node is upgraded, every key rotated, and links cut.

None lost, none twice, all in order; the longest pause of the sender is reported. All of it is soak: the demo kills the
gate and rotates keys under a smaller stream, and test_operations upgrades under one.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.lab.enterprise import PROJECT, LabEnterprise
from tests.lab.traffic import Report, Stream
from tests.lab.waiting import eventually, until
from tests.playbooks.conftest import rolled_out

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.servers, pytest.mark.soak, pytest.mark.timeout(1800)]
SENDER, GATE, RECEIVER = "ams-router", "bre-router", "cor-router"
QUEUE = "stream"
PATIENCE = 600.0
ALL, RATE = 1_200_000, 2_000.0
"""Messages, and how many of them a second."""
CUT = 150.0
"""Seconds for which sites are cut from each other: long enough for a node to know it."""


@pytest.fixture(scope="module")
def three() -> Iterator[LabEnterprise]:
    """A routing server in each of three sites, and a queue in the third."""
    with rolled_out(
        (SENDER, GATE, RECEIVER), [{"machine": RECEIVER, "name": QUEUE, "transactional": True}]
    ) as enterprise:
        yield enterprise


def stream_of(enterprise: LabEnterprise, count: int, rate: float, **more: Any) -> Stream:
    (listed,) = json.loads(enterprise.command("queue", "list", "--json").stdout)
    return Stream(
        lambda: enterprise.socket(SENDER),
        lambda: enterprise.socket(RECEIVER),
        f"PUBLIC={listed['identifier']}",
        f"{RECEIVER}\\{QUEUE}",
        count=count,
        rate=rate,
        **more,
    )


def another_release(folder: Path) -> Path:
    """The project's sources as the next version."""
    for name in ("pyproject.toml", "requirements.lock", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, folder / name)
    for package in ("qmnode", "mqenterprise"):
        shutil.copytree(PROJECT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    project = (folder / "pyproject.toml").read_text("utf-8")
    (folder / "pyproject.toml").write_text(re.sub(r'(?m)^version = "[^"]*"', 'version = "99.0.0"', project), "utf-8")
    return folder


def assert_perfect(report: Report, capsys: pytest.CaptureFixture[str], what: str) -> None:
    with capsys.disabled():
        reached = f"{report.received} messages in {report.duration:.0f} s, {report.rate:,.0f} a second"
        print(f"\n{what}: {reached}, longest pause of the sender {report.longest_send_pause:.1f} s")
    assert report.mistakes == []
    assert report.received == report.expected


async def test_every_node_is_upgraded(three: LabEnterprise, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = another_release(tmp_path)
    stream = stream_of(three, ALL, RATE, pause=0.02)
    await stream.start()
    upgraded = await asyncio.to_thread(three.play, "upgrade", queue_manager_source=str(source))
    report = await stream.finish(PATIENCE)
    assert upgraded.ok().changed > 0
    assert_perfect(report, capsys, "while every node was upgraded")
    assert all("99.0.0" in release(three, host) for host in (SENDER, GATE, RECEIVER))
    assert three.play("upgrade", queue_manager_source=str(source)).ok().changed == 0


async def test_every_key_is_rotated(three: LabEnterprise, capsys: pytest.CaptureFixture[str]) -> None:
    """The messages are encrypted. The demo rotates keys under a smaller stream, and test_rollout does so twice."""
    before = {host: three.published_keys(host) for host in (SENDER, GATE, RECEIVER)}
    stream = stream_of(three, ALL, RATE, encrypted=True)
    await stream.start()
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    rotated = await asyncio.to_thread(three.play, "rotate_keys", rotation_begun=begun)
    report = await stream.finish(PATIENCE)
    assert rotated.ok().changed == len(before)
    assert_perfect(report, capsys, "while every key was rotated")
    assert all(three.published_keys(host) != keys for host, keys in before.items())
    assert three.play("rotate_keys", rotation_begun=begun).ok().changed == 0


def release(enterprise: LabEnterprise, host: str) -> str:
    """Which release a host runs."""
    return str(enterprise.hosts.path(host, "/opt/qmnode/current").readlink())


async def test_partition(three: LabEnterprise, capsys: pytest.CaptureFixture[str]) -> None:
    """Sites cut from each other and the directory, links that flap, the gate killed: messages wait, then arrive.

    The sender's management API says the truth all along: connected, cut, and connected again.
    """
    if not three.is_real:
        pytest.skip("plain processes on loopback addresses cannot be cut from each other")
    network = three.lab.network
    stream = stream_of(three, 6_000, 6_000 / (CUT + 15))
    await stream.start()
    await eventually(lambda: stream.report.received >= 300, "three hundred messages have come")
    assert (await outgoing(three, stream))["state"] == "connected"
    assert (await history(three, stream))[-1]["status"] == "established"
    assert three.hosts.addresses[GATE] in await connected(three)

    network.cut("Amsterdam", "Bremen")
    for site in ("Amsterdam", "Bremen"):
        network.cut(site, network.service)
    cut = datetime.now(UTC)
    await says_that_it_is_cut(three, stream, cut)
    for site in ("Amsterdam", "Bremen"):
        network.mend(site, network.service)
    network.mend("Amsterdam", "Bremen")
    for _ in range(15):
        network.cut("Bremen", "Córdoba")
        await asyncio.sleep(0.5)
        network.mend("Bremen", "Córdoba")
        await asyncio.sleep(0.5)
    await asyncio.to_thread(three.hosts.kill_node, GATE)
    report = await stream.finish(PATIENCE)
    assert_perfect(report, capsys, "while sites were cut from each other")
    attempts = await history(three, stream)
    assert attempts[-1]["status"] == "established"
    assert datetime.fromisoformat(attempts[-1]["time"]) > cut

    async def is_empty() -> bool:
        return not (await outgoing(three, stream))["message_count"]

    # Acknowledgments come after what they acknowledge.
    await until(is_empty, "nothing waits at the sender", PATIENCE, 0.2)


async def says_that_it_is_cut(enterprise: LabEnterprise, stream: Stream, cut: datetime) -> None:
    """Until it is mended, look at the sender: what is sent waits, and the reason is told once it can be known."""
    loop = asyncio.get_running_loop()
    until = loop.time() + CUT
    arrived, waited = stream.report.received, 0
    noticed = False
    while loop.time() < until:
        await asyncio.sleep(1)
        queue, attempts, others = (
            await outgoing(enterprise, stream),
            await history(enterprise, stream),
            await connected(enterprise),
        )
        assert queue["message_count"] >= waited, "nothing leaves"
        waited = queue["message_count"]
        noticed = noticed or queue["state"] != "connected"
        if noticed:
            assert queue["state"] in ("waiting", "inactive", "need validation", "disconnected"), queue["state"]
            assert enterprise.hosts.addresses[GATE] not in others
            later = [each for each in attempts if datetime.fromisoformat(each["time"]) > cut]
            assert all(each["status"] != "established" for each in later), attempts
    assert waited > 0, "what was sent meanwhile waits"
    assert stream.report.received >= arrived
    assert noticed, "a session over a link that is cut is not for ever"


async def outgoing(enterprise: LabEnterprise, stream: Stream) -> dict[str, Any]:
    """The sender's queue of what is for the receiver, as its management API shows it."""
    listed = (await told(enterprise, "/v1/outgoing-queues"))["queues"]
    (queue,) = (each for each in listed if each["pathname"] == stream.format_name)
    return dict(queue)


async def history(enterprise: LabEnterprise, stream: Stream) -> list[dict[str, Any]]:
    """How that queue got on with its next hops."""
    name = quote(stream.format_name, safe="")
    return list((await told(enterprise, f"/v1/outgoing-queues/{name}/connection-history"))["attempts"])


async def connected(enterprise: LabEnterprise) -> list[str]:
    """Addresses of the nodes to which the sender has a session of its own; one of theirs may be given up later."""
    listed = (await told(enterprise, "/v1/connections"))["connections"]
    return [each["address"].rpartition(":")[0] for each in listed if each["state"] == "open" and not each["incoming"]]


async def told(enterprise: LabEnterprise, resource: str) -> dict[str, Any]:
    """What the sender's management API says."""
    path = enterprise.hosts.path(SENDER, "/run/qmnode/management.sock")
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(f"GET {resource} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found
