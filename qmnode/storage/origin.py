"""Detects whether a store is a copy: restored from a backup, or cloned with its machine.

A copy lacks the message identifiers and sequence numbers that were used after it was made. If it used them again,
receivers would take its new messages for duplicates and drop them. So a copy skips a large block of identifiers and
starts its sequences with a newer time stamp (TxSequenceID, MS-MQMQ 2.2.18.1.2).
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from qmnode.storage.layout import Family

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qmnode.model.ports import MessageStore
    from qmnode.settings.node import StorageSettings

COPY_MARKER: Final = "COPY"
"""The file that marks a checkpoint; the first start removes it."""

IDENTIFIERS: Final = "message_identifier"
SEQUENCE_TIME_STAMP: Final = "sequence_time_stamp"
EVENTS_EXPORTED: Final = "events_exported"
"""The sequential identifier of the last exported event."""
IDENTIFIER_JUMP: Final = 1 << 24
"""Message identifiers that a restored or copied store skips: more than the original uses in a day."""
_EVENT_JUMP: Final = 1 << 40
_ORIGIN: Final = "origin"
_COPIED: Final = "copied"
"""When the store was first started as a copy, and the block of identifiers that it skipped."""
RANGES: Final = "copied_ranges"
"""The ranges of messages that peers have shown to be missing in a copy, as JSON."""
REPORT: Final = "copied_report"
"""The findings of the restore of a copy elsewhere, as JSON; empty for other copies."""
_LONGEST: Final = 4096
_NOTICE_TIME: Final = 7 * 86_400
_MACHINE_ID: Final = Path("/etc/machine-id")
_HOSTS: Final = "failover_hosts"
"""The hosts between which the store moves, as JSON: on none of them it is a copy."""


class _Store(Protocol):
    """The part of a store that says where it comes from."""

    path: Path
    settings: StorageSettings

    def get_meta(self, name: str) -> bytes | None: ...
    def put_meta(self, name: str, value: bytes) -> None: ...
    def scan(self, family: Family, first: bytes) -> Iterator[tuple[bytes, bytes]]: ...
    def delete_range(self, family: Family, first: bytes, end: bytes) -> None: ...
    def flush(self) -> None: ...


def take_origin(store: _Store, *, lost: bool = False) -> None:
    """Detect a copy, skip identifiers if necessary, and record the place of the store.

    A store that has lost writes skips like a copy: it does not know the identifiers used since.
    """
    marker = store.path / COPY_MARKER
    here = _fingerprint(store)
    before = store.get_meta(_ORIGIN)
    copied = lost or marker.exists() or (before is not None and before != here)
    if before == here and not copied:
        return
    if copied:
        skipped = skip_identifiers(store)
        skip_events(store)
        if not lost:
            store.put_meta(_COPIED, b"%d %d %d" % (time.time(), *skipped))
            store.put_meta(RANGES, b"")
            store.put_meta(REPORT, marker.read_bytes()[:_LONGEST] if marker.is_file() else b"")
    if copied or before is None:
        new_sequence_time_stamp(store)
    store.put_meta(_ORIGIN, here)
    store.flush()
    marker.unlink(missing_ok=True)


class Copied(NamedTuple):
    """The first start of a copy."""

    began: int
    """In seconds since 1970 (UTC)."""
    last: int
    """The last message identifier that the copy knows of."""
    fresh: int
    """The last of the identifiers that it skips."""


def copied(store: MessageStore) -> Copied | None:
    """Return the first start of a copy, if that was within the last week; None for other stores."""
    found = Copied(*map(int, (store.get_meta(_COPIED) or b"0 0 0").split()))
    return found if 0 <= time.time() - found.began < _NOTICE_TIME else None


def copy_notice(store: MessageStore) -> str | None:
    """Return a sentence about a copy that was first started within the last week; None for other stores."""
    copy = copied(store)
    if copy is None:
        return None
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(copy.began))
    of = "as of a backup"
    with contextlib.suppress(ValueError, TypeError, KeyError):
        report = json.loads(store.get_meta(REPORT) or b"")
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(report["moment"]))
        of = (
            f"as of {moment} UTC: {report['missing']} messages that were accepted later are missing, and "
            f"{report['again']} that were received later come again (missing.jsonl in its folder lists them)"
        )
    return (
        f"it is a copy, {of}, first started on {when} UTC. Messages of this node with the numbers "
        f"{copy.last + 1} to {copy.fresh} may exist elsewhere and are unknown here; messages received since the copy "
        "was made may be received again; after_restore has the ranges that peers have shown to be lost"
    )


def skip_identifiers(store: _Store) -> tuple[int, int]:
    """Skip a block of message identifiers after the last known one. Return that, and the last of the block."""
    last = int.from_bytes(store.get_meta(IDENTIFIERS) or b"", "big")
    fresh = last + IDENTIFIER_JUMP
    store.put_meta(IDENTIFIERS, fresh.to_bytes(8, "big"))
    return last, fresh


def skip_events(store: _Store) -> None:
    """Give events other sequential identifiers than those that the original has used since."""
    last = int.from_bytes(store.get_meta(EVENTS_EXPORTED) or b"", "big")
    for key, _ in store.scan(Family.EVENTS, b""):
        last = max(last, int.from_bytes(key, "big"))
    # The original exports the events in its log; here they would be exported twice.
    store.delete_range(Family.EVENTS, b"", b"\xff" * 9)
    store.put_meta(EVENTS_EXPORTED, (last + _EVENT_JUMP).to_bytes(8, "big"))


def new_sequence_time_stamp(store: _Store) -> None:
    """Make outgoing sequences that start from now on newer than any of the original."""
    last = int.from_bytes(store.get_meta(SEQUENCE_TIME_STAMP) or b"", "big")
    store.put_meta(SEQUENCE_TIME_STAMP, max(last + 1, int(time.time())).to_bytes(8, "big"))


def move_between(store: _Store, hosts: tuple[str, ...]) -> None:
    """Let the store move between these hosts, from its next start on; none: let it stay where it is."""
    store.put_meta(_HOSTS, json.dumps(sorted(host.partition(".")[0].casefold() for host in hosts)).encode())
    store.flush()
    store.put_meta(_ORIGIN, _fingerprint(store))


def moves(store: _Store) -> bool:
    """Whether the store moves between hosts, of which this is one."""
    own = socket.gethostname().partition(".")[0].casefold()
    return own in json.loads(store.get_meta(_HOSTS) or b"[]")


def _fingerprint(store: _Store) -> bytes:
    """The machine and the directory: both change when files are copied to another place. Of a store that moves between
    hosts only the directory's number in its file system stays.
    """
    path = store.path
    if moves(store):
        return b"failover %d" % path.stat().st_ino
    machine = _MACHINE_ID.read_bytes().strip() if _MACHINE_ID.exists() else b""
    place = path.stat()
    return b"%s %d %d" % (machine, place.st_dev, place.st_ino)
