"""Statements of the specifications with MUST, observed where a user sees their effects (``statements.toml``)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from qmnode import Access, Acknowledgment, Message, MessageQueuingError, QueueManager
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_to_text
from tests.conformance.statements import COUNT, Statement, load
from tests.lab.cases import cases
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair

if TYPE_CHECKING:
    from tests.model.conftest import FakeClock, Node

ORDERS, ACKS = r".\private$\orders", r".\private$\acks"
DEAD = r"DIRECT=OS:.\SYSTEM$;DEADLETTER"
JOURNAL = r"DIRECT=OS:.\SYSTEM$;JOURNAL"
REQUESTS = {
    Acknowledgment.NONE: "",
    Acknowledgment.POSITIVE_ARRIVAL: "arrives",
    Acknowledgment.POSITIVE_RECEIVE: "received",
    Acknowledgment.NEGATIVE_ARRIVAL: "refused",
    Acknowledgment.NEGATIVE_RECEIVE: "purged",
    Acknowledgment.FULL_REACH_QUEUE: "arrives refused",
    Acknowledgment.NACK_RECEIVE: "refused purged",
    Acknowledgment.FULL_RECEIVE: "received refused purged",
}
"""For each request the events that are reported to the administration queue (MS-MQDMPR 3.1.1.12)."""
CLASSES = {
    "arrives": MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE,
    "received": MessageClass.MQMSG_CLASS_ACK_RECEIVE,
    "refused": MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA,
    "purged": MessageClass.MQMSG_CLASS_NACK_Q_PURGED,
}


def direct(queue: str) -> str:
    return f"DIRECT=OS:{queue}"


async def contents(manager: QueueManager, name: str) -> list[Message]:
    """All messages of a queue, which is empty afterwards."""
    async with await manager.open_queue(name if "=" in name else direct(name)) as queue:
        try:
            return await queue.receive_many(1000, timeout=0)
        except MessageQueuingError as error:
            assert error.code is ErrorCode.MQ_ERROR_IO_TIMEOUT
            return []


async def peeked(manager: QueueManager, name: str) -> list[bytes]:
    """The bodies that a user who only looks sees."""
    async with await manager.open_queue(direct(name), Access.PEEK) as queue:
        cursor = queue.cursor()
        found: list[bytes] = []
        try:
            found.append((await cursor.peek(timeout=0)).body)
            while True:
                found.append((await cursor.peek_next(timeout=0)).body)
        except MessageQueuingError as error:
            assert error.code is ErrorCode.MQ_ERROR_IO_TIMEOUT
        return found


@pytest.fixture
async def orders(qm: QueueManager) -> QueueManager:
    """A queue manager with the queues ``orders`` and ``acks``."""
    await qm.create_queue(ORDERS)
    await qm.create_queue(ACKS)
    return qm


async def test_each_request_gets_the_acknowledgments_that_it_names_and_no_other(pair: Pair) -> None:
    """Messages that are received, that are purged from their queue, and that a full queue refuses."""
    await pair.bob.create_queue(r".\private$\purged")
    await pair.bob.create_queue(r".\private$\full", quota=0)
    queues = {"received": PLAIN, "purged": r".\private$\purged", "refused": r".\private$\full"}
    expected: dict[bytes, set[int]] = {}
    admin = pair.direct("ALICE", r".\private$\admin")
    for end, queue in queues.items():
        async with await pair.alice.open_queue(pair.direct("BOB", queue), Access.SEND) as out:
            for request, events in REQUESTS.items():
                asked = {"acknowledgements_requested": int(request), "administration_queue_format_name": admin}
                identifier = await out.send(Message(b"1", recoverable=True, **asked))  # type: ignore[arg-type]
                happens = {end} if end == "refused" else {"arrives", end}
                expected[identifier] = {CLASSES[event] for event in happens & set(events.split())}
    waiting = await pair.bob.open_queue(direct(PLAIN))
    assert len([await waiting.receive(timeout=60) for _ in REQUESTS]) == len(REQUESTS)
    await eventually(lambda: pair.bob.names.find(r".\private$\purged").message_count == len(REQUESTS))
    async with await pair.bob.open_queue(direct(r".\private$\purged")) as queue:
        await queue.purge()
    admin_queue = await pair.alice.open_queue(direct(r".\private$\admin"))
    count = sum(map(len, expected.values()))
    reports = [await admin_queue.receive(timeout=60) for _ in range(count)]
    found: dict[bytes, set[int]] = {identifier: set() for identifier in expected}
    for report in reports:
        found[report.correlation_identifier].add(report.message_class)
    assert found == expected
    await eventually(
        lambda: (
            not any(
                one.message_count for one in pair.bob.queue_collection.values() if one.queue_type.value == "outgoing"
            )
        )
    )
    assert await contents(pair.alice, r".\private$\admin") == []


async def test_an_acknowledgment_names_its_message(orders: QueueManager) -> None:
    asked = {"acknowledgements_requested": 1, "administration_queue_format_name": direct(ACKS)}
    async with await orders.open_queue(direct(ORDERS), Access.SEND) as queue:
        await queue.send(Message(b"1", correlation_identifier=b"c" * 20, **asked))  # type: ignore[arg-type]
    (message,) = await contents(orders, ORDERS)
    (acknowledgment,) = await contents(orders, ACKS)
    assert acknowledgment.correlation_identifier == message.identifier
    assert message.correlation_identifier == b"c" * 20


async def test_bits_without_an_administration_queue_ask_for_nothing(orders: QueueManager) -> None:
    async with await orders.open_queue(direct(ORDERS), Access.SEND) as queue:
        await queue.send(Message(b"1", acknowledgements_requested=0x0F))
    (message,) = await contents(orders, ORDERS)
    assert message.administration_queue_format_name == ""
    assert all(not one.message_count for one in await orders.queues())


@pytest.mark.parametrize("asked", [False, True])
async def test_a_delivered_message_is_journaled_only_if_it_asks(pair: Pair, asked: bool) -> None:
    async with await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND) as out:
        await out.send(Message(b"first", recoverable=True, positive_journaling_requested=asked))
        await out.send(Message(b"last", recoverable=True, positive_journaling_requested=True))
    journal = await pair.alice.open_queue(JOURNAL)
    copies = [(await journal.receive(timeout=60)).body]
    while copies[-1] != b"last":
        copies.append((await journal.receive(timeout=60)).body)
    assert copies == ([b"first", b"last"] if asked else [b"last"])


@pytest.mark.parametrize("asked", [False, True])
async def test_a_message_that_dies_is_kept_only_if_it_asks(orders: QueueManager, clock: FakeClock, asked: bool) -> None:
    async with await orders.open_queue(direct(ORDERS), Access.SEND) as queue:
        await queue.send(Message(b"1", recoverable=True, time_to_be_received=5, negative_journaling_requested=asked))
    clock.advance(6)
    await orders.store.durable()
    await asyncio.sleep(0)
    assert [one.body for one in await contents(orders, DEAD)] == ([b"1"] if asked else [])
    assert await contents(orders, ORDERS) == []


async def test_a_time_that_is_infinite_never_passes(orders: QueueManager, clock: FakeClock) -> None:
    async with await orders.open_queue(direct(ORDERS), Access.SEND) as queue:
        await queue.send(Message(b"default", recoverable=True))
        await queue.send(Message(b"said", recoverable=True, time_to_be_received=0xFFFFFFFF))
    clock.advance(20 * 366 * 86_400)
    await orders.store.durable()
    await asyncio.sleep(0)
    assert [one.body for one in await contents(orders, ORDERS)] == [b"default", b"said"]


async def test_a_waiting_read_ends_with_io_timeout_after_its_time(orders: QueueManager, clock: FakeClock) -> None:
    queue = await orders.open_queue(direct(ORDERS))
    waiting = asyncio.ensure_future(queue.receive(timeout=30))
    await asyncio.sleep(0)
    clock.advance(29)
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.advance(2)
    with pytest.raises(MessageQueuingError) as caught:
        await waiting
    assert caught.value.code is ErrorCode.MQ_ERROR_IO_TIMEOUT


async def test_numbers_of_private_queues_are_unique_also_after_deletions_and_a_restart(node: Node) -> None:
    names = [rf".\private$\q{number}" for number in range(12)]
    for name in names:
        await node.qm.create_queue(name)
    for name in names[3:9]:
        await node.qm.delete_queue(name)
    manager = await node.restart()
    for name in names[3:9]:
        await manager.create_queue(name)
    assert len({(await manager.queue(name)).private_queue_number for name in names}) == 12


async def test_a_private_name_opens_its_queue_however_its_number_is_written(orders: QueueManager) -> None:
    async with await orders.open_queue(direct(ORDERS), Access.SEND) as queue:
        await queue.send(Message(b"1"))
    number, machine = (await orders.queue(ORDERS)).private_queue_number, guid_to_text(orders.identifier)
    name = rf"PRIVATE={machine}\{number:08x}"
    spellings = [name, name.lower(), name.upper(), rf"PRIVATE={machine}\{number:x}"]
    for spelling in spellings:
        async with await orders.open_queue(spelling, Access.PEEK) as queue:
            assert (await queue.peek(timeout=0)).body == b"1"
    await orders.set_queue(ORDERS, journaling=True)
    await contents(orders, ORDERS)
    assert [one.body for one in await contents(orders, name + ";JOURNAL")] == [b"1"]


async def test_transactional_messages_say_their_place_also_after_a_restart(pair: Pair) -> None:
    """The sequence begins with 1, counts by 1, and names the message before; a restart goes on in it or begins anew."""
    name = pair.direct("BOB", TRANSACTIONAL)

    async def send(*messages: bytes) -> None:
        async with await pair.alice.open_queue(name, Access.SEND) as out:
            await out.send_many([Message(body) for body in messages], transaction="single")

    await send(b"a", b"b", b"c")
    await send(b"d")
    source = await pair.bob.open_queue(direct(TRANSACTIONAL))
    came = [await source.receive(timeout=60) for _ in range(4)]
    assert [one.transaction_sequence_number for one in came] == [1, 2, 3, 4]
    assert [one.transaction_previous_sequence_number for one in came] == [0, 1, 2, 3]
    assert [one.first_in_transaction for one in came] == [True, False, False, True]
    assert [one.last_in_transaction for one in came] == [False, False, True, True]
    await pair.stop("ALICE")
    await pair.start("ALICE")
    await send(b"e")
    after = await source.receive(timeout=60)
    place = after.transactional_message_sequence_identifier, after.transaction_sequence_number
    before = came[-1].transactional_message_sequence_identifier
    assert place[1] == (5 if place[0] == before else 1)
    assert int.from_bytes(place[0][-8:], "little") >= int.from_bytes(before[-8:], "little")


async def test_properties_of_the_application_arrive_as_they_were_sent(pair: Pair) -> None:
    connector = bytes(range(16))
    sent = {
        "app_specific": 0xFFFFFFFE, "body_type": 0x1011, "label": "é" * 249, "extension": bytes(range(256)),
        "correlation_identifier": bytes(range(20)),
    }  # fmt: skip
    async with await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND) as out:
        await out.send(Message(bytes(range(256)) * 3, recoverable=True, connector_type_identifier=connector, **sent))  # type: ignore[arg-type]
    message = await (await pair.bob.open_queue(direct(PLAIN))).receive(timeout=60)
    assert {name: getattr(message, name) for name in sent} == sent
    assert message.body == bytes(range(256)) * 3
    assert bytes(message.connector_type_identifier) == connector


async def test_what_the_queue_manager_assigns_is_its_own(pair: Pair) -> None:
    now = pair.alice.clock.time()
    async with await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND) as out:
        await out.send(Message(b"1", recoverable=True))
        await out.send(Message(b"2", recoverable=True))
    source = await pair.bob.open_queue(direct(PLAIN))
    one, two = await source.receive(timeout=60), await source.receive(timeout=60)
    assert one.source_machine_identifier == two.source_machine_identifier == pair.alice.identifier
    assert one.identifier != two.identifier and one.identifier[:16] == bytes(pair.alice.identifier)
    assert one.lookup_identifier < two.lookup_identifier
    assert abs(one.sent_time - now) < 60 and abs(one.arrival_time - now) < 60


async def test_a_message_that_a_transaction_received_is_seen_by_nobody_until_it_ends(qm: QueueManager) -> None:
    await qm.create_queue(ORDERS, transactional=True)
    async with await qm.open_queue(direct(ORDERS), Access.SEND) as out:
        await out.send_many([Message(b"1"), Message(b"2")], transaction="single")
    transaction = qm.transaction()
    async with await qm.open_queue(direct(ORDERS)) as queue:
        assert (await queue.receive(timeout=0, transaction=transaction)).body == b"1"
        assert await peeked(qm, ORDERS) == [b"2"]
        await transaction.abort()
        assert await peeked(qm, ORDERS) == [b"1", b"2"]
        again = qm.transaction()
        assert (await queue.receive(timeout=0, transaction=again)).body == b"1"
        await again.commit()
    assert await peeked(qm, ORDERS) == [b"2"]


@pytest.mark.parametrize(
    ("access", "permitted"),
    [(Access.RECEIVE, "peek receive purge"), (Access.PEEK, "peek"), (Access.SEND, "send")],
)
async def test_a_handle_permits_what_its_access_says(orders: QueueManager, access: Access, permitted: str) -> None:
    async with await orders.open_queue(direct(ORDERS), Access.SEND) as out:
        await out.send_many([Message(b"1"), Message(b"2")])
    queue = await orders.open_queue(direct(ORDERS), access)
    calls = {
        "peek": lambda: queue.peek(timeout=0), "receive": lambda: queue.receive(timeout=0),
        "send": lambda: queue.send(Message(b"3")), "purge": queue.purge,
    }  # fmt: skip
    for name, call in calls.items():
        if name in permitted.split():
            await call()
        else:
            with pytest.raises(MessageQueuingError) as caught:
                await call()
            assert caught.value.code is ErrorCode.MQ_ERROR_ACCESS_DENIED


async def test_a_label_of_249_characters_is_kept_and_a_longer_one_refused(orders: QueueManager) -> None:
    async with await orders.open_queue(direct(ORDERS), Access.SEND) as out:
        await out.send(Message(b"1", label="x" * 249))
        with pytest.raises(MessageQueuingError):
            await out.send(Message(b"2", label="x" * 250))
    assert [(one.body, len(one.label)) for one in await contents(orders, ORDERS)] == [(b"1", 249)]


async def test_a_list_of_destinations_holds_single_names_only(orders: QueueManager) -> None:
    await orders.create_queue(r".\private$\second")
    both = f"{direct(ORDERS)},{direct('.' + chr(92) + 'private$' + chr(92) + 'second')}"
    async with await orders.open_queue(both, Access.SEND) as out:
        await out.send(Message(b"1"))
    for queue in (ORDERS, r".\private$\second"):
        (copy,) = await contents(orders, queue)
        assert copy.body == b"1" and "," not in copy.destination_queue_format_name
    with pytest.raises(MessageQueuingError) as caught:
        await orders.open_queue(both, Access.RECEIVE)
    assert caught.value.code in (
        ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
        ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME,
    )


async def test_a_node_that_starts_connects_for_the_messages_that_wait(pair: Pair) -> None:
    await pair.stop("BOB")
    async with await pair.alice.open_queue(pair.direct("BOB", PLAIN), Access.SEND) as out:
        await out.send_many([Message(b"1", recoverable=True), Message(b"2")])
    await pair.stop("ALICE")
    await pair.start("BOB")
    await pair.start("ALICE")
    source = await pair.bob.open_queue(direct(PLAIN))
    assert (await source.receive(timeout=60)).body == b"1"


class TestList:
    """The list of statements itself."""

    def test_it_has_sixty_of_all_specifications(self) -> None:
        statements = load()
        assert len(statements) >= COUNT
        assert len({(one.specification, one.section, one.must) for one in statements}) == len(statements)
        assert {one.specification for one in statements} >= {"MS-MQQB", "MS-MQQP", "MS-MQMQ", "MS-MQDMPR"}

    @cases("statement", load(), ids=lambda one: f"{one.specification} {one.section}")
    def test_each_is_of_a_section_that_is_shown_and_has_tests_that_exist(self, statement: Statement) -> None:
        assert statement.problems() == []
