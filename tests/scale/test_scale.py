"""A million messages cost the node a moment at its start and no memory: nothing that grows with the backlog is in it.

The bars are for processor time, since other programs may hold up a start here. ``python -m tests.bench scale`` compares
the same bars with the clock. The million is a soak test; a fifth of it shows whether anything grows with the backlog.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.scale import (
    FIRST_RECEIVE_SECONDS,
    MEMORY,
    MESSAGES,
    OPEN_SECONDS,
    QUEUES_OPEN_SECONDS,
    measure,
)
from tests.bench.scale import QUEUES as QUEUE_COUNT

pytestmark = pytest.mark.slow


FEWER = MESSAGES // 5
MOST = {FEWER: 200 * 1024 * 1024, MESSAGES: MEMORY}
"""Bytes of memory, by messages. A node that held the bodies in memory would take more."""


@pytest.fixture(scope="module", params=[FEWER, pytest.param(MESSAGES, marks=pytest.mark.soak)])
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, dict[str, float]]]:
    folder = tmp_path_factory.mktemp("scale")
    yield measure(folder, request.param) | {"bars": {"memory": MOST[request.param]}}
    for directory in folder.iterdir():
        for file in Path(directory).iterdir():
            file.unlink()


@pytest.mark.parametrize("step", ["first", "receive", "again"])
def test_a_large_queue_opens_quickly(measured: dict[str, dict[str, float]], step: str) -> None:
    assert measured[step]["open_processor"] < OPEN_SECONDS


@pytest.mark.parametrize("step", ["first", "receive", "again"])
def test_its_first_message_is_found_without_a_search(measured: dict[str, dict[str, float]], step: str) -> None:
    assert measured[step]["first_receive_processor"] < FIRST_RECEIVE_SECONDS


@pytest.mark.parametrize("step", ["fill", "first", "receive", "again", "queues"])
def test_the_process_stays_small(measured: dict[str, dict[str, float]], step: str) -> None:
    assert measured[step]["VmHWM"] < measured["bars"]["memory"]


def test_ten_thousand_queues_open_quickly(measured: dict[str, dict[str, float]]) -> None:
    assert measured["queues"]["queues"] == QUEUE_COUNT
    assert measured["queues"]["open_processor"] < QUEUES_OPEN_SECONDS
