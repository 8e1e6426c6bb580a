"""Finding messages: what the criteria mean, pages and cursors, and what one page costs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import thread_time
from typing import Any

import pytest

import qmnode
from qmnode.administration.asker import Asker
from qmnode.administration.criteria import Criteria
from qmnode.administration.search import chosen_queues, search_page
from qmnode.errors import MessageQueuingError
from qmnode.structures.guid import guid_to_text
from tests.lab.cases import cases

ORDERS, INVOICES = r".\private$\orders", r".\private$\invoices"
ANYBODY = Asker("uid:1000")


@pytest.fixture
async def qm(tmp_path: Path) -> AsyncIterator[qmnode.QueueManager]:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        await manager.create_queue(ORDERS, journaling=True)
        await manager.create_queue(INVOICES)
        yield manager


async def send(qm: qmnode.QueueManager, name: str, *messages: qmnode.Message) -> None:
    async with await qm.open_queue(f"DIRECT=OS:{name}", qmnode.Access.SEND) as queue:
        await queue.send_many(messages)


async def labels(qm: qmnode.QueueManager, *names: str, **criteria: Any) -> list[str]:
    page = await search_page(qm, names or ("*",), Criteria.from_plain(criteria))
    return [one.message.label for one in page.found]


def order(number: int, **properties: Any) -> qmnode.Message:
    value = {"Order": {"Id": number, "Lines": [{"Item": "tea"}, {"Item": f"cup {number}"}]}}
    return qmnode.Message.from_value(value, format="json", label=f"order {number}", recoverable=True, **properties)


@pytest.mark.parametrize(
    ("criteria", "found"),
    [
        ({}, ["order 1", "order 2", "order 3"]),
        ({"label": "ORDER 2"}, ["order 2"]),
        ({"label": "*3"}, ["order 3"]),
        ({"label": "order"}, ["order 1", "order 2", "order 3"]),
        ({"label": "[o]rder*"}, []),
        ({"body": "cup 2"}, ["order 2"]),
        ({"body": "CUP 2"}, []),
        ({"values": ["Order.Id=3"]}, ["order 3"]),
        ({"values": ["Order.Lines.Item=cup 1"]}, ["order 1"]),
        ({"values": ["Id=1"]}, ["order 1"]),
        ({"values": ["Order.Id=1", "Order.Lines.Item=coffee"]}, []),
        ({"values": ["Order.Nothing"]}, []),
        ({"priority": 5}, ["order 2"]),
        ({"larger": 10_000}, []),
        ({"smaller": 10_000, "label": "order 1"}, ["order 1"]),
        ({"correlation": "07" * 20}, ["order 3"]),
        ({"response_queue": "answers"}, ["order 1"]),
        ({"arrived_after": 4e9}, []),
        ({"arrived_before": 4e9, "priority": 5}, ["order 2"]),
        ({"message_class": "normal", "label": "*1"}, ["order 1"]),
        ({"message_class": "NACK*"}, []),
        ({"destination": "private$\\orders", "label": "*1"}, ["order 1"]),
    ],
)
async def test_each_criterion_finds_what_it_says(
    qm: qmnode.QueueManager, criteria: dict[str, Any], found: list[str]
) -> None:
    await send(
        qm,
        ORDERS,
        order(1, response_queue_format_name=r"DIRECT=OS:ALPHA\private$\answers"),
        order(2, priority=5),
        order(3, correlation_identifier=b"\7" * 20),
    )

    assert sorted(await labels(qm, **criteria)) == found


async def test_headers_are_found_by_name_and_pattern(qm: qmnode.QueueManager) -> None:
    failed = {"NServiceBus.FailedQ": "sales@ALPHA", "NServiceBus.ExceptionInfo.ExceptionType": "System.Exception"}
    message = qmnode.Message.from_value("{}", format="nservicebus", headers=failed, label="failed")
    await send(qm, ORDERS, message, qmnode.Message(b"NServiceBus.FailedQ", label="sound"))

    assert await labels(qm, headers=["NServiceBus.FailedQ=SALES@*"]) == ["failed"]
    assert await labels(qm, headers=["NServiceBus.FailedQ"]) == ["failed"]
    assert await labels(qm, headers=["NServiceBus.FailedQ=other"]) == []


async def test_text_is_found_in_utf16_bodies_too(qm: qmnode.QueueManager) -> None:
    await send(qm, ORDERS, qmnode.Message.from_value("Tür 7", format="VT_BSTR", label="door"))

    assert await labels(qm, body="Tür") == ["door"]


async def test_a_message_is_found_by_identifier_sender_and_machine(qm: qmnode.QueueManager) -> None:
    await send(qm, ORDERS, order(1), order(2))
    page = await search_page(qm, ["orders"], Criteria())
    identifier = page.found[1].message.identifier

    assert await labels(qm, identifier=identifier.hex()) == ["order 2"]
    assert await labels(qm, sender=guid_to_text(qm.identifier)) == ["order 1", "order 2"]
    assert await labels(qm, sender="S-1-5-21-1-2-3-500") == []


async def test_patterns_name_queues_and_journals_only_with_a_semicolon(qm: qmnode.QueueManager) -> None:
    await send(qm, ORDERS, order(1), order(2))
    await send(qm, INVOICES, qmnode.Message(b"", label="invoice"))
    async with await qm.open_queue(f"DIRECT=OS:{ORDERS}") as queue:
        await queue.receive(0)

    assert await labels(qm, "*") == ["order 2", "invoice"]
    assert await labels(qm, "*;journal") == ["order 1"]
    assert await labels(qm, "orders;journal", "inv*") == ["order 1", "invoice"]
    with pytest.raises(MessageQueuingError, match="no queue"):
        await labels(qm, "missing")
    assert await labels(qm, "missing*") == []


async def test_a_cursor_goes_on_where_the_page_ended(qm: qmnode.QueueManager) -> None:
    await send(qm, ORDERS, *(order(number, priority=number % 3) for number in range(20)))
    await send(qm, INVOICES, *(order(number) for number in range(20, 25)))
    cursor, found = "", []
    while True:
        page = await search_page(qm, ["*"], Criteria(), cursor, 7)
        found += [one.message.label for one in page.found]
        cursor = page.next
        if not cursor:
            break

    assert len(found) == len(set(found)) == 25
    assert found[:7] == [f"order {number}" for number in (2, 5, 8, 11, 14, 17, 1)]


async def test_a_search_from_the_end_finds_the_same_backwards_and_reads_no_more_than_it_shows(
    qm: qmnode.QueueManager,
) -> None:
    await send(qm, ORDERS, *(order(number, priority=number % 3) for number in range(200)))
    await send(qm, INVOICES, *(order(number) for number in range(200, 205)), qmnode.Message(b"", label="express"))
    forwards = [one.message.label for one in (await search_page(qm, ["*"], Criteria())).found]
    cursor, found = "-", []
    while cursor:
        page = await search_page(qm, ["*"], Criteria(), cursor, 7)
        assert page.scanned <= 7
        found += [one.message.label for one in page.found]
        assert not page.next or str(page.found[-1].after) == page.next
        cursor = page.next
    assert found == forwards[::-1]
    page = await search_page(qm, ["orders"], Criteria(label="order 77"), "-")
    assert [one.message.label for one in page.found] == ["order 77"]
    async with await qm.open_queue(f"DIRECT=OS:{INVOICES}") as queue:
        held = await queue.receive_begin(0)
        page = await search_page(qm, ["invoices"], Criteria(), "-", 1000)
        assert [one.message.label for one in page.found] == [
            "express",
            "order 204",
            "order 203",
            "order 202",
            "order 201",
        ]
        assert held.label == "order 200"


@pytest.mark.parametrize(
    "cursor", ["x", "1", "1.2.3", "-1", "--1.0", "1.-0", "ffffffff1.0", "../x", "1." + "f" * 17, "1.G"]
)
async def test_a_forged_cursor_is_refused(qm: qmnode.QueueManager, cursor: str) -> None:
    with pytest.raises(MessageQueuingError, match="no cursor"):
        await search_page(qm, ["*"], Criteria(), cursor)


@pytest.mark.parametrize("cursor", ["ffffffff.ffffffffffffffff", "0.0", "40.ffffffffffffffff"])
async def test_a_cursor_to_nowhere_finds_what_is_behind_it(qm: qmnode.QueueManager, cursor: str) -> None:
    page = await search_page(qm, ["*"], Criteria(), cursor)

    assert page.found == [] and page.next == ""


@cases(
    "criteria",
    [
        {"colour": "red"},
        {"priority": 8},
        {"priority": True},
        {"first": -1},
        {"arrived_after": float("nan")},
        {"label": 7},
        {"headers": "NServiceBus"},
        {"headers": ["=x"]},
        {"identifier": "zz"},
        {"correlation": "1\\2"},
        {"message_class": "NOTHING"},
        {"sender": "alice"},
        {"body": "x" * 5000},
    ],
)
def test_criteria_that_cannot_be_are_refused_with_a_sentence(criteria: dict[str, Any]) -> None:
    with pytest.raises(MessageQueuingError, match="MQ_ERROR_INVALID_PARAMETER"):
        Criteria.from_plain(criteria)


async def test_messages_in_a_transaction_are_left_out(qm: qmnode.QueueManager) -> None:
    await qm.create_queue(r".\private$\tx", transactional=True)
    async with await qm.open_queue(r"DIRECT=OS:.\private$\tx", qmnode.Access.SEND) as queue:
        await queue.send_many([order(1), order(2)], "single")
    async with await qm.open_queue(r"DIRECT=OS:.\private$\tx") as queue, qm.transaction() as unit:
        await queue.receive(0, unit)

        assert await labels(qm, "tx") == ["order 2"]


async def test_who_may_not_read_bodies_finds_nothing_by_them(qm: qmnode.QueueManager) -> None:
    await send(qm, ORDERS, order(1))
    reader = Asker("grafana", "tcp", reads_bodies=False)

    assert len((await qm.operations.find(reader, ["*"], {"label": "order*"}))["found"]) == 1
    for criteria in ({"body": "cup"}, {"values": ["Order.Id=1"]}, {"headers": ["NServiceBus.FailedQ"]}):
        with pytest.raises(MessageQueuingError, match="may not read bodies"):
            await qm.operations.find(reader, ["*"], criteria)


async def test_hostile_bodies_and_headers_are_passed_over(qm: qmnode.QueueManager) -> None:
    bomb = b"<a>" * 20_000
    nested = b"[" * 60_000
    headers = b"<ArrayOfHeaderInfo>NServiceBus.FailedQ" + b"<x>" * 5_000
    await send(
        qm, ORDERS, qmnode.Message(bomb), qmnode.Message(nested), qmnode.Message(b"", extension=headers), order(1)
    )

    assert await labels(qm, values=["Order.Id=1"]) == ["order 1"]
    assert await labels(qm, headers=["NServiceBus.FailedQ"]) == []


@pytest.mark.soak
@pytest.mark.timed
async def test_the_loop_is_given_back_every_few_milliseconds(qm: qmnode.QueueManager) -> None:
    await send(qm, ORDERS, *(order(number) for number in range(3000)))
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, thread_time() - before)

    ticking = asyncio.create_task(tick())
    cursor, scanned, found = "", 0, []
    while True:
        page = await search_page(qm, ["orders"], Criteria(values=("Order.Id=2999",)), cursor)
        scanned, cursor = scanned + page.scanned, page.next
        found += [one.message.label for one in page.found]
        if not cursor:
            break
    ticking.cancel()

    assert scanned == 3000 and found == ["order 2999"]
    assert longest < 0.25, f"the loop was held for {longest * 1000:.0f} ms"


@pytest.mark.soak
@pytest.mark.timed
async def test_many_patterns_over_many_queues_let_others_work(tmp_path: Path) -> None:
    async with qmnode.QueueManager.open(tmp_path / "many") as manager:
        for number in range(30):
            await manager.create_queue(rf".\private$\queue{number}")
        patterns = [f"*nothing{number}*" for number in range(500)]
        longest, ended = 0.0, False

        async def watch() -> None:
            nonlocal longest
            while not ended:
                begun = thread_time()
                await asyncio.sleep(0)
                longest = max(longest, thread_time() - begun)

        watching = asyncio.ensure_future(watch())
        begun = thread_time()
        chosen = await chosen_queues(manager, [*patterns, "*Queue2?"])
        took, ended = thread_time() - begun, True
        await watching
        assert len(chosen) == 10
        assert longest < took / 4
