"""Listing 1,000 messages of 1 KiB with their bodies decoded, against the same list with its bodies as text."""

from __future__ import annotations

import asyncio
import contextlib
import io
import tempfile
import time
from pathlib import Path
from typing import Final

import qmnode
from qmnode.administration.browsing import browse
from qmnode.commands.receive import Show, print_messages
from qmnode.model.message import Message
from tests.bench import Comparison, bench
from tests.lab.nodes import running_node

COUNT: Final = 1000
ROUNDS: Final = 5
MOST: Final = 1.5
"""How many times slower the decoded list may be."""
_LINE: Final = "  <Description>goods of some kind, as the catalogue names them</Description>\r\n"
BODIES: Final = {
    "XML": Message(f'<?xml version="1.0"?>\r\n<Order>\r\n{_LINE * 12}</Order>'.encode()),
    "VT_BSTR": Message.from_value("text" * 128, format="VT_BSTR"),
}


async def seconds(socket: Path, name: str, show: Show) -> float:
    """What listing the queue takes, from the first call to the last line."""
    begin = time.perf_counter()
    async with qmnode.connect(socket) as qm, await qm.open_queue(rf"DIRECT=OS:.\private$\{name}") as queue:
        messages = [message async for message in browse(queue, None)]
    with contextlib.redirect_stdout(io.StringIO()):
        print_messages(messages, show, as_json=False)
    assert len(messages) == COUNT
    return time.perf_counter() - begin


async def timings(socket: Path) -> list[tuple[str, float, float]]:
    """For each kind of body the seconds as text and decoded, in turns, the best of some rounds."""
    found = []
    async with qmnode.connect(socket) as qm:
        for name, message in BODIES.items():
            plain = "".join(letter for letter in name if letter.isalnum())
            await qm.create_queue(rf".\private$\{plain}")
            async with await qm.open_queue(rf"DIRECT=OS:.\private$\{plain}", qmnode.Access.SEND) as queue:
                await queue.send_many([message] * COUNT)
            best = {Show.TEXT: 1e9, Show.DECODED: 1e9}
            for _ in range(ROUNDS):
                for show in best:
                    best[show] = min(best[show], await seconds(socket, plain, show))
            found.append((name, best[Show.TEXT], best[Show.DECODED]))
    return found


@bench("bodies")
def bodies() -> list[Comparison]:
    """A message of a list, decoded against as text."""
    with tempfile.TemporaryDirectory() as folder, running_node(Path(folder)) as node:
        found = asyncio.run(timings(node.socket))
    return [Comparison(name, decoded / COUNT, "as text", text / COUNT, MOST) for name, text, decoded in found]
