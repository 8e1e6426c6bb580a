"""The bars of ``tests/bench/structures.py``."""

from __future__ import annotations

import pytest

from tests.bench.structures import BAR, compare_parse, compare_write


@pytest.mark.soak
@pytest.mark.timed
def test_writing_a_message_costs_at_most_four_times_the_bare_calls() -> None:
    assert compare_write().ratio <= BAR


@pytest.mark.soak
@pytest.mark.timed
def test_reading_all_headers_of_a_message_costs_at_most_four_times_the_bare_calls() -> None:
    assert compare_parse().ratio <= BAR
