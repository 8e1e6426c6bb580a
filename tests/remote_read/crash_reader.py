"""A remote reader that writes down what it does before and after it, until it is killed.

``python -m tests.remote_read.crash_reader ADDRESS ENDPOINT_MAPPER_PORT LEDGER SEED``. Lines of the
ledger: ``G`` a message has come, ``E`` it is about to be acknowledged, ``A`` it has been, ``N`` it has been given back.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qmnode import MessageQueuingError
from qmnode.remote_read.client_interfaces import RemoteNode, RemoteReadOptions
from qmnode.structures.names import parse_single_format_name

if TYPE_CHECKING:
    from qmnode.remote_read.client_queue import RemoteReadQueue

READERS = 4


async def read(queue: RemoteReadQueue, write: object, chance: random.Random) -> None:
    """Receive: acknowledge most, give some back, forget some."""
    while True:
        message = await queue.receive_begin(5)
        number = message.body.decode()
        print("G", number, file=write, flush=True)
        what = chance.random()
        if what < 0.1:
            await queue.receive_end(message.lookup_identifier, delete=False)
            print("N", number, file=write, flush=True)
        elif what < 0.95:
            print("E", number, file=write, flush=True)
            await queue.receive_end(message.lookup_identifier, delete=True)
            print("A", number, file=write, flush=True)


async def main(address: str, mapper: int, ledger: Path, seed: str) -> None:
    """Over again, whatever happens to the server."""
    chance = random.Random(seed)
    name = parse_single_format_name(rf"DIRECT=TCP:{address}\private$\orders")
    with ledger.open("a") as write:
        while True:
            try:
                async with await RemoteNode.connect(address, RemoteReadOptions(endpoint_mapper_port=mapper)) as node:
                    queues = [await node.open_queue(name) for _ in range(READERS)]
                    await asyncio.gather(*(read(queue, write, chance) for queue in queues))
            except MessageQueuingError:
                await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]))
