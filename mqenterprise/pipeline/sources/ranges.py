"""Sets of offsets: the known events of each node. They stay small however many events there are."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Self


class Ranges:
    """A set of whole numbers as disjoint ranges in order. Both ends belong to a range."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._firsts, self._lasts, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and (self._firsts, self._lasts) == (other._firsts, other._lasts)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __str__(self) -> str:
        return ",".join(f"{first}-{last}" for first, last in self)

    def __repr__(self) -> str:
        return f"Ranges({self})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of ``str``. ValueError."""
        parts = (part.split("-") for part in text.split(",") if part)
        return cls((int(first), int(last)) for first, last in parts)

    def copy(self) -> "Ranges":
        """Return a copy that can be changed."""
        copy = Ranges()
        copy._firsts, copy._lasts = self._firsts.copy(), self._lasts.copy()
        return copy

    def add(self, first: int, last: int) -> None:
        """Add a range, and merge it with those that it touches."""
        begin = bisect_left(self._lasts, first - 1)
        end = begin
        while end < len(self._firsts) and self._firsts[end] <= last + 1:
            first, last = min(first, self._firsts[end]), max(last, self._lasts[end])
            end += 1
        self._firsts[begin:end], self._lasts[begin:end] = [first], [last]

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the parts of a range that are not in the set."""
        found: list[tuple[int, int]] = []
        index = bisect_left(self._lasts, first)
        while index < len(self._firsts) and self._firsts[index] <= last:
            if first < self._firsts[index]:
                found.append((first, self._firsts[index] - 1))
            first = self._lasts[index] + 1
            index += 1
        if first <= last:
            found.append((first, last))
        return found

    def within(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the parts of a range that are in the set."""
        found: list[tuple[int, int]] = []
        index = bisect_left(self._lasts, first)
        while index < len(self._firsts) and self._firsts[index] <= last:
            found.append((max(first, self._firsts[index]), min(last, self._lasts[index])))
            index += 1
        return found

    def without(self, other: "Ranges") -> "Ranges":
        """Return the numbers of this set that are not in the other."""
        return Ranges(part for first, last in self for part in other.missing(first, last))
