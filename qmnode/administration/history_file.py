"""The file in which the history of counters outlives the node: beside the store, and never part of a back-up.

Gzip over the length of a head, the head as JSON, and the samples of each queue in the order of the head.
"""

import gzip
import json
import os
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

_FORMAT: Final = 1
_LENGTH: Final = Struct("<I")
_MOST_HEAD: Final = 4_000_000
"""Bytes of a head; that of 300 queues with long names has less than 400,000."""


UNREADABLE: Final = (OSError, ValueError, TypeError, KeyError, EOFError, zlib.error)
"""The errors of a file that is missing, damaged or of another program."""


class Saved(NamedTuple):
    """The samples of one queue as bytes."""

    name: str
    used: int
    fine: bytes
    minutes: bytes


async def write(
    path: Path, facts: dict[str, Any], sizes: Sequence[Sequence[Any]], samples: AsyncIterator[Saved]
) -> None:
    """Replace the file. ``sizes``: name, last use and bytes of both kinds of samples of each queue. Raises OSError."""
    head = json.dumps(facts | {"format": _FORMAT, "queues": sizes}).encode()
    written = path.with_name(f"{path.name}.new")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as raw, gzip.GzipFile("", "wb", 1, raw) as file:
        file.write(_LENGTH.pack(len(head)) + head)
        async for one in samples:
            file.write(one.fine)
            file.write(one.minutes)
    written.replace(path)


def read(path: Path, most: int, add: Callable[[Saved], None]) -> dict[str, Any]:
    """Return the facts, and add each queue: at most ``most`` bytes of a kind. Raises one of UNREADABLE."""
    with gzip.open(path, "rb") as file:
        (length,) = _LENGTH.unpack(_exactly(file, _LENGTH.size, _MOST_HEAD))
        head = json.loads(_exactly(file, length, _MOST_HEAD))
        if not isinstance(head, dict) or head.get("format") != _FORMAT:
            raise ValueError("another program wrote it")
        for name, used, fine, minutes in head["queues"]:
            add(Saved(str(name), int(used), _exactly(file, fine, most), _exactly(file, minutes, most)))
        if file.read(1):  # at the end this compares the checksum
            raise ValueError("there is more in it than its head says")
    return head


def _exactly(file: gzip.GzipFile, size: int, most: int) -> bytes:
    data = file.read(size) if 0 <= size <= most else b""
    if len(data) != size:
        raise ValueError("it is incomplete")
    return data
