"""The jobs on simulated traffic: every number of every table is what is known to be so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from mqenterprise.pipeline import directory
from mqenterprise.pipeline.analysis import Analysis
from mqenterprise.pipeline.simulation.run import simulate
from mqenterprise.pipeline.simulation.writing import TRUTH, write
from qmnode.export.places import Place
from tests.pipeline import truth as known
from tests.pipeline.enterprises import RING, ring_traffic

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, pd.DataFrame]:
    root: Path = tmp_path_factory.mktemp("ring")
    write(simulate(RING, ring_traffic()), str(root / "segments"))
    tables = directory.read([Place.open(str(root / "segments"))])
    analysis = Analysis(spark, [str(root / "segments")], str(root / "tables"), tables)
    analysis.run()
    return analysis, parquet.read_table(root / "segments" / TRUTH).to_pandas()


def test_the_traffic_has_everything_that_can_happen(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    truth = analysed[1]
    assert set(truth["status"]) == {"received", "reached", "died"}
    assert truth["reason"].nunique() == 5


def test_message_life(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    known.check_message_life(analysed[0].tables, analysed[1], analysed[0].directory)


def test_routes(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    known.check_routes(analysed[0].tables, analysed[1], analysed[0].directory)


def test_paths_and_hops(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    known.check_paths(analysed[0].tables, analysed[1])


def test_service_levels(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    known.check_service_levels(analysed[0].tables, analysed[1], analysed[0].directory)


def test_latencies_add_up_to_percentiles(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    known.check_latencies(analysed[0].tables, analysed[1])


def test_backlog(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    known.check_backlog(analysed[0].tables, analysed[1])


def test_dead_letters(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    known.check_dead_letters(analysed[0].tables, analysed[1], analysed[0].directory)


def test_links_and_their_costs(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    known.check_links(analysed[0].tables, analysed[1], analysed[0].directory)


def test_keys_and_certificates(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    known.check_keys(analysed[0].tables, analysed[1], analysed[0].directory)


def test_capacity(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    known.check_capacity(analysed[0].tables, analysed[1], analysed[0].directory)


def test_without_a_directory_there_are_tables_too(
    analysed: tuple[Analysis, pd.DataFrame], spark: SparkSession, tmp_path: Path
) -> None:
    """No links, no names, no keys to compare with: what nodes tell is told, and nobody is accused."""
    whole, truth = analysed
    analysis = Analysis(spark, whole.sources, str(tmp_path), directory.DirectoryTables())
    for job in ("link-costs", "keys"):
        analysis.run(job)

    assert known.frame(analysis.tables, "link_costs").empty
    keys = known.frame(analysis.tables, "keys")
    assert set(keys["state"]) == {"unknown"}
    assert keys["messages"].sum() == truth["key_fingerprint"].notna().sum()
    assert keys["late"].sum() == 0


def test_a_second_run_without_news_writes_nothing(analysed: tuple[Analysis, pd.DataFrame]) -> None:
    summed = analysed[0].run()

    assert (summed.segments, summed.tables) == (0, {})
