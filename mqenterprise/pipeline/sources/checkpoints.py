"""Messages in copies of nodes' stores for Spark: a backup of a node, or the directory of a node that is stopped.

A task reads a range of keys of one queue, or several small queues. It opens the copy itself, without a lock.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType
from rocksdict import AccessType, Options, Rdict, ReadOptions

from mqenterprise.pipeline.sources.events import check_schema
from mqenterprise.pipeline.sources.filters import expression
from mqenterprise.pipeline.sources.message_columns import MESSAGE_SCHEMA, MessageColumns, QueueFacts
from qmnode.errors import ConfigurationError
from qmnode.model.positions import LANE_SHIFT, LANES
from qmnode.model.queue import Counters, Queue
from qmnode.storage.large_messages import read_value
from qmnode.storage.layout import MESSAGE_KEY, NEWEST_FORMAT, QUEUE_KEY, Family
from qmnode.structures.guid import guid_to_text

MESSAGES: Final = StructType(
    [StructField(field.name, from_arrow_type(field.type), field.nullable) for field in MESSAGE_SCHEMA]
)
"""The columns of messages as Spark's types."""
_BATCH: Final = 8192
"""The number of messages that go to Spark at a time."""
_BATCH_BYTES: Final = 64 * 1024 * 1024
_CURRENT: Final = "CURRENT"
_SYSTEM: Final = {
    2: "SYSTEM$;DEADLETTER",
    4: "SYSTEM$;DEADXACT",
    6: "SYSTEM$;JOURNAL",
    12: "PRIVATE$\\awaiting_final_ack$",
    14: "PRIVATE$\\delayed$",
}
"""The system queues, whose definitions are in no store."""


def is_checkpoint(address: str) -> bool:
    """Return whether the path is a copy of a store."""
    return "://" not in address and (Path(address) / _CURRENT).is_file()


@dataclass(frozen=True, slots=True)
class Stretch:
    """The keys of one queue from one lookup identifier up to, but not including, another."""

    facts: QueueFacts
    first: int
    end: int


class Stretches(InputPartition):
    """The keys that one task reads."""

    def __init__(self, path: str, stretches: Sequence[Stretch]) -> None:
        self.path = path
        self.stretches = tuple(stretches)


