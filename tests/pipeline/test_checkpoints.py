"""Messages in the copy of a store: the same that an application would peek, property by property."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from mqenterprise.pipeline.sources.checkpoints import MESSAGES, MessageReader
from qmnode.bodies.values_as_json import plain
from qmnode.errors import ConfigurationError
from qmnode.model.api import Access
from qmnode.model.message import Acknowledgment, Message
from qmnode.node import QueueManager
from qmnode.settings.node import Settings, TransportSettings
from qmnode.storage.errors import StoreError
from qmnode.structures.guid import guid_to_text

NAME = "DIRECT=OS:NODE1\\private$\\"
VARIED = [
    Message(b"", recoverable=True),
    Message(b"body", label="Bestellung ä 😀", recoverable=True, priority=7, app_specific=0xFFFFFFFF, body_type=8),
    Message(
        b"x" * 5000,
        recoverable=True,
        label="l",
        extension=b"extension",
        time_to_reach_queue=60,
        time_to_be_received=3600,
        correlation_identifier=bytes(range(20)),
        administration_queue_format_name=NAME + "admin",
        acknowledgements_requested=Acknowledgment.FULL_RECEIVE,
        response_queue_format_name="PUBLIC=01234567-89ab-cdef-0123-456789abcdef",
    ),
    Message.from_value(
        {"order": 7}, format="nservicebus", headers={"NServiceBus.MessageId": "7"}, label="headers", recoverable=True
    ),
    Message(b"damaged headers", recoverable=True, extension=b'{"n":5'),
    Message(b"large" * 100_000, recoverable=True),
    Message(b"y", recoverable=True, response_queue_format_name=NAME + "orders", message_class=0x0100),
]


async def filled(folder: Path, count: int = 0) -> list[dict[str, Any]]:
    """A copy of a node's store in ``folder / "copy"``, and what its messages say when they are peeked."""
    found: list[dict[str, Any]] = []
    settings = Settings(computer_name="NODE1", transport=TransportSettings(enabled=False))
    async with QueueManager.open(folder / "node", settings) as manager:
        await manager.create_queue("NODE1\\private$\\orders", journaling=True)
        await manager.create_queue("NODE1\\private$\\deals", transactional=True)
        orders = await manager.open_queue(NAME + "orders", Access.SEND)
        deals = await manager.open_queue(NAME + "deals", Access.SEND)
        await orders.send_many([Message(b"read", recoverable=True), *VARIED])
        await orders.send_many([Message(str(one).encode(), recoverable=True) for one in range(count)])
        await deals.send_many(
            [Message(b"deal", label="Geschäft €", time_to_be_received=99) for _ in range(2)], "single"
        )
        reader = await manager.open_queue(NAME + "orders")
        first = await reader.peek_by_lookup_id(0, "first")
        await reader.receive_by_lookup_id(first.lookup_identifier)  # the one of priority 7
        await manager.backup(folder / "copy")
        for queue in ("orders", "deals", "orders;JOURNAL"):
            cursor = (await manager.open_queue(NAME + queue)).cursor()
            try:
                message = await cursor.peek(0)
                while True:
                    found.append(expected(f"NODE1\\private$\\{queue}", manager, message))
                    message = await cursor.peek_next(0)
            except Exception as error:
                assert "TIMEOUT" in str(error), error
    return found


def expected(queue: str, manager: QueueManager, message: Message) -> dict[str, Any]:
    def seconds(value: int) -> int | None:
        return None if value == 0xFFFFFFFF else value

    lifetime = seconds(message.time_to_be_received)
    kept = queue.endswith("JOURNAL")
    return {
        "node_id": guid_to_text(manager.identifier),
        "node": "NODE1",
        "queue": queue,
        "lookup_id": message.lookup_identifier,
        "sequential_id": message.lookup_identifier & (1 << 56) - 1,
        "arrival_time": pytest.approx(message.arrival_time, abs=1e-5),
        "expiry_time": None if lifetime is None or kept else message.sent_time + lifetime,
        "aborted_receives": message.aborted_receives,
        "moves": message.move_count,
        "source_id": guid_to_text(message.source_machine_identifier),
        "message_number": int.from_bytes(message.identifier[16:], "little"),
        "destination": message.destination_queue_format_name,
        "administration_queue": message.administration_queue_format_name or None,
        "response_queue": message.response_queue_format_name or None,
        "message_class": message.message_class,
        "priority": message.priority,
        "recoverable": message.recoverable,
        "transactional": message.transactional,
        "hop_count": 0,
        "size": len(message.packet),
        "body_size": len(message.body),
        "sent_time": message.sent_time,
        "time_to_reach_queue": seconds(message.time_to_reach_queue),
        "time_to_be_received": lifetime,
        "acknowledgments": message.acknowledgements_requested,
        "correlation_id": message.correlation_identifier,
        "body_type": message.body_type,
        "app_specific": message.app_specific,
        "privacy_level": message.privacy_level,
        "label": message.label or None,
        "sender": None,
        "body": message.body,
        "format": message.decoded().format or None,
        "headers": json.dumps(dict(message.headers), ensure_ascii=False) if message.headers else None,
        "decoded": json.dumps(plain(message.decoded().value), ensure_ascii=False),
        "undecoded_headers": message.undecoded_headers or None,
    }


