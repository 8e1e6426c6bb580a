"""The door of a node that runs as a service: what status and metrics show, and a node without the extra."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml

from qmnode.console.view import Seen
from qmnode.management.metrics import exposition
from qmnode.management.request_context import Context
from qmnode.settings.node import ManagementSettings
from tests.amqp.bridging import QUICK
from tests.amqp.conftest import SECRET, amqp_message, connected, in_thread, open_door, tokens_file
from tests.lab.nodes import launch_heard
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.amqp.conftest import Door

MAIN = "from qmnode.cli import main; main()"
WITHOUT = "import sys; sys.modules['proton'] = None; from qmnode.cli import main; main()"


async def node(path: Path, code: str, **more: Any) -> asyncio.subprocess.Process:
    settings = {
        "data": str(path / "data"),
        "local": {"socket": str(path / "node.sock")},
        "management": {"socket": None},
        "transport": {"enabled": False},
        "amqp": {"enabled": True, "address": "127.0.0.1", "port": 0, "tokens": str(tokens_file(path / "tokens.yaml"))},
        **more,
    }
    (path / "node.yaml").write_text(yaml.safe_dump(settings))
    environment = os.environ | {"NO_COLOR": "1"}
    return await launch_heard(path / "node.yaml", environment, [sys.executable, "-c", code])


async def command(path: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MAIN, *arguments, "--socket", str(path / "node.sock"),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return out.decode()


@pytest.mark.servers
async def test_a_node_opens_its_door_and_says_so(tmp_path: Path) -> None:
    process = await node(tmp_path, MAIN)
    try:
        status: dict[str, Any] = {}

        async def is_open() -> bool:
            assert process.returncode is None
            if (tmp_path / "node.sock").exists():
                status.update(json.loads(await command(tmp_path, "status", "--json", "--wait", "20")))
            return bool(status.get("amqp_port"))

        await holds(is_open, 60, "the door is open")
        await command(tmp_path, "queue", "create", "orders")

        def work() -> None:
            options = {"allowed_mechs": "PLAIN", "user": "ops", "password": SECRET, "allow_insecure_mechs": True}
            with connected(f"amqp://127.0.0.1:{status['amqp_port']}", **options) as client:
                client.create_sender("orders").send(amqp_message(b"over AMQP"))

        await in_thread(work)
        assert "over AMQP" in await command(tmp_path, "receive", "orders")
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


@pytest.mark.servers
async def test_a_bridge_that_is_cut_is_shown_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "peer").mkdir()
    async with open_door(tmp_path / "peer", anonymous=True) as peer:
        bridge = {"direction": "out", "queue": "orders", "peer": peer.url, "address": "orders", **QUICK}
        process = await node(tmp_path, MAIN, bridges={"outward": bridge})
        status: dict[str, Any] = {}

        async def is_connected() -> bool:
            assert process.returncode is None
            if (tmp_path / "node.sock").exists():
                status.update(json.loads(await command(tmp_path, "status", "--json", "--wait", "20")))
            return any(one["connected"] for one in status.get("bridges", ()))

        async def is_down_for_a_reason() -> bool:
            """The reason may change from one look to the next: first the peer closes, then it refuses."""
            if await is_connected() or not (reason := status["bridges"][0]["reason"]):
                return False
            return f"outward to orders: down ({reason})" in await command(tmp_path, "status")

        try:
            await holds(lambda: _exists(tmp_path / "node.sock"), 60, "the node runs")
            await command(tmp_path, "status", "--wait", "20")
            await command(tmp_path, "queue", "create", "orders")
            await holds(is_connected, 60, "the bridge is connected")
            assert "outward to orders: connected" in await command(tmp_path, "status")
            shown = _in_console(status)
            (listed,) = shown["bridges"]
            assert (shown["state"], listed["name"], listed["connected"]) == ("up", "outward", True)

            await peer.door.stop()

            await holds(is_down_for_a_reason, 60, "the bridge is down, and the text says why")
            (reason,) = (one["reason"] for one in status["bridges"])
            shown = _in_console(status)
            assert (shown["state"], shown["bridges"][0]["reason"]) == ("trouble", reason)
            assert any(one.startswith(f"bridge outward: {reason}") for one in shown["warnings"])
        finally:
            process.kill()
            await process.communicate()


async def _exists(path: Path) -> bool:
    return path.exists()


def _in_console(status: dict[str, Any]) -> dict[str, Any]:
    """The node in the overview of the console, which has the same document as ``status --json``."""
    machine = SimpleNamespace(name="HERE", site="here", gate=False, routing_server=False)
    return Seen(cast("Any", machine), cast("Any", None), document=status, as_of=time.time()).state()


@pytest.mark.servers
async def test_a_node_without_the_extra_says_what_to_install(tmp_path: Path) -> None:
    process = await node(tmp_path, WITHOUT)
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode != 0
    assert "pip install 'qmnode[amqp]'" in output.decode()


async def test_status_and_metrics_count_what_goes_through_the_door(door: Door) -> None:
    found: dict[str, Any] = {}
    loop = asyncio.get_running_loop()

    def work() -> None:
        with connected(door.url) as client:
            client.create_sender("orders").send(amqp_message(b"1"))
            receiver = client.create_receiver("orders", credit=1)
            receiver.receive(timeout=60)
            receiver.release(delivered=False)
            receiver.link.flow(1)
            receiver.receive(timeout=60)
            receiver.accept()
            receiver.close()
            found["status"] = asyncio.run_coroutine_threadsafe(door.manager.status(), loop).result()

    await in_thread(work)
    status = found["status"]
    assert (status.amqp_port, status.amqp_connections, status.amqp_links) == (door.door.port, 1, 1)
    metrics = (await exposition(Context(door.manager, ManagementSettings()))).decode()
    for outcome, count in (("accepted", 1), ("rejected", 0), ("delivered", 2), ("taken", 1)):
        assert f'qmnode_amqp_messages_total{{outcome="{outcome}"}} {count}.0' in metrics
    await door.door.stop()
    assert (await door.manager.status()).amqp_port == 0
