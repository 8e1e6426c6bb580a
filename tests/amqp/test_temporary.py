"""Temporary queues, and links without an address: what programs use to ask and to answer."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from proton import Described as ProtonDescribed
from proton import symbol, ulong
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached, SendException

from qmnode import Access, Message
from qmnode.administration.asker import Asker
from qmnode.amqp.codec import Described, Symbol, UInt, ULong
from qmnode.shares import declared
from tests.amqp import raw
from tests.amqp.conftest import Door, amqp_message, connected, in_thread, open_door, take
from tests.amqp.test_transactions import move
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


DELETE_ON_CLOSE, DELETE_ON_NO_LINKS = 0x2B, 0x2C


async def temporary(door: Door) -> list[str]:
    return [one.pathname for one in await door.manager.queues() if "amqp$temporary$" in one.pathname]


async def none_is_left(door: Door) -> None:
    async def gone() -> bool:
        return await temporary(door) == []

    await holds(gone, 60, "no temporary queue is left")


@asynccontextmanager
async def opened(door: Door) -> AsyncIterator[BlockingConnection]:
    """A client whose work is done in threads, as it blocks."""
    client = await in_thread(lambda: BlockingConnection(door.url, timeout=60, allowed_mechs="ANONYMOUS"))
    yield client
    await in_thread(client.close)


class Dynamic(LinkOption):  # type: ignore[misc]
    """Asks for a temporary queue, and says how long it is to live."""

    def __init__(self, policy: int | None = None) -> None:
        self.policy = policy

    def apply(self, link: Any) -> None:
        terminus = link.source if link.is_receiver else link.target
        terminus.dynamic = True
        if self.policy is not None:
            terminus.properties.put_object({symbol("lifetime-policy"): ProtonDescribed(ulong(self.policy), [])})


async def test_a_program_asks_and_gets_the_answer_in_its_own_queue(door: Door) -> None:
    def work() -> Any:
        with connected(door.url) as asking, connected(door.url) as answering:
            answers = asking.create_receiver(None, dynamic=True, credit=10)
            address = answers.link.remote_source.address
            asking.create_sender("orders").send(amqp_message(b"how many?", reply_to=address, correlation_id="7"))
            asked = answering.create_receiver("orders", credit=1).receive(timeout=60)
            answering.create_sender(asked.reply_to).send(amqp_message(b"three", correlation_id=asked.correlation_id))
            answer = answers.receive(timeout=60)
            answers.accept()
            return address, bytes(answer.body), answer.correlation_id

    address, body, correlation = await in_thread(work)
    assert (body, correlation) == (b"three", "7")
    assert address.startswith("DIRECT=OS:HERE\\private$\\amqp$temporary$"), "a name that other machines can use"
    await none_is_left(door)


async def test_a_message_of_message_queuing_gets_in(door: Door) -> None:
    async with opened(door) as client:
        receiver = await in_thread(lambda: client.create_receiver(None, dynamic=True, credit=1))
        async with await door.manager.open_queue(receiver.link.remote_source.address, Access.SEND) as queue:
            await queue.send(Message(b"from afar"))
        assert await in_thread(lambda: take(receiver)) == b"from afar"


async def test_it_ends_with_its_link_and_what_is_in_it_too(door: Door) -> None:
    def work() -> None:
        with connected(door.url) as client, connected(door.url) as other:
            receiver = client.create_receiver(None, dynamic=True)
            address = receiver.link.remote_source.address
            sender = other.create_sender(address)
            sender.send(amqp_message(b"never read"))
            receiver.close()
            with pytest.raises(LinkDetached, match="not-found"):
                client.create_sender(address)
            with pytest.raises(SendException):
                sender.send(amqp_message(b"too late"))

    await in_thread(work)
    await none_is_left(door)


async def test_it_lives_as_long_as_its_connection_if_its_link_asks_for_that(door: Door) -> None:
    def work(client: Any) -> bytes:
        maker = client.create_sender(None, options=Dynamic(DELETE_ON_NO_LINKS))
        address = maker.link.remote_target.address
        maker.send(amqp_message(b"1"))
        maker.close()
        return take(client.create_receiver(address, credit=1))

    async with opened(door) as client:
        assert await in_thread(lambda: work(client)) == b"1"
        assert len(await temporary(door)) == 1
    await none_is_left(door)


async def test_a_connection_that_is_cut_leaves_none(door: Door) -> None:
    client = await in_thread(lambda: BlockingConnection(door.url, timeout=60, allowed_mechs="ANONYMOUS"))
    await in_thread(lambda: client.create_receiver(None, dynamic=True))
    assert len(await temporary(door)) == 1
    for connection in list(door.door.connections):
        connection.abort()
    await none_is_left(door)


async def test_a_connection_that_ends_while_its_queues_are_made_leaves_none(door: Door) -> None:
    def work() -> None:
        for policy in (DELETE_ON_CLOSE, DELETE_ON_NO_LINKS):
            lifetime = {Symbol("lifetime-policy"): Described(ULong(policy), [])}
            source = Described(ULong(0x28), [None, UInt(0), Symbol("session-end"), UInt(0), True, lifetime])
            attach = raw.performative(0x12, ["link", 0, True, None, None, source, Described(ULong(0x29), [])])
            with raw.opened(door.door.port, raw.BEGIN, raw.frame(attach), raw.CLOSE) as connection:
                raw.read_all(connection)

    await in_thread(work)
    await none_is_left(door)
    used = door.manager.context.shares.summary()["amqp_temporary_queues"]["used"]
    assert set(used.values()) == {0}, "their places are free"


async def test_only_its_connection_receives_from_it(door: Door) -> None:
    def work() -> None:
        with connected(door.url) as client, connected(door.url) as other:
            maker = client.create_sender(None, options=Dynamic())
            address = maker.link.remote_target.address
            maker.send(amqp_message(b"mine"))
            with pytest.raises(LinkDetached, match="unauthorized-access"):
                other.create_receiver(address)
            assert take(client.create_receiver(address, credit=1)) == b"mine"

    await in_thread(work)


async def test_a_client_has_only_its_share_and_each_queue_its_quota(tmp_path: Path) -> None:
    async with open_door(tmp_path, anonymous=True, temporary_queues=16, temporary_queue_bytes="64 KiB") as door:

        def work() -> None:
            with connected(door.url) as client:
                made = [client.create_receiver(None, dynamic=True) for _ in range(4)]
                with pytest.raises(LinkDetached, match="temporary_queues"):
                    made.extend(client.create_receiver(None, dynamic=True) for _ in range(16))
                made.pop().close()
                again = client.create_receiver(None, dynamic=True)
                sender = client.create_sender(again.link.remote_source.address)
                with pytest.raises(SendException):
                    sender.send(amqp_message(b"x" * 100_000))

        await in_thread(work)
        await none_is_left(door)


async def test_it_is_in_no_document_of_the_machine(door: Door) -> None:
    async with opened(door) as client:
        await in_thread(lambda: client.create_receiver(None, dynamic=True))
        assert len(await temporary(door)) == 1
        shown = await door.manager.operations.show_document(Asker("the node"), everything=True)
    assert [queue["name"] for queue in shown["queues"]] == ["done", "exact", "orders"]


async def test_a_node_that_was_killed_leaves_none(tmp_path: Path) -> None:
    async with open_door(tmp_path, anonymous=True) as door:
        await door.door.temporary.create(declared("AMQP ops"))
        assert len(await temporary(door)) == 1
        await door.manager.create_queue(r".\private$\amqp$temporary$of-mine")
        await door.door.temporary.clear()
        assert await temporary(door) == ["HERE\\private$\\amqp$temporary$of-mine"], "only what a door made"


async def test_each_message_on_a_link_without_an_address_names_its_queue(door: Door) -> None:
    def work() -> list[str]:
        refused = []
        with connected(door.url) as client:
            assert symbol("ANONYMOUS-RELAY") in client.conn.remote_offered_capabilities
            sender = client.create_sender(None)
            for address, body in (
                ("orders", b"1"), ("exact", b"2"), ("orders", b"3"), ("nothing", b"4"), (None, b"5"), ("exact", b"6"),
            ):  # fmt: skip
                try:
                    sender.send(amqp_message(body, address=address))
                except SendException:
                    refused.append(body.decode())
        return refused

    assert await in_thread(work) == ["4", "5"]
    assert await door.bodies("orders") == [b"1", b"3"]
    assert await door.bodies("exact") == [b"2", b"6"]


async def test_more_queues_than_a_relay_keeps_open_get_their_messages_in_order(door: Door) -> None:
    security = await door.manager.queue_security(r".\private$\orders")
    names = [f"q{number}" for number in range(70)]
    for name in names:
        await door.manager.create_queue(f".\\private$\\{name}", security=security)

    def work() -> None:
        with connected(door.url) as client:
            sender = client.create_sender(None)
            for turn in range(2):
                for name in names:
                    sender.send(amqp_message(b"%d" % turn, address=name))

    await in_thread(work)
    for name in names:
        assert await door.bodies(name) == [b"0", b"1"]


async def test_a_transaction_on_a_link_without_an_address_is_done_whole_or_not(door: Door) -> None:
    await door.send("exact", b"0", b"1", b"2", b"3")
    mover = await move(door, "abort", "commit", "commit", target=None)
    assert mover.failures == []
    assert await door.bodies("done") == [b"0", b"1", b"2", b"3"]
