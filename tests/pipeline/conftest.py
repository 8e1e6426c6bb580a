"""One Spark session for all tests of the pipeline: starting one takes longer than most of them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqenterprise.pipeline.session import open_session

LITTLE_DATA = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
}
"""Generating code for a plan, and compiling that to the fastest, takes longer than running a test's little data through
slower code."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    options = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"} | LITTLE_DATA
    session = open_session("local[2]", memory="1g", options=options)
    yield session
    session.stop()
    os.environ.pop("SPARK_LOCAL_IP", None)


@pytest.fixture
def for_little_data(tmp_path: Path) -> dict[str, str]:
    """The environment of a program that starts a Spark of its own: as the machine's administrator may set it up."""
    folder = tmp_path / "spark-conf"
    folder.mkdir()
    lines = [f"{name} {value}\n" for name, value in LITTLE_DATA.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return {**os.environ, "SPARK_CONF_DIR": str(folder)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs Spark is not part of make check: the session alone starts for several seconds."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
