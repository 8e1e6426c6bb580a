"""Sets of offsets, against Python's own sets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mqenterprise.pipeline.sources.ranges import Ranges

range_lists = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 12)).map(lambda one: (one[0], one[0] + one[1])))


def numbers(ranges: list[tuple[int, int]]) -> set[int]:
    return {one for first, last in ranges for one in range(first, last + 1)}


@given(range_lists)
def test_a_set_has_what_was_added_in_the_fewest_ranges(added: list[tuple[int, int]]) -> None:
    ranges = Ranges(added)
    found = list(ranges)
    assert numbers(found) == numbers(added)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
    assert Ranges.parse(str(ranges)) == ranges


@given(range_lists, st.integers(1, 60), st.integers(0, 20))
def test_what_is_missing_and_what_is_within_are_the_two_parts_of_a_range(
    added: list[tuple[int, int]], first: int, length: int
) -> None:
    ranges, asked = Ranges(added), numbers([(first, first + length)])
    assert numbers(ranges.missing(first, first + length)) == asked - numbers(added)
    assert numbers(ranges.within(first, first + length)) == asked & numbers(added)


@given(range_lists, range_lists)
def test_without(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    assert numbers(list(Ranges(one).without(Ranges(other)))) == numbers(one) - numbers(other)
