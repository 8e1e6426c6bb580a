"""Segments to read, made by hand: what is in them is known."""

from collections.abc import Iterable

from qmnode.export.places import Place
from qmnode.export.segment import Origin, SegmentName, table_of, write_segment

DAY = 1_767_225_600_000_000
"""2026-01-01 in microseconds."""


def origin(number: int = 1) -> Origin:
    return Origin(f"NODE{number}", f"00000000-0000-0000-0000-{number:012d}", f"Site{number}")


def put(address: str, offsets: Iterable[int], node: int = 1, kind: str = "sent") -> str:
    """Write these events of a node as one segment; its path."""
    chosen = list(offsets)
    columns = {
        "offset": chosen,
        "time": [DAY + 1000 * one for one in chosen],
        "kind": [kind] * len(chosen),
        "label": [f"order {one}" for one in chosen],
    }
    place = Place.open(address)
    name: SegmentName = write_segment(place, table_of(columns, origin(node), len(chosen)), origin(node))
    (path,) = [file.path for file in place.files() if file.name == str(name)]
    return path
