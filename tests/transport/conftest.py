"""Two queue managers on loopback addresses of their own, in this process."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from qmnode import QueueManager
from qmnode.settings.node import Settings, TransportSettings
from qmnode.settings.protocol import TransferSettings

PLAIN = r".\private$\plain"
TRANSACTIONAL = r".\private$\tx"
DEADLINE = 60.0


def loopback_address() -> str:
    """An address of this machine that no other test has: the port is the same for all."""
    octets = random.SystemRandom()
    return f"127.{octets.randrange(1, 255)}.{octets.randrange(1, 255)}.{octets.randrange(2, 255)}"


def settings_of(name: str, address: str, **transport: object) -> Settings:
    return Settings(
        computer_name=name,
        transport=TransportSettings(address=address, **transport),  # type: ignore[arg-type]
        transfer=TransferSettings(retry_interval=0.1, retry_maximum=0.2),
    )


class Pair:
    """ALICE and BOB, and how to start them again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.addresses = {"ALICE": loopback_address(), "BOB": loopback_address()}
        self.nodes: dict[str, QueueManager] = {}

    async def start(self, name: str, **transport: object) -> QueueManager:
        node = await QueueManager.open(self.folder / name, settings_of(name, self.addresses[name], **transport))
        self.nodes[name] = node
        await node.network.start()
        return node

    async def stop(self, name: str) -> None:
        await self.nodes.pop(name).close()

    def direct(self, name: str, queue: str) -> str:
        return rf"DIRECT=TCP:{self.addresses[name]}\{queue.removeprefix('.' + chr(92))}"

    @property
    def alice(self) -> QueueManager:
        return self.nodes["ALICE"]

    @property
    def bob(self) -> QueueManager:
        return self.nodes["BOB"]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path)
    async with AsyncExitStack() as stack:
        for name in pair.addresses:
            node = await pair.start(name)
            await node.create_queue(PLAIN)
            await node.create_queue(TRANSACTIONAL, transactional=True)
            await node.create_queue(r".\private$\admin")

        async def stop_all() -> None:
            for name in list(pair.nodes):
                await pair.stop(name)

        stack.push_async_callback(stop_all)
        yield pair
