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
import traceback
from pathlib import Path
from typing import Any

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.settings.node import Settings, StorageSettings
from qmnode.storage.large_messages import SMALLEST
from qmnode.structures.error_codes import ErrorCode

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


def sent(task: dict[str, Any]) -> set[int]:
    """The numbers of the acknowledged messages."""
    return {int(line) for line in Path(task["acknowledged"]).read_text().splitlines() if line.isdigit()}


async def peeked(qm: QueueManager) -> set[int]:
    """The numbers of the messages in the queue, from its first message to its end; -1 for another body."""
    found: set[int] = set()
    async with await qm.open_queue(FORMAT, Access.PEEK) as queue, queue.cursor() as cursor:
        try:
            message = await cursor.peek(timeout=0)
            while True:
                number = int(message.body.partition(b" ")[0])
                found.add(number if message.body == body(number) else -1)
                message = await cursor.peek_next(timeout=0)
        except MessageQueuingError as error:
            if error.code is not ErrorCode.MQ_ERROR_IO_TIMEOUT:
                raise
    return found


async def work(task: dict[str, Any], acknowledged: int, number: int) -> None:
    """Send from this number on, until killed, told to stop, the end of the turn, or an error. What was acknowledged is
    looked for before.
    """
    chance = random.Random(task["seed"] + number)
    end = number + task.get("turn", 1 << 30)
    try:
        async with QueueManager.open(task["store"], settings(task["sync"])) as qm:
            if not number:
                await qm.create_queue(NAME)
            os.write(acknowledged, b"open\n")
            if "turn" in task:
                found = await peeked(qm)
                if -1 in found or not sent(task) <= found:
                    os.write(acknowledged, b"wrong: %d of %d are there\n" % (len(found), len(sent(task))))
            async with await qm.open_queue(FORMAT, Access.SEND) as queue:
                while number < end and not Path(task["stop"]).exists():
                    numbers = range(number, number + chance.choice((1, 1, 1, 5, 20)))
                    number = numbers.stop
                    os.write(acknowledged, b"next %d\n" % number)
                    await queue.send_many([Message(body(one), recoverable=True) for one in numbers])
                    os.write(acknowledged, b"".join(b"%d\n" % one for one in numbers))
    except MessageQueuingError as error:
        os.write(acknowledged, b"error %s\n" % str(error).replace("\n", " ").encode())
    except Exception:
        os.write(acknowledged, b"wrong: %s\n" % traceback.format_exc().replace("\n", " ").encode())


def following(task: dict[str, Any]) -> int:
    """The number after all that were tried."""
    lines = Path(task["acknowledged"]).read_text().splitlines()
    return max((int(line.split()[1]) for line in lines if line.startswith("next ")), default=0)


def attempts(task: dict[str, Any]) -> None:
    """Work until told to stop: after an error the store is opened again, in another process or in the same."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    file = os.open(task["acknowledged"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
    while not Path(task["stop"]).exists():
        if task["same"]:  # the process goes on after an error, as an application does that has the node in it
            asyncio.run(work(task, file, following(task)))
        elif not (child := os.fork()):
            asyncio.run(work(task, file, following(task)))
            os._exit(0)
        else:
            os.waitpid(child, 0)
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
