"""A real Prometheus scrapes real nodes between which messages go: what the dashboard asks for is there."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import yaml

from qmnode import Access, Message
from qmnode.management.metrics import exposition
from qmnode.management.request_context import Context
from qmnode.management.server import ManagementServer
from qmnode.settings.node import ManagementSettings
from tests.lab.waiting import eventually
from tests.management.conftest import READER, write_certificate, write_tokens
from tests.playbooks.test_monitoring import FILES
from tests.transport.conftest import PLAIN, loopback_address
from tests.transport.test_directory import Enterprise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.servers

DASHBOARD = json.loads((FILES / "msmq-dashboard.json").read_text("utf-8"))
QUERIES = {
    f"{panel['title']}, {target['refId']}": target["expr"].replace("$node", ".*")
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
}
COUNTED: dict[str, list[float]] = {
    "sum(qmnode_queue_received_messages_total)": [50.0],
    'sum(qmnode_queue_rejected_messages_total{reason="bad_dst_q"})': [50.0],
    "sum(qmnode_queue_expired_messages_total) by (kind) > 0": [1.0, 1.0],
    "sum(qmnode_acknowledgment_duration_seconds_count)": [100.0],
    'histogram_quantile(0.95, rate(qmnode_queue_wait_duration_seconds_bucket{kind="private"}[5m])) > 60': [],
}
"""What Prometheus is to find after one round of traffic, as soon as it has seen all of it."""
LIMIT = 120.0


def program(name: str) -> Path:
    """Beside this Python, where ``make`` puts it, or the machine's."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} (Debian's prometheus) is not here: .ci/promtool fetches it")
    return Path(found)


class Monitored:
    """Two nodes of an enterprise with their management APIs, and Prometheus."""

    def __init__(self, folder: Path) -> None:
        self.enterprise = Enterprise(folder)
        self.folder = folder
        self.address = loopback_address()
        self.client = httpx.AsyncClient(base_url=f"http://{self.address}:9090")

    async def serve(self, name: str) -> ManagementServer:
        folder = self.folder / f"api-{name}"
        folder.mkdir()
        certificate, key = write_certificate(folder)
        settings = ManagementSettings(
            socket=folder / "api.sock",
            listen="127.0.0.1:0",
            tokens=write_tokens(folder),
            certificate=certificate,
            private_key=key,
        )
        node = await self.enterprise.start(name)
        server = ManagementServer(node, settings, lambda: True, node.network, node.network.keys)
        await server.start()
        return server

    def configure(self, servers: dict[str, ManagementServer]) -> Path:
        (self.folder / "token").write_text(READER)
        jobs = []
        for name, server in servers.items():
            assert server.address is not None
            target = {"targets": [f"127.0.0.1:{server.address[1]}"], "labels": {"job": "qmnode"}}
            authority = self.folder / f"api-{name}" / "certificate.pem"
            jobs.append(
                {
                    "job_name": name,
                    "scheme": "https",
                    "authorization": {"credentials_file": str(self.folder / "token")},
                    "tls_config": {"ca_file": str(authority)},
                    "static_configs": [target],
                }
            )
        configuration = self.folder / "prometheus.yml"
        configuration.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
        return configuration

    async def ask(self, query: str) -> list[float]:
        """The values of a query's answer that are numbers."""
        answer = (await self.client.get("/api/v1/query", params={"query": query})).json()
        assert answer["status"] == "success", answer
        found = [float(one["value"][1]) for one in answer["data"]["result"]]
        return [value for value in found if not math.isnan(value)]

    async def is_ready(self) -> bool:
        try:
            return (await self.client.get("/-/ready")).status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture
async def monitored(tmp_path: Path) -> AsyncIterator[Monitored]:
    prometheus = program("prometheus")
    monitored = Monitored(tmp_path)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(monitored.client.aclose)
        servers = {}
        for name in monitored.enterprise.addresses:
            servers[name] = await monitored.serve(name)
            stack.push_async_callback(monitored.enterprise.nodes[name].close)
            stack.push_async_callback(servers[name].stop)
        log = stack.enter_context((tmp_path / "prometheus.log").open("w"))
        process = subprocess.Popen(
            [
                prometheus,
                f"--config.file={monitored.configure(servers)}",
                f"--storage.tsdb.path={tmp_path / 'series'}",
                f"--web.listen-address={monitored.address}:9090",
            ],
            stderr=log,
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        async with asyncio.timeout(60):
            while not await monitored.is_ready():
                assert process.poll() is None, (tmp_path / "prometheus.log").read_text()
                await asyncio.sleep(0.05)
        yield monitored


async def make_traffic(monitored: Monitored) -> None:
    """Messages that arrive, are received, refused, late and on their way."""
    alice, bob = (monitored.enterprise.nodes[name] for name in ("ALICE", "BOB"))
    address = monitored.enterprise.addresses["BOB"]
    for queue in ("none", "plain"):
        out = await alice.open_queue(rf"DIRECT=TCP:{address}\private$\{queue}", Access.SEND)
        await out.send_many([Message(b"x" * 500, recoverable=True)] * 50)
    async with await bob.open_queue(f"DIRECT=OS:{PLAIN}") as queue:
        for _ in range(50):
            await queue.receive(timeout=LIMIT)
    async with await bob.open_queue(f"DIRECT=OS:{PLAIN}", Access.SEND) as queue:
        await queue.send(Message(b"late", time_to_be_received=1))
    nobody = await alice.open_queue(rf"DIRECT=TCP:{loopback_address()}\private$\away", Access.SEND)
    await nobody.send_many([Message(b"waits"), Message(b"dies", time_to_reach_queue=1)])


async def expect(monitored: Monitored, rounds: int, queries: dict[str, str]) -> None:
    """Wait until Prometheus has counted so many rounds of traffic, and finds something for each of the queries."""
    counted = {query: [rounds * value for value in values] for query, values in COUNTED.items()}
    missing, counts = dict(queries), dict[str, list[float]]()
    deadline = asyncio.get_running_loop().time() + LIMIT
    while missing or counts != counted:
        assert asyncio.get_running_loop().time() < deadline, (missing, counts)
        await asyncio.sleep(0.25)
        missing = {title: query for title, query in missing.items() if not await monitored.ask(query)}
        counts = {query: await monitored.ask(query) for query in counted}


async def test_every_query_of_the_dashboard_returns_data_and_counters_are_right(monitored: Monitored) -> None:
    bob = monitored.enterprise.nodes["BOB"]
    await bob.create_queue(PLAIN)
    (monitored.folder / "BOB" / "keys").write_bytes(b"broken")
    await bob.network.keys.read()
    assert bob.troubles
    # Rates are differences. Between the rounds lies a scrape, however slow the machine is.
    await make_traffic(monitored)
    await expect(monitored, 1, {})
    await make_traffic(monitored)
    await expect(monitored, 2, QUERIES)


async def test_promtool_finds_no_fault_with_the_metrics(tmp_path: Path) -> None:
    enterprise = Enterprise(tmp_path)
    node = await enterprise.start("ALICE")
    try:
        nobody = await node.open_queue(rf"DIRECT=TCP:{loopback_address()}\private$\away", Access.SEND)
        await nobody.send(Message(b"dies", time_to_reach_queue=1))
        await eventually(lambda: not any(queue.message_count for queue in node.queue_collection.values()))
        text = await exposition(Context(node, ManagementSettings(), key_reader=node.network.keys))
    finally:
        await node.close()
    assert b'reason="reach_queue_timeout"' in text
    done = subprocess.run([program("promtool"), "check", "metrics"], input=text, capture_output=True, timeout=240)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
