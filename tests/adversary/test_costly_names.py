"""Messages whose headers list thousands of names cost their sender, and not the other peers."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from qmnode import Access, Message, QueueManager, shares
from qmnode.structures.guid import Guid
from qmnode.structures.user_message import (
    ADMIN,
    RESPONSE,
    DirectQueueFormatName,
    MQFAddressHeader,
    MQFFormatNameElement,
    MQFPrivateQueueFormatName,
    MQFSignatureHeader,
    MultiQueueFormatHeader,
)
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.nodes import address_of, letter, node_with
from tests.adversary.peer import session
from tests.protocol.machines import message
from tests.transport.conftest import PLAIN, loopback_address

if TYPE_CHECKING:
    from pathlib import Path


NAMES = 1000


def costly(number: int, target: str, source: bytes) -> bytes:
    """A message with two lists of a thousand names."""
    names = tuple(
        MQFFormatNameElement(
            format_name=MQFPrivateQueueFormatName(source_queue_manager=Guid(source), private_queue_identifier=last)
        )
        for last in range(NAMES)
    )
    several = MultiQueueFormatHeader(
        destination=MQFAddressHeader(format_name_list=names),
        administration=MQFAddressHeader(header_id=ADMIN),
        response=MQFAddressHeader(header_id=RESPONSE, format_name_list=names),
        signature=MQFSignatureHeader(),
    )
    return message(
        number,
        source=Guid(source),
        queue=DirectQueueFormatName(direct_format_name=rf"TCP:{target}\private$\plain"),
        recoverable=False,
        multi_queue_format_header=several,
    )


def read_of(node: QueueManager, addresses: list[str]) -> int:
    """Messages of these addresses that the node has read."""
    return sum(one.session.received_count for one in node.network.accepted if one.address in addresses)


@attack(
    Area.RESOURCES,
    can="send messages with two lists of a thousand names over many connections, from one address or from ten",
    promised="an address block pays for the processor time of its messages: others get sessions long before they are "
    "read",
)
@pytest.mark.parametrize(
    ("blocks", "connections", "each"),
    [
        (1, 8, 20),
        (8, 1, 20),
        pytest.param(1, 20, 200, marks=pytest.mark.soak),
        pytest.param(10, 20, 50, marks=pytest.mark.soak),
    ],
)
async def test_names_are_paid_for_by_their_sender(tmp_path: Path, blocks: int, connections: int, each: int) -> None:
    async with node_with(tmp_path) as bob, AsyncExitStack() as stack:
        target, addresses = address_of(bob), [loopback_address() for _ in range(blocks)]
        attackers = [
            await stack.enter_async_context(session(address, target, wire.identifier()))
            for address in addresses
            for _ in range(connections)
        ]
        flood = costly(1, target, wire.identifier()) * each
        used, began = time.thread_time(), time.monotonic()
        for peer in attackers:
            peer.send(flood)
        honest, longest, slowest = loopback_address(), 0.0, 0.0
        for number in range(1, 4):
            asked, by_clock = shares._had(), time.monotonic()
            async with session(honest, target, wire.identifier()) as known:
                await known.say(letter(target, number))
            async with await bob.open_queue(f"DIRECT=OS:{PLAIN}", Access.SEND) as out:
                await out.send(Message(b"own"))
            longest, slowest = max(longest, shares._had() - asked), max(slowest, time.monotonic() - by_clock)
        seconds = time.monotonic() - began
        read = read_of(bob, addresses)
        print(
            f"{blocks} blocks, {connections} connections each: {read} of {blocks * connections * each} costly messages "
            f"read in {seconds:.2f} s, {time.thread_time() - used:.2f} s of the processor; "
            f"longest wait for a session {longest:.3f} s, with the time of other processes {slowest:.3f} s"
        )
        assert read < blocks * connections * each
        assert longest < 1.0
