"""A node's queue manager behind its socket, and connections to it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import qmnode
from qmnode.local.remote import RemoteQueueManager
from qmnode.local.server import LocalServer
from qmnode.settings.node import LocalSettings

NAME = r".\private$\orders"
FORMAT = rf"DIRECT=OS:{NAME}"


@dataclass
class Service:
    manager: qmnode.QueueManager
    server: LocalServer
    socket: Path


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        server = LocalServer(manager, LocalSettings(socket=tmp_path / "node.sock", connections=20, handles=50))
        await server.start()
        yield Service(manager, server, tmp_path / "node.sock")
        await server.stop()


@pytest.fixture
async def remote(service: Service) -> AsyncIterator[RemoteQueueManager]:
    async with qmnode.connect(service.socket) as manager:
        yield manager
