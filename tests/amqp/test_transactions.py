"""Transactions of AMQP 1.0 as the node's own: declared, used, discharged, or rolled back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

from qmnode.amqp.codec import Described, Symbol, ULong
from qmnode.amqp.error_conditions import RefusedError
from qmnode.amqp.sections import VALUE, AmqpMessage
from qmnode.amqp.transactions import Declare, Discharge, Transactions, read_request, transaction_of
from tests.amqp.conftest import amqp_message, in_thread, open_door
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.amqp.conftest import Door


class Mover(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Moves messages from one queue to another, ``size`` in each transaction, and ends each as it is told."""

    def __init__(
        self, url: str, ends: Sequence[str], size: int = 2, source: str = "exact", target: str | None = "done"
    ) -> None:
        """``target``: None sends to ``done`` on a link without an address."""
        super().__init__(prefetch=0, auto_accept=False)
        self.url, self.ends, self.size, self.source = url, list(ends), size, source
        self.target = target
        self.moved = 0
        self.seen: list[bytes] = []
        self.rejected: list[str] = []
        self.failures: list[str] = []

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = self.container.connect(self.url, allowed_mechs="ANONYMOUS", reconnect=False)
        self.receiver = self.container.create_receiver(self.connection, self.source)
        self.sender = self.container.create_sender(self.connection, self.target)
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.moved = 0
        self.receiver.flow(self.size)

    def on_message(self, event: Any) -> None:
        body = bytes(event.message.body)
        self.seen.append(body)
        self.transaction.send(self.sender, amqp_message(body, address="done"))
        self.transaction.accept(event.delivery)
        self.moved += 1
        if self.moved == self.size:
            end = self.ends.pop(0)
            if end != "leave open":
                getattr(self.transaction, end)()

    def on_transaction_committed(self, event: Any) -> None:
        self.go_on()

    on_transaction_aborted = on_transaction_committed

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.failures.append("commit")
        self.connection.close()

    def go_on(self) -> None:
        if self.ends:
            self.container.declare_transaction(self.connection, handler=self)
        else:
            self.connection.close()

    def on_rejected(self, event: Any) -> None:
        self.rejected.append(event.delivery.remote.condition.name)

    def on_link_error(self, event: Any) -> None:
        self.failures.append(event.link.remote_condition.name)
        self.connection.close()


async def move(door: Door, *ends: str, **more: Any) -> Mover:
    mover = Mover(door.url, ends, **more)
    await in_thread(lambda: Container(mover).run())
    return mover


async def test_committed_messages_are_moved_in_order(door: Door) -> None:
    await door.send("exact", *(b"%d" % number for number in range(6)))
    mover = await move(door, "commit", "commit", "commit")
    assert mover.failures == []
    assert await door.bodies("exact") == []
    done = await door.messages("done")
    assert [message.body for message in done] == [b"%d" % number for number in range(6)]
    assert [message.first_in_transaction for message in done] == [True, False] * 3
    assert [message.last_in_transaction for message in done] == [False, True] * 3


async def test_a_transaction_that_is_rolled_back_leaves_everything_in_its_place(door: Door) -> None:
    await door.send("exact", b"1", b"2", b"3")
    mover = await move(door, "abort", "commit")
    assert mover.seen == [b"1", b"2", b"1", b"2"]
    assert await door.bodies("done") == [b"1", b"2"]
    assert await door.bodies("exact") == [b"3"]


async def test_a_connection_that_vanishes_rolls_back(door: Door) -> None:
    await door.send("exact", b"1", b"2")
    mover = Mover(door.url, ["leave open"])
    running = asyncio.create_task(asyncio.to_thread(Container(mover).run))

    async def all_done() -> bool:
        return [len(unit.operations) for unit in door.manager.transactions.values()] == [4]

    await holds(all_done, 60, "both messages are received and sent in the transaction")
    for connection in list(door.door.connections):
        connection.abort()
    await running

    async def back() -> bool:
        return await door.bodies("exact") == [b"1", b"2"]

    await holds(back, 60, "the messages are back")
    assert await door.bodies("done") == []
    assert [message.aborted_receives for message in await door.messages("exact")] == [1, 1]
    assert not door.manager.transactions


