"""How far a table has read: for each node the ranges of offsets that are in it.

It is committed with the table, in one commit, so that what is in the table and what is said to be in it never differ.
Ranges, not a highest offset: a late segment fills a gap, and a segment that comes twice is in no gap.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Self

from mqenterprise.pipeline.sources.ranges import Ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mqenterprise.pipeline.sources.segments import Piece, Segment


class Progress:
    """The ranges of offsets that were read, by node."""

    def __init__(self, read: Mapping[str, Ranges] | None = None) -> None:
        self._read = dict(read or {})

    def wanted(self, segments: Iterable[Segment]) -> dict[str, Ranges]:
        """What segments have that was not read yet."""
        return {node: ranges.without(self._read.get(node, Ranges())) for node, ranges in _there(segments).items()}

    def had(self, segments: Sequence[Segment]) -> dict[str, Ranges]:
        """What segments have that was read."""
        wanted = self.wanted(segments)
        return {node: ranges.without(wanted[node]) for node, ranges in _there(segments).items()}

    def after(self, pieces: Iterable[Piece]) -> Progress:
        """How far it is when these have been read too."""
        read = {node: ranges.copy() for node, ranges in self._read.items()}
        for piece in pieces:
            ranges = read.setdefault(piece.copies[0].name.node_id, Ranges())
            for first, last in piece.ranges:
                ranges.add(first, last)
        return Progress(read)

    def state(self) -> dict[str, str]:
        """As it is committed."""
        return {node: str(ranges) for node, ranges in sorted(self._read.items())}

    @classmethod
    def of(cls, state: Mapping[str, str]) -> Self:
        """As it was committed."""
        return cls({node: Ranges.parse(ranges) for node, ranges in state.items()})


def _there(segments: Iterable[Segment]) -> dict[str, Ranges]:
    there: defaultdict[str, Ranges] = defaultdict(Ranges)
    for segment in segments:
        there[segment.name.node_id].add(segment.name.first, segment.name.last)
    return there
