"""Segments in a bucket: written by a node, read by Spark's executors, broken ones set aside there; against moto."""

from pathlib import Path

import boto3
import pytest
from pyspark.sql import SparkSession

from mqenterprise.pipeline.sources.quarantine import Quarantine
from qmnode.export.places import Place, below
from qmnode.model.api import Access
from qmnode.model.message import Message
from qmnode.node import QueueManager
from qmnode.settings.node import ExportSettings, Settings, TransportSettings
from tests.lab.aws import ENVIRONMENT, PORT, Moto
from tests.pipeline.segments import put

pytestmark = pytest.mark.servers
REGION = ENVIRONMENT["AWS_DEFAULT_REGION"]


@pytest.fixture
def bucket(moto: Moto, fresh_name: object) -> str:
    """The address of a prefix in a new bucket, with everything that opening it needs."""
    assert callable(fresh_name)
    name = fresh_name("segments")
    client = boto3.client(
        "s3",
        endpoint_url=moto.url,
        region_name=REGION,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    options = f"endpoint_override={moto.address[0]}:{PORT}&scheme=http&region={REGION}"
    return f"s3://testing:testing@{name}/exports?{options}"


async def test_a_node_exports_to_a_bucket_and_spark_reads_it(bucket: str, tmp_path: Path, spark: SparkSession) -> None:
    settings = Settings(
        computer_name="NODE1", transport=TransportSettings(enabled=False), export=ExportSettings(target=bucket)
    )
    async with QueueManager.open(tmp_path / "node", settings) as manager:
        await manager.create_queue("NODE1\\private$\\orders")
        queue = await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders", Access.SEND)
        await queue.send_many([Message(b"x", recoverable=True) for _ in range(50)])
    frame = spark.read.format("qmnode").schema("kind string, message_number long").load(bucket)
    assert frame.where("kind = 'reached'").distinct().count() == 50


def test_a_stream_from_a_bucket_takes_each_event_once_and_sets_aside_what_is_broken(
    bucket: str, tmp_path: Path, spark: SparkSession
) -> None:
    def run() -> list[int]:
        query = (
            spark.readStream.format("qmnode")
            .schema("offset long")
            .load(bucket)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        query.awaitTermination(120)
        return sorted(row.offset for row in spark.read.schema("offset long").parquet(str(tmp_path / "table")).collect())

    put(bucket, range(1, 4))
    broken = put(bucket, range(4, 6))
    place = Place.open(bucket)
    with place.file_system.open_output_stream(broken) as stream:
        stream.write(b"half")
    assert run() == [1, 2, 3]
    (record,) = Quarantine(below(bucket, "_quarantine")).records().values()
    assert (record.path, record.reason) == (broken, "corrupt")
    put(bucket, range(6, 9))
    put(bucket, range(4, 6))  # whole, by now
    assert run() == list(range(1, 9))
