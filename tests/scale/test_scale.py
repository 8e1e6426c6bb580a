"""A million messages cost the node a moment at its start and no memory: nothing that grows with the backlog is in it.

``python -m tests.bench scale`` prints the figures.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.scale import (
    FIRST_RECEIVE_SECONDS,
    MEMORY,
    OPEN_SECONDS,
    QUEUES_OPEN_SECONDS,
    measure,
)
from tests.bench.scale import QUEUES as QUEUE_COUNT

pytestmark = [pytest.mark.slow, pytest.mark.timed]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, float]]]:
    folder = tmp_path_factory.mktemp("scale")
    yield measure(folder)
    for directory in folder.iterdir():
        for file in Path(directory).iterdir():
            file.unlink()


@pytest.mark.parametrize("step", ["first", "receive", "again"])
def test_a_queue_of_a_million_messages_opens_quickly(measured: dict[str, dict[str, float]], step: str) -> None:
    assert measured[step]["open"] < OPEN_SECONDS


@pytest.mark.parametrize("step", ["first", "receive", "again"])
def test_its_first_message_is_found_without_a_search(measured: dict[str, dict[str, float]], step: str) -> None:
    assert measured[step]["first_receive"] < FIRST_RECEIVE_SECONDS


@pytest.mark.parametrize("step", ["fill", "first", "receive", "again", "queues"])
def test_the_process_stays_small(measured: dict[str, dict[str, float]], step: str) -> None:
    assert measured[step]["VmHWM"] < MEMORY


def test_ten_thousand_queues_open_quickly(measured: dict[str, dict[str, float]]) -> None:
    assert measured["queues"]["queues"] == QUEUE_COUNT
    assert measured["queues"]["open"] < QUEUES_OPEN_SECONDS
