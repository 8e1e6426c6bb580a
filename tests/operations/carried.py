"""A queue manager to carry from, of which only RemoteRead is used, and a node to carry to."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, Final

import pytest

import mqenterprise.cli
import qmnode
from qmnode import Access, Message
from tests.lab.addresses import free_alias
from tests.lab.nodes import NodeProcess
from tests.management.conftest import digest, write_certificate
from tests.remote_read.conftest import OPEN, random_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SECRET: Final = "ann's"
LESSER: Final = "bob's"
"""The token of somebody who may not carry."""
COMMAND: Final = (sys.executable, "-c", "from mqenterprise.cli import main; main()")


class Estate:
    """``old`` and ``new``: the one is read over RemoteRead alone, the other through its management API."""

    def __init__(self, folder: Path, *, proxied: bool = False) -> None:
        """``proxied``: the management API listens at ``new_address``, and 127.0.0.1 is for a proxy before it."""
        self.folder = folder
        self.proxied = proxied
        mapper, port = random_port(), random_port()
        self.old_address, self.mapper, self.port = free_alias([mapper, port]), mapper, port
        self.new_address, self.management_port = free_alias([port], [self.old_address]), port
        (folder / "old").mkdir()
        self.old = NodeProcess(
            folder / "old",
            computer_name="OLD",
            remote_read={
                "enabled": True, "address": self.old_address, "port": port, "endpoint_mapper_port": mapper,
            },
        )  # fmt: skip
        certificate, key = write_certificate(folder)
        tokens = folder / "tokens.yaml"
        write_private(tokens, json.dumps([
            {"name": "ann", "role": "administer", "sha256": digest(SECRET)},
            {"name": "bob", "role": "operate", "sha256": digest(LESSER)},
        ]))  # fmt: skip
        write_private(folder / "my.token", SECRET)
        write_private(folder / "lesser.token", LESSER)
        self.certificate, self.key, self.tokens = certificate, key, tokens
        (folder / "new").mkdir()
        self.new = NodeProcess(folder / "new", computer_name="NEW", management=self.management)
        self.write_nodes(f"127.0.0.1:{port}")

    @property
    def management(self) -> dict[str, str]:
        """The settings of the management API of the new node."""
        return {
            "listen": f"{self.new_address if self.proxied else '127.0.0.1'}:{self.management_port}",
            "socket": str(self.folder / "new/m.sock"),
            "tokens": str(self.tokens),
            "certificate": str(self.certificate),
            "private_key": str(self.key),
        }

    def write_nodes(self, address: str) -> None:
        """Say where the new node is reached."""
        settings = {
            "authority": "certificate.pem", "token_file": "my.token", "machines": {"new": {"address": address}}
        }  # fmt: skip
        (self.folder / "nodes.yaml").write_text(json.dumps(settings))

    def start(self) -> None:
        """Start both."""
        self.old.start()
        self.new.start()

    def stop(self) -> None:
        """Stop both."""
        for node in (self.old, self.new):
            if node.running:
                node.stop()

    def words(self, queue: str, *words: str, host: str = "", port: int = 0, nodes: str = "") -> list[str]:
        """A carry as a command."""
        source = f"{host or self.old_address}:{port or self.mapper}"
        nodes = nodes or str(self.folder / "nodes.yaml")
        return [*COMMAND, "carry", queue, "--from", source, "--to", "new", "--nodes", nodes, *words]

    def run(self, queue: str, *words: str, **where: Any) -> tuple[int, str, str]:
        """Exit code, output and errors of a carry in this process."""
        output, errors, code = io.StringIO(), io.StringIO(), 0
        argv = ["mqenterprise", *self.words(queue, *words, **where)[len(COMMAND) :]]
        with redirect_stdout(output), redirect_stderr(errors), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", argv)
            try:
                mqenterprise.cli.main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(bool(end.code))
        return code, output.getvalue(), errors.getvalue()

    def carry(self, queue: str, *words: str, code: int = 0, **where: Any) -> dict[str, Any]:
        """Carry, and return the summary."""
        ended, output, errors = self.run(queue, *words, "--json", **where)
        assert ended == code, errors
        return dict(json.loads(output)) if output else {}

    def refused(self, queue: str, *words: str, **where: Any) -> str:
        """The one line of a carry that cannot begin."""
        code, output, errors = self.run(queue, *words, **where)
        assert code and not output
        (line,) = errors.strip().splitlines()
        return line

    def ledger(self, queue: str, *words: str) -> list[dict[str, Any]]:
        """Carry what is there, and return the ledger."""
        file = self.folder / "ledger"
        self.carry(queue, "--ledger", str(file), *words)
        return [json.loads(line) for line in file.read_text().splitlines()]


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else may read."""
    path.write_text(text)
    path.chmod(0o600)


async def create(node: NodeProcess, name: str, **properties: Any) -> None:
    """A private queue that everyone may receive from."""
    async with qmnode.connect(node.socket) as manager:
        await manager.create_queue(rf".\private$\{name}", **{"security": OPEN} | properties)


async def send(node: NodeProcess, name: str, messages: Sequence[Message]) -> None:
    """Send to a private queue, in a transaction if it has to be."""
    async with qmnode.connect(node.socket) as manager:
        transactional = (await manager.queue(rf".\private$\{name}")).transactional
        async with await manager.open_queue(rf"DIRECT=OS:.\private$\{name}", Access.SEND) as queue:
            for start in range(0, len(messages), 200):
                await queue.send_many(messages[start : start + 200], "single" if transactional else None)


async def messages_of(node: NodeProcess, name: str) -> list[Message]:
    """All messages of a queue or journal, in their order."""
    async with (
        qmnode.connect(node.socket) as manager,
        await manager.open_queue(rf"DIRECT=OS:.\private$\{name}", Access.PEEK) as queue,
        queue.cursor() as cursor,
    ):
        found: list[Message] = []
        peek = cursor.peek
        while True:
            try:
                found.append(await peek(0))
            except qmnode.MessageQueuingError as error:
                assert error.name == "MQ_ERROR_IO_TIMEOUT"
                return found
            peek = cursor.peek_next


def at(work: Any) -> Any:
    """Run a coroutine of the test."""
    return asyncio.run(work)
