"""What a sender is left with when its messages have ended: every kind of message to every kind of destination."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

import qmnode
from qmnode.structures.guid import guid_to_text
from tests.lab.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.forwarding.conftest import Enterprise
    from tests.forwarding.enterprise import Node

pytestmark = pytest.mark.servers

KINDS: Final = ("express", "recoverable", "transactional")
LARGE: Final = 300_000
"""Bytes of a body that is stored in a file of its own."""
JOURNAL: Final = r".\SYSTEM$;JOURNAL"
DEAD: Final = r".\SYSTEM$;DEADXACT"


class Places:
    """Destinations of every kind, as SOURCE or the connector names them, and where their messages are received."""

    def __init__(self, enterprise: Enterprise, sender: Node) -> None:
        self.enterprise = enterprise
        self.sender = sender
        self.connector = enterprise.nodes["ROUTER1"]
        self.site = guid_to_text(enterprise.directory.sites["mainframe"])

    async def make(self, kind: str) -> dict[str, tuple[str, list[tuple[Node, str]]]]:
        """By the kind of destination: its format name, and the queues that its messages arrive in."""
        transactional = kind == "transactional"
        name = f"end{random.randrange(1 << 30)}"
        target = self.enterprise.target
        own = await self.sender.create_queue(name, transactional=transactional)
        there = await target.create_queue(name, transactional=transactional)
        direct = rf"DIRECT=TCP:{target.machine.listens}\private$\{name}"
        foreign = f"PRIVATE={guid_to_text(self.enterprise.directory.machines['FOREIGN'].identifier)}\\00000007"
        at_own, at_target = (self.sender, rf"DIRECT=OS:.\private$\{name}"), (target, rf"DIRECT=OS:.\private$\{name}")
        at_connector = self.connector, f"CONNECTOR={self.site}{';XACTONLY' if transactional else ''}"
        return {
            "own": (own, [at_own]),
            "other site": (there, [at_target]),
            "direct": (direct, [at_target]),
            "foreign": (foreign, [at_connector]),
            "several": (f"{own},{there},{foreign}", [at_own, at_target, at_connector]),
        }


async def left_behind(node: Node) -> tuple[int, int]:
    """What a node still holds of the messages that it sent: those in outgoing queues, and the bytes that count for its
    quota, with those of messages that wait for their final acknowledgment.
    """
    async with await node.connect() as qm:
        outgoing = await qm.queues([qmnode.QueueType.OUTGOING])
        return (
            sum(one.message_count for one in outgoing),
            (await qm.status()).quota_used,
        )


async def drained(node: Node, name: str) -> list[qmnode.Message]:
    async with await node.connect() as qm, await qm.open_queue(f"DIRECT=OS:{name}") as queue:
        return [message async for message in messages_of(queue)]


async def messages_of(queue: qmnode.QueueApi) -> AsyncIterator[qmnode.Message]:
    while True:
        try:
            yield await queue.receive(timeout=0)
        except qmnode.MessageQueuingError:
            return


@pytest.mark.parametrize("at_connector", [False, True])
async def test_every_message_ends_at_its_sender(enterprise: Enterprise, at_connector: bool) -> None:
    """Received ones are in the journal of the sender, expired ones in its dead letters if it keeps them, and nothing of
    either is left.
    """
    sender = enterprise.nodes["ROUTER1"] if at_connector else enterprise.source
    places = Places(enterprise, sender)
    for name in (JOURNAL, DEAD):
        await drained(sender, name)
    _, before = await left_behind(sender)
    received = expired = 0
    for kind in KINDS:
        transactional = kind == "transactional"
        for destination, (name, ends) in (await places.make(kind)).items():
            properties = {"recoverable": kind != "express", "positive_journaling_requested": True}
            body = f"{kind} to {destination}".encode()
            bodies = [body, body + bytes(LARGE), b""]
            await sender.send(name, bodies, transactional=transactional, **properties)
            for node, queue in ends:
                async with await node.connect() as qm, await qm.open_queue(queue) as opened:
                    assert [(await opened.receive(timeout=60)).body for _ in bodies] == bodies
            received += len(bodies) * len(ends)
    for name, ends in (await places.make("transactional")).values():
        await sender.send(
            name, [b"late"], transactional=True, negative_journaling_requested=True, time_to_be_received=1
        )
        expired += len(ends)

    async def ended() -> bool:
        said.append(((await left_behind(sender))[0], await sender.count(JOURNAL), await sender.count(DEAD)))
        return said[-1] == (0, received, expired)

    said: list[tuple[int, int, int]] = []
    try:
        await until(ended, "the ends of all messages")
    except AssertionError:
        raise AssertionError(f"{said[-1]} in place of {(0, received, expired)}") from None
    assert len(await drained(sender, JOURNAL)) == received
    assert {message.body for message in await drained(sender, DEAD)} == {b"late"}

    async def freed() -> bool:
        outgoing, used = await left_behind(sender)
        return not outgoing and used <= before

    await until(freed, "the quota of the sender is free")
