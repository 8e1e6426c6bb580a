"""A program sends over AMQP 1.0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from proton import ProtonException
from proton.utils import LinkDetached, SendException

from qmnode.amqp.peer import Peer
from tests.amqp.conftest import amqp_message, connected, in_thread, open_door

if TYPE_CHECKING:
    from pathlib import Path

    from tests.amqp.conftest import Door


async def test_an_accepted_message_is_in_the_queue(door: Door) -> None:
    def work() -> None:
        with connected(door.url) as client:
            sender = client.create_sender("orders")
            for number in range(20):
                sender.send(amqp_message(b"%d" % number))

    await in_thread(work)
    assert await door.bodies("orders") == [b"%d" % number for number in range(20)]
    assert all(message.recoverable for message in await door.messages("orders"))


@pytest.mark.parametrize("address", ["orders", r"private$\orders", "queue://orders", r"DIRECT=OS:here\private$\orders"])
async def test_a_queue_has_these_addresses(door: Door, address: str) -> None:
    def work() -> None:
        with connected(door.url) as client:
            client.create_sender(address).send(amqp_message(b"x"))

    await in_thread(work)
    assert await door.bodies("orders") == [b"x"]


async def test_a_transactional_queue_takes_each_message_in_a_transaction_of_its_own(door: Door) -> None:
    def work() -> None:
        with connected(door.url) as client:
            sender = client.create_sender("exact")
            for body in (b"1", b"2"):
                sender.send(amqp_message(body))

    await in_thread(work)
    messages = await door.messages("exact")
    assert [message.body for message in messages] == [b"1", b"2"]
    assert all(one.transactional and one.first_in_transaction and one.last_in_transaction for one in messages)


async def test_a_message_that_the_queue_refuses_is_rejected_with_the_code_as_condition(door: Door) -> None:
    await door.manager.set_queue(r".\private$\orders", quota=8)

    def work() -> str:
        with connected(door.url) as client:
            sender = client.create_sender("orders")
            sender.send(amqp_message(b"small"))
            with pytest.raises(SendException):
                sender.send(amqp_message(b"x" * 9000))
            return str(sender.link.credit)

    await in_thread(work)
    assert await door.bodies("orders") == [b"small"]
    assert door.door.counts.rejected == 1


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("nothing", "amqp:not-found"),
        ("DIRECT=nonsense", "amqp:not-found"),
        (r"orders;journal", "amqp:not-allowed"),
        (None, "amqp:not-found"),
    ],
)
async def test_a_link_to_no_queue_is_refused(door: Door, address: str | None, condition: str) -> None:
    def work() -> None:
        with connected(door.url) as client, pytest.raises(LinkDetached, match=condition):
            client.create_sender(address)

    await in_thread(work)


@pytest.mark.parametrize("sends", [True, False], ids=["sender", "receiver"])
async def test_a_link_that_cannot_be_opened_leaves_its_queue_closed(
    door: Door, monkeypatch: pytest.MonkeyPatch, sends: bool
) -> None:
    def fail(_: Any) -> None:
        raise ProtonException("the engine cannot copy this terminus")

    monkeypatch.setattr(Peer, "_open", staticmethod(fail))

    def work() -> None:
        with connected(door.url) as client, pytest.raises(LinkDetached):
            client.create_sender("orders") if sends else client.create_receiver("orders")

    await in_thread(work)
    assert not door.manager.names.find(r".\private$\orders").descriptors


async def test_frames_may_be_larger_than_the_window_of_a_session(tmp_path: Path) -> None:
    async with open_door(tmp_path, anonymous=True, frame_size="8MiB") as door:

        def work() -> None:
            with connected(door.url) as client:
                client.create_sender("orders").send(amqp_message(bytes(3_000_000)))

        await in_thread(work)
        assert await door.bodies("orders") == [bytes(3_000_000)]
