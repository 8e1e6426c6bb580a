"""Bridges between two nodes: at least once, exactly once, and on after every cut."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from qmnode.amqp.bridges import Bridge, Bridges, decoded
from qmnode.amqp.client import Arrival, ClientSender, DeliveryOutcome
from qmnode.amqp.error_conditions import RefusedError
from qmnode.amqp.sections import AmqpMessage, parse, write
from qmnode.bodies.choice import read_headers
from qmnode.management.metrics import exposition
from qmnode.management.request_context import Context
from qmnode.settings.node import ManagementSettings
from tests.amqp.bridging import arrived, bridge_settings, bridged, connected, emptied
from tests.amqp.conftest import SECRET, open_door
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.amqp.conftest import Door

MANY = 200
CUTS = 8


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Door]:
    (tmp_path / "node").mkdir()
    async with open_door(tmp_path / "node", anonymous=True) as opened:
        yield opened


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Door]:
    (tmp_path / "peer").mkdir()
    async with open_door(tmp_path / "peer", anonymous=True, credit=50) as opened:
        await opened.manager.create_queue(r".\private$\ledger", transactional=True, security=await security(opened))
        yield opened


async def security(door: Door) -> bytes:
    return await door.manager.queue_security(r".\private$\orders")


async def carried(node: Door, name: str, count: int) -> None:
    async def have() -> bool:
        return node.manager.amqp.bridges[name].carried == count

    await holds(have, 60, f"{count} messages are carried")


async def _interrupted(node: Door, name: str, earlier: int) -> None:
    async def is_interrupted() -> bool:
        return node.manager.amqp.bridges[name].failures > earlier

    await holds(is_interrupted, 60, f"the bridge {name} has noticed the cut")


async def _label_is(node: Door, label: str) -> bool:
    return (await node.manager.queue(r".\private$\bridge$out")).label == label


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


async def test_messages_go_out_with_all_they_have(node: Door, peer: Door) -> None:
    await node.send(
        "orders", b"first", label="order 1", priority=6, response_queue_format_name=r"DIRECT=OS:HERE\private$\a"
    )
    async with bridged(node, out=bridge_settings(direction="out", peer=peer.url)):
        await node.send("orders", b"second")
        await arrived(peer, "orders", 2)
        first, second = await peer.messages("orders")
        assert (first.body, first.label, first.priority, first.recoverable) == (b"first", "order 1", 6, True)
        assert first.response_queue_format_name == r"DIRECT=OS:HERE\private$\a"
        assert second.body == b"second"

        await carried(node, "out", 2)
        assert await node.bodies("orders") == []


async def test_messages_come_in_and_short_reply_addresses_stay_the_peers(node: Door, peer: Door) -> None:
    await peer.send("orders", b"first", label="order 1")
    async with bridged(node, inward=bridge_settings(direction="in", peer=peer.url, queue="exact")):
        await arrived(node, "exact", 1)
        (first,) = await node.messages("exact")
        assert (first.body, first.label, first.transactional) == (b"first", "order 1", True)
        await emptied(peer, "orders")
    assert node.manager.amqp.bridges == {}


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("direction", ["out", "in"])
async def test_a_bridge_goes_on_after_every_cut(node: Door, peer: Door, direction: str, guarantee: str) -> None:
    ledger = {"ledger": "ledger"} if guarantee == "exactly-once" else {}
    settings = bridge_settings(
        direction=direction, guarantee=guarantee, peer=peer.url, queue="exact", address="exact", window=20, **ledger
    )
    source, target = (node, peer) if direction == "out" else (peer, node)
    chance = random.Random(7)
    bodies = numbered(MANY)
    async with bridged(node, both=settings):
        for cuts in range(CUTS):
            await source.send("exact", *bodies[cuts * MANY // CUTS : (cuts + 1) * MANY // CUTS])
            await connected(node, "both")
            await asyncio.sleep(chance.uniform(0, 0.05))
            for connection in list(peer.door.connections):
                connection.abort()
            await _interrupted(node, "both", cuts)

        await arrived(target, "exact", MANY, 120)
        await emptied(source, "exact")
        state = node.manager.amqp.bridges["both"]
    found = await target.bodies("exact")
    assert set(found) == set(bodies)
    if guarantee == "exactly-once":
        assert len(found) == MANY
        assert (await node.manager.queue(r".\private$\bridge$both")).message_count == 0
    else:
        assert len(found) - MANY <= state.repeated
    assert state.failures >= CUTS


async def test_exactly_once_goes_on_where_an_earlier_process_stopped(node: Door, peer: Door) -> None:
    settings = bridge_settings(
        direction="out", guarantee="exactly-once", peer=peer.url, ledger="ledger", queue="exact", address="exact"
    )
    for start in range(3):
        async with bridged(node, out=settings):
            await node.send("exact", *numbered(20))
            await asyncio.sleep(0.05 * start)
        for connection in list(peer.door.connections):
            connection.abort()
    async with bridged(node, out=settings):
        await arrived(peer, "exact", 60)
    assert sorted(await peer.bodies("exact")) == sorted(numbered(20) * 3)
    assert len(await peer.bodies("ledger")) == 1


async def test_a_ledger_without_its_message_is_not_taken_for_a_new_one(node: Door, peer: Door) -> None:
    settings = bridge_settings(
        direction="out", guarantee="exactly-once", peer=peer.url, ledger="ledger", queue="exact", address="exact"
    )
    async with bridged(node, out=settings):
        await node.send("exact", b"1")

        async def is_written() -> bool:
            return bool((await peer.manager.queue(r".\private$\ledger")).message_count)

        await holds(is_written, 60, "the ledger is written")
        await holds(lambda: _label_is(node, "A bridge with a ledger"), 60, "the bridge knows it")
    async with await peer.manager.open_queue(r"DIRECT=OS:.\private$\ledger") as queue:
        await queue.purge()
    bridges = Bridges(node.manager)
    await bridges.apply({"out": settings})

    async def is_held_back() -> bool:
        return "its message is gone" in node.manager.amqp.bridges["out"].reason

    await holds(is_held_back, 60, "the bridge waits for its ledger")
    await bridges.stop()


async def test_a_message_that_the_peer_refuses_is_a_dead_letter(node: Door, peer: Door) -> None:
    await peer.manager.set_queue(r".\private$\orders", quota=64)
    async with bridged(node, out=bridge_settings(direction="out", peer=peer.url)):
        await node.send("orders", bytes(100_000), b"small")
        await arrived(peer, "orders", 1)
        assert await peer.bodies("orders") == [b"small"]

        async def is_dead() -> bool:
            return bool(await node.bodies(r".\SYSTEM$;DEADLETTER"))

        await holds(is_dead, 60, "the large message is a dead letter")
        assert node.manager.amqp.bridges["out"].rejected == 1


@pytest.mark.parametrize(("failed", "count"), [(False, 0), (True, 1)], ids=["released", "modified"])
async def test_each_answer_of_a_peer_has_its_outcome(
    node: Door, peer: Door, monkeypatch: pytest.MonkeyPatch, failed: bool, count: int
) -> None:
    answered: list[bytes] = []
    send = ClientSender.send

    def returned_first(sender: ClientSender, data: bytes, transaction: bytes | None = None) -> asyncio.Future[Any]:
        answered.append(data)
        if len(answered) > 1:
            return send(sender, data, transaction)
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(DeliveryOutcome(accepted=False, failed=failed))
        return answer

    monkeypatch.setattr(ClientSender, "send", returned_first)
    async with bridged(node, out=bridge_settings(direction="out", peer=peer.url)):
        await node.send("orders", b"1")
        await arrived(peer, "orders", 1)
        await carried(node, "out", 1)
        assert node.manager.amqp.bridges["out"].rejected == 0
    assert [parse(one).header.get("delivery_count", 0) for one in answered] == [0, count]
    assert await node.bodies(r".\SYSTEM$;DEADLETTER") == []


async def test_the_first_messages_of_a_connection_may_have_come_before(node: Door, peer: Door) -> None:
    settings = bridge_settings(direction="in", peer=peer.url, window=2)
    async with bridged(node, inward=settings):
        await peer.send("orders", b"1", b"2", b"3")
        await arrived(node, "orders", 3)
        await emptied(peer, "orders")
        for connection in list(peer.door.connections):
            connection.abort()
        await _interrupted(node, "inward", 0)
        await peer.send("orders", b"4", b"5", b"6")
        await arrived(node, "orders", 6)
    named = ["qmnode-redelivered" in read_headers(one.extension).values for one in await node.messages("orders")]
    assert named == [True, True, False, True, True, False]


@pytest.mark.parametrize(
    "data",
    [b"no message", write(AmqpMessage(application_properties={"list": [1]}, body=b"order"))],
    ids=["malformed", "a list as a property"],
)
async def test_a_message_of_the_peer_that_no_queue_takes_is_refused(node: Door, data: bytes) -> None:
    bridge = Bridge("inward", bridge_settings(direction="in", peer="amqp://127.0.0.1"), node.manager)
    delivery: Any = None
    with pytest.raises(RefusedError) as refused:
        decoded(bridge, Arrival(delivery, data))
    assert refused.value.condition == "amqp:decode-error"


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
async def test_a_full_queue_holds_messages_back_at_the_peer(node: Door, peer: Door, guarantee: str) -> None:
    queue, ledger = ("exact", {"ledger": "ledger"}) if guarantee == "exactly-once" else ("orders", {})
    settings = bridge_settings(
        direction="in", peer=peer.url, queue=queue, address=queue, guarantee=guarantee, **ledger
    )  # fmt: skip
    await node.manager.set_queue(f".\\private$\\{queue}", quota=20)
    async with bridged(node, inward=settings):
        await peer.send(queue, *[bytes(8_000)] * 4)

        async def is_full() -> bool:
            return "MQ_ERROR_INSUFFICIENT_RESOURCES" in node.manager.amqp.bridges["inward"].reason

        await holds(is_full, 60, "the bridge says that the queue is full")
        assert any(one.startswith("bridge inward: ") for one in (await node.manager.status()).warnings)
        await node.manager.set_queue(f".\\private$\\{queue}", quota=0xFFFFFFFF)
        await arrived(node, queue, 4)
        await emptied(peer, queue)
    assert len(await node.bodies(queue)) == 4
    assert (await node.manager.status()).warnings == ()


async def test_a_peer_that_is_down_or_refuses_is_tried_again_and_named(node: Door, peer: Door, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("wrong\n")
    wrong = bridge_settings(direction="out", peer=peer.url, user="ops", password_file=tmp_path / "password")
    bridges = Bridges(node.manager)
    states = node.manager.amqp.bridges
    await bridges.apply(
        {
            "nobody": bridge_settings(direction="out", peer="amqp://127.0.0.1:1"),
            "wrong": wrong,
            "nothing": bridge_settings(direction="out", peer=peer.url, address="nothing"),
            "missing": bridge_settings(direction="in", peer=peer.url, queue="missing"),
        }
    )

    async def all_failed_twice() -> bool:
        return all(one.failures >= 2 for one in states.values())

    await holds(all_failed_twice, 60, "all have failed twice")
    assert "refused" in states["nobody"].reason
    assert "Check user and password" in states["wrong"].reason
    assert "amqp:not-found" in states["nothing"].reason
    assert "MQ_ERROR_QUEUE_NOT_FOUND" in states["missing"].reason
    (tmp_path / "password").write_text(SECRET)
    await connected(node, "wrong")
    metrics = (await exposition(Context(node.manager, ManagementSettings()))).decode()
    assert 'qmnode_bridge_connected{bridge="wrong",direction="out"} 1.0' in metrics
    assert 'qmnode_bridge_connected{bridge="nobody",direction="out"} 0.0' in metrics
    await bridges.stop()


async def test_only_changed_bridges_are_interrupted(node: Door, peer: Door) -> None:
    first, second = (bridge_settings(direction="out", peer=peer.url, queue=one) for one in ("orders", "done"))
    async with bridged(node, first=first, second=second) as bridges:
        since = node.manager.amqp.bridges["first"].since
        await bridges.apply({"first": first, "second": bridge_settings(direction="out", peer=peer.url, queue="exact")})
        await connected(node, "second")
        assert node.manager.amqp.bridges["first"].since == since
        await bridges.apply({"second": first})
        assert set(node.manager.amqp.bridges) == {"second"}


async def test_what_was_under_way_at_a_start_is_named_as_possibly_sent_before(node: Door, peer: Door) -> None:
    await node.send("orders", b"1", b"2", b"3")
    async with bridged(node, out=bridge_settings(direction="out", peer=peer.url, window=2)):
        await arrived(peer, "orders", 3)
        await node.send("orders", b"4")
        await carried(node, "out", 4)
        assert node.manager.amqp.bridges["out"].repeated == 2


async def test_large_and_empty_bodies_go_both_ways(node: Door, peer: Door) -> None:
    bodies = [b"", b"x", bytes(4_000_000)]
    out = bridge_settings(direction="out", peer=peer.url, address="done")
    inward = bridge_settings(direction="in", peer=peer.url, queue="done", address="done")
    async with bridged(node, out=out, inward=inward):
        await node.send("orders", *bodies)
        await arrived(node, "done", 3)
    assert await node.bodies("done") == bodies


@pytest.mark.parametrize(
    ("header", "again"),
    [
        ({}, False),
        ({"delivery_count": 0, "first_acquirer": True}, False),
        ({"delivery_count": 1}, True),
        ({"first_acquirer": False}, True),
    ],
)
async def test_a_message_that_may_have_come_before_says_so(node: Door, header: dict[str, object], again: bool) -> None:
    bridge = Bridge("inward", bridge_settings(direction="in", peer="amqp://127.0.0.1"), node.manager)
    delivery: Any = None
    sent, found = decoded(bridge, Arrival(delivery, write(AmqpMessage(header=header, body=b"order"))))
    assert found is again
    assert ("qmnode-redelivered" in read_headers(sent.message.extension).values) is again


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"peer": "http://x"}, "amqp://HOST"),
        ({"peer": "amqp://u:p@x"}, "no user and password"),
        ({"peer": "amqp://x:99999"}, "amqp://HOST"),
        ({"user": "a"}, "password_file or password_secret"),
        ({"user": "a", "password_file": "f"}, "not sent in clear"),
        ({"guarantee": "exactly-once"}, "belong together"),
        ({"certificate": "a", "private_key": "b"}, "for TLS"),
    ],
)
def test_settings_that_do_not_fit_are_refused(wrong: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        bridge_settings(**{"direction": "out", "peer": "amqp://x", **wrong})
