"""10,000 messages, receivers that fail at random, kills: each delivered as often as its queue says at most.

``RETRIED`` is the number of messages, ``RETRY_KILLS`` that of kills.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.soak.retries import MOST, Campaign

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("messages", "kills", "pause", "receivers", "longest"),
    [
        pytest.param(60, 1, 0.5, 1, 1, id="few"),
        pytest.param(
            int(os.environ.get("RETRIED", "10000")), int(os.environ.get("RETRY_KILLS", "20")), 6.0, 3, 4, id="many"
        ),
    ],
)  # fmt: skip
async def test_no_message_is_delivered_more_often_than_its_queue_says(
    tmp_path: Path, messages: int, kills: int, pause: float, receivers: int, longest: int
) -> None:
    campaign = Campaign(tmp_path, messages, kills, random.randrange(1 << 32), pause, receivers, longest)
    await campaign.run()
    print(campaign.figures())
    assert campaign.failures == [], campaign.figures()
    assert 0 < len(campaign.dead) < messages, campaign.figures()
    assert max(campaign.seen.values()) == MOST, campaign.figures()