class MessageReader(DataSourceReader):
    """Every message in the copies."""

    def __init__(self, paths: Sequence[str], schema: StructType, rows: int) -> None:
        """``rows``: messages that one task reads, about."""
        self._paths = tuple(paths)
        self._rows = rows
        self._schema = check_schema(schema, MESSAGES)
        self._condition: Any = None
        for path in paths:
            if "://" in path:
                raise ConfigurationError(f"{path}: a store is read from a directory; copy it from there to one first")
            if not is_checkpoint(path):
                raise ConfigurationError(f"{path} is no copy of a node's store: there is no file {_CURRENT} in it")

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Leave out rows that the query does not want where they are read."""
        self._condition = expression(filters, self._schema)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Split large queues into ranges of their keys, and combine small ones."""
        return [one for path in self._paths for one in _partitions(path, self._rows)] or [Stretches("", ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretches)
        if not partition.stretches:
            return
        with opened(partition.path) as families:
            place = Path(partition.path)
            for stretch in partition.stretches:
                for batch in _read(place, families[Family.MESSAGES], stretch, self._schema):
                    table = batch if self._condition is None else batch.filter(self._condition)
                    if table.num_rows:
                        yield table


@contextmanager
def opened(path: str) -> Iterator[dict[str, Rdict]]:
    """Open the column families of a copy for reading."""
    names = Rdict.list_cf(path, Options(raw_mode=True))
    database = Rdict(
        path,
        options=Options(raw_mode=True),
        column_families={name: Options(raw_mode=True) for name in names},
        access_type=AccessType.read_only(False),
    )
    families = {name: database.get_column_family(name) for name in names}
    try:
        yield families
    finally:
        for family in families.values():
            family.close()
        database.close()


def _partitions(path: str, rows: int) -> Iterator[Stretches]:
    with opened(path) as families:
        version = families[Family.META].get(b"format_version")
        if version is not None and QUEUE_KEY.unpack(version)[0] > NEWEST_FORMAT:
            raise ConfigurationError(f"{path} is the store of a newer program: read it with that, or a newer one")
        gathered: list[Stretch] = []
        count = 0
        for facts, held in _queues(families):
            parts = _stretches(families[Family.MESSAGES], facts, held, rows)
            if len(parts) > 1:
                yield from (Stretches(path, [part]) for part in parts)
                continue
            if gathered and count + held > rows:
                yield Stretches(path, gathered)
                gathered, count = [], 0
            gathered += parts
            count += held
        if gathered:
            yield Stretches(path, gathered)


def _queues(families: dict[str, Rdict]) -> Iterator[tuple[QueueFacts, int]]:
    """Return the queues that hold messages, including their journals, with the number of messages."""
    definitions = {
        QUEUE_KEY.unpack(key)[0]: Queue.read_definition(value) for key, value in _records(families[Family.QUEUES])
    }
    computer = next(
        (one["pathname"].partition("\\")[0] for one in definitions.values() if one["queue_type"] in _OF_THE_NODE), ""
    )
    node_id = _identifier(families[Family.META].get(b"queue_manager"))
    for key, record in _records(families[Family.COUNTERS]):
        queue_id = QUEUE_KEY.unpack(key)[0]
        held = sum(count for _, count, _ in Counters.unpack(record).lanes)
        if not held:
            continue
        definition = definitions.get(queue_id & ~1)
        pathname = definition["pathname"] if definition else f"{computer}\\{_SYSTEM.get(queue_id, queue_id)}"
        journal = ";JOURNAL" if queue_id & 1 else ""
        queue_type = definition["queue_type"] if definition else "system"
        yield QueueFacts(node_id, computer, queue_id, pathname + journal, str(queue_type)), held


def _records(family: Rdict) -> Iterator[tuple[bytes, bytes]]:
    # Not items(): it stops at an unreadable record as if that were the end.
    iterator = family.iter()
    iterator.seek_to_first()
    while (key := iterator.key()) is not None:
        yield cast("bytes", key), cast("bytes", iterator.value())
        iterator.next()
    iterator.status()


_OF_THE_NODE: Final = ("private", "public")


def _identifier(record: bytes | None) -> str:
    return guid_to_text(bytes.fromhex(json.loads(record)["identifier"])) if record else ""


def _stretches(messages: Rdict, facts: QueueFacts, held: int, rows: int) -> list[Stretch]:
    """Cut each lane into equal ranges of keys, which are spread evenly enough for that."""
    whole = Stretch(facts, 0, LANES << LANE_SHIFT)
    if held <= rows:
        return [whole]
    parts: list[Stretch] = []
    for lane in range(LANES):
        begin, end = lane << LANE_SHIFT, lane + 1 << LANE_SHIFT
        ends = _ends(messages, facts.queue_id, begin, end)
        if ends is not None:
            width = max(1, -(-(ends[1] + 1 - ends[0]) * rows // held))
            parts += [
                Stretch(facts, first, min(first + width, ends[1] + 1)) for first in range(ends[0], ends[1] + 1, width)
            ]
    return parts


def _ends(messages: Rdict, queue_id: int, begin: int, end: int) -> tuple[int, int] | None:
    """Return the first and the last lookup identifier of a lane."""
    bound = ReadOptions()
    bound.set_iterate_upper_bound(MESSAGE_KEY.pack(queue_id, end))
    iterator = messages.iter(bound)
    iterator.seek(MESSAGE_KEY.pack(queue_id, begin))
    if not iterator.valid():
        return None
    first: int = MESSAGE_KEY.unpack(iterator.key())[1]
    iterator.seek_for_prev(MESSAGE_KEY.pack(queue_id, end - 1))
    last: int = MESSAGE_KEY.unpack(iterator.key())[1]
    return first, last


def _read(path: Path, messages: Rdict, stretch: Stretch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    bound = ReadOptions()
    bound.set_iterate_upper_bound(MESSAGE_KEY.pack(stretch.facts.queue_id, stretch.end))
    bound.set_readahead_size(4 * 1024 * 1024)
    iterator = messages.iter(bound)
    iterator.seek(MESSAGE_KEY.pack(stretch.facts.queue_id, stretch.first))
    columns = MessageColumns(stretch.facts, schema)
    key, value, step = iterator.key, iterator.value, iterator.next
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    while (place := key()) is not None:
        keys.append(place)
        one = read_value(path, place, value())
        values.append(one)
        size += len(one)
        step()
        if len(keys) >= _BATCH or size >= _BATCH_BYTES:
            yield columns.batch(keys, values)
            keys, values, size = [], [], 0
    iterator.status()
    if keys:
        yield columns.batch(keys, values)