async def test_a_transaction_that_takes_too_long_is_rolled_back(tmp_path: Path) -> None:
    async with open_door(tmp_path, anonymous=True, transaction_timeout=1) as door:
        await door.send("exact", b"1")

        class Slow(Mover):
            def on_message(self, event: Any) -> None:
                if len(self.seen) == 0:
                    self.seen.append(b"")
                    self.transaction.accept(event.delivery)
                    event.container.schedule(0.1, self)

            def on_timer_task(self, event: Any) -> None:
                if door.manager.transactions:
                    event.container.schedule(0.1, self)
                else:
                    self.transaction.commit()

        mover = Slow(door.url, [], size=1)
        await in_thread(lambda: Container(mover).run())
        assert mover.failures == ["commit"]
        assert await door.bodies("exact") == [b"1"]


async def test_queues_in_a_transaction_are_transactional(door: Door) -> None:
    await door.send("orders", b"1")
    mover = await move(door, "commit", size=1, source="orders")
    assert "amqp:not-allowed" in mover.failures

    async def back() -> bool:
        return await door.bodies("orders") == [b"1"]

    await holds(back, 60, "the message is back")
    assert await door.bodies("done") == []


class Keeper(Mover):
    """Keeps the message of a transaction that is rolled back, and then accepts it, or leaves it."""

    def on_message(self, event: Any) -> None:
        self.seen.append(bytes(event.message.body))
        self.delivery = event.delivery
        self.transaction.accept(self.delivery)
        self.transaction.abort()

    def on_transaction_aborted(self, event: Any) -> None:
        event.transaction._pending.clear()  # the library would release it
        self.receiver.flow(1)  # which brings it again if it is back in the queue
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        if not self.seen:
            self.receiver.flow(1)
            return
        if self.ends.pop(0) == "accept":
            self.accept(self.delivery)
        self.connection.close()


async def test_a_message_is_still_its_receivers_after_a_rollback(door: Door) -> None:
    await door.send("exact", b"1")
    keeper = Keeper(door.url, ["accept"], size=1)
    await in_thread(lambda: Container(keeper).run())
    assert keeper.seen == [b"1"]
    assert (await door.manager.queue(r".\private$\exact")).message_count == 0


async def test_a_rollback_before_the_link_ends_returns_the_message_with_it(door: Door) -> None:
    await door.send("exact", b"1")
    keeper = Keeper(door.url, ["leave"], size=1)
    await in_thread(lambda: Container(keeper).run())

    async def back() -> bool:
        return await door.bodies("exact") == [b"1"]

    await holds(back, 60, "the message is back")


# Without a socket


def request(descriptor: Any, *fields: Any) -> AmqpMessage:
    return AmqpMessage(body_kind=VALUE, body=Described(descriptor, list(fields)))


def test_requests_are_read() -> None:
    assert read_request(request(ULong(0x31))) == Declare()
    assert read_request(request(Symbol("amqp:declare:list"), None)) == Declare()
    assert read_request(request(ULong(0x32), b"\1", True)) == Discharge(b"\1", True)
    assert read_request(request(ULong(0x32), b"\1")) == Discharge(b"\1", False)


@pytest.mark.parametrize(
    "message",
    [
        request(ULong(0x31), b"global"),
        request(ULong(0x32)),
        request(ULong(0x32), "text"),
        request(ULong(0x33), b"\1"),
        AmqpMessage(body=b"data"),
        AmqpMessage(body_kind=VALUE, body=None),
    ],
)
def test_other_requests_are_refused(message: AmqpMessage) -> None:
    with pytest.raises(RefusedError):
        read_request(message)


@pytest.mark.parametrize("state", [None, [], "text", [None], [7]])
def test_a_state_without_a_transaction_names_none(state: Any) -> None:
    assert transaction_of(state) is None


async def test_a_connection_has_so_many_transactions_and_each_ends_once(door: Door) -> None:
    transactions = Transactions(door.manager, 2, lambda size: True)
    first, second = transactions.declare(), transactions.declare()
    assert first != second
    with pytest.raises(RefusedError, match="resource-limit"):
        transactions.declare()
    await transactions.discharge(Discharge(first, fail=False))
    with pytest.raises(RefusedError, match="unknown-id"):
        await transactions.discharge(Discharge(first, fail=True))
    await transactions.abort_all()
    assert len(transactions) == 0
    assert not door.manager.transactions
