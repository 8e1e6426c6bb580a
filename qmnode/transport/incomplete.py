"""Half a packet, and then nothing: what connections hold of packets that are not complete has one limit for all."""

from collections import Counter
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.transport.blocks import block_of

if TYPE_CHECKING:
    from qmnode.transport.connection import Connection

log = structlog.get_logger(__name__)

SMALL: Final = 16 * 1024
"""Less of a packet than this is not counted: each connection has its buffers anyway."""


class IncompletePackets:
    """Bytes that wait for the rest of their packet. Over ``limit``, whoever has brought nothing for longest is closed,
    of the address block that holds most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[Connection, int] = {}
        self._total = 0

    def hold(self, connection: "Connection", count: int) -> None:
        """A connection has brought bytes, and holds so many now; 0 when it holds none, or is gone."""
        self._total += count - self._held.pop(connection, 0)
        if count:
            self._held[connection] = count  # behind all others: they have waited for longer
        if self._total > self._limit:
            self._close_one()

    def _close_one(self) -> None:
        blocks: Counter[str] = Counter()
        for connection, count in self._held.items():
            blocks[block_of(connection.address)] += count
        ((most, _),) = blocks.most_common(1)
        victim = next(connection for connection in self._held if block_of(connection.address) == most)
        log.warning("a packet that does not come to its end is given up", address=most, bytes=self._held[victim])
        victim.close()
        self.hold(victim, 0)
