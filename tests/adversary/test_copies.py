"""Copies of a message that are not quite the message: what they lack must not be lost with them, nor come twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from qmnode import Access, Message
from qmnode.security.protector import Deferred
from qmnode.structures.enumerations import AuthenticationLevel, PrivacyLevel
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.lab import packets_of, sent
from tests.adversary.peer import session
from tests.certificates.enterprise import ADMIN, ALICE, HOUR, QUEUE, Enterprise, signed, two_nodes, user_certificate
from tests.lab.waiting import eventually

BODY = b"an order"
ADDRESS = slice(32, 48)
"""UserHeader.QueueManagerAddress."""


@pytest.fixture
async def enterprise(tmp_path: Path) -> AsyncIterator[Enterprise]:
    async with two_nodes(tmp_path, key_reload_interval=HOUR, public_key_lifetime=3_600_000) as enterprise:
        enterprise.register({ALICE: [user_certificate()]})
        yield enterprise


async def received(enterprise: Enterprise) -> list[Message]:
    """All that B has."""
    async with await enterprise.b.open_queue(f"DIRECT=OS:{QUEUE}") as queue:
        return await queue.receive_many(10, timeout=60)


@attack(
    Area.HISTORY,
    can="send a copy of a signed message before its sender does, without the destination's GUID, so that the receiver "
    "does not verify the signature",
    promised="the sender's message arrives as well, with its verified author: the copy counts as another message, "
    "because it has no verified author",
)
async def test_a_copy_that_loses_its_author_takes_no_place(enterprise: Enterprise, own: str) -> None:
    queue = await enterprise.queue_on_b()
    await enterprise.a.set_online(False)
    async with await enterprise.a.open_queue(queue, Access.SEND) as out:
        await out.send(signed(BODY, recoverable=True))
    (packet,) = packets_of(enterprise.a)
    copy = bytearray(packet.data)
    copy[ADDRESS] = bytes(16)
    async with session(own, enterprise.addresses["B"], enterprise.identifiers["A"]) as peer:
        await peer.say(bytes(copy))
    await enterprise.a.set_online(True)
    await sent(enterprise.a)
    assert [one.authentication_level for one in await received(enterprise)] == [0, AuthenticationLevel.SIG20]


@attack(
    Area.HISTORY,
    can="send a copy of an encrypted message that asks for acknowledgments, word for word, before its sender does",
    promised="the message is delivered once, and the sender gets the acknowledgment",
)
@pytest.mark.parametrize("transactional", [False, True], ids=["recoverable", "transactional"])
async def test_an_encrypted_copy_takes_no_acknowledgment(enterprise: Enterprise, own: str, transactional: bool) -> None:
    queue = await enterprise.queue_on_b(transactional=transactional)
    security = enterprise.b.network.security
    judge, packets = security.admission.judge, []

    async def later(arrivals: Sequence[Any], now: float) -> Any:
        packets.extend(one.packet for one in arrivals)
        return [Deferred("not now") for _ in arrivals]

    security.admission.judge = later  # type: ignore[method-assign]
    message = Message(
        BODY, privacy_level=PrivacyLevel.ADVANCED, recoverable=True, acknowledgements_requested=5,
        administration_queue_format_name=rf"DIRECT=TCP:{enterprise.addresses['A']}\private$\admin",
    )  # fmt: skip
    async with await enterprise.a.open_queue(queue, Access.SEND) as out:
        await out.send(message, transaction="single" if transactional else None)
    await eventually(lambda: bool(packets))
    await enterprise.a.set_online(False)
    security.admission.judge = judge  # type: ignore[method-assign]
    async with session(own, enterprise.addresses["B"], enterprise.identifiers["A"]) as peer:
        peer.send(packets[0])
        assert await peer.is_closed()
    await enterprise.a.set_online(True)
    await sent(enterprise.a)
    assert [one.body for one in await received(enterprise)] == [BODY]
    async with await enterprise.a.open_queue(f"DIRECT=OS:{ADMIN}") as acknowledgments:
        assert (await acknowledgments.receive(timeout=60)).message_class == wire.ACK_REACH_QUEUE
