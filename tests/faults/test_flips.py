"""One wrong bit anywhere in a store: no message is wrong, and none is missing without a word."""

import random
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from tests.faults.conftest import COUNT
from tests.faults.flips import flipped, flips, kind_of, make_store
from tests.faults.outcomes import outcome

pytestmark = pytest.mark.public_report("nats-io/nats-server#7549")


async def campaign(store: Path, folder: Path, seed: int, flip_count: int, count: int) -> Counter[tuple[str, str]]:
    """So many flips of the store; what came of them, by the kind of the file."""
    outcomes: Counter[tuple[str, str]] = Counter()
    for flip in islice(flips(store, seed), flip_count):
        with flipped(store, folder / "flipped", flip) as path:
            seen = await outcome(path)
        assert not seen.violations(count), (seed, flip, seen.violations(count), seen.words[:3])
        result = "no start" if seen.refused else "named" if seen.words else "all there"
        outcomes[kind_of(flip.file), result] += 1
    return outcomes


async def test_no_message_is_missing_without_a_word(store: Path, tmp_path: Path) -> None:
    outcomes = await campaign(store, tmp_path, 1, 18, COUNT)
    assert outcomes["log", "no start"] == 2
    assert outcomes["CURRENT", "no start"] == 2


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
async def test_two_thousand_flips(tmp_path: Path, part: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    store = await make_store(tmp_path / "store", tmp_path / "made", 2000)
    outcomes = await campaign(store, tmp_path, seed + part, 500, 2000)
    for (kind, result), number in sorted(outcomes.items()):
        print(f"seed {seed + part}: {kind:24} {result:10} {number}")
