"""ARCHITECTURE.md lists the files that run for a message, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qmnode.shares import block_of
from tests.reach.message_way import MESSAGE, PAGE, SESSION, Way, common, empty_caches, listed, of_page, ways

if TYPE_CHECKING:
    from pathlib import Path

FEW = 24
"""Files from ``send`` to ``receive``: each one more is one more to read for whoever wants to know what happens."""
FURTHER = 19
"""Files that open a session besides."""
RENEW = "run python -m tests.reach.message_way"


@pytest.fixture
async def recordings(tmp_path: Path) -> tuple[list[Way], list[Way]]:
    return await ways(tmp_path)


async def test_the_page_lists_the_files_from_send_to_receive(recordings: tuple[list[Way], list[Way]]) -> None:
    messages, sessions = recordings
    page = PAGE.read_text("utf-8")
    way = of_page(page, MESSAGE)
    run = common(messages)
    assert set(way) == set(run), RENEW
    assert len(way) == len(set(way)) <= FEW
    swapped = [
        (earlier, later)
        for place, earlier in enumerate(way)
        for later in way[place + 1 :]
        if all(recorded.index(earlier) > recorded.index(later) for recorded in messages)
    ]
    assert swapped == [], f"the page lists them in another order than they run: {RENEW}"
    assert listed(way) in page, f"a file's docstring has changed: {RENEW}"

    further = of_page(page, SESSION)
    assert set(further) == set(common(sessions)) - set(way), RENEW
    assert len(further) == len(set(further)) <= FURTHER
    assert listed(further) in page, f"a file's docstring has changed: {RENEW}"


def test_what_earlier_tests_left_in_caches_is_forgotten() -> None:
    block_of("192.0.2.1")
    empty_caches()
    assert not block_of.cache_info().currsize
