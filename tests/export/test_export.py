"""A node that exports: what its segments tell of its messages, across stops, failures and a full disk."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from qmnode.export import exporter
from qmnode.export.places import Place
from qmnode.export.segment import SUFFIX, SegmentName, read_segment
from qmnode.model.api import Access
from qmnode.model.message import Acknowledgment, Message
from qmnode.node import QueueManager
from qmnode.settings.node import ExportSettings, Settings, TransportSettings
from qmnode.storage.store import Store
from qmnode.structures.enumerations import MessageClass

Row = dict[str, Any]


def settings(target: Path, **export: Any) -> Settings:
    return Settings(
        computer_name="NODE1",
        transport=TransportSettings(enabled=False),
        export=ExportSettings(target=str(target), **export),
    )


def rows(target: Path) -> list[Row]:
    place = Place.open(str(target))
    tables = [read_segment(place, file.path) for file in place.files(SUFFIX)]
    if not tables:
        return []
    found: list[Row] = pa.concat_tables(tables).sort_by([("node_id", "ascending"), ("offset", "ascending")]).to_pylist()
    return [{key: value for key, value in row.items() if value is not None} for row in found]


def kinds(found: Iterable[Row]) -> Counter[str]:
    ignored = {"sample", "started", "stopped", "queue_state"}
    return Counter(row["kind"] for row in found if row["kind"] not in ignored)


async def test_the_life_of_a_message_is_told(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "node", settings(tmp_path / "out")) as manager:
        await manager.create_queue("NODE1\\private$\\orders")
        queue = await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders", Access.SEND)
        identifier = await queue.send(
            Message(b"1234", label="Bestellung ä", recoverable=True, priority=5, time_to_be_received=900)
        )
        reader = await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders")
        await reader.receive()
        node_id = manager.identifier
    found = rows(tmp_path / "out")
    assert found[0]["kind"] == "started"
    assert found[-1]["kind"] == "stopped"
    assert [row["offset"] for row in found] == list(range(1, len(found) + 1))
    life = [row for row in found if "message_number" in row]
    assert [row["kind"] for row in life] == ["sent", "reached", "received"]
    for row in life:
        assert row["message_number"].to_bytes(4, "little") == identifier[16:]
        assert row["source_id"] == row["node_id"]
        assert (row["node"], row["label"], row["priority"], row["recoverable"]) == ("NODE1", "Bestellung ä", 5, True)
        assert (row["body_size"], row["time_to_be_received"], row["message_class"]) == (4, 900, 0)
        assert row["destination"] == "DIRECT=OS:NODE1\\private$\\orders"
        assert row["queue"] == "NODE1\\private$\\orders"
    assert life[0]["time"] <= life[1]["time"] <= life[2]["time"]
    assert len(node_id) == 16


async def test_dead_letters_journals_and_acknowledgments_are_told_with_their_reasons(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "node", settings(tmp_path / "out", labels=False)) as manager:
        await manager.create_queue("NODE1\\private$\\orders", journaling=True)
        await manager.create_queue("NODE1\\private$\\admin")
        name = "DIRECT=OS:NODE1\\private$\\orders"
        asked = {
            "administration_queue_format_name": "DIRECT=OS:NODE1\\private$\\admin",
            "acknowledgements_requested": Acknowledgment.FULL_RECEIVE,
            "negative_journaling_requested": True,
            "recoverable": True,
            "label": "secret",
        }
        queue = await manager.open_queue(name, Access.SEND)
        received = await queue.send(Message(b"", **asked))  # type: ignore[arg-type]
        reader = await manager.open_queue(name)
        await reader.receive()
        purged = await queue.send(Message(b"", **asked))  # type: ignore[arg-type]
        await reader.purge()
    found = [row for row in rows(tmp_path / "out") if row.get("message_number") is not None]
    number = int.from_bytes(purged[16:], "little")
    assert kinds(found) == {
        "sent": 4, "reached": 2, "received": 1, "journaled": 1, "died": 1, "dead_letter": 1, "acknowledgment": 2,
    }  # fmt: skip
    assert not any("label" in row for row in found)
    (died,) = (row for row in found if row["kind"] == "died")
    assert (died["message_number"], died["reason"]) == (number, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)
    (dead,) = (row for row in found if row["kind"] == "dead_letter")
    assert (dead["message_number"], dead["reason"]) == (number, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)
    assert dead["queue"].endswith("DEADLETTER")
    told = {row["about_message_number"]: row["reason"] for row in found if row["kind"] == "acknowledgment"}
    assert told == {
        int.from_bytes(received[16:], "little"): MessageClass.MQMSG_CLASS_ACK_RECEIVE,
        number: MessageClass.MQMSG_CLASS_NACK_Q_PURGED,
    }


async def test_a_dead_letter_in_the_queue_that_its_sender_named_is_one(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "node", settings(tmp_path / "out", labels=False)) as manager:
        for name in ("orders", "undelivered"):
            await manager.create_queue(f"NODE1\\private$\\{name}")
        queue = await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders", Access.SEND)
        named = "NODE1\\private$\\undelivered"
        await queue.send(Message(negative_journaling_requested=True, application_dead_letter_queue=named))
        await (await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders")).purge()
        await (await manager.open_queue(f"DIRECT=OS:{named}")).receive(timeout=0)
    found = [row for row in rows(tmp_path / "out") if row.get("message_number") is not None]
    assert kinds(found) == {"sent": 1, "reached": 1, "died": 1, "dead_letter": 1, "removed": 1}
    (dead,) = (row for row in found if row["kind"] == "dead_letter")
    assert (dead["queue"], dead["reason"]) == (named, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)


async def test_a_message_of_a_transaction_is_sent_when_it_commits(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "node", settings(tmp_path / "out")) as manager:
        await manager.create_queue("NODE1\\private$\\orders", transactional=True)
        queue = await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders", Access.SEND)
        aborted = manager.transaction()
        await queue.send(Message(b"no"), aborted)
        await aborted.abort()
        committed = manager.transaction()
        await queue.send(Message(b"yes"), committed)
        await committed.commit()
    found = rows(tmp_path / "out")
    assert kinds(found) == {"sent": 1, "reached": 1}
    assert all(row["transactional"] for row in found if "message_number" in row)


async def test_purging_tells_of_each_message(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "node", settings(tmp_path / "out")) as manager:
        await manager.create_queue("NODE1\\private$\\orders")
        queue = await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders", Access.SEND)
        await queue.send_many([Message(b"x", recoverable=bool(one % 2)) for one in range(700)])
        reader = await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders")
        await reader.purge()
    assert kinds(rows(tmp_path / "out")) == {"sent": 700, "reached": 700, "died": 700}


async def test_what_was_recorded_before_a_crash_is_exported_after_it(tmp_path: Path) -> None:
    """The store is copied as it is on disk at that moment, as a power cut leaves it, and opened in its place."""
    opened = settings(tmp_path / "out", roll_seconds=3600)
    manager = await QueueManager.open(tmp_path / "node", opened)
    await manager.create_queue("NODE1\\private$\\orders")
    queue = await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders", Access.SEND)
    await queue.send(Message(b"x", recoverable=True))
    assert manager.exporter is not None
    await manager.exporter.export()
    await queue.send(Message(b"y", recoverable=True))
    process = await asyncio.create_subprocess_exec("cp", "-r", str(tmp_path / "node"), str(tmp_path / "crashed"))
    assert await process.wait() == 0
    await manager.close()
    whole = rows(tmp_path / "out")
    crashed = tmp_path / "crashed_out"
    store = Store.open(tmp_path / "crashed")  # takes it for a copy: identifiers and events go on elsewhere
    first = int.from_bytes(store.get_meta("events_exported") or b"", "big")
    store.close()
    async with QueueManager.open(tmp_path / "crashed", settings(crashed)):
        pass
    assert kinds(whole) == {"sent": 2, "reached": 2}
    assert first > 1 << 40
    assert min(row["offset"] for row in rows(crashed)) == first + 1, "no identifier of the original is given again"


async def test_a_segment_that_was_settled_is_written_again_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    manager = await QueueManager.open(tmp_path / "node", settings(target, roll_seconds=3600))
    await manager.create_queue("NODE1\\private$\\orders")
    queue = await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders", Access.SEND)
    await queue.send(Message(b"x", recoverable=True))
    assert manager.exporter is not None
    # The segment is written, and the node ends before it knows.
    monkeypatch.setattr(manager.events, "forget", lambda blocks: (_ for _ in ()).throw(asyncio.CancelledError))
    with pytest.raises(asyncio.CancelledError):
        await manager.exporter.export()
    (first,) = Place.open(str(target)).files(SUFFIX)
    await queue.send(Message(b"y", recoverable=True))
    monkeypatch.undo()
    await manager.close()
    names = [SegmentName.parse(file.name) for file in Place.open(str(target)).files(SUFFIX)]
    assert len(names) == 2
    assert first.name in {str(name) for name in names}
    found = rows(target)
    assert kinds(found) == {"sent": 2, "reached": 2}
    assert [row["offset"] for row in found] == list(range(1, len(found) + 1))


async def test_a_target_that_does_not_answer_stops_no_message_and_what_is_lost_is_counted(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("a file is in the way")
    opened = settings(target, backlog_bytes=20_000, roll_seconds=3600)
    async with QueueManager.open(tmp_path / "node", opened) as manager:
        await manager.create_queue("NODE1\\private$\\orders")
        queue = await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders", Access.SEND)
        for _ in range(100):
            await queue.send(Message(b"x", recoverable=True))
        assert manager.exporter is not None
        with pytest.raises(exporter.ExportError, match="out"):
            await manager.exporter.export()
        target.unlink()
        while manager.events.backlog:  # type: ignore[union-attr]
            await manager.exporter.export()
        await queue.send(Message(b"x", recoverable=True))
    found = rows(target)
    (dropped,) = (row for row in found if row["kind"] == "dropped")
    told = kinds(found)
    assert 0 < told["sent"] < 101
    samples = 2  # of the queue and of the node, if the test takes long enough for them
    assert 202 <= told["sent"] + told["reached"] + dropped["count"] <= 202 + samples
    assert [row["offset"] for row in found] == list(range(1, len(found) + 1))


async def test_the_oldest_segments_go_when_the_directory_is_full(tmp_path: Path) -> None:
    target = tmp_path / "out"
    opened = settings(target, directory_bytes=30_000, roll_seconds=3600)
    async with QueueManager.open(tmp_path / "node", opened) as manager:
        await manager.create_queue("NODE1\\private$\\orders")
        queue = await manager.open_queue("DIRECT=OS:NODE1\\private$\\orders", Access.SEND)
        for _ in range(6):
            await queue.send_many([Message(b"x", recoverable=True) for _ in range(20)])
            assert manager.exporter is not None
            await manager.exporter.export()
    files = list(Place.open(str(target)).files(SUFFIX))
    assert 1 <= len(files) < 7
    assert sum(file.size for file in files) <= 30_000
    assert rows(target)[-1]["kind"] == "stopped"


async def test_segments_roll_by_time(tmp_path: Path) -> None:
    target = tmp_path / "out"
    async with QueueManager.open(tmp_path / "node", settings(target, roll_seconds=0.2)):
        async with asyncio.timeout(60):
            while not list(Place.open(str(target)).files(SUFFIX)):
                await asyncio.sleep(0.05)
    assert rows(target)[0]["kind"] == "started"


async def test_nothing_is_recorded_when_it_is_not_asked_for(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "node", Settings(transport=TransportSettings(enabled=False))) as manager:
        assert manager.recorder is None
        assert manager.exporter is None
