"""A remote reader that stops at one step of a receive, says so, and waits to be killed.

``python -m tests.remote_read.step_reader ADDRESS ENDPOINT_MAPPER_PORT STEP``. It writes a line: ``at`` the step, or
``received`` when the receive is over.
"""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum

from qmnode.remote_read.client_interfaces import RemoteNode, RemoteReadOptions
from qmnode.remote_read.qm2qm import INFINITE, Action
from qmnode.structures.names import parse_single_format_name


class Step(StrEnum):
    """The last thing that the reader does."""

    CONNECTED = "it has connected"
    OPENED = "it has opened the queue"
    WAITING = "R_StartReceive waits at the server"
    STARTED = "R_StartReceive was sent, and the answer not read"
    LOCKED = "R_StartReceive was answered: the message is locked"
    RETURNED = "R_EndReceive with RR_NACK was sent, and the answer not read"
    ENDING = "R_EndReceive with RR_ACK was sent, and the answer not read"
    ENDED = "R_EndReceive with RR_ACK was answered"


def _stop(word: str) -> None:
    """Say where it is, and keep the event loop from anything more: no answer is read, nothing is closed."""
    print(word, flush=True)
    sys.stdin.read()


async def main(address: str, mapper: int, step: Step) -> None:
    """Go on until the step."""
    name = parse_single_format_name(rf"DIRECT=TCP:{address}\private$\orders")
    node = await RemoteNode.connect(address, RemoteReadOptions(endpoint_mapper_port=mapper))
    if step is Step.CONNECTED:
        _stop("at")
    queue = await node.open_queue(name)
    if step is Step.OPENED:
        _stop("at")
    request_id = node.next_request_id()
    started = queue.session.begin(queue.session.start(request_id, Action.MQ_ACTION_RECEIVE, INFINITE))
    await asyncio.sleep(0)  # what was begun in a pass of the loop leaves at its end
    if step in (Step.WAITING, Step.STARTED):
        await asyncio.sleep(0.01)
        _stop("at")
    response = await started
    reading = queue.session.reading_of(request_id, Action.MQ_ACTION_RECEIVE, response)
    if step is Step.LOCKED:
        _stop("at")
    ended = queue.session.begin(queue.session.end(reading.key, delete=step is not Step.RETURNED))
    await asyncio.sleep(0.01)
    if step is not Step.ENDED:
        _stop("at")
    await ended
    _stop("received")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Step(sys.argv[3])))
