"""The progress of a table: for each node, the ranges of offsets that the table contains.

It is written in the same commit as the rows, so that both always agree. It holds ranges instead of a highest offset: a
late segment fills a gap, and a repeated segment adds nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from mqenterprise.pipeline.sources.ranges import Ranges

if TYPE_CHECKING:
    from mqenterprise.pipeline.sources.segments import Piece, Segment


class Progress:
    """The ranges of offsets that were read, by node."""

    def __init__(self, read: Mapping[str, Ranges] | None = None) -> None:
        self._read = dict(read or {})

    def wanted(self, segments: Iterable[Segment]) -> dict[str, Ranges]:
        """Return the offsets in the segments that have not been read."""
        return {node: ranges.without(self._read.get(node, Ranges())) for node, ranges in _there(segments).items()}

    def had(self, segments: Sequence[Segment]) -> dict[str, Ranges]:
        """Return the offsets in the segments that have been read."""
        wanted = self.wanted(segments)
        return {node: ranges.without(wanted[node]) for node, ranges in _there(segments).items()}

    def after(self, pieces: Iterable[Piece]) -> Progress:
        """Return the progress after these offsets."""
        read = {node: ranges.copy() for node, ranges in self._read.items()}
        for piece in pieces:
            ranges = read.setdefault(piece.copies[0].name.node_id, Ranges())
            for first, last in piece.ranges:
                ranges.add(first, last)
        return Progress(read)

    def state(self) -> dict[str, str]:
        """Return the form for a commit."""
        return {node: str(ranges) for node, ranges in sorted(self._read.items())}

    @classmethod
    def of(cls, state: Mapping[str, str]) -> Self:
        """Read the form of a commit."""
        return cls({node: Ranges.parse(ranges) for node, ranges in state.items()})


def _there(segments: Iterable[Segment]) -> dict[str, Ranges]:
    there: defaultdict[str, Ranges] = defaultdict(Ranges)
    for segment in segments:
        there[segment.name.node_id].add(segment.name.first, segment.name.last)
    return there
