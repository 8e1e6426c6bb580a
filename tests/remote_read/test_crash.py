"""Both sides are killed at random: what was acknowledged never comes back, what was not ended stays in its place.

``SOAK_SECONDS`` is how long the long one takes (15 minutes by default), ``SOAK_SEED`` does again what failed.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.crash.disk import compile_shim
from tests.remote_read.crash_campaign import Campaign

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.servers, pytest.mark.slow]


def crash(folder: Path, seed: int, kills: int, seconds: float = 0) -> None:
    campaign = Campaign(folder, compile_shim(folder), seed)
    campaign.run(kills, seconds)
    print(campaign.told())
    assert not campaign.findings, f"{campaign.told()}: {'; '.join(campaign.findings[:20])}"
    assert campaign.acknowledged


def test_nothing_is_lost_and_nothing_acknowledged_comes_back(tmp_path: Path) -> None:
    crash(tmp_path, 1, 8)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_quarter_of_an_hour_of_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().getrandbits(32))
    crash(tmp_path, seed, 20, float(os.environ.get("SOAK_SECONDS", "900")))
