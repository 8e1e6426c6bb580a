"""A store of acknowledged messages, which tests copy and damage."""

import asyncio
from pathlib import Path

import pytest

from tests.faults.flips import make_store

COUNT = 500


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with 500 messages in four queues, as a kill leaves it."""
    folder = tmp_path_factory.mktemp("faults")
    return asyncio.run(make_store(folder / "store", folder / "made", COUNT))
