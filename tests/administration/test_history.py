"""The counters of queues over time."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import qmnode
from qmnode.administration import history
from qmnode.administration.asker import Asker
from qmnode.administration.history import MOST_QUEUES, SPANS, History, Ring
from qmnode.management.metrics import traffic_metrics
from qmnode.security.access_check import Token
from qmnode.security.principals import Principal, unix_user
from qmnode.settings.node import Settings
from qmnode.structures.security_descriptor import SecurityDescriptor

ORDERS = r".\private$\orders"


async def send(manager: qmnode.QueueManager, count: int, name: str = ORDERS) -> None:
    async with await manager.open_queue(f"DIRECT=OS:{name}", qmnode.Access.SEND) as queue:
        await queue.send_many([qmnode.Message(b"x")] * count)


async def receive(manager: qmnode.QueueManager, count: int) -> None:
    async with await manager.open_queue(f"DIRECT=OS:{ORDERS}") as queue:
        await queue.receive_many(count, 0)


@pytest.fixture
async def manager(tmp_path: Path):  # type: ignore[no-untyped-def]
    async with qmnode.QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA")) as manager:
        await manager.create_queue(ORDERS)
        yield manager


async def test_each_step_has_its_own_moves_also_when_metrics_are_read(manager: qmnode.QueueManager) -> None:
    kept = History(manager)

    await send(manager, 5)
    await kept.sample()
    await send(manager, 2)
    list(traffic_metrics(manager, 10))  # takes the counts of the queues
    await receive(manager, 4)
    await kept.sample()
    await kept.sample()

    (found,) = (await kept.series(["orders"], "hour", None))["queues"]
    assert (found["arrived"], found["left"], found["messages"]) == ([5, 2, 0], [0, 4, 0], [5, 3, 3])
    assert (await kept.series(["orders"], "day", None))["queues"][0]["arrived"] == []


async def test_minutes_are_kept_for_a_day(manager: qmnode.QueueManager) -> None:
    kept = History(manager)
    for _ in range(13):
        await send(manager, 1)
        await kept.sample()

    found = await kept.series(["orders"], "day", None)

    assert (found["step"], found["queues"][0]["arrived"], found["queues"][0]["messages"]) == (60, [6, 6], [6, 12])
    assert len(found["times"]) == 2


async def test_a_busy_queue_takes_the_place_of_the_longest_idle_one(
    manager: qmnode.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST_QUEUES", 2)
    for name in "abc":
        await manager.create_queue(rf".\private$\{name}")
    kept = History(manager)
    for name in "abac":
        await send(manager, 1, rf".\private$\{name}")
        await kept.sample()

    names = [one["queue"][-1] for one in (await kept.series(["*"], "hour", None))["queues"]]

    assert names == ["a", "c"]


async def test_a_restart_keeps_the_history(tmp_path: Path) -> None:
    settings = Settings(computer_name="ALPHA")
    async with qmnode.QueueManager.open(tmp_path / "store", settings) as node:
        await node.create_queue(ORDERS)
        kept = node.operations._history
        for count in (*range(1, 8), 0):
            if count:
                await send(node, count)
            await kept.sample()
        before = {span: await kept.series(["*"], span, None) for span in SPANS}
        await node.backup(tmp_path / "copy")
    async with qmnode.QueueManager.open(tmp_path / "store", settings) as node:
        kept = node.operations._history
        after = {span: await kept.series(["*"], span, None) for span in SPANS}
        await send(node, 9)
        await kept.sample()
        (later,) = (await kept.series(["*"], "hour", None))["queues"]
    async with qmnode.QueueManager.open(tmp_path / "copy", settings) as node:
        restored = await node.operations.history(Asker("program"), ["*"])

    assert after == before and before["day"]["queues"][0]["arrived"] == [21]
    assert (later["arrived"], later["messages"][-1]) == ([1, 2, 3, 4, 5, 6, 7, 0, 9], 9)
    assert restored["queues"] == []


async def test_the_history_of_long_ago_is_not_shown(manager: qmnode.QueueManager, tmp_path: Path) -> None:
    kept = History(manager, tmp_path / "COUNTERS")
    await send(manager, 1)
    await kept.sample()
    kept._times["hour"][0] -= 4000
    await kept.sample()
    await kept.save()
    again = History(manager, tmp_path / "COUNTERS")
    again.load()

    found = await again.series(["*"], "hour", None)

    assert (len(found["times"]), found["queues"][0]["arrived"]) == (1, [0])


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-9], lambda data: b"x" + data, lambda data: data[:40]]
)
async def test_a_damaged_history_begins_anew(
    manager: qmnode.QueueManager, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    kept, path = History(manager, tmp_path / "COUNTERS"), tmp_path / "COUNTERS"
    await send(manager, 1)
    await kept.sample()
    await kept.save()
    path.write_bytes(damage(path.read_bytes()))
    again = History(manager, path)

    again.load()

    assert await again.series(["*"], "hour", None) == {"step": 10, "times": [], "queues": []}


async def test_a_caller_without_the_right_to_a_queue_sees_no_history_of_it(manager: qmnode.QueueManager) -> None:
    user = unix_user(3000)
    stranger = Asker("uid:3000", principal=Principal("uid:3000", user, Token.of(user)))
    nobody = SecurityDescriptor(owner=unix_user(1000)).with_dacl().write()
    await manager.create_queue(r".\private$\hidden", security=nobody)
    for name in (ORDERS, r".\private$\hidden"):
        await send(manager, 1, name)
    await manager.operations._history.sample()

    seen = await manager.operations.history(stranger, ["*"])
    all_of_them = await manager.operations.history(Asker("program"), ["*"])

    assert [one["queue"] for one in seen["queues"]] == [manager.names.find(ORDERS).pathname]
    assert len(all_of_them["queues"]) == 2


async def test_a_history_that_cannot_be_is_refused(manager: qmnode.QueueManager) -> None:
    for names, span in (([], "hour"), (["*"], "year"), (["none"], "hour"), ("*", "hour")):
        with pytest.raises(qmnode.MessageQueuingError):
            await manager.operations.history(Asker("program"), names, span)


def test_all_of_it_takes_at_most_sixteen_megabytes() -> None:
    rings = [Ring(count) for _, count in SPANS.values()]
    for ring, (_, count) in zip(rings, SPANS.values(), strict=True):
        for number in range(count + 5):
            ring.add((number, 0, 1 << 40), number, 1 << 70)

    fine = rings[0].samples()
    assert [sample[0] for sample in fine] == list(range(5, SPANS["hour"][1] + 5)) and fine[0][2] == 0xFFFFFFFF
    assert MOST_QUEUES * (sum(ring._data.__sizeof__() for ring in rings) + 1000) <= 16_000_000


async def test_the_node_samples_by_itself(manager: qmnode.QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmnode.administration.operations.STEP", 0.02)
    await manager.operations.stop()
    manager.operations.start()
    await send(manager, 3)
    async with asyncio.timeout(60):
        while not (await manager.operations.history(Asker("program"), ["orders"]))["queues"]:
            await asyncio.sleep(0.01)
