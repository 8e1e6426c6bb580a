"""An old machine, a node to switch to and a sender, all in one directory."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import mqenterprise.cli
import qmnode
from mqenterprise.directory.admission import SETTINGS_FILE, admit
from mqenterprise.directory.open_directory import EnterpriseDirectory
from qmnode import Access, Message
from qmnode.directory.port import QueueManager
from qmnode.structures.guid import guid_to_text
from tests.lab.directory_objects import delete
from tests.lab.nodes import NodeProcess
from tests.management.conftest import digest, write_certificate
from tests.operations.carried import LESSER, SECRET, write_private
from tests.remote_read.conftest import OPEN, random_port
from tests.transport.conftest import loopback_address

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

HURRIED = {"retry_interval": 0.1, "retry_maximum": 0.3, "resend_timeouts": (1, 2, 1800, 21600), "routing_refresh": 0.5}


class Enterprise:
    """The nodes SWOLD, SWNEW and SWSEND."""

    def __init__(self, folder: Path, slapd: EmbeddedDirectory) -> None:
        self.folder, self.directory = folder, EnterpriseDirectory(slapd.client_settings())
        given = slapd.client_settings().model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        (folder / "directory.yaml").write_text(yaml.safe_dump(given))
        certificate, key = write_certificate(folder)
        tokens = folder / "tokens.yaml"
        write_private(tokens, json.dumps([
            {"name": "ann", "role": "administer", "sha256": digest(SECRET)},
            {"name": "bob", "role": "operate", "sha256": digest(LESSER)},
        ]))  # fmt: skip
        write_private(folder / "my.token", SECRET)
        write_private(folder / "lesser.token", LESSER)
        self.mapper, self.port, self.addresses = random_port(), random_port(), {}
        management = {
            "listen": f"127.0.0.1:{self.port}", "socket": str(folder / "m.sock"), "tokens": str(tokens),
            "certificate": str(certificate), "private_key": str(key),
        }  # fmt: skip
        self.old = self._node("SWOLD", old=True)
        self.new = self._node("SWNEW", management=management)
        self.sender = self._node("SWSEND")
        self.nodes = (self.old, self.new, self.sender)
        machines = {"SWNEW": {"address": f"127.0.0.1:{self.port}"}}
        (folder / "nodes.yaml").write_text(
            json.dumps({"authority": "certificate.pem", "token_file": "my.token", "machines": machines})
        )

    def _node(self, name: str, *, old: bool = False, **settings: Any) -> NodeProcess:
        address = self.addresses[name] = loopback_address()
        self.directory.queue_managers.add(QueueManager(computer_name=name, qualified_computer_name=address))
        admit(self.directory, name, self.folder / name / "directory")
        if old:
            settings["remote_read"] = {
                "enabled": True, "address": address, "port": self.port, "endpoint_mapper_port": self.mapper
            }  # fmt: skip
        file = str(self.folder / name / "directory" / SETTINGS_FILE)
        return NodeProcess(
            self.folder / name, computer_name=name, transport={"address": address}, transfer=HURRIED,
            directory={"name": "ldap", "settings": {"file": file, "fresh_for": 0.5}}, **settings,
        )  # fmt: skip

    async def start(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in self.nodes))

    def stop(self) -> None:
        for node in self.nodes:
            if node.running:
                node.stop()
        for queue in list(self.directory.queues.list()):
            if queue.pathname.upper().startswith(("SWOLD\\", "SWNEW\\")):
                self.directory.queues.delete(queue)
        for name in self.addresses:
            if (found := self.directory.queue_managers.find(name)) is not None:
                delete(self.directory, found)
        self.directory.close()

    async def publish(self, name: str, **properties: Any) -> str:
        """A public queue of the old machine; its PUBLIC= name."""
        async with qmnode.connect(self.old.socket) as manager:
            made = await manager.create_queue(f"SWOLD\\{name}", **{"security": OPEN} | properties)
        return f"PUBLIC={guid_to_text(made.identifier)}"

    def switch(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Output and errors of ``mqenterprise switch``; what ``words`` name counts instead of what is usual."""
        usual = {
            "--from": f"{self.addresses['SWOLD']}:{self.mapper}", "--to": "SWNEW", "--plans": str(self.folder),
            "--nodes": str(self.folder / "nodes.yaml"), "--directory": str(self.folder / "directory.yaml"),
        }  # fmt: skip
        others = chain.from_iterable(item for item in usual.items() if item[0] not in words)
        argv = ["mqenterprise", "switch", *words, *others]
        output, errors, ended = io.StringIO(), io.StringIO(), 0
        with redirect_stdout(output), redirect_stderr(errors), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", argv)
            try:
                mqenterprise.cli.main()
            except SystemExit as end:
                ended = end.code if isinstance(end.code, int) else int(bool(end.code))
        assert ended == code, errors.getvalue()
        return output.getvalue(), errors.getvalue()

    def refused(self, *words: str, code: int = 1) -> str:
        """The one line of a switch that is refused, at its first step or before that."""
        output, errors = self.switch(*words, code=code)
        (line,) = [one for one in errors.splitlines() if ": check: " not in one]
        assert not output
        return line


class Sender:
    """Sends numbered messages to a PUBLIC= name without a stop, and notes its longest pause."""

    def __init__(self, node: NodeProcess, name: str, *, transactional: bool) -> None:
        self.node, self.name, self.transactional = node, name, transactional
        self.sent = 0
        self.longest = 0.0
        self.period = 0.05
        """Seconds between two messages."""
        self.ends = asyncio.Event()

    async def run(self) -> None:
        async with (
            qmnode.connect(self.node.socket) as manager,
            await manager.open_queue(self.name, Access.SEND) as queue,
        ):
            while not self.ends.is_set():
                began = time.monotonic()
                message = Message(b"%d" % self.sent, recoverable=True)
                await queue.send(message, "single" if self.transactional else None)
                self.longest = max(self.longest, time.monotonic() - began)
                self.sent += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.ends.wait(), self.period)


async def bodies(node: NodeProcess, name: str) -> list[int]:
    """The numbers of the messages of a queue, in its order."""
    async with (
        qmnode.connect(node.socket) as manager,
        await manager.open_queue(name, Access.PEEK) as queue,
        queue.cursor() as cursor,
    ):
        found: list[int] = []
        peek = cursor.peek
        while True:
            try:
                found.append(int((await peek(0)).body))
            except qmnode.MessageQueuingError as error:
                assert error.name == "MQ_ERROR_IO_TIMEOUT"
                return found
            peek = cursor.peek_next


async def last(node: NodeProcess, name: str) -> int:
    """The number of the last message of a queue; -1 if it is empty."""
    async with (
        qmnode.connect(node.socket) as manager,
        await manager.open_queue(name, Access.PEEK) as queue,
    ):
        try:
            return int((await queue.peek_by_lookup_id(seek="last")).body)
        except qmnode.MessageQueuingError as error:
            assert error.name == "MQ_ERROR_MESSAGE_NOT_FOUND"
            return -1


def outcome(numbers: Sequence[int], sent: int) -> tuple[int, int, int]:
    """Lost, doubled, and out of order."""
    return (
        len(set(range(sent)) - set(numbers)),
        len(numbers) - len(set(numbers)),
        sum(one > other for one, other in pairwise(numbers)),
    )
