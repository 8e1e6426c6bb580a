"""Pairs of brokers that hand messages from one to the other: RabbitMQ with a shovel, NATS JetStream with a source.

Each pair has a durable queue for the clients in Python and one for those in Go.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.amqp.foreign import Broker, installed, run
from tests.amqp.rabbitmq import rabbitmq
from tests.lab.addresses import free_port
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLIENTS: Final = Path(__file__).parent / "clients"
QUEUES: Final = ("python", "go")
"""One for the clients of each language."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two brokers: messages that are sent to the first one are received from the second."""

    name: str
    kind: str
    """How the clients name it: ``rabbitmq`` or ``nats``."""
    source: str
    target: str
    pids: tuple[int, ...]
    """They and their children spend its processor time."""


def python_client() -> list[str]:
    """The command of the client in Python; its libraries are brought once."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", "libraries"]
    place = installed("peers-python", *pip, "--requirement", "requirements.txt", sources=CLIENTS)
    return ["env", f"PYTHONPATH={place / 'libraries'}", sys.executable, str(place / "client.py")]


def go_client() -> list[str]:
    """The command of the client in Go."""
    return [str(installed("peers-go", "go", "build", "-o", "client", ".", sources=CLIENTS) / "client")]


@asynccontextmanager
async def shovelled(folder: Path) -> AsyncIterator[Pair]:
    """Two brokers of RabbitMQ with classic queues, and a shovel at the second one that acknowledges on confirm."""
    for name in ("source", "target"):
        (folder / name).mkdir(parents=True)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(rabbitmq(folder / "source", *QUEUES))
        shovels = {
            queue: {
                "src-protocol": "amqp091",
                "src-uri": f"amqp://guest:guest@127.0.0.1:{source.port}",
                "src-queue": queue,
                "src-prefetch-count": 1000,
                "dest-protocol": "amqp091",
                "dest-uri": "amqp://",
                "dest-queue": queue,
                "ack-mode": "on-confirm",
            }
            for queue in QUEUES
        }
        target = await stack.enter_async_context(rabbitmq(folder / "target", *QUEUES, shovels=shovels))
        urls = [f"amqp://guest:guest@127.0.0.1:{broker.port}" for broker in (source, target)]
        yield Pair("RabbitMQ, shovel", "rabbitmq", *urls, (source.pid, target.pid))


@asynccontextmanager
async def sourced(folder: Path) -> AsyncIterator[Pair]:
    """Two servers of NATS in domains of their own; the second one's stream takes its messages from the first one's."""
    command = shutil.which("nats-server")
    if command is None:
        raise FileNotFoundError("nats-server is not installed: run .ci/packages peers as root")
    leaves = free_port()
    halves = {
        "SOURCE": f"leafnodes {{ host: 127.0.0.1, port: {leaves} }}",
        "TARGET": f'leafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{leaves}" }}] }}',
    }
    async with AsyncExitStack() as stack:
        servers = []
        for domain, leaf in halves.items():
            place, port = folder / domain, free_port()
            place.mkdir(parents=True)
            (place / "conf").write_text(
                f"server_name: {domain}\nhost: 127.0.0.1\nport: {port}\n{leaf}\n"
                f'jetstream {{ domain: {domain}, store_dir: "{place}" }}\n'
            )
            server = Broker([command, "-c", str(place / "conf")], port, place, {})
            stack.push_async_callback(server.kill)
            await server.start()
            servers.append(server)
        urls = [f"nats://127.0.0.1:{server.port}" for server in servers]
        # A stream that is made before the leaf is connected looks for its source ten seconds later.
        log = folder / "TARGET" / "log"
        await holds(lambda: _says(log, "Leafnode connection created"), 30, "the leaf is connected")
        client = python_client()
        for queue in QUEUES:
            await run(*client, "nats", "streams", urls[0], queue, cwd=folder)
            await run(*client, "nats", "streams", urls[1], queue, "SOURCE", cwd=folder)
        yield Pair("NATS 2.9, source", "nats", *urls, tuple(server.pid for server in servers))


async def _says(log: Path, words: str) -> bool:
    return words in log.read_text()
