"""The sources of the pipeline: exported segments against Spark's own reading of the same files, and copies of stores.

Spark's session is started, and every way is gone some times, before anything is measured. One task reads at a time;
times are processor times of all processes together, since Python's and Java's share the work of one task.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from mqenterprise.pipeline.session import open_session
from mqenterprise.pipeline.sources.checkpoints import opened
from mqenterprise.pipeline.sources.events import EVENTS as SPARK_EVENTS
from mqenterprise.pipeline.sources.quarantine import Quarantine
from mqenterprise.pipeline.sources.reading import Wanted, with_events
from mqenterprise.pipeline.sources.segments import find_segments, pieces_of
from qmnode.export.places import Place
from qmnode.export.segment import SCHEMA, Origin, table_of, write_segment
from qmnode.model.api import Access
from qmnode.model.message import Message
from qmnode.node import QueueManager
from qmnode.settings.node import Settings, TransportSettings
from qmnode.storage.layout import Family
from tests.bench import Comparison, bench
from tests.bench._processor import processor_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

EVENTS: Final = 1_000_000
SEGMENT: Final = 125_000
MESSAGES: Final = 1_000_000
FEW: Final = 4_000
BATCH: Final = 8192
ROUNDS: Final = 5
WARM_UP: Final = 3
SHARE_OF_SPARK: Final = 0.8
_BAR: Final = 1 / SHARE_OF_SPARK
MESSAGES_A_SECOND: Final = 150_000
"""A core, at least."""
USED: Final = "offset long, time timestamp, kind string, node string, source_id string, message_number long"
"""What the jobs ask for most."""


def write_segments(folder: Path) -> None:
    """Lives of messages between four nodes."""
    start = 1_767_225_600_000_000
    for part in range(EVENTS // SEGMENT):
        node, first = part % 4, part // 4 * SEGMENT + 1
        origin = Origin(f"NODE{node}", f"00000000-0000-0000-0000-00000000000{node}", f"Site{node}")
        offsets = range(first, first + SEGMENT)
        columns = {
            "offset": offsets,
            "time": [start + one * 1000 for one in offsets],
            "kind": [("sent", "transferred", "reached", "received")[one % 4] for one in offsets],
            "source_id": [f"00000000-0000-0000-0000-00000000000{one % 7}" for one in offsets],
            "message_number": offsets,
            "destination": [f"DIRECT=OS:node{one % 7}\\private$\\queue{one % 50}" for one in offsets],
            "queue": [f"node{one % 7}\\private$\\queue{one % 50}" for one in offsets],
            "message_class": [0] * SEGMENT,
            "priority": [3] * SEGMENT,
            "recoverable": [True] * SEGMENT,
            "transactional": [False] * SEGMENT,
            "hop_count": [one % 3 for one in offsets],
            "size": [500 + one % 1000 for one in offsets],
            "body_size": [300 + one % 1000 for one in offsets],
            "sent_time": [(start + one * 1000) // 1_000_000 * 1_000_000 for one in offsets],
            "label": [f"order {one}" for one in offsets],
        }
        write_segment(Place.open(str(folder)), table_of(columns, origin, SEGMENT), origin)


async def write_copy(folder: Path, messages: int) -> str:
    """A copy of the store of a node with messages in four queues; its path."""
    settings = Settings(computer_name="NODE1", transport=TransportSettings(enabled=False))
    async with QueueManager.open(folder / "node", settings) as manager:
        for number in range(4):
            await manager.create_queue(f"NODE1\\private$\\queue{number}")
            queue = await manager.open_queue(f"DIRECT=OS:NODE1\\private$\\queue{number}", Access.SEND)
            for _ in range(messages // 4000):
                await queue.send_many(
                    [Message(b"x" * 300, label=f"order {one}", recoverable=True) for one in range(1000)]
                )
        await manager.backup(folder / "copy")
    return str(folder / "copy")


def read_all(frame: DataFrame) -> None:
    """Every row and every column, to nowhere."""
    frame.write.format("noop").mode("overwrite").save()


def in_turns(*ways: Callable[[], object]) -> list[float]:
    """Median processor seconds of each, taken in turns once Java has compiled what they need."""
    root = os.getpid()
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(WARM_UP + ROUNDS):
        for way, taken in zip(ways, times, strict=True):
            before = processor_seconds(root)
            way()
            taken.append(processor_seconds(root) - before)
    return [statistics.median(taken[WARM_UP:]) for taken in times]


@bench("pipeline sources")
def sources() -> list[Comparison]:
    """Rows that one task reads."""
    with tempfile.TemporaryDirectory(prefix="qmnode-bench-") as name:
        folder = Path(name)
        write_segments(folder / "segments")
        large = asyncio.run(write_copy(folder / "large", MESSAGES))
        small = asyncio.run(write_copy(folder / "small", FEW))
        spark = open_session("local[1]", memory="1g")
        try:
            return [*_segments(spark, str(folder / "segments")), *_copies(spark, large, small)]
        finally:
            spark.stop()


def _segments(spark: SparkSession, path: str) -> list[Comparison]:
    own = spark.read.option("recursiveFileLookup", "true")
    used, everything = [column.split()[0] for column in USED.split(", ")], SCHEMA.names
    quarantine = Quarantine(f"{path}/_quarantine")

    def for_jobs(columns: Sequence[str]) -> None:
        """Everything that a job does to read them: finding them and checking them too."""
        with_events(spark, Wanted(pieces_of(find_segments([path])[0]), columns), quarantine, read_all)

    found = []
    for what, columns in (("6 columns", used), ("all 36 columns", everything)):
        text = ", ".join(f"{name} {SPARK_EVENTS[name].dataType.simpleString()}" for name in columns)
        jobs, source, bare = in_turns(
            lambda columns=columns: for_jobs(columns),
            lambda text=text: read_all(spark.read.format("qmnode").schema(text).load(path)),
            lambda text=text: read_all(own.schema(text).parquet(path)),
        )
        found += [
            Comparison(f"an event for a job, {what}", jobs / EVENTS, "Spark's own Parquet", bare / EVENTS, _BAR),
            Comparison(f'an event of "qmnode", {what}', source / EVENTS, "Spark's own Parquet", bare / EVENTS),
        ]
    return found


def _copies(spark: SparkSession, large: str, small: str) -> list[Comparison]:
    """What each message costs when there are many, and what a query costs before it reads any."""

    def read(path: str) -> None:
        read_all(spark.read.format("qmnode").option("partition_rows", str(MESSAGES)).load(path))

    whole, start, bare = in_turns(lambda: read(large), lambda: read(small), lambda: bare_loop(large))
    each, alone = (whole - start) / (MESSAGES - FEW), bare / MESSAGES
    return [
        Comparison("a message of a store", each, "rocksdict to Arrow", alone),
        Comparison("a message of a store", each, "150,000 a second", 1 / MESSAGES_A_SECOND, 1.0),
        Comparison(f"a query of {FEW:,}", start, f"one of {MESSAGES:,}", whole),
    ]


def bare_loop(path: str) -> None:
    """Every message of a copy into record batches by one loop: the least that anybody could do."""
    with opened(path) as families:
        iterator = families[Family.MESSAGES].iter()
        iterator.seek_to_first()
        keys: list[bytes] = []
        values: list[bytes] = []
        while (key := iterator.key()) is not None:
            keys.append(key)
            values.append(iterator.value())
            iterator.next()
            if len(keys) == BATCH:
                pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], ["key", "value"])
                keys, values = [], []
