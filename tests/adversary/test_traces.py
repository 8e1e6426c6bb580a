"""Hop counts and requests for tracing that anybody writes into a message."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from qmnode import Access, Message, QueueType
from qmnode.administration.browsing import browse
from qmnode.structures.guid import guid_to_text
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.peer import session
from tests.adversary.test_notifications import owner_in
from tests.transport.conftest import loopback_address

if TYPE_CHECKING:
    from pathlib import Path

    from qmnode import QueueManager
    from qmnode.structures.guid import Guid

COUNT = 20
REPORT = 0x0100
MOST_HOPS = 0x1D


async def seen(node: QueueManager, queue: Guid) -> list[Message]:
    async with await node.open_queue(f"PUBLIC={guid_to_text(queue)}", Access.PEEK) as opened:
        return [message async for message in browse(opened)]


@attack(
    Area.RESOURCES,
    can="send messages and invented trace reports that ask for tracing, with reports to the queue itself, to another "
    "queue and to a queue of a third party, and with every hop count",
    promised="each message makes one report at most, and a report none; no hop count changes what else the packet says",
)
async def test_requests_for_tracing_go_in_no_circles(tmp_path: Path) -> None:
    async with owner_in(tmp_path) as owner:
        node, (first, second) = owner.manager, owner.queues
        elsewhere = wire.identifier()
        packets = [
            wire.UserMessage(
                source=wire.identifier(), message_id=number, address=node.identifier, queue=wire.public(bytes(first)),
                rest=struct.pack("<HH", 1, 0) + reports, base_flags=wire.TRACED | wire.WITH_DEBUG_HEADER,
                message_class=message_class, hops=number % (MOST_HOPS + 1), body=b"forged", delivery=wire.EXPRESS,
            ).packet()
            for number, (reports, message_class) in enumerate(
                [(one, kind) for one in (bytes(first), bytes(second), elsewhere) for kind in (wire.NORMAL, REPORT)]
                * COUNT
            )
        ]  # fmt: skip
        async with session(loopback_address(), owner.address, wire.identifier()) as peer:
            await peer.say(*packets)
        async with await node.open_queue(f"PUBLIC={guid_to_text(first)}", Access.SEND) as queue:
            await queue.send(Message(b"honest", recoverable=True))

        each = 2 * COUNT
        own, others = await seen(node, first), await seen(node, second)
        assert len([one for one in own if one.body == b"forged"]) == 3 * each
        assert {one.priority for one in own if one.body == b"forged"} == {0}
        assert 0 < len([one for one in own if "received by" in one.label]) <= each
        assert 0 < len(others) <= each
        outgoing = await node.queues([QueueType.OUTGOING])
        assert sum(one.message_count for one in outgoing) <= each
        assert [one.body for one in own].count(b"honest") == 1
