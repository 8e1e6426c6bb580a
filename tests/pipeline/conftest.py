"""One Spark session for all tests of the pipeline: starting one takes longer than most of them."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from mqenterprise.pipeline.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(
        "local[2]",
        memory="1g",
        options={
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            # Generating code for a plan, and compiling that to the fastest, takes longer than running a test's little
            # data through slower code. Tests that start programs of their own run them as users do.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
        },
    )
    yield session
    session.stop()
    os.environ.pop("SPARK_LOCAL_IP", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs Spark is not part of make check: the session alone starts for several seconds."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
