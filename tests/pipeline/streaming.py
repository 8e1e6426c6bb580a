"""A driver that streams events into a table, to be killed: ``python -m tests.pipeline.streaming``."""

import sys

from mqenterprise.pipeline.session import open_session


def main(place: str, table: str, checkpoint: str) -> None:
    """Take what there is, a few segments a batch, and end."""
    spark = open_session("local[2]", memory="1g", options={"spark.sql.shuffle.partitions": "2"})
    events = spark.readStream.format("qmnode").schema("node string, offset long, label string")
    query = (
        events.option("files_per_trigger", "2")
        .load(place)
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(table)
    )
    print("streaming", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
