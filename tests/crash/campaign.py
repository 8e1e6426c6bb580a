"""Start the node, work, kill it, cut the disk, start it again, and compare: many times, from one seed."""

import asyncio
import contextlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qmnode.errors import MessageQueuingError
from qmnode.local.remote import RemoteQueueManager
from qmnode.storage.errors import StoreError
from qmnode.storage.log_records import MAY_HAVE_HELD
from qmnode.storage.verification import verify
from tests.crash.clients import CLIENTS, CONTENTS, JOURNALED, Client, contents, create_queues
from tests.crash.disk import Disk
from tests.crash.ledger import Ledger
from tests.crash.node import Daemon
from tests.lab.nodes import NodeError

_SMALL: Final = {"write_buffer": 1 << 20, "log_limit": 1 << 20, "express_memory": 1 << 20, "identifier_block": 64}
"""So that files are written, logs change and identifiers are reserved all the time."""
_LONGEST: Final = 20.0
"""Seconds after which a round ends although not so much was answered."""


@dataclass
class Campaign:
    """A number of kills of one node. ``ledger.violations`` says what was wrong."""

    folder: Path
    shim: Path
    seed: int
    syncs: bool = True

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.disk = Disk(self.folder, self.shim, syncs=self.syncs)
        self.ledger = Ledger([JOURNALED])
        self.kills = 0
        self.bytes_lost = 0

    async def run(self, kills: int) -> None:
        """Kill so many times, or until something is wrong."""
        while self.kills < kills and not self.ledger.violations:
            daemon = self._daemon()
            try:
                await self._start(daemon)
                await self._compare(daemon)
                await self._work(daemon)
                self._cut(daemon)
            except (NodeError, StoreError) as error:
                self.ledger.violations.append(str(error))
            finally:
                daemon.kill()
        if not self.ledger.violations:
            await self._finish()

    def _daemon(self) -> Daemon:
        sync = self.random.choice(("inline", "thread"))
        return Daemon(self.disk, storage={**_SMALL, "sync": sync}, quotas={"queue_manager_quota": 0xFFFFFFFF})

    async def _start(self, daemon: Daemon) -> None:
        """Sometimes it is killed while it starts."""
        while self.random.random() < 0.2:
            daemon.launch()
            await asyncio.sleep(self.random.uniform(0.2, 1.0))
            self._cut(daemon)
        await daemon.start_again()

    def _cut(self, daemon: Daemon) -> None:
        daemon.kill()
        self.kills += 1
        # Without syncs what is kept by chance would be no store at all; without chance it is an empty one.
        self.bytes_lost += self.disk.cut(self.random if self.syncs else None)
        # Before the first answer the cut may have been in the middle of making the store.
        if self.ledger.answers and (self.disk.store / "CURRENT").exists():
            self.ledger.violations += [
                f"verify: {finding}"
                for finding in verify(self.disk.store).findings
                if MAY_HAVE_HELD not in finding.sentence  # of a write that the cut tore; the ledger knows what it had
            ]

    async def _compare(self, daemon: Daemon) -> None:
        async with await daemon.connect() as qm:
            await create_queues(qm)
            found = {queue: await contents(qm, queue) for queue in CONTENTS}
            self.ledger.restarted(found, {JOURNALED: await contents(qm, JOURNALED, ";JOURNAL")})

    async def _work(self, daemon: Daemon) -> None:
        """Several clients at a time; then the kill, in the middle of it."""
        managers = [await daemon.connect() for _ in range(CLIENTS)]
        clients = [Client(number, qm, self.ledger, self.random.getrandbits(64)) for number, qm in enumerate(managers)]
        enough = self.ledger.answers + self.random.randint(1, 400)
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(client.run())
            deadline = asyncio.get_running_loop().time() + _LONGEST
            while self.ledger.answers < enough and asyncio.get_running_loop().time() < deadline and daemon.running:
                await asyncio.sleep(0.001)
            await asyncio.sleep(self.random.uniform(0, 0.01))
            daemon.kill()
        for manager in managers:
            await manager.close()

    async def _finish(self) -> None:
        """A clean stop loses nothing, express messages aside; and everything can be received, in the order shown."""
        daemon = self._daemon()
        try:
            for _ in range(2):
                await daemon.start_again()
                await self._compare(daemon)
                assert daemon.stop() == 0, daemon.said()
            await daemon.start_again()
            async with await daemon.connect() as qm:
                for queue in CONTENTS:
                    await self._drain(qm, queue)
            assert daemon.stop() == 0, daemon.said()
        finally:
            daemon.kill()

    async def _drain(self, qm: RemoteQueueManager, queue: str) -> None:
        shown = await contents(qm, queue)
        received: list[bytes] = []
        async with await qm.open_queue(f"DIRECT=OS:{queue}") as source:
            with contextlib.suppress(MessageQueuingError):  # when nothing is left
                while True:
                    received += [message.body for message in await source.receive_many(50, timeout=0)]
        if received != shown:
            self.ledger.violations.append(f"{queue}: {len(received)} are received, not the {len(shown)} that it shows")
