"""Nothing acknowledged is lost and nothing is seen twice, however often the power is cut.

``CRASH_SEED=12345 pytest tests/crash`` asks the same questions and kills after the same number of answers again; what
exactly the node is doing then is up to the machine.
"""

from pathlib import Path

import pytest

from tests.crash.campaign import Campaign

pytestmark = [pytest.mark.servers, pytest.mark.slow]


def report(campaign: Campaign) -> str:
    wrong = "\n".join(campaign.ledger.violations[:20])
    return f"after {campaign.kills} kills, {len(campaign.ledger.messages)} messages, seed {campaign.seed}:\n{wrong}"


async def crash(tmp_path: Path, shim: Path, seed: int, kills: int) -> Campaign:
    campaign = Campaign(tmp_path / "disk", shim, seed)
    await campaign.run(kills)
    print(
        f"{campaign.kills} kills, {len(campaign.ledger.messages)} messages, {campaign.ledger.answers} answers checked"
    )
    print(f"{campaign.bytes_lost} bytes were written and not synced")
    return campaign


async def test_ten_power_cuts(tmp_path: Path, shim: Path, seed: int) -> None:
    campaign = await crash(tmp_path, shim, seed, 10)
    assert not campaign.ledger.violations, report(campaign)


async def test_a_node_that_does_not_sync_is_caught(tmp_path: Path, shim: Path, seed: int) -> None:
    campaign = Campaign(tmp_path / "disk", shim, seed, syncs=False)
    await campaign.run(3)
    assert any("acknowledged messages are lost" in one for one in campaign.ledger.violations), report(campaign)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(8))
async def test_two_hundred_power_cuts(tmp_path: Path, shim: Path, seed: int, part: int) -> None:
    campaign = await crash(tmp_path, shim, seed + part, 27)
    assert not campaign.ledger.violations, report(campaign)
