"""Two hundred clients that wait."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from qmnode.structures.names import parse_single_format_name
from tests.lab.waiting import eventually
from tests.remote_read.conftest import THERE

if TYPE_CHECKING:
    from tests.remote_read.conftest import Remote

CLIENTS = 200
MESSAGES = 1_000
CANCELLED = 20
"""Receives that are cancelled one after the other, while the others wait."""
NAME = parse_single_format_name(THERE)


async def test_each_message_goes_to_one_of_200_waiting_clients_in_order(remote: Remote) -> None:
    threads = threading.active_count()
    nodes = [await remote.connect() for _ in range(CLIENTS)]
    queues = [await node.open_queue(NAME) for node in nodes]
    taken: list[tuple[int, int]] = []
    """Client and message, as they came."""

    async def receive(client: int) -> None:
        while True:
            taken.append((client, int((await queues[client].receive()).body)))

    tasks = [asyncio.create_task(receive(client)) for client in range(CLIENTS)]
    queue_of = remote.server.queues._by_number
    await eventually(lambda: sum(len(queue.reads) for queue in queue_of.values()) == CLIENTS, "all wait")
    assert threading.active_count() == threads, "a thread for a client"
    for start in range(0, MESSAGES, 50):
        await remote.send(*[b"%d" % number for number in range(start, start + 50)])
        await asyncio.sleep(0)
    await eventually(lambda: len(taken) == MESSAGES, "all are received")
    assert sorted(number for _, number in taken) == list(range(MESSAGES))
    for client in range(CLIENTS):
        own = [number for one, number in taken if one == client]
        assert own == sorted(own), "a client got an older message after a newer one"
    assert len({client for client, _ in taken}) == CLIENTS, "first come, first served: each got its share"

    await eventually(lambda: sum(len(queue.reads) for queue in queue_of.values()) == CLIENTS, "all wait again")
    for task in tasks[:CANCELLED]:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await remote.send(b"-1")
    await eventually(lambda: len(taken) == MESSAGES + 1)
    assert taken[-1][0] >= CANCELLED, "a cancelled receive got a message"
    for task in tasks[CANCELLED:]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for node in nodes:
        node.abort()
    await eventually(lambda: not remote.server.queues)
    assert await remote.bodies() == []