def as_seconds(row: dict[str, Any]) -> dict[str, Any]:
    moments = {key: value.timestamp() for key, value in row.items() if isinstance(value, datetime)}
    return {key: value for key, value in (row | moments).items() if key != "queue_type"}


def read(reader: MessageReader) -> list[dict[str, Any]]:
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [row for batch in batches for row in batch.to_pylist()]


def by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["queue"], row["lookup_id"]))


async def test_every_property_is_what_an_application_sees(tmp_path: Path) -> None:
    peeked = await filled(tmp_path)
    rows = read(MessageReader([str(tmp_path / "copy")], MESSAGES, 1000))
    assert [as_seconds(row) for row in by_place(rows)] == by_place(peeked)
    assert {(row["queue"], row["queue_type"]) for row in rows} == {
        ("NODE1\\private$\\orders", "private"),
        ("NODE1\\private$\\orders;JOURNAL", "private"),
        ("NODE1\\private$\\deals", "private"),
    }


async def test_a_large_queue_is_read_in_ranges_of_its_keys(tmp_path: Path) -> None:
    await filled(tmp_path, count=1000)
    schema = StructType([MESSAGES["queue"], MESSAGES["sequential_id"]])
    reader = MessageReader([str(tmp_path / "copy")], schema, 100)
    assert len(reader.partitions()) > 9
    found = [row["sequential_id"] for row in read(reader)]
    assert len(found) == len(set(found)) == 1000 + len(VARIED) + 1 + 2


async def test_spark_reads_a_copy(tmp_path: Path, spark: SparkSession) -> None:
    peeked = await filled(tmp_path)
    frame = spark.read.format("qmnode").load(str(tmp_path / "copy"))
    assert {"body", "format", "headers", "decoded"} & set(frame.columns) == set()
    assert frame.count() == len(peeked)
    with_body = spark.read.format("qmnode").option("body", "true").load(str(tmp_path / "copy"))
    row = with_body.where("message_class = 256").select("body", "sent_time").first()
    assert row is not None
    assert bytes(row.body) == b"y"
    decoded = spark.read.format("qmnode").option("decoded", "true").load(str(tmp_path / "copy"))
    rows = decoded.where("headers is not null").select("format", "headers", "decoded").collect()
    assert [tuple(row) for row in rows] == [("json", '{"NServiceBus.MessageId": "7"}', '{"order": 7}')] * len(rows)
    assert rows
    assert "body" not in decoded.columns
    assert abs((datetime.now(UTC) - row.sent_time.astimezone(UTC)).total_seconds()) < 3600


async def test_a_damaged_copy_is_no_shorter_one(tmp_path: Path) -> None:
    await filled(tmp_path, count=1000)
    largest = max((tmp_path / "copy").glob("*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)
    with pytest.raises(Exception, match="Corruption"):
        read(MessageReader([str(tmp_path / "copy")], MESSAGES, 100_000))


async def test_a_copy_without_the_file_of_a_large_message_is_no_shorter_one(tmp_path: Path) -> None:
    await filled(tmp_path)
    next((tmp_path / "copy" / "large").iterdir()).unlink()
    with pytest.raises(StoreError, match=r"large/\w+: No such file"):
        read(MessageReader([str(tmp_path / "copy")], MESSAGES, 1000))


def test_what_is_no_copy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no copy of a node's store"):
        MessageReader([str(tmp_path)], MESSAGES, 1)


def test_the_declared_columns_are_the_ones_that_are_made() -> None:
    from mqenterprise.pipeline.sources.message_columns import _COLUMNS, MESSAGE_SCHEMA

    assert isinstance(MESSAGE_SCHEMA, pa.Schema)
    assert set(MESSAGE_SCHEMA.names) == set(_COLUMNS) | {"node_id", "node", "queue", "queue_type"}
