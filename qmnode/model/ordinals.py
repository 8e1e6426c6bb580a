"""Numbers that are never given out twice, not even by a node that crashed: SequentialID (MS-MQDMPR 3.1.1.1) and
MessageID.

They come from blocks. The end of a block is on disk before its first number is given out, and a start begins after the
last block, so that most numbers cost an addition and a crash skips what was left of a block.
"""

import asyncio
from typing import Final

from qmnode.model.ports import MessageStore

MESSAGE_IDENTIFIER: Final = "message_identifier"
SEQUENTIAL_IDENTIFIER: Final = "sequential_identifier"


class Ordinal:
    """A number that only grows, or wraps around at ``2 ** bits``."""

    __slots__ = ("_block", "_end", "_look", "_mask", "_name", "_reserving", "_store", "value")

    def __init__(self, store: MessageStore, name: str, bits: int, block: int) -> None:
        self._store = store
        self._name = name
        self._block = block
        self._mask = (1 << bits) - 1
        self.value = int.from_bytes(store.get_meta(name) or b"", "big")
        """The last number that was given out."""
        self._end = self._look = self.value
        self._reserving: asyncio.Future[None] | None = None

    def next(self) -> int:
        """The next number."""
        if self.value >= self._look:
            self._look_ahead()
        self.value += 1
        return self.value & self._mask

    def _look_ahead(self) -> None:
        """Reserve the next block in good time, with what is written anyway: a write of its own could split a batch."""
        reserving = self._reserving
        if reserving is not None and reserving.done() and reserving.exception() is None:
            self._end += self._block
            self._reserving = None
        if self.value >= self._end:
            self._end = self.value + self._block
            self._put(self._end)
            self._store.flush()
            self._reserving = None
        half = self._end - self._block // 2
        if self._reserving is None and self.value >= half:
            self._put(self._end + self._block)
            self._reserving = self._store.durable()
        self._look = half if self._reserving is None else self._end

    def _put(self, end: int) -> None:
        self._store.put_meta(self._name, end.to_bytes(8, "big"))
