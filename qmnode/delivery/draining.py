"""The end of a node: messages that are on their way leave first."""

import asyncio
from typing import TYPE_CHECKING, Final

from qmnode.model.outgoing import OutgoingQueue
from qmnode.model.queue_manager import QueueManager

if TYPE_CHECKING:
    from qmnode.delivery.network import Network

_LOOK: Final = 0.02
"""Seconds between two checks for remaining messages."""
_STANDSTILL: Final = 0.5
"""Seconds without a departing message after which draining stops."""


async def drain(network: "Network", limit: float) -> int:
    """Accept nothing new, and wait up to ``limit`` seconds until messages on their way have left.

    Return the number of messages left. Recoverable ones stay on disk; express ones are lost when the node ends.
    Draining stops early when no message moves, because the destination is down.
    """
    if not network.running:
        return 0
    time = asyncio.get_running_loop().time
    await network.listener.stop()
    for connection in list(network.accepted):
        connection.close()
    left = fewest = _on_their_way(network.manager)
    now = time()
    until, moved = now + limit, now
    while left and now < until and now < moved + _STANDSTILL:
        await asyncio.sleep(_LOOK)
        left, now = _on_their_way(network.manager), time()
        if left < fewest:
            fewest, moved = left, now
    return left


def _on_their_way(manager: QueueManager) -> int:
    return sum(queue.message_count for queue in manager.queue_collection.values() if isinstance(queue, OutgoingQueue))
