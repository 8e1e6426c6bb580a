"""A TCP proxy before a node that does what networks do: it delays, cuts in the middle, and brings old data again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

RECORDED = 256 * 1024
"""Bytes of a connection that may be brought again."""


@dataclass
class Faults:
    """How often what happens. ``calm`` ends all of it."""

    cut: float = 0.01
    """Chance that a connection is cut at a chunk, in its middle."""
    delay: float = 0.05
    """Most seconds for which a chunk is held back. Each connection has its own pace, so later ones overtake it."""
    again: float = 0.5
    """Chance that what came on a connection that was cut is brought again on one of its own, later."""
    calm: bool = False


@dataclass
class Proxy:
    """Between everybody and the node at ``target``: listens at ``address``, on the same port."""

    address: str
    target: str
    port: int
    seed: int
    faults: Faults
    known_as: Mapping[str, str] = field(default_factory=dict)
    """By the address that a node connects from, the one at which others find it: so does the target see it."""
    tap: Callable[[], Callable[[bytes], None]] = lambda: lambda data: None
    """For each connection, where what it brings is shown."""
    cuts: int = 0
    repeated: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        self._random = random.Random(self.seed)
        self._server = await asyncio.start_server(self._accept, self.address, self.port)

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        recorded = bytearray()
        cut = False
        try:
            peer = str(writer.get_extra_info("peername")[0])
            own = self.known_as.get(peer)
            back, forth = await asyncio.open_connection(
                self.target, self.port, local_addr=None if own is None else (own, 0)
            )
        except OSError:
            writer.close()
            return
        pace = self._random.uniform(0, self.faults.delay)
        flows = [
            asyncio.ensure_future(self._carry(reader, forth, pace, recorded, self.tap())),
            asyncio.ensure_future(self._carry(back, writer, pace, None)),
        ]
        try:
            done, _ = await asyncio.wait(flows, return_when=asyncio.FIRST_COMPLETED)
            cut = any(flow.result() for flow in done)
        finally:
            for flow in flows:
                flow.cancel()
            for end in (writer, forth):
                end.transport.abort() if cut else end.close()
        if cut and not self.faults.calm and self._random.random() < self.faults.again:
            await self._bring_again(bytes(recorded))

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pace: float,
        recorded: bytearray | None,
        tap: Callable[[bytes], None] = lambda data: None,
    ) -> bool:
        """Until the end; whether it was cut here."""
        faults, dice = self.faults, self._random
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(16 * 1024):
                tap(chunk)
                if not faults.calm:
                    await asyncio.sleep(dice.uniform(0, 2 * pace))
                    if dice.random() < faults.cut:
                        self.cuts += 1
                        part = chunk[: dice.randrange(len(chunk))]
                        writer.write(part)
                        if recorded is not None:
                            recorded += part
                        await writer.drain()
                        return True
                if recorded is not None and len(recorded) < RECORDED:
                    recorded += chunk
                writer.write(chunk)
                await writer.drain()
        return False

    async def _bring_again(self, data: bytes) -> None:
        """All that a connection brought, on a new one: a node that restores a snapshot, or an attacker, does that."""
        await asyncio.sleep(self._random.uniform(0, 1.0))
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(self.target, self.port)
            self.repeated += 1
            try:
                for start in range(0, len(data), 4096):
                    writer.write(data[start : start + 4096])
                    await writer.drain()
                    await asyncio.sleep(0.002)
                async with asyncio.timeout(2):
                    while await reader.read(64 * 1024):
                        pass
            except TimeoutError:
                pass
            finally:
                writer.close()
