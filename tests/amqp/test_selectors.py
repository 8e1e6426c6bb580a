"""Selectors: what a condition says of a message, and what a link with one receives."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from proton import Timeout
from proton.reactor import AtMostOnce
from proton.reactor import Selector as Selecting
from proton.utils import LinkDetached

from qmnode.amqp.error_conditions import RefusedError
from qmnode.amqp.sections import AmqpMessage
from qmnode.amqp.selectors import Selector
from tests.amqp.conftest import Browsing, amqp_message, connected, in_thread, take
from tests.lab.cases import cases

if TYPE_CHECKING:
    from tests.amqp.conftest import Door

MESSAGE = AmqpMessage(
    header={"durable": True, "priority": 5},
    properties={
        "message_id": "m-1", "correlation_id": "c-1", "subject": "order", "creation_time": 1000, "group_id": "g",
    },
    application_properties={
        "tenant": "blue", "count": 7, "weight": 2.5, "urgent": True, "note": "it's 10% off", "empty": "", "a-b": "dash",
        "NServiceBus.MessageId": "n",
    },
)  # fmt: skip


@cases(
    ("condition", "outcome"),
    [
        ("tenant = 'blue'", True),
        ("tenant <> 'blue'", False),
        ("tenant = 'Blue'", False),
        ("count = 7", True),
        ("count = 7.0", True),
        ("count > 6 AND count < 8", True),
        ("count >= 7 and count <= 7", True),
        ("count = 8 OR weight = 2.5", True),
        ("NOT count = 8", True),
        ("NOT (count = 7 OR tenant = 'red')", False),
        ("urgent", True),
        ("urgent = TRUE", True),
        ("urgent <> false", True),
        ("NOT urgent", False),
        ("missing = 1", False),
        ("NOT missing = 1", False),
        ("missing = 1 OR count = 7", True),
        ("missing = 1 AND count = 8", False),
        ("NOT (missing = 1 AND count = 8)", True),
        ("missing IS NULL", True),
        ("tenant IS NOT NULL", True),
        ("empty IS NULL", False),
        ("count BETWEEN 7 AND 9", True),
        ("count NOT BETWEEN 7 AND 9", False),
        ("count BETWEEN 9 AND 7", False),
        ("missing NOT BETWEEN 1 AND 2", False),
        ("tenant IN ('red', 'blue')", True),
        ("tenant NOT IN ('red', 'green')", True),
        ("missing NOT IN ('red')", False),
        ("tenant LIKE 'b%'", True),
        ("tenant LIKE 'b_ue'", True),
        ("tenant LIKE '_'", False),
        ("tenant LIKE '%l%e'", True),
        ("tenant LIKE 'blue%blue'", False),
        ("tenant NOT LIKE '%x%'", True),
        ("note LIKE '%10!% off' ESCAPE '!'", True),
        ("note LIKE '%10!_ off' ESCAPE '!'", False),
        ("note = 'it''s 10% off'", True),
        ("empty LIKE '%'", True),
        ("count + 1 = 8", True),
        ("count-1=6", True),
        ("count - 1 - 1 = 5", True),
        ("2 + count * 2 = 16", True),
        ("(2 + count) * 2 = 18", True),
        ("count / 2 = 3", True),
        ("-count / 2 = -3", True),
        ("count / 2.0 = 3.5", True),
        ("count / 0 = 1 OR count / 0 <> 1", False),
        ("-count = -7", True),
        ("count - -1 = +8", True),
        ("weight = 25E-1 AND weight = 2.5d", True),
        ("tenant > 'a'", False),
        ("tenant = 7", False),
        ("count + 'x' = 7", False),
        ("JMSPriority = 5 AND JMSDeliveryMode = 'PERSISTENT'", True),
        ("JMSMessageID = 'm-1' AND JMSCorrelationID LIKE 'c-_'", True),
        ("JMSType = 'order' AND JMSTimestamp = 1000 AND JMSXGroupID = 'g' AND JMSXDeliveryCount = 1", True),
        ("NServiceBus.MessageId = 'n'", True),
        ("\"a-b\" = 'dash'", True),
        ("order = 1 OR notes = 1 OR inside = 1 OR count = 7", True),
        ("  \n tenant\t=\n'blue' ", True),
    ],
)
def test_a_condition_is_true_of_a_message_or_not(condition: str, outcome: bool) -> None:
    assert Selector(condition).selects(MESSAGE) is outcome


@cases(
    "condition",
    [
        "count =", "= 7", "count == 7", "tenant = 'blue", "count = 7 AND", "(count = 7", "tenant IN ()",
        "tenant LIKE 'a' ESCAPE 'ab'", "tenant LIKE 'a!' ESCAPE '!'", "between", "SELECT * FROM orders", "count = 7; x",
        "count = 7 ORurgent", "NOTurgent = 7 ANDurgent",
        "(" * 200 + "count" + ")" * 200, "-" * 500 + "count = 7", "NOT " * 400 + "urgent",
        "count = 7 OR " * 500 + "urgent", "tenant LIKE 7",
    ],
)  # fmt: skip
def test_what_is_no_condition_or_a_hostile_one_is_refused(condition: str) -> None:
    with pytest.raises(RefusedError, match="a selector"):
        Selector(condition)


@pytest.mark.parametrize(
    "condition",
    ["note LIKE '" + "%a" * 900 + "%b'", "note LIKE '%" + "_" * 1500 + "b%c'", "1" + "*99999999" * 200 + " = count"],
)
@pytest.mark.parametrize("length", [16_000, 1_000_000])
def test_no_condition_takes_long_for_a_message(condition: str, length: int) -> None:
    message = AmqpMessage(application_properties={"note": "a" * length, "count": 1})
    selector, started = Selector(condition), time.thread_time()
    assert selector.selects(message) is False
    assert time.thread_time() - started < 1


def numbered(number: int, **properties: Any) -> Any:
    return amqp_message(b"%d" % number, properties={"odd": bool(number % 2), "number": number}, **properties)


async def test_a_link_receives_what_it_selects_and_leaves_the_rest(door: Door) -> None:
    def work() -> tuple[list[bytes], list[bytes]]:
        with connected(door.url) as client:
            odd = client.create_receiver("orders", credit=3, options=Selecting("odd"))
            sender = client.create_sender("orders")
            for number in range(10):
                sender.send(numbered(number))
            found = []
            for _ in range(5):
                found.append(take(odd))
                odd.accept()
            browser = client.create_receiver(
                "orders", name="browser", credit=10, options=[Browsing(), Selecting("number > 3")]
            )
            return found, [take(browser) for _ in range(3)]

    assert await in_thread(work) == ([b"1", b"3", b"5", b"7", b"9"], [b"4", b"6", b"8"])
    assert await door.bodies("orders") == [b"0", b"2", b"4", b"6", b"8"]


async def test_messages_that_appear_before_the_place_of_a_link_are_found(door: Door) -> None:
    """One that another receiver returns, and one of a higher priority."""

    def work() -> list[bytes]:
        with connected(door.url) as client, connected(door.url) as other:
            sender = client.create_sender("orders")
            for number in range(4):
                sender.send(numbered(number))
            holder = other.create_receiver("orders", credit=1)
            held = holder.receive(timeout=60)
            assert bytes(held.body) == b"0"
            links = [client.create_receiver("orders", credit=5, options=Selecting("number < 1 OR number = 9"))]
            with pytest.raises(Timeout):
                links[0].receive(timeout=0.3)
            holder.release(delivered=False)
            holder.close()
            found = [take(links[0])]
            sender.send(numbered(9, priority=9))
            return [*found, take(links[0])]

    assert await in_thread(work) == [b"0", b"9"]


async def test_a_receiver_that_wants_its_credit_back_gets_all_that_it_selects_first(door: Door) -> None:
    def work() -> tuple[bytes, int]:
        with connected(door.url) as client:
            sender = client.create_sender("exact")
            for number in range(5):
                sender.send(numbered(number))
            receiver = client.create_receiver("exact", credit=0, options=[Selecting("number = 4"), AtMostOnce()])
            receiver.link.drain(10)
            first = take(receiver)
            client.wait(lambda: not receiver.link.draining(), timeout=60)
            return first, receiver.link.credit

    assert await in_thread(work) == (b"4", 0)
    assert await door.bodies("exact") == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("condition", ["number =", "odd AND " * 400 + "odd"])
async def test_a_link_with_a_wrong_selector_is_refused(door: Door, condition: str) -> None:
    def work() -> None:
        with connected(door.url) as client, pytest.raises(LinkDetached, match="a selector"):
            client.create_receiver("orders", options=Selecting(condition))

    await in_thread(work)


@pytest.mark.parametrize(
    "options", [None, AtMostOnce(), Selecting("number = 1")], ids=["plain", "presettled", "selecting"]
)
async def test_a_link_gets_nothing_of_a_paused_queue_until_it_is_resumed(door: Door, options: Any) -> None:
    name, loop = r".\private$\orders", asyncio.get_running_loop()
    await door.manager.pause_queue(name)

    def work() -> bytes:
        with connected(door.url) as client:
            receiver = client.create_receiver("orders", credit=1, options=options)
            client.create_sender("orders").send(numbered(1))
            with pytest.raises(Timeout):
                receiver.receive(timeout=0.3)
            browser = client.create_receiver("orders", name="browser", credit=1, options=Browsing())
            assert take(browser) == b"1"
            asyncio.run_coroutine_threadsafe(door.manager.resume_queue(name), loop).result(60)
            return take(receiver)

    assert await in_thread(work) == b"1"
