"""What a receive with a selector costs in a queue of a million messages, and what it takes from honest traffic.

``SELECTED`` is the number of messages.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import pytest
from proton import ConnectionException
from proton.reactor import Selector
from proton.utils import BlockingConnection

import qmnode
from qmnode.bodies.choice import HEADER_FORMATS, write_headers
from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE, Acl, QueueAccess, SecurityDescriptor, allow
from tests.lab.addresses import free_port
from tests.lab.nodes import NodeProcess
from tests.soak.test_search_of_a_million import percentile, traffic

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timed]
COUNT: Final = int(os.environ.get("SELECTED", "1000000"))
EACH: Final = 200e-6
"""Seconds of the node's processor time for each message that a receive passes over."""
SHARE: Final = 0.5
"""The part of its rate that traffic keeps at least, while a receive passes over messages."""
_AT_ONCE: Final = 1000
_REBUS: Final = HEADER_FORMATS[1]


async def fill(node: NodeProcess) -> None:
    everybody = [allow(who, QueueAccess.MQSEC_QUEUE_GENERIC_ALL) for who in (EVERYONE, ANONYMOUS)]
    security = SecurityDescriptor(owner=EVERYONE, group=EVERYONE, dacl=Acl.of(*everybody)).write()
    async with await node.connect() as qm:
        for name in ("orders", "traffic"):
            await qm.create_queue(rf".\private$\{name}", security=security)
        async with await qm.open_queue(r"DIRECT=OS:.\private$\orders", qmnode.Access.SEND) as queue:
            for first in range(0, COUNT, _AT_ONCE):
                numbers = range(first, min(first + _AT_ONCE, COUNT))
                await queue.send_many([
                    qmnode.Message(b"{}", extension=write_headers({"number": str(number), "tenant": "blue"}, _REBUS),
                                   recoverable=True)
                    for number in numbers
                ])  # fmt: skip


def processor(node: NodeProcess) -> float:
    """Seconds of processor time that a node has used."""
    fields = Path(f"/proc/{node.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def receive(url: str, *conditions: str) -> list[float]:
    """Seconds of each receive on one link with these conditions joined, one for each."""
    client = BlockingConnection(url, timeout=3600, allowed_mechs="ANONYMOUS")
    try:
        found, link = [], None
        for number, condition in enumerate(conditions):
            began = perf_counter()
            if link is None:
                link = client.create_receiver("orders", credit=1, options=Selector(" OR ".join(conditions)))
            else:
                link.flow(1)
            message: Any = link.receive(timeout=3600)
            assert message.properties["number"] == condition.split("'")[1], number
            link.accept()
            found.append(perf_counter() - began)
        return found
    finally:
        client.close()


@pytest.mark.soak
async def test_a_selecting_receive_in_a_million_messages(tmp_path: Path) -> None:
    port = free_port()
    node = NodeProcess(
        tmp_path / "node", amqp={"enabled": True, "address": "127.0.0.1", "port": port, "anonymous": True}
    )
    node.start()
    url = f"amqp://127.0.0.1:{port}"
    try:
        await fill(node)
        last = [f"number = '{COUNT - 1 - number}'" for number in range(3, -1, -1)]
        used = processor(node)
        first, *more = await asyncio.to_thread(receive, url, *last)
        used = processor(node) - used
        alone, _ = await traffic(node, r".\private$\traffic", 4)
        looking = asyncio.create_task(asyncio.to_thread(receive, url, f"number = '{COUNT - 5}'"))
        beside, latencies = await traffic(node, r".\private$\traffic", 4)
    finally:
        node.stop()
    with suppress(ConnectionException):
        await looking
    print(
        f"\n{COUNT:,} messages: a receive of the last takes {first:.2f} s and {used / COUNT * 1e6:.1f} us of processor "
        f"time a message, of the next {statistics.median(more) * 1000:.1f} ms; beside it, traffic keeps "
        f"{beside / alone:.2f} of {alone:.0f}/s, p99 {percentile(latencies) * 1000:.1f} ms"
    )
    assert used < COUNT * EACH
    assert beside > alone * SHARE
