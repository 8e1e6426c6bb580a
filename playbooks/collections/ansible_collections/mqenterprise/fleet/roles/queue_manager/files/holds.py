"""Print the queues of this host's node that hold messages. Run by the node's own Python.

Arguments: its socket, seconds for which messages for other machines may go on leaving, and ``check``, or ``close``: a
node that holds nothing then exchanges no more messages with others, so that none comes before it is stopped. Probes
do not count. Prints one JSON document.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import qmnode
from qmnode import MessageQueuingError, QueueType
from qmnode.local.remote import RemoteQueueManager

PROBES = "mqenterprise-probe"
PAUSE = 0.5


async def held(node: RemoteQueueManager) -> tuple[dict[str, int], bool]:
    """Names of queues with how much is in them and their journals; whether all of it is for other machines."""
    queues = [queue for queue in await node.queues() if PROBES not in queue.pathname]
    full = {queue: queue.message_count + queue.journal_message_count for queue in queues}
    full = {queue: count for queue, count in full.items() if count}
    leaving = all(queue.queue_type is QueueType.OUTGOING for queue in full)
    return {queue.pathname: count for queue, count in full.items()}, leaving


async def main() -> None:
    """Wait for what is leaving, and tell what is there."""
    path, seconds, action = sys.argv[1:]
    until = time.monotonic() + float(seconds)
    async with qmnode.connect(path) as node:
        holds, leaving = await held(node)
        while holds and leaving and time.monotonic() < until:
            await asyncio.sleep(PAUSE)
            holds, leaving = await held(node)
        if not holds and action == "close":
            await node.set_online(False)
            holds, leaving = await held(node)
            if holds:
                await node.set_online(True)
    print(json.dumps({"holds": holds}))


try:
    asyncio.run(main())
except (OSError, MessageQueuingError) as error:
    sys.exit(f"the node does not answer: {error}")
