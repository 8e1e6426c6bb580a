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
"""Where in a place the records are when nothing else is said; readers of the place pass it over."""
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class Record:
    """A segment that is set aside."""

    path: str
    """As its place names it."""
    reason: str
    """``corrupt``, ``newer-format``, ``misnamed``, ``foreign``, ``schema`` or ``gone``."""
    sentence: str
    """What is wrong, for people."""
    signature: str = ""
    """Size and time of the file: another one under the same name is a repaired one."""
    lost: bool = True
    """Whether its events are missing in what was read: another copy of the same segment may have had them."""
    seen: float = 0.0
    """Seconds since 1970 (UTC)."""
    reader: int = FORMAT
    """The newest format that the reader knew."""


class Quarantine:
    """The list, in a directory or a bucket."""

    def __init__(self, address: str) -> None:
        self.address = address

    def add(self, record: Record) -> None:
        """Put a segment on the list. A list that cannot be written stops no run either: then it is said on stderr."""
        record = Record(**{**asdict(record), "seen": record.seen or time.time()})
        try:
            Place.open(self.address).put(_name(record.path), json.dumps(asdict(record), sort_keys=True).encode())
        except OSError as error:
            print(  # an executor has no better place
                f"{record.path} is set aside ({record.sentence}), and {shown(self.address)} cannot be written: {error}",
                file=sys.stderr,
            )

    def discard(self, path: str) -> None:
        """The segment was read after all."""
        place = Place.open(self.address)
        try:
            place.delete(f"{place.root}/{_name(path)}")
        except OSError:
            return  # somebody else was faster, or the list cannot be written: it was said above

    def records(self) -> dict[str, Record]:
        """All records by the path of their segments, in the order of the paths. OSError."""
        place = Place.open(self.address)
        found: dict[str, Record] = {}
        for file in place.files(_SUFFIX):
            with place.file_system.open_input_stream(file.path) as stream:
                content = stream.read()
            try:
                record = Record(**json.loads(content))
            except (ValueError, TypeError):
                continue  # not ours, or just being written
            found[record.path] = record
        return dict(sorted(found.items()))


def _name(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:32] + _SUFFIX
