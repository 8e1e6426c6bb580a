"""Events in the store until they are exported: one block for each batch of the store, written with it.

A block is its number of events, a table of names, and the events. Each has fixed fields, then the stored message
without its body, or a JSON object for an event of the node. They are interpreted only on export, in another process.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from qmnode.export.events import EventKind

_HEAD: Final = struct.Struct("<BII")
_EVENT: Final = struct.Struct("<BIIIqI")
"""Kind, queue and peer (indexes in the table), reason, time, size of the rest."""
_LENGTH: Final = struct.Struct("<H")
_VERSION: Final = 1
KINDS: Final = tuple(EventKind)
"""Blocks contain indexes into this: new kinds go to the end of the enumeration."""
SENT_AND_REACHED: Final = 0xFF
"""Recorded once, exported as two events: the case of most messages sent to a queue of the same node."""
PLACES: Final = {kind: place for place, kind in enumerate(KINDS)}


_BOTH: Final = (PLACES[EventKind.SENT], PLACES[EventKind.REACHED])


class Event(NamedTuple):
    """An event as it is recorded."""

    kind: int
    """Its index in ``KINDS``."""
    queue: str
    peer: str
    reason: int
    time: int
    """Microseconds since 1970 (UTC)."""
    content: bytes


def write_block(events: Iterable[tuple[int, str, str, int, int, bytes]]) -> bytes:
    """Encode events as one block."""
    names: dict[str, int] = {}
    place = names.setdefault
    pack = _EVENT.pack
    parts: list[bytes] = []
    count = 0
    for kind, queue, peer, reason, time, content in events:
        parts.append(
            pack(kind, place(queue, len(names)), place(peer, len(names)), reason, time, len(content)),
        )
        parts.append(content)
        count += 2 if kind == SENT_AND_REACHED else 1
    table = [encoded[:0xFFFF] for encoded in (name.encode("utf-8", "replace") for name in names)]
    head = [_HEAD.pack(_VERSION, count, len(table))]
    for name in table:
        head += (_LENGTH.pack(len(name)), name)
    return b"".join((*head, *parts))


def count_of(block: bytes) -> int:
    """The number of events in a block."""
    return int(_HEAD.unpack_from(block)[1])


def read_block(block: bytes) -> Iterator[Event]:
    """Decode the events of a block. Raises ValueError if a newer program wrote it."""
    version, count, named = _HEAD.unpack_from(block)
    if version != _VERSION:
        raise ValueError(f"a block of events has version {version}, and this program reads {_VERSION}")
    offset = _HEAD.size
    names: list[str] = []
    for _ in range(named):
        (length,) = _LENGTH.unpack_from(block, offset)
        offset += _LENGTH.size
        names.append(block[offset : offset + length].decode("utf-8", "replace"))
        offset += length
    while count > 0:
        kind, queue, peer, reason, time, size = _EVENT.unpack_from(block, offset)
        offset += _EVENT.size
        content = block[offset : offset + size]
        offset += size
        for one in _BOTH if kind == SENT_AND_REACHED else (kind,):
            yield Event(one, names[queue], names[peer], reason, time, content)
            count -= 1
