"""offer, prefer and require between two nodes of an enterprise, old ones among them, and changed while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pydantic import ValidationError

from qmnode import Access, Message
from qmnode.management.metrics import exposition
from qmnode.management.request_context import Context
from qmnode.settings.node import ManagementSettings
from qmnode.settings.security import TlsSettings
from tests.lab.waiting import eventually
from tests.security.certificates import pinned_by
from tests.transport.tls_nodes import NUMBERS, QUEUE, Nodes, outgoing


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    """A workgroup with certificates of an authority: its nodes make no keys, and start at once."""
    async with AsyncExitStack() as stack:
        yield Nodes(tmp_path, stack, workgroup=True)


@pytest.fixture
async def enterprise(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        yield Nodes(tmp_path, stack)


@pytest.mark.parametrize(
    ("here", "there", "is_tls"),
    [
        ("offer", "offer", False), ("offer", "prefer", False), ("offer", "", False), ("", "offer", False),
        ("prefer", "offer", True), ("prefer", "", False), ("prefer", "require", True), ("", "prefer", False),
        ("offer", "require", True), ("require", "offer", True), ("require", "prefer", True),
    ],
)  # fmt: skip
async def test_a_mode_meets_another(nodes: Nodes, here: str, there: str, is_tls: bool) -> None:
    """Without a mode it is a node without TLS, as all of an older release are that have not got it set up."""
    await nodes.start("BOB", there)
    await nodes.start("ALICE", here)
    await nodes.send(b"one")
    assert await nodes.arrives(b"one") is is_tls


@pytest.mark.parametrize(("here", "there"), [("require", ""), ("", "require")])
async def test_who_requires_tls_speaks_nothing_else(nodes: Nodes, here: str, there: str) -> None:
    await nodes.start("BOB", there)
    await nodes.start("ALICE", here)
    await nodes.send(b"one")
    await eventually(lambda: nodes.attempts() >= 3)
    assert (await nodes.nodes["BOB"].queue(QUEUE)).message_count == 0


async def test_a_peer_that_has_shown_tls_gets_nothing_in_clear(nodes: Nodes) -> None:
    await nodes.start("BOB", "offer")
    await nodes.start("ALICE", "prefer")
    await nodes.send(b"one")
    assert await nodes.arrives(b"one")
    for name in ("ALICE", "BOB"):
        await nodes.stop(name)
    await nodes.start("BOB")  # it has lost its certificate, or somebody else answers there
    alice = await nodes.start("ALICE", "prefer")
    await nodes.send(b"two")
    await eventually(lambda: nodes.attempts() >= 3)
    assert (await nodes.nodes["BOB"].queue(QUEUE)).message_count == 0
    alice.network.peer_tls.reload(
        nodes.tls("ALICE", "prefer", plain_peers=frozenset({"bob", nodes.machines["BOB"].listens}))
    )
    assert not await nodes.arrives(b"two")


async def test_a_peer_that_opens_tls_sessions_is_not_taken_in_clear(nodes: Nodes) -> None:
    bob = await nodes.start("BOB", "prefer")
    alice = await nodes.start("ALICE", "prefer")
    await nodes.send(b"one")
    assert await nodes.arrives(b"one")
    await nodes.stop("ALICE")
    await nodes.start("ALICE")  # in clear, under the same name
    await nodes.send(b"two")
    await eventually(lambda: nodes.attempts() >= 3)
    assert (await bob.queue(QUEUE)).message_count == 0
    await nodes.stop("ALICE")
    alice = await nodes.start("ALICE", "offer")  # one that goes back on an operator's word still speaks TLS if it must
    assert await nodes.arrives(b"two")
    bob.network.peer_tls.reload(nodes.tls("BOB", "offer"))
    alice.network.peer_tls.reload(nodes.tls("ALICE", "offer"))
    await nodes.send(b"three")
    await nodes.arrives(b"three")


@pytest.mark.slow
@pytest.mark.parametrize("workgroup", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_modes_change_under_a_stream_without_a_loss(tmp_path: Path, workgroup: bool) -> None:
    """Each node goes from nothing to offer, prefer and require, and back, one after the other. Without a directory only
    certificates make a peer known, and it is a stranger again on the way back."""
    async with AsyncExitStack() as stack:
        nodes = Nodes(tmp_path, stack, workgroup=workgroup)
        bob, alice = await nodes.start("BOB"), await nodes.start("ALICE")
        modes = ["offer", "prefer", "require", "prefer", "offer", ""]
        seen: list[bool] = []
        sent = received = 0
        over = False

        async def stream() -> None:
            nonlocal sent
            async with await alice.open_queue(nodes.names["BOB"], Access.SEND) as out:
                while not over:
                    await out.send(Message(b"%d" % sent), transaction="single")
                    sent += 1
                    await asyncio.sleep(0.002)

        async with await bob.open_queue(f"DIRECT=OS:{QUEUE}", Access.RECEIVE) as queue:

            async def take_until(count: int) -> None:
                nonlocal received
                while received < count:
                    assert (await queue.receive(timeout=60)).body == b"%d" % received
                    received += 1

            sending = asyncio.create_task(stream())
            await take_until(100)
            for mode in modes:
                for name, node in [("ALICE", alice), ("BOB", bob)]:
                    node.network.peer_tls.reload(nodes.tls(name, mode) if mode else None)
                    await take_until(received + 100)
                seen.append(all(one.encrypted for one in alice.network.connections() if not one.incoming))
            over = True
            await sending
            await take_until(sent)
        assert seen == [False, True, True, True, True, False]
        assert (await bob.queue(QUEUE)).message_count == 0


async def test_plain_peers_are_served_by_those_that_require_tls(enterprise: Nodes) -> None:
    nodes = enterprise
    bob = await nodes.start("BOB")
    carol = await nodes.start("CAROL")
    alice = await nodes.start("ALICE", "require")
    address = nodes.machines["BOB"].listens
    async with await carol.open_queue(nodes.names["ALICE"], Access.SEND) as out:
        await out.send(Message(b"not declared"), transaction="single")
    async with await alice.open_queue(f"DIRECT=OS:{QUEUE}", Access.RECEIVE) as queue:
        for entry in ("bob", "BOB.example", "site:North", address):
            alice.network.peer_tls.reload(nodes.tls("ALICE", "require", plain_peers=frozenset({entry})))
            await nodes.send(entry.encode())
            assert not await nodes.arrives(entry.encode())
            async with await bob.open_queue(nodes.names["ALICE"], Access.SEND) as out:
                await out.send(Message(b"and back"), transaction="single")
            assert (await queue.receive(timeout=60)).body == b"and back"

            status = await alice.status()
            shown = address if entry == address else "BOB"
            assert (status.tls_mode, status.plain_peers) == ("require", (shown,))
            metrics = (await exposition(Context(alice, ManagementSettings(), connection_list=alice.network))).decode()
            assert f'qmnode_plain_peer{{peer="{shown}"}} 1.0' in metrics
            assert "qmnode_plain_connections" in metrics
            assert "qmnode_tls_certificate_expiry_timestamp_seconds 1." in metrics
    await eventually(lambda: sum(len(one.connection_history) for one in outgoing(carol)) >= 3)
    assert (await alice.queue(QUEUE)).message_count == 0


async def test_a_workgroup_pins_certificates(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        nodes = Nodes(tmp_path, stack, workgroup=True)
        files = {
            name: pinned_by(tmp_path, name, one.listens, one.identifier, NUMBERS[name])
            for name, one in nodes.machines.items()
        }

        def settings(name: str, **pinned: Path) -> TlsSettings:
            pins = {nodes.machines[peer].listens: file for peer, file in pinned.items()}
            return TlsSettings(certificate=files[name], private_key=files[name].with_suffix(".key"), pinned=pins)

        bob = await nodes.start("BOB")
        bob.network.peer_tls.reload(settings("BOB", ALICE=files["ALICE"]))
        alice = await nodes.start("ALICE")
        alice.network.peer_tls.reload(settings("ALICE", BOB=files["BOB"]))
        await nodes.send(b"pinned")
        assert await nodes.arrives(b"pinned")
        carol = await nodes.start("CAROL")
        carol.network.peer_tls.reload(settings("CAROL", BOB=files["BOB"]))
        async with await carol.open_queue(nodes.names["BOB"], Access.SEND) as out:
            await out.send(Message(b"of nobody that is pinned"), transaction="single")
        await eventually(lambda: sum(len(one.connection_history) for one in outgoing(carol)) >= 3)
        assert (await bob.queue(QUEUE)).message_count == 0

        await nodes.stop("BOB")
        other = settings("BOB", ALICE=files["ALICE"]).model_copy(
            update={"certificate": files["CAROL"], "private_key": files["CAROL"].with_suffix(".key")}
        )
        bob = await nodes.start("BOB")
        bob.network.peer_tls.reload(other)
        before = nodes.attempts()
        await nodes.send(b"to another certificate")
        await eventually(lambda: nodes.attempts() >= before + 3)
        assert (await bob.queue(QUEUE)).message_count == 0


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    files = {"certificate": tmp_path, "private_key": tmp_path}
    with pytest.raises(ValidationError, match="either authorities"):
        TlsSettings(**files)
    with pytest.raises(ValidationError, match="either authorities"):
        TlsSettings(**files, authorities=tmp_path, pinned={"bob": tmp_path})
    with pytest.raises(ValidationError, match="bob: both in plain_peers and in peers"):
        TlsSettings(**files, authorities=tmp_path, peers=frozenset({"Bob"}), plain_peers=frozenset({"bOB"}))
    with pytest.raises(ValidationError, match="mode: offer"):
        TlsSettings(**files, authorities=tmp_path, plain_peers=frozenset({"*"}))
