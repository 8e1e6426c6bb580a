"""Unsigned messages name the user that sends them: what leaves a node, and what the next one makes of it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import qmnode
from qmnode import Access, Message, QueueManager
from qmnode.local.server import LocalServer
from qmnode.settings.node import LocalSettings
from qmnode.settings.security import SecuritySettings, TlsSettings, UnsignedSenders
from qmnode.structures.guid import Guid, new_guid
from qmnode.structures.security_descriptor import QueueAccess as Right
from qmnode.structures.security_descriptor import Sid
from qmnode.structures.user_message import SecurityFlags, UserMessage
from tests.doors.expectation import described
from tests.lab.waiting import eventually
from tests.security.certificates import pinned_by
from tests.transport.conftest import loopback_address, settings_of

ALICE = Sid.from_text("S-1-5-21-7-8-9-1001")
OTHER = Sid.from_text("S-1-5-21-7-8-9-1002")
QUEUE = r".\private$\q"
LOCAL = f"DIRECT=OS:{QUEUE}"


@asynccontextmanager
async def node(
    folder: Path, name: str, address: str, identifier: Guid | None = None, **security: Any
) -> AsyncIterator[QueueManager]:
    settings = settings_of(name, address).model_copy(update={"security": SecuritySettings(**security)})
    async with QueueManager.open(folder / name, settings) as opened:
        if identifier is not None:
            opened.adopt_identifier(identifier)
        await opened.network.start()
        yield opened


@asynccontextmanager
async def application(folder: Path, address: str = "", **security: Any) -> AsyncIterator[tuple[Any, QueueManager]]:
    """An application of this user at the socket of a node, and the node."""
    security = {"principals": {f"uid:{os.getuid()}": str(ALICE)}} | security
    async with node(folder, "ALICE", address or loopback_address(), **security) as manager:
        server = LocalServer(manager, LocalSettings(socket=folder / "node.sock"), principals=manager.principals)
        await server.start()
        async with qmnode.connect(folder / "node.sock") as remote:
            await remote.create_queue(QUEUE)
            yield remote, manager
        await server.stop()


async def packet_of(remote: Any, message: Message) -> tuple[Message, UserMessage]:
    """A message that was sent to the queue, and its packet."""
    async with await remote.open_queue(LOCAL, Access.SEND) as out:
        await out.send(message)
    async with await remote.open_queue(LOCAL) as queue:
        received = await queue.receive(timeout=60)
        return received, UserMessage.parse(received.packet)


@pytest.mark.parametrize("more", ({}, {"label": "x"}, {"recoverable": True}, {"tracing_requested": True}))
async def test_a_message_names_the_user_at_the_socket(tmp_path: Path, more: dict[str, Any]) -> None:
    async with application(tmp_path) as (remote, _):
        received, packet = await packet_of(remote, Message(b"body", **more))
        header = packet.security_header
        assert header is not None
        assert (header.security_id, header.flags) == (ALICE.write(), SecurityFlags.of(ST=1, DE=1, AI=1))
        assert (header.signature, header.sender_cert, header.encryption_key) == (b"", b"", b"")
        assert (received.body, received.claimed_sender) == (b"body", ALICE.write())
        assert (received.sender_identifier, received.authentication_level) == (b"", 0)


async def test_many_messages_name_him_and_so_do_received_ones_that_are_sent_on(tmp_path: Path) -> None:
    async with application(tmp_path) as (remote, _):
        async with await remote.open_queue(LOCAL, Access.SEND) as out:
            await out.send_many([Message(b"%d" % number) for number in range(3)])
        async with await remote.open_queue(LOCAL) as queue, await remote.open_queue(LOCAL, Access.SEND) as out:
            first = await queue.receive(timeout=60)
            await out.send(first)
            rest = [await queue.receive(timeout=60) for _ in range(3)]
        assert [one.body for one in rest] == [b"1", b"2", b"0"]
        assert {one.claimed_sender for one in (first, *rest)} == {ALICE.write()}


@pytest.mark.parametrize(("principals", "named"), ((None, ALICE.write()), ({}, b"")))
async def test_an_application_cannot_name_another_user(tmp_path: Path, principals: Any, named: bytes) -> None:
    security = {} if principals is None else {"principals": principals}
    async with application(tmp_path, **security) as (remote, _):
        forged = Message(b"x", sender_identifier=OTHER.write(), sender_identifier_type=1)
        received, _ = await packet_of(remote, forged)
        assert received.claimed_sender == named


@pytest.mark.parametrize("security", ({"send_sender_identifiers": False}, {"principals": {}}))
async def test_nobody_is_named_where_it_is_off_or_the_user_is_none_of_a_domain(
    tmp_path: Path, security: dict[str, Any]
) -> None:
    async with application(tmp_path, **security) as (remote, _):
        _, packet = await packet_of(remote, Message(b"x"))
        assert packet.security_header is None


async def test_the_next_node_lets_the_user_send_and_nobody_else(tmp_path: Path) -> None:
    """Over TLS with pinned certificates; the queue's access list names the user."""
    alice, bob = loopback_address(), loopback_address()
    names = {"ALICE": (alice, new_guid(), 1), "BOB": (bob, new_guid(), 2)}
    files = {name: pinned_by(tmp_path, name, *place) for name, place in names.items()}

    def tls(own: str, other: str) -> TlsSettings:
        return TlsSettings(
            certificate=files[own],
            private_key=files[own].with_suffix(".key"),
            pinned={names[other][0]: files[other]},
        )

    counts = {"unsigned_senders_by_queue": {"q": UnsignedSenders.NEIGHBOURS}}
    async with (
        node(tmp_path, "BOB", bob, identifier=names["BOB"][1], tls=tls("BOB", "ALICE"), **counts) as receiver,
        application(tmp_path, address=alice, identifier=names["ALICE"][1], tls=tls("ALICE", "BOB")) as (remote, sender),
    ):
        await receiver.create_queue(QUEUE, security=described([(True, ALICE, int(Right.MQSEC_WRITE_MESSAGE))], OTHER))
        there = rf"DIRECT=TCP:{bob}\private$\q"
        async with await remote.open_queue(there, Access.SEND) as out, await receiver.open_queue(LOCAL) as queue:
            await out.send(Message(b"his", recoverable=True))
            assert (await queue.receive(timeout=60)).claimed_sender == ALICE.write()
        async with await sender.open_queue(there, Access.SEND) as out:  # the process itself is no user
            await out.send(Message(b"nobody's", recoverable=True))
        await eventually(lambda: bool(receiver.traffic.refusals.denied))
        (refused,) = await receiver.refused_messages(QUEUE)
        assert (refused.standing, refused.count, refused.claimed_sender) == ("nameless", 1, b"")
        assert (await receiver.queue(QUEUE)).message_count == 0
