"""The fuzzer's properties on its seeds, on damaged seeds, and on everything that it has found."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import properties
from tests.fuzz.seeds import packets, seeds
from tests.lab.cases import cases

SEEDS = list(seeds())


def test_there_is_a_seed_for_every_target() -> None:
    assert {target for target, _ in SEEDS} == set(properties.NAMES)
    assert len(properties.NAMES) <= 256


@cases("target", properties.NAMES)
def test_properties_hold_on_seeds(target: str) -> None:
    for name, data in SEEDS:
        if name == target:
            properties.run(target, data)


def test_what_the_fuzzer_found_stays_fixed() -> None:
    for path in sorted(properties.REGRESSIONS.glob("*-*")):
        properties.run(path.name.rpartition("-")[0], path.read_bytes(), measure=True)


@pytest.mark.parametrize("seed", range(4))
def test_properties_hold_on_damaged_packets(seed: int) -> None:
    chance = random.Random(seed)
    for data in packets():
        for _ in range(40):
            damaged = bytearray(data[: chance.choice((len(data), chance.randrange(len(data) + 1)))])
            for _ in range(chance.randrange(1, 6)):
                if damaged:
                    damaged[chance.randrange(len(damaged))] = chance.choice(
                        (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
                    )
            properties.run("packet", bytes(damaged))


def test_memory_stays_within_a_small_multiple_of_the_input() -> None:
    for data in packets():
        for position in range(0, min(len(data) - 4, 300), 4):
            hostile = data[:position] + b"\xff\xff\xff\x3f" + data[position + 4 :]
            properties.run("packet", hostile, measure=True)
