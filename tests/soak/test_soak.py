"""Exactly once, in order, whatever breaks and whoever attacks: for a minute in every run of the tests, and for long in
``make soak``.

``SOAK_SEED`` does again what failed; ``SOAK_SECONDS`` is how long each of the long ones takes.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.crash.disk import compile_shim
from tests.soak.attacker import RATE
from tests.soak.run import Soak

pytestmark = [pytest.mark.servers, pytest.mark.slow]


async def soak(folder: Path, seconds: float, *, attacked: bool = True, tls: bool = False) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().getrandbits(32))
    run = Soak(folder, compile_shim(folder), seed, seconds, attacked, tls)
    await run.run()
    print(run.told())
    assert not run.findings, f"{run.told()}: {'; '.join(run.findings)}"
    assert run.kills
    if attacked:
        assert run.attacker.sent > seconds * RATE / 2
        assert run.attacker.seen
        assert run.attacker.opened
        assert run.sieges
    assert all(stream.received for streams in run.streams.values() for stream in streams if stream.is_received)
    for name, returns in run.returns.items():
        assert all(returns.dead[stream.name] for stream in run.streams[name] if not stream.is_received)
        assert returns.reports


@pytest.mark.timeout(900)
@pytest.mark.parametrize("tls", [pytest.param(False, marks=pytest.mark.soak), True], ids=["plain", "tls"])
async def test_a_moment_of_everything(tmp_path: Path, tls: bool) -> None:
    """The part of the long ones that every run of the tests has: each kind of fault comes several times."""
    await soak(tmp_path, 12, tls=tls)


@pytest.mark.soak
@pytest.mark.timeout(0)
async def test_half_an_hour_of_everything(tmp_path: Path) -> None:
    await soak(tmp_path, float(os.environ.get("SOAK_SECONDS", "1800")), attacked=False)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_twenty_minutes_under_attack(tmp_path: Path, tls: bool) -> None:
    await soak(tmp_path, float(os.environ.get("SOAK_SECONDS", "1200")), tls=tls)
