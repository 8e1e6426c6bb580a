"""A store of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from qmnode.storage.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The directory of the store, which is not there yet."""
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A new store."""
    with Store.open(path) as store:
        yield store
