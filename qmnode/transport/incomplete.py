"""One limit, shared by all connections, for the bytes of packets that have not arrived completely."""

from collections import Counter
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.shares.blocks import block_of

if TYPE_CHECKING:
    from qmnode.transport.connection import Connection

log = structlog.get_logger(__name__)

SMALL: Final = 16 * 1024
"""Incomplete packets smaller than this (bytes) are not counted: each connection has its buffers anyway."""


class IncompletePackets:
    """Bytes that wait for the rest of their packet.

    When they exceed ``limit``, the connection that has been silent for longest is closed, in the address block that
    holds the most.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[Connection, int] = {}
        self._total = 0

    def hold(self, connection: "Connection", count: int) -> None:
        """Record the bytes that a connection holds after more have arrived; 0 when it holds none or has closed."""
        self._total += count - self._held.pop(connection, 0)
        if count:
            self._held[connection] = count  # moved to the end: the others have waited longer
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
