"""Segments that could not be read: set aside in a list that jobs show, so that no run stops for them.

A record is one small JSON file, named for the segment: writing it again changes nothing, and executors on many machines
write without knowing of each other.
"""

import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

from qmnode.export.events import FORMAT, shown
from qmnode.export.places import Place

FOLDER: Final = "_quarantine"
"""The default folder of the records in a place. Readers of the place ignore it."""
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class Record:
    """A segment that is set aside."""

    path: str
    """Its path in the place."""
    reason: str
    """``corrupt``, ``newer-format``, ``misnamed``, ``foreign``, ``schema``, ``too-large``, ``out-of-range`` or
    ``gone``."""
    sentence: str
    """The fault, in words for people."""
    signature: str = ""
    """Size and time of the file. A file with the same name and another signature is a repaired one."""
    lost: bool = True
    """Whether its events are missing in the result. Another copy of the segment may have supplied them."""
    seen: float = 0.0
    """The time of the record in seconds since 1970 (UTC)."""
    reader: int = FORMAT
    """The newest format that the reader supported."""


class Quarantine:
    """The list, in a directory or a bucket. It has the records of lists in folders below, too."""

    def __init__(self, address: str) -> None:
        self.address = address

    def add(self, record: Record) -> None:
        """Put a segment on the list. If the list cannot be written, the run goes on and reports that on stderr."""
        record = Record(**{**asdict(record), "seen": record.seen or time.time()})
        try:
            Place.open(self.address).put(_name(record.path), json.dumps(asdict(record), sort_keys=True).encode())
        except OSError as error:
            print(  # an executor has no better place
                f"{record.path} is set aside ({record.sentence}), and {shown(self.address)} cannot be written: {error}",
                file=sys.stderr,
            )

    def discard(self, path: str) -> None:
        """Remove a segment that was read after all."""
        place = Place.open(self.address)
        try:
            for file in place.files(_name(path)):
                place.delete(file.path)
        except OSError:
            return  # another process was faster, or the list cannot be written, which was reported above

    def records(self) -> dict[str, Record]:
        """All records by the path of their segments, in the order of the paths: the newest of each. OSError."""
        place = Place.open(self.address)
        found: dict[str, Record] = {}
        for file in place.files(_SUFFIX):
            with place.file_system.open_input_stream(file.path) as stream:
                content = stream.read()
            try:
                record = Record(**json.loads(content))
            except (ValueError, TypeError):
                continue  # not ours, or being written now
            known = found.get(record.path)
            if known is None or (known.seen, known.lost) <= (record.seen, record.lost):
                found[record.path] = record
        return dict(sorted(found.items()))


def _name(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:32] + _SUFFIX
