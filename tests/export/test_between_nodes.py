"""What two nodes tell of messages that go from one to the other: together, the whole life of each."""

from pathlib import Path
from typing import Any

import pytest

from qmnode.model.api import Access
from qmnode.model.message import Message
from qmnode.model.queue import OutgoingQueue
from qmnode.node import QueueManager
from qmnode.settings.node import ExportSettings, Settings, TransportSettings
from qmnode.settings.protocol import TransferSettings
from qmnode.structures.enumerations import MessageClass, PrivacyLevel
from qmnode.structures.guid import guid_to_text
from tests.certificates.enterprise import two_nodes
from tests.export.test_export import rows
from tests.lab.addresses import free_alias
from tests.lab.waiting import eventually

pytestmark = pytest.mark.servers


def outgoing(manager: QueueManager) -> list[OutgoingQueue]:
    return [queue for queue in manager.queue_collection.values() if isinstance(queue, OutgoingQueue)]


async def test_a_message_between_two_nodes_is_sent_transferred_reached_and_received(tmp_path: Path) -> None:
    target = tmp_path / "out"
    nodes: dict[str, QueueManager] = {}
    for name in ("ALICE", "BOB"):
        settings = Settings(
            computer_name=name,
            transport=TransportSettings(address=free_alias([1801])),
            transfer=TransferSettings(retry_interval=0.1, retry_maximum=0.2),
            export=ExportSettings(target=str(target), roll_seconds=3600, site=f"Site of {name}"),
        )
        nodes[name] = await QueueManager.open(tmp_path / name, settings)
        await nodes[name].network.start()
    alice, bob = nodes["ALICE"], nodes["BOB"]
    await bob.create_queue("BOB\\private$\\orders")
    await bob.create_queue("BOB\\private$\\deals", transactional=True)
    address = bob.settings.transport.address
    sent: list[int] = []
    for name, transaction in (("orders", None), ("deals", "single")):
        queue = await alice.open_queue(f"DIRECT=TCP:{address}\\private$\\{name}", Access.SEND)
        for kept in (True, False):
            identifier = await queue.send(Message(b"x", recoverable=kept), transaction)  # type: ignore[arg-type]
            sent.append(int.from_bytes(identifier[16:], "little"))
        reader = await bob.open_queue(f"DIRECT=OS:BOB\\private$\\{name}")
        for _ in range(2):
            await reader.receive(30, transaction)  # type: ignore[arg-type]
    missing = await alice.open_queue(f"DIRECT=TCP:{address}\\private$\\missing", Access.SEND)
    lost = await missing.send(Message(b"x", recoverable=True, negative_journaling_requested=True))
    await eventually(lambda: not any(one.message_count for one in outgoing(alice)))
    identifiers = guid_to_text(alice.identifier), guid_to_text(bob.identifier)
    for node in nodes.values():
        await node.close()
    found = rows(target)
    for number in sent:
        assert life(found, number) == [
            ("ALICE", "sent"), ("ALICE", "transferred"), ("BOB", "reached"), ("BOB", "received"),
        ]  # fmt: skip
    number = int.from_bytes(lost[16:], "little")
    assert life(found, number)[:2] == [("ALICE", "sent"), ("ALICE", "transferred")]
    (refused,) = (row for row in found if row["kind"] == "refused")
    assert (refused["message_number"], refused["reason"]) == (number, MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q)
    transferred = next(row for row in found if row["kind"] == "transferred")
    assert (transferred["peer"], transferred["peer_id"], transferred["site"]) == (
        address, identifiers[1], "Site of ALICE",
    )  # fmt: skip
    sessions = {(row["node"], row["kind"], row["incoming"]) for row in found if row["kind"].startswith("session_")}
    assert {("ALICE", "session_opened", False), ("BOB", "session_opened", True)} <= sessions
    assert {row["state"] for row in found if row["kind"] == "queue_state"} >= {"connected"}
    assert all(row["source_id"] == identifiers[0] for row in found if "message_number" in row)


async def test_which_key_opened_an_encrypted_message_is_told(tmp_path: Path) -> None:
    target = tmp_path / "out"
    export = ExportSettings(target=str(target), roll_seconds=0.2)
    async with two_nodes(tmp_path, export=export) as enterprise:
        name = await enterprise.queue_on_b()
        async with await enterprise.a.open_queue(name, Access.SEND) as out:
            await enterprise.ends_as(out, Message(b"in clear"))
            _, arrived = await enterprise.ends_as(out, Message(b"secret", privacy_level=PrivacyLevel.ADVANCED))
        assert arrived is not None and arrived.body == b"secret"
        number = int.from_bytes(arrived.identifier[16:], "little")
        await eventually(lambda: ("B", "received") in life(rows(target), number))
        (pair,) = enterprise.key_pairs("B")
    (used,) = (row for row in rows(target) if row["kind"] == "key_used")
    assert (used["node"], used["key_fingerprint"], used["provider"]) == ("B", pair.fingerprint, pair.provider)
    assert (used["message_number"], used["source_id"]) == (number, guid_to_text(enterprise.identifiers["A"]))


def life(found: list[dict[str, Any]], number: int) -> list[tuple[str, str]]:
    """What happened to a message: at its source first, and at each node in its order."""
    told = [row for row in found if row.get("message_number") == number]
    return [(row["node"], row["kind"]) for row in sorted(told, key=lambda row: (row["node"], row["offset"]))]
