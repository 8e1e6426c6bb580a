"""The simulation: the same seed is the same run, events tell what the truth says, and mistakes are explained."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyarrow import parquet

from mqenterprise.pipeline.simulation.journeys import NEVER
from mqenterprise.pipeline.simulation.queues import stay
from mqenterprise.pipeline.simulation.run import simulate
from mqenterprise.pipeline.simulation.traffic import Load, Receiver, SimulatedLink, Traffic
from mqenterprise.pipeline.simulation.writing import TRUTH, write
from qmnode.errors import ConfigurationError
from qmnode.export.places import Place
from qmnode.export.segment import SegmentName, read_segment
from tests.pipeline.enterprises import RING, ring_traffic

if TYPE_CHECKING:
    from pathlib import Path


def content(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*.parquet"))}


def test_the_same_seed_is_the_same_run(tmp_path: Path) -> None:
    for name, seed in (("one", 7), ("same", 7), ("other", 8)):
        write(simulate(RING, ring_traffic(300, seed=seed)), str(tmp_path / name))

    assert content(tmp_path / "one") == content(tmp_path / "same")
    assert content(tmp_path / "one") != content(tmp_path / "other")


def test_segments_are_those_of_nodes_and_number_their_events_without_gaps(tmp_path: Path) -> None:
    write(simulate(RING, ring_traffic(400, rows=500)), str(tmp_path))

    place, ranges = Place.open(str(tmp_path)), {}
    for file in place.files():
        name = SegmentName.parse(file.name)
        assert name is not None
        table = read_segment(place, file.path)
        assert table.column("offset").to_pylist() == list(range(name.first, name.last + 1))
        times = table.column("time").to_pylist()
        assert times == sorted(times)
        ranges.setdefault(name.node_id, []).append((name.first, name.last))
    assert len(ranges) == len(RING.machines)
    for found in ranges.values():
        firsts, lasts = zip(*sorted(found), strict=True)
        assert firsts == (1, *(last + 1 for last in lasts[:-1]))


def test_two_simulations_are_not_mixed_in_one_place(tmp_path: Path) -> None:
    outcome = simulate(RING, ring_traffic(300))
    write(outcome, str(tmp_path))
    write(outcome, str(tmp_path))  # the same again, such as after it was interrupted

    with pytest.raises(
        ConfigurationError, match=r"has other segments, such as .*: write the simulation to a new place"
    ):
        write(simulate(RING, ring_traffic(300, seed=8)), str(tmp_path))


def test_every_message_of_the_truth_is_sent_once(tmp_path: Path) -> None:
    write(simulate(RING, ring_traffic(400)), str(tmp_path))

    place = Place.open(str(tmp_path))
    sent = [
        (row["source_id"], row["message_number"])
        for file in place.files()
        for row in read_segment(place, file.path).to_pylist()
        if row["kind"] == "sent"
    ]
    truth = parquet.read_table(tmp_path / TRUTH).to_pylist()
    assert sorted(sent) == sorted((row["source_id"], row["message_number"]) for row in truth)
    assert len(truth) == 400


@pytest.mark.soak
@pytest.mark.timed
def test_messages_are_simulated_fast() -> None:
    begin = time.process_time()
    simulate(RING, ring_traffic(200_000))

    assert (time.process_time() - begin) / 200_000 < 20e-6


ARRIVALS, SIZES = np.array([0, 10, 20, 30]), np.array([5, 5, 5, 5])
PATIENT = np.full(4, NEVER)


def test_a_queue_is_received_in_order_at_the_receivers_pace() -> None:
    found = stay(ARRIVALS, SIZES, PATIENT, 15, None)

    assert found.received.tolist() == [0, 15, 30, 45]


def test_a_queue_with_limits_is_received_as_one_without_when_they_are_not_met() -> None:
    found = stay(ARRIVALS, SIZES, np.full(4, 1_000), 15, 1_000)

    assert found.received.tolist() == [0, 15, 30, 45]


def test_a_message_that_waits_too_long_dies_and_takes_no_time_of_the_receiver() -> None:
    found = stay(ARRIVALS, SIZES, np.array([NEVER, 3, NEVER, NEVER]), 15, None)

    assert found.expired.tolist() == [NEVER, 13, NEVER, NEVER]
    assert found.received.tolist() == [0, NEVER, 20, 35]


def test_a_full_queue_takes_nothing_until_there_is_room() -> None:
    found = stay(ARRIVALS, SIZES, PATIENT, 25, 5)

    # At 20 the one of 10 still waits for its turn at 25.
    assert found.full.tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("traffic", "sentence"),
    [
        (Traffic(loads=(Load(queue=r"nobody\orders"),)), "'nobody', which is no declared machine"),
        (Traffic(links=(SimulatedLink(sites=("Bern", "Dublin")),)), "Bern - Dublin, which is not declared"),
        (Traffic(receivers=(Receiver(queue=r"shop-a\ordres", per_second=1),)), r"shop-a\\ordres, which no load"),
    ],
)
def test_traffic_that_does_not_fit_the_enterprise_is_explained(traffic: Traffic, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        simulate(RING, traffic)


def test_a_mistake_in_the_file_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "traffic.yaml").write_text("loads: [{queue: a\\b, weight: -1}]\nmesages: 7\n")

    with pytest.raises(ConfigurationError, match=r"loads\.0\.weight.*mesages"):
        Traffic.read(tmp_path / "traffic.yaml")
