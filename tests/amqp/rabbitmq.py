"""RabbitMQ of Debian's package with its AMQP 1.0 plugin and shovels, on loopback and in a folder of its own."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.amqp.foreign import Broker
from tests.lab.addresses import free_port
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_PLUGINS: Final = "[rabbitmq_amqp1_0, rabbitmq_shovel]."
# RabbitMQ's digest of the password "guest": a salt, and SHA-256 of the salt and the password. It makes no such user
# itself when definitions are loaded.
_GUEST: Final = {
    "name": "guest",
    "password_hash": "AAAAAPEoQ8a3jY6DABRiJzkoKooQbXiBp2iGLke7d+FVKzJx",
    "hashing_algorithm": "rabbit_password_hashing_sha256",
    "tags": ["administrator"],
}


def queue_address(name: str) -> str:
    """The address of a queue that exists, for clients of AMQP 1.0."""
    return f"/amq/queue/{name}"


def shovel_in(url: str, source: str, queue: str) -> dict[str, Any]:
    """A shovel from an address of an AMQP 1.0 peer to a queue of RabbitMQ, which keeps the messages on disk.

    The shovel forwards bodies alone: without ``delivery_mode``, RabbitMQ would lose durable messages when it is killed.
    """
    source_side = {"src-protocol": "amqp10", "src-uri": _anonymous(url), "src-address": source}
    return (
        source_side
        | {
            "dest-protocol": "amqp091",
            "dest-uri": "amqp://",
            "dest-queue": queue,
            "dest-publish-properties": {"delivery_mode": 2},
        }
        | _SHOVEL
    )


def shovel_out(url: str, queue: str, target: str) -> dict[str, Any]:
    """A shovel from a queue of RabbitMQ to an address of an AMQP 1.0 peer."""
    target_side = {"dest-protocol": "amqp10", "dest-uri": _anonymous(url), "dest-address": target}
    return target_side | {"src-protocol": "amqp091", "src-uri": "amqp://", "src-queue": queue} | _SHOVEL


_SHOVEL: Final = {"ack-mode": "on-confirm", "reconnect-delay": 1, "src-prefetch-count": 100}


def _anonymous(url: str) -> str:
    return f"{url}?hostname=localhost&sasl=anon"


@asynccontextmanager
async def rabbitmq(
    path: Path, *queues: str, shovels: Mapping[str, dict[str, Any]] | None = None
) -> AsyncIterator[Broker]:
    """RabbitMQ with these durable queues and shovels. Clients of AMQP 1.0 log in as ANONYMOUS."""
    assert _SERVER.exists(), "rabbitmq-server is not installed: run .ci/packages as root, which `make test` does"
    port, names, distribution = free_port(), free_port(), free_port()
    definitions = {
        "users": [_GUEST],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        "queues": [
            {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}} for name in queues
        ],
        "parameters": [
            {"component": "shovel", "name": name, "vhost": "/", "value": value}
            for name, value in (shovels or {}).items()
        ],
    }
    (path / "definitions.json").write_text(json.dumps(definitions))
    (path / "plugins").write_text(_PLUGINS)
    (path / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\n"
        "amqp1_0.default_user = guest\n"
        "disk_free_limit.absolute = 1MB\n"
        f"load_definitions = {path}/definitions.json\n"
    )
    environment = {
        "HOME": str(path),
        "RABBITMQ_NODENAME": f"node{port}@localhost",
        "RABBITMQ_MNESIA_BASE": str(path / "store"),
        "RABBITMQ_LOG_BASE": str(path / "logs"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(path / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(path / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(path / "none"),
        "RABBITMQ_PID_FILE": str(path / "pid"),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    # Erlang's name server. RabbitMQ would start one that outlives it.
    command = shutil.which("epmd")
    assert command is not None, "Erlang has no epmd"
    name_server = await asyncio.create_subprocess_exec(command, "-port", str(names), "-address", "127.0.0.1")
    broker = Broker([str(_SERVER)], port, path, environment)
    try:
        await holds(lambda: _listens(names), 60, "epmd listens")
        await broker.start()
        yield broker
    finally:
        await broker.kill()
        name_server.kill()
        await name_server.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
