"""Acknowledgments that nobody asked for, and saying them to a node."""

from __future__ import annotations

from qmnode import QueueManager
from qmnode.protocol.session import Session
from tests.adversary import wire
from tests.adversary.peer import Peer
from tests.adversary.wire import Packet
from tests.lab.waiting import eventually

COUNT = 20
REASONS = [wire.REACH_QUEUE_TIMEOUT, wire.BAD_DESTINATION, wire.ACK_RECEIVE, wire.PURGED, wire.HOP_COUNT_EXCEEDED]


def numbered(first: int = 0, count: int = COUNT) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def final_acks(author: bytes, target: bytes | str, source: bytes, packets: list[Packet]) -> list[bytes]:
    """FinalAcks of every kind about messages."""
    return [
        wire.final_ack(author, 1_000_000 + at, target, reason, packet.place, source, packet.message_id)
        for at, packet in enumerate(packets)
        for reason in REASONS
    ]


async def say_to(node: QueueManager, own: str, address: str, names: list[bytes], packets: list[bytes]) -> None:
    """Say the same in several names, and be sure that it was looked at."""
    for name in names:
        peer = await Peer.connect(own, address)
        await peer.establish(name)
        for packet in packets:
            peer.send(packet)
        await peer.flush()
        taken = [one.session for one in node.network.accepted if one.port == peer.port]  # type: ignore[attr-defined]
        count = len(packets)
        await eventually(lambda: all(one.closed or _looked_at(one, count) for one in taken))  # noqa: B023  # awaited
        peer.close()


def _looked_at(session: Session, count: int) -> bool:
    return session.received_count == count and not session.unsettled()
