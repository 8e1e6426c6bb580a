"""Messages that have come back from their receivers, with the annotations that the outcome ``modified`` brought."""

from collections import OrderedDict
from typing import Any, Final

from qmnode.amqp.codec import CodecError, Decoder, encode

_MOST: Final = 10_000
_BYTES: Final = 4 << 20
"""Bytes of all annotations together; beyond them, and beyond so many messages, the oldest are forgotten."""
_LONGEST: Final = 64 * 1024


class Returned:
    """The messages that came back since the node started, by queue and lookup identifier."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._size = 0

    def __contains__(self, key: tuple[int, int]) -> bool:
        return key in self._kept

    def annotations(self, key: tuple[int, int]) -> dict[Any, Any]:
        """The annotations for the next receiver of a message."""
        kept = self._kept.get(key)
        return Decoder(kept).value() if kept else {}

    def add(self, key: tuple[int, int], annotations: bytes = b"") -> None:
        """Remember a message, and an encoded map of annotations, which replace those with the same names."""
        if annotations:
            annotations = self._merged(key, annotations)
        kept = self._kept.pop(key, b"")
        self._size += len(annotations or kept) - len(kept)
        self._kept[key] = annotations or kept
        while len(self._kept) > _MOST or self._size > _BYTES:
            self._size -= len(self._kept.popitem(last=False)[1])

    def _merged(self, key: tuple[int, int], annotations: bytes) -> bytes:
        try:
            found = Decoder(annotations).value()
            merged = encode(self.annotations(key) | {name: one for name, one in found.items() if isinstance(name, str)})
        except (CodecError, AttributeError):  # no map, or one that is not taken in messages either
            return b""
        return merged if len(merged) <= _LONGEST else b""

    def discard(self, key: tuple[int, int]) -> None:
        """Forget a message that is gone."""
        self._size -= len(self._kept.pop(key, b""))
