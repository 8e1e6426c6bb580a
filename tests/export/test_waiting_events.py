"""Why an outgoing queue waits, in the events of a node: attempts that fail, a pause, a node that is offline."""

from pathlib import Path

import pytest

from qmnode.model.api import Access
from qmnode.model.message import Message
from qmnode.model.queue import OutgoingQueue
from qmnode.node import QueueManager
from qmnode.settings.node import ExportSettings, Settings, TransportSettings
from qmnode.settings.protocol import TransferSettings
from tests.export.test_export import rows
from tests.lab.addresses import free_alias
from tests.lab.waiting import eventually

pytestmark = pytest.mark.servers


async def test_an_outgoing_queue_says_why_it_waits(tmp_path: Path) -> None:
    """The other machine is down, the queue is paused, the node is offline, the queue goes with its last message."""
    target, own = tmp_path / "out", free_alias([1801])
    nobody = free_alias([1801], [own])
    settings = Settings(
        computer_name="ALICE",
        transport=TransportSettings(address=own),
        transfer=TransferSettings(retry_interval=0.1, retry_maximum=0.2),
        export=ExportSettings(target=str(target), roll_seconds=3600),
    )
    alice = await QueueManager.open(tmp_path / "node", settings)
    await alice.network.start()
    name = f"DIRECT=TCP:{nobody}\\private$\\orders"
    async with await alice.open_queue(name, Access.SEND) as queue:
        await queue.send(Message(b"x", recoverable=True))
    (outgoing,) = (one for one in alice.queue_collection.values() if isinstance(one, OutgoingQueue))
    await eventually(lambda: len(outgoing.connection_history) > 2)
    reason = outgoing.information().reason
    outgoing.pause()
    outgoing.resume()
    await eventually(lambda: outgoing.information().reason != "")
    alice.take_offline()
    alice.bring_online()
    await eventually(lambda: outgoing.information().reason == reason)
    await alice.close()

    states = [row for row in rows(target) if row["kind"] == "queue_state"]
    failed = [row for row in states if row["state"] == "disconnected"]
    assert {(row["cause"], row["detail"]) for row in failed} == {
        ("host_down", reason),
        ("offline", "this node is disconnected from other machines (qmnode connect)"),
    }
    assert {row["queue"] for row in states} == {name}
    assert "on hold" in {row["state"] for row in states}
    assert all("cause" not in row for row in states if row["state"] != "disconnected")
    assert states[-1]["state"] == "inactive", "the wait ends with the node"
