"""Two nodes in processes of their own, a directory with a replica that lags, and a proxy that keeps what it carried."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import yaml

import qmnode
from mqenterprise.keys.publication import Node, Shown
from qmnode.security.key_stores import FileKeyStore, KeyPurpose
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from tests.lab.nodes import PROJECT, answers, launch
from tests.lab.waiting import holds
from tests.transport.conftest import loopback_address

QUEUE = r".\private$\exchange"
_PORT = 1801
_LISTS = {
    KeyPurpose.ENCRYPTION: "public_encryption_key_list",
    KeyPurpose.SIGNING: "public_signing_keys",
}


class ReplicatedDirectory:
    """The enterprise writes one file; the nodes read another, which is brought up to date when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.main = folder / "main.yaml"
        self.replica = folder / "replica.yaml"
        self.hidden = folder / "replica.down"
        self._writing = threading.Lock()

    def write(self, sections: dict[str, Any]) -> None:
        _replace(self.main, yaml.safe_dump(sections))

    def replicate(self) -> None:
        """What was written has come to the replica, unless that is down."""
        if not self.hidden.exists():
            _replace(self.replica, self.main.read_text())

    async def take_over(self) -> None:
        """What the nodes wrote of themselves when they joined: their first keys."""

        async def have_joined() -> bool:
            return all(_LISTS[KeyPurpose.ENCRYPTION] in entry for entry in self._entries(self.replica))

        await holds(have_joined, 60, "the nodes have joined")
        shutil.copy(self.replica, self.main)

    def go_down(self) -> None:
        self.replica.rename(self.hidden)

    def come_back(self) -> None:
        self.hidden.rename(self.replica)

    # PublishedLists of mqenterprise.keys.rotation

    def read(self, node: Node) -> Shown:
        entry = self._entry(yaml.safe_load(self.main.read_text()), node)
        return Shown.of(
            {purpose: bytes.fromhex(entry[name]) if name in entry else None for purpose, name in _LISTS.items()}
        )

    def replace(self, node: Node, shown: Shown, lists: dict[KeyPurpose, bytes]) -> bool:
        with self._writing:  # the engine calls from a thread for each node
            assert self.read(node).lists == shown.lists
            sections = yaml.safe_load(self.main.read_text())
            self._entry(sections, node).update({_LISTS[purpose]: encoded.hex() for purpose, encoded in lists.items()})
            self.write(sections)
        return True

    @staticmethod
    def _entries(file: Path) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = yaml.safe_load(file.read_text())["queue_managers"]
        return entries

    @staticmethod
    def _entry(sections: dict[str, Any], node: Node) -> dict[str, Any]:
        found: dict[str, Any] = next(e for e in sections["queue_managers"] if e["computer_name"] == node.computer_name)
        return found


class RecordingProxy:
    """Stands between two nodes under an address of its own, and keeps every byte."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = loopback_address()
        self.connects_from: str | None = None
        """The address that the target sees; one of the system's choice if none."""
        self.carried = bytearray()
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._carry, self.address, _PORT)

    async def stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        far: asyncio.StreamWriter | None = None
        try:
            own = None if self.connects_from is None else (self.connects_from, 0)
            far_reader, far = await asyncio.open_connection(self.target, _PORT, local_addr=own)
            ways = [
                asyncio.ensure_future(self._copy(reader, far)),
                asyncio.ensure_future(self._copy(far_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            return  # the node behind it does not listen yet, or the test is over
        finally:
            for one in (writer, far):
                if one is not None:
                    one.close()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                self.carried += data
                target.write(data)
                await target.drain()


class NodeProcess:
    """``qmnode run``, reached by others through the proxy."""

    def __init__(self, folder: Path, directory: ReplicatedDirectory, **security: Any) -> None:
        self.folder = folder
        self.name = folder.name
        self.identifier = new_guid()
        self.address = loopback_address()
        self.proxy = RecordingProxy(self.address)
        self.socket = folder / "node.sock"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        self.settings: dict[str, Any] = {
            "computer_name": self.name,
            "data": str(folder / "store"),
            "local": {"socket": str(self.socket)},
            "management": {"socket": str(folder / "management.sock")},
            "transport": {"address": self.address},
            "transfer": {"retry_interval": 0.1, "retry_maximum": 0.3},
            "directory": {"name": "file", "settings": {"file": str(directory.replica)}, "online_check": 0.5},
            "security": security,
        }

    async def asks(self, method: str, path: str) -> str:
        """What the management API answers, with its headers."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.folder / "management.sock"))
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            answer = await client.request(method, path)
            return f"{answer.status_code} {answer.headers} {answer.text}"

    async def body(self, path: str) -> str:
        """The body of such an answer."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.folder / "management.sock"))
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return (await client.get(path)).raise_for_status().text

    @property
    def entry(self) -> dict[str, Any]:
        """What the directory says of it at first."""
        return {
            "identifier": guid_to_text(self.identifier),
            "computer_name": self.name,
            "qualified_computer_name": self.proxy.address,
        }

    @property
    def node(self) -> Node:
        return Node(self.name, self.identifier, "")

    @property
    def store(self) -> FileKeyStore:
        return FileKeyStore(self.folder / "store" / "keys")

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    async def start(self) -> None:
        (self.folder / "node.yaml").write_text(json.dumps(self.settings))
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        self.process = launch(self.folder / "node.yaml", self.folder / "log", environment)
        await answers(self.socket, self.process, lambda: self.log)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(240)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    async def create_queue(self) -> str:
        """The queue of the exchange, by its private format name."""
        async with qmnode.connect(self.socket) as qm:
            await qm.create_queue(QUEUE)
            number = (await qm.queue(QUEUE)).private_queue_number
            assert qm.identifier == self.identifier
        return f"PRIVATE={guid_to_text(Guid(self.identifier))}\\{number:08x}"


def _replace(file: Path, text: str) -> None:
    fresh = file.with_name(file.name + ".fresh")
    fresh.write_text(text)
    fresh.replace(file)
