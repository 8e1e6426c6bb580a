"""Session keys under which bodies did not decrypt, by the neighbour that brought them.

A body under MSMQ's encryption has no protection against change but its padding. Somebody who sends altered copies of
a message and learns which of them decrypt can read it (a padding oracle). So after a few failures a session key is
dropped: a stranger's messages under it are no longer decrypted, and a declared peer's are no longer acknowledged.
"""

from __future__ import annotations

import hashlib
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qmnode.security.outcomes import Neighbour

FAILURES: Final = 3
"""Bodies under one session key, from one neighbour, that may fail before the key is dropped."""
LIFETIME: Final = 3600.0
"""Seconds after its last failure for which a key stays dropped."""
KEYS: Final = 64
"""Session keys remembered of one neighbour. Over it all of its session keys count as dropped."""
NEIGHBOURS: Final = 1024
"""Strangers remembered, and as many declared peers."""


class _Record:
    __slots__ = ("counts", "last")

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.last = 0.0


class Suspects:
    """Counts failures in bounded memory. May be used from several threads."""

    def __init__(self) -> None:
        self._records: tuple[dict[str, _Record], dict[str, _Record]] = ({}, {})
        self._lock = Lock()

    def failed(self, neighbour: Neighbour, key: bytes, now: float) -> None:
        """A body under this SIMPLEBLOB, which one of our private keys unwrapped, did not decrypt."""
        with self._lock:
            records = self._records[neighbour.declared]
            record = self._fresh(neighbour, now) or _Record()
            records.pop(neighbour.block, None)
            records[neighbour.block] = record  # behind all others: the first is the one without failures for longest
            if len(records) > NEIGHBOURS:
                del records[next(iter(records))]
            record.last = now
            digest = _digest(key)
            if digest in record.counts or len(record.counts) < KEYS:
                record.counts[digest] = record.counts.get(digest, 0) + 1

    def is_dropped(self, neighbour: Neighbour, key: bytes, now: float) -> bool:
        """Whether too many messages that the neighbour brought under this key did not decrypt."""
        if neighbour.block not in self._records[neighbour.declared]:
            return False
        with self._lock:
            record = self._fresh(neighbour, now)
            if record is None:
                return False
            return len(record.counts) >= KEYS or record.counts.get(_digest(key), 0) >= FAILURES

    def _fresh(self, neighbour: Neighbour, now: float) -> _Record | None:
        record = self._records[neighbour.declared].get(neighbour.block)
        return record if record is not None and abs(now - record.last) <= LIFETIME else None


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=16).digest()
