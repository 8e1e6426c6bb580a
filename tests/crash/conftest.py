"""The shim, compiled once; a seed, which is printed and can be given; an event loop's daemon that is always ended."""

import os
import random
from pathlib import Path

import pytest

from tests.crash.disk import compile_shim

SEED_VARIABLE = "CRASH_SEED"


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def seed() -> int:
    """From the environment, to do again what failed; otherwise another one each time."""
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().getrandbits(32))
    print(f"{SEED_VARIABLE}={seed}")
    return seed
