"""A narrow link: a TCP proxy before a node, over which all connections together bring so many bytes a second."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

_CHUNK = 4096


@dataclass
class NarrowLink:
    """Listens at ``address`` and passes everything on to ``target``, at the same port."""

    address: str
    target: str
    port: int
    rate: float
    """Bytes a second towards the target; answers are not held back."""
    source: str | None = None
    """The address that the target sees; one of the system's choice if there is none."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        self._turn = asyncio.Lock()
        self._server = await asyncio.start_server(self._accept, self.address, self.port, limit=_CHUNK)

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
        try:
            own = None if self.source is None else (self.source, 0)
            back, forth = await asyncio.open_connection(self.target, self.port, local_addr=own)
        except OSError:
            writer.close()
            return
        ways = asyncio.gather(self._copy(reader, forth, narrow=True), self._copy(back, writer, narrow=False))
        with contextlib.suppress(OSError):
            await ways
        forth.close()
        writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, narrow: bool) -> None:
        while data := await reader.read(_CHUNK):
            if narrow:
                async with self._turn:
                    await asyncio.sleep(len(data) / self.rate)
            writer.write(data)
            await writer.drain()
        writer.close()
