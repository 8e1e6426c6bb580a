"""Sends messages on a disk that fails, in processes that are forked from one with the shim, and killed.

``tests/faults/test_faults.py`` preloads the shim. Each line of standard input is a task as JSON; the answer
is the number of the process. The process writes the number of each acknowledged message to a file.
"""

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.settings.node import Settings, StorageSettings
from qmnode.storage.large import SMALLEST

NAME = r".\private$\orders"
FORMAT = rf"DIRECT=OS:{NAME}"


def body(number: int) -> bytes:
    """The body of a message, which follows from its number."""
    chance = random.Random(number)
    size = SMALLEST + 10_000 if number % 40 == 39 else chance.randint(20, 3000)
    return b"%d " % number + chance.randbytes(size)


def settings(sync: str) -> Settings:
    """So that files are written and logs change all the time."""
    small = {"write_buffer": 1 << 20, "log_limit": 1 << 20, "express_memory": 1 << 20}
    return Settings(storage=StorageSettings(sync=sync, **small))  # type: ignore[arg-type]


async def work(task: dict[str, Any], acknowledged: int, number: int) -> None:
    """Send from this number on, until killed, until all are sent, or until an error."""
    chance = random.Random(task["seed"] + number)
    try:
        async with QueueManager.open(task["store"], settings(task["sync"])) as qm:
            if not number:
                await qm.create_queue(NAME)
            os.write(acknowledged, b"open\n")
            async with await qm.open_queue(FORMAT, Access.SEND) as queue:
                while number < task["last"]:
                    numbers = range(number, number + chance.choice((1, 1, 1, 5, 20)))
                    number = numbers.stop
                    os.write(acknowledged, b"next %d\n" % number)
                    await queue.send_many([Message(body(one), recoverable=True) for one in numbers])
                    os.write(acknowledged, b"".join(b"%d\n" % one for one in numbers))
    except MessageQueuingError as error:
        os.write(acknowledged, b"error %s\n" % str(error).replace("\n", " ").encode())


def attempts(task: dict[str, Any]) -> None:
    """Work in a process of its own until all is sent: an error ends it, and the next one opens the store again."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    file = os.open(task["acknowledged"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
    number = 0
    while number < task["last"]:
        if not (child := os.fork()):
            asyncio.run(work(task, file, number))
            os._exit(0)
        os.waitpid(child, 0)
        lines = Path(task["acknowledged"]).read_text().splitlines()
        number = max((int(line.split()[1]) for line in lines if line.startswith("next ")), default=0)
    os.write(file, b"end\n")


def main() -> None:
    """Fork a process for each task."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        task = json.loads(line)
        child = os.fork()
        if not child:
            attempts(task)
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main()
