"""A receiver that fails at random, in a process of its own: ``python -m tests.soak.retry_receiver WHERE SEED LOG``.

``WHERE`` is the socket of a node, or the URL of its AMQP door. A message is in the log when the receiver has seen it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys

import proton
from proton.utils import BlockingConnection

import qmnode
from qmnode import MessageQueuingError

QUEUE = "jobs"
_IDLE = 2.0
_FAILS, _DIES = 0.45, 0.005


class Receiver:
    """What both kinds do with a message."""

    def __init__(self, seed: int, log: str) -> None:
        self.random = random.Random(seed)
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def sees(self, *lines: str) -> None:
        """Note deliveries: the message, and the failures that its delivery shows."""
        os.write(self._log, "".join(f"{line}\n" for line in lines).encode())

    def fate(self) -> bool:
        """Whether the message succeeds. May end the process instead."""
        drawn = self.random.random()
        if drawn < _DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        return drawn > _FAILS

    async def in_transactions(self, socket: str) -> None:
        """Receive in transactions of some messages."""
        async with qmnode.connect(socket) as qm:
            queue = await qm.open_queue(rf"DIRECT=OS:.\private$\{QUEUE}")
            while True:
                unit = qm.transaction()
                try:
                    found = await queue.receive_many(self.random.randint(1, 8), _IDLE, unit)
                except MessageQueuingError as error:
                    await unit.abort()
                    if error.code != qmnode.ErrorCode.MQ_ERROR_IO_TIMEOUT:
                        raise
                    continue
                self.sees(*(f"{one.label} {one.aborted_receives}" for one in found))
                await (unit.commit() if self.fate() else unit.abort())

    def over_amqp(self, url: str) -> None:
        """Receive with little credit, and say the outcome of each message, until the connection ends without one."""
        connection = BlockingConnection(url, timeout=60, allowed_mechs="ANONYMOUS")
        receiver = connection.create_receiver(QUEUE, credit=4)
        while True:
            try:
                message = receiver.receive(timeout=_IDLE)
            except proton.Timeout:
                continue
            self.sees(f"{message.subject} {message.delivery_count}")
            delivery = receiver.fetcher.unsettled.popleft()
            if self.fate():
                delivery.update(proton.Delivery.ACCEPTED)
            elif self.random.random() < 0.1:
                connection.close()
                return
            else:
                delivery.local.failed = True
                delivery.update(proton.Delivery.MODIFIED)
            delivery.settle()


def main() -> None:
    where, seed, log = sys.argv[1:]
    receiver = Receiver(int(seed), log)
    try:
        if where.startswith("amqp:"):
            while True:
                receiver.over_amqp(where)
        else:
            asyncio.run(receiver.in_transactions(where))
    except (OSError, MessageQueuingError, proton.ProtonException) as error:
        print(f"the receiver ends: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
