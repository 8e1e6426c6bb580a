"""``mqenterprise carry`` between two nodes that run, the old one read over RemoteRead alone."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.node_client import NodeClient
from qmnode import Access, Message
from qmnode.administration.carry_exchange import CarryExchange
from qmnode.commands.remote import RemoteTarget
from qmnode.management.documents import lookup_text
from qmnode.remote_read.client_queue import RemoteReadQueue
from tests.lab.nodes import PROJECT
from tests.lab.waiting import wait_until
from tests.operations.carried import Estate, at, create, messages_of, send

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.nodes import NodeProcess

pytestmark = [pytest.mark.servers]


@pytest.fixture(scope="module")
def estate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    one = Estate(tmp_path_factory.mktemp("carry"))
    try:
        one.start()
        yield one
    finally:
        one.stop()


def both(estate: Estate, name: str, **properties: object) -> None:
    """The same queue on both sides."""
    for node in (estate.old, estate.new):
        at(create(node, name, **properties))


def test_a_queue_is_carried_with_everything_and_the_ledger_proves_it(estate: Estate) -> None:
    both(estate, "orders", transactional=True)
    sent = [
        Message(b"%d" % number * 40, label=f"order {number}", extension=b"e", correlation_identifier=b"c" * 20)
        for number in range(700)
    ]
    at(send(estate.old, "orders", sent))
    before = at(messages_of(estate.old, "orders"))
    rehearsed = estate.carry("orders", "--rehearse")
    assert (rehearsed["messages"], rehearsed["carry"]) == (700, 0)
    assert at(messages_of(estate.new, "orders")) == []
    ledger = estate.ledger("orders")
    after = at(messages_of(estate.new, "orders"))
    assert [one.packet for one in after] == [one.packet for one in before]
    assert [int(one.arrival_time) for one in after] == [int(one.arrival_time) for one in before]
    assert at(messages_of(estate.old, "orders")) == []
    counted = [(hashlib.sha256(one.packet).hexdigest(), lookup_text(one.lookup_identifier)) for one in before]
    assert [(one["digest"], one["source_lookup"]) for one in ledger] == counted
    assert {one["state"] for one in ledger} == {"carried"}
    assert estate.carry("orders")["messages"] == 0


def test_a_killed_carrier_goes_on_where_it_was_and_no_copy_shows_before_that(estate: Estate) -> None:
    both(estate, "killed")
    at(send(estate.old, "killed", [Message(b"%d" % number, recoverable=True) for number in range(900)]))
    carrier = subprocess.Popen(estate.words("killed", "--rate", "50"), cwd=PROJECT, stderr=subprocess.DEVNULL)
    wait_until(lambda: at(count_of(estate.new, "killed")) > 0, 120, "some are carried")
    carrier.kill()
    carrier.wait()
    visible = [one.body for one in at(messages_of(estate.new, "killed"))]
    assert visible == [b"%d" % number for number in range(len(visible))] and len(visible) < 900
    left = len(at(messages_of(estate.old, "killed")))
    summary = estate.carry("killed", "--sole-reader")
    assert summary["messages"] == 900 - len(visible) >= left
    assert [one.body for one in at(messages_of(estate.new, "killed"))] == [b"%d" % number for number in range(900)]


def test_a_finished_carry_is_deleted_with_its_ledger_and_no_other_one(estate: Estate) -> None:
    both(estate, "done")
    at(send(estate.old, "done", [Message(b"%d" % number, recoverable=True) for number in range(3)]))
    hold(estate, "done", 2)
    assert "2 unconfirmed messages: carry again, then delete it" in estate.refused("done", "--forget")
    assert len(estate.ledger("done")) == 3
    code, _, _ = estate.run("done", "--forget")
    assert code == 0
    assert "has no carry from" in estate.refused("done", "--forget")
    assert [one.body for one in at(messages_of(estate.new, "done"))] == [b"0", b"1", b"2"]
    at(send(estate.old, "done", [Message(b"3", recoverable=True)]))
    assert len(estate.ledger("done")) == 1, "a carry after that begins anew"
    estate.new.stop()
    estate.new.start()
    assert len(estate.ledger("done")) == 1
    assert [one.body for one in at(messages_of(estate.new, "done"))] == [b"0", b"1", b"2", b"3"]


def test_a_held_message_that_is_gone_from_the_source_is_for_a_person_to_decide(estate: Estate) -> None:
    both(estate, "gone")
    at(send(estate.old, "gone", [Message(b"%d" % number, recoverable=True) for number in range(3)]))
    hold(estate, "gone", 2)
    at(receive(estate, "gone"))
    code, output, errors = estate.run("gone")
    assert code == 1 and len(output.splitlines()) == 1 and "--sole-reader" in errors
    assert at(messages_of(estate.new, "gone")) == []
    assert len(at(messages_of(estate.old, "gone"))) == 2, "nothing passes it"
    assert estate.carry("gone", "--drop", output.strip())["messages"] == 2
    assert [one.body for one in at(messages_of(estate.new, "gone"))] == [b"1", b"2"]


def test_messages_whose_reads_a_carry_has_ended_itself_are_not_undecided(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(estate, "ended")
    at(send(estate.old, "ended", [Message(b"%d" % number, recoverable=True) for number in range(3)]))
    real, failed = NodeClient.carry_messages, list[bool]()

    async def once_unavailable(client: NodeClient, number: int, exchange: Any) -> Any:
        if exchange.confirm and not failed:
            failed.append(True)
            raise NodeError("it is unavailable", unavailable=True)
        return await real(client, number, exchange)

    monkeypatch.setattr(NodeClient, "carry_messages", once_unavailable)
    summary = estate.carry("ended")
    assert (summary["messages"], summary["interrupted"], summary["undecided"]) == (3, 1, [])
    assert [one.body for one in at(messages_of(estate.new, "ended"))] == [b"0", b"1", b"2"]


def test_a_carry_that_does_not_follow_ends_although_senders_go_on(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(estate, "busy")
    at(send(estate.old, "busy", [Message(b"%d" % number, recoverable=True) for number in range(3)]))
    real, reads = RemoteReadQueue.begin_many, list[int]()

    async def behind_a_sender(queue: RemoteReadQueue, limit: int) -> Any:
        reads.append(limit)
        if len(reads) < 50:
            await send(estate.old, "busy", [Message(b"more", recoverable=True)])
        return await real(queue, limit)

    monkeypatch.setattr(RemoteReadQueue, "begin_many", behind_a_sender)
    assert estate.carry("busy")["messages"] == 4
    assert len(reads) == 1
    assert len(at(messages_of(estate.new, "busy"))) == 4


def test_more_held_messages_are_settled_than_a_source_takes_calls_at_a_time(estate: Estate) -> None:
    both(estate, "many")
    at(send(estate.old, "many", [Message(b"%d" % number, recoverable=True) for number in range(1100)]))
    hold(estate, "many", 1100)
    assert estate.carry("many", "--sole-reader")["messages"] == 1100
    assert [one.body for one in at(messages_of(estate.new, "many"))] == [b"%d" % number for number in range(1100)]


async def count_of(node: NodeProcess, name: str) -> int:
    async with qmnode.connect(node.socket) as manager:
        return (await manager.queue(rf".\private$\{name}")).message_count


def hold(estate: Estate, name: str, count: int) -> None:
    """Leave the first messages as a carrier does that dies before it ends their reads."""
    from mqenterprise.operations.carrying import _transferred
    from mqenterprise.operations.nodes import chosen_nodes, connected
    from mqenterprise.operations.settings import load_settings

    source = RemoteTarget(estate.old_address, estate.mapper, "", None).format_name(name)

    async def work() -> None:
        settings = load_settings(estate.folder / "nodes.yaml")
        nodes = chosen_nodes(settings, lambda: pytest.fail("no directory"), machines=["new"], site=None)
        found = await messages_of(estate.old, name)
        async with connected(settings, nodes) as (client,):
            begun = await client.begin_carry(source, name)
            for start in range(0, count, 500):
                held = [_transferred(one) for one in found[start : min(start + 500, count)]]
                await client.carry_messages(begun.carry, CarryExchange(begun.epoch, hold=held))

    at(work())


async def receive(estate: Estate, name: str) -> None:
    async with (
        qmnode.connect(estate.old.socket) as manager,
        await manager.open_queue(rf"DIRECT=OS:.\private$\{name}", Access.RECEIVE) as queue,
    ):
        await queue.receive(0)


def test_mistakes_are_one_line_each_and_change_nothing(estate: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    both(estate, "m")
    at(send(estate.old, "m", [Message(b"x" * 3000, recoverable=True) for _ in range(3)]))
    at(create(estate.new, "clash", transactional=True))
    at(create(estate.new, "small", quota=2))
    at(create(estate.old, "closed", security=b""))
    at(create(estate.new, "closed"))
    both(estate, "half")
    at(send(estate.old, "half", [Message(b"x", recoverable=True)]))
    hold(estate, "half", 1)
    nodes = estate.folder / "nodes.yaml"
    lines = {
        "no such queue there": estate.refused("nothing", "--into", "m"),
        "no queue": estate.refused("m", "--into", "absent"),
        "is transactional": estate.refused("m", "--into", "clash"),
        "room for": estate.refused("m", "--into", "small"),
        "ReceiveMessage": estate.refused("closed"),
        "Remote read has to be enabled": estate.refused("m", port=9),
        "is no computer": estate.refused("m", port=99999),
        "--user and --password-file": estate.refused("m", "--user", "A\\b"),
        "invalid value for '--rate'": estate.refused("m", "--rate", "-1"),
        "cannot be read": estate.refused("m", nodes="/nowhere.yaml"),
        "there is no token": estate.refused("m", nodes=str(without(nodes, "token_file"))),
        "is unavailable": estate.refused("m", nodes=str(changed(nodes, machines={"new": {"address": "127.0.0.1:9"}}))),
        "is for administer": estate.refused("m", nodes=str(changed(nodes, token_file="lesser.token"))),
        "finish that first, with the name that it began with": estate.refused("m", "--into", "half"),
        "there is no queue": estate.refused("m", "--into", r"DIRECT=OS:other\private$\m"),
        "make that folder for the ledger": estate.refused("m", "--ledger", str(estate.folder / "absent" / "ledger")),
        "name another file for the ledger": estate.refused("m", "--ledger", str(estate.folder)),
        "has no carry from": estate.refused("m", "--forget"),
    }
    with monkeypatch.context() as patch:
        real = time.time
        patch.setattr("mqenterprise.operations.carrying.time.time", lambda: real() + 3600)
        lines["by which messages would expire"] = estate.refused("m")
    assert {part: line for part, line in lines.items() if part not in line} == {}
    assert len(at(messages_of(estate.old, "m"))) == 3
    assert not [one for name in ("m", "clash", "small", "half") for one in at(messages_of(estate.new, name))]


def test_a_clock_of_the_source_that_runs_ahead_is_noticed_before_anything_is_carried(
    estate: Estate, tmp_path: Path
) -> None:
    both(estate, "ahead")
    right = dict(estate.old.environment)
    (tmp_path / "sitecustomize.py").write_text("import time\nreal = time.time\ntime.time = lambda: real() + 3600\n")
    try:
        estate.old.environment["PYTHONPATH"] = f"{tmp_path}:{right['PYTHONPATH']}"
        restart(estate.old)
        at(send(estate.old, "ahead", [Message(b"1", recoverable=True)]))
    finally:
        estate.old.environment.update(right)
        restart(estate.old)
    line = estate.refused("ahead")
    assert "s ahead, by the arrival of a message: set it" in line and f"the clock of {estate.old_address}" in line
    assert [one.body for one in at(messages_of(estate.old, "ahead"))] == [b"1"]
    assert at(messages_of(estate.new, "ahead")) == []


def restart(node: NodeProcess) -> None:
    node.stop()
    node.start()


def without(nodes: Path, name: str) -> Path:
    settings = json.loads(nodes.read_text())
    del settings[name]
    return written(nodes.with_name("without.yaml"), settings)


def changed(nodes: Path, **settings: Any) -> Path:
    return written(nodes.with_name("changed.yaml"), json.loads(nodes.read_text()) | settings)


def written(path: Path, settings: dict[str, Any]) -> Path:
    path.write_text(json.dumps(settings))
    return path


def test_a_reader_at_the_source_is_noticed(estate: Estate) -> None:
    both(estate, "read")
    at(send(estate.old, "read", [Message(b"1")]))

    async def refused() -> str:
        async with (
            qmnode.connect(estate.old.socket) as manager,
            await manager.open_queue(r"DIRECT=OS:.\private$\read", Access.RECEIVE),
        ):
            return await asyncio.to_thread(estate.refused, "read")

    assert "a program has it open to receive" in at(refused())
    assert len(at(messages_of(estate.old, "read"))) == 1
