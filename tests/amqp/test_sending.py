"""A program sends over AMQP 1.0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from proton import ProtonException
from proton.utils import LinkDetached

from qmnode.amqp.codec import Described, ULong, encode
from qmnode.amqp.peer import Peer
from tests.adversary.test_amqp_door import FLOW, attach, transfer
from tests.amqp.conftest import amqp_message, connected, in_thread, open_door
from tests.amqp.raw import BEGIN, CLOSE, opened, read_all, read_until, values

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


async def answered(door: Door, payload: bytes) -> list[Any]:
    """The performatives of the door after a message to ``orders``; the client closes."""

    def work() -> list[Any]:
        with opened(door.door.port, BEGIN, attach("out", 0, "orders", receives=False)) as connection:
            data = read_until(connection, FLOW)
            connection.sendall(transfer(0, 0, payload))
            data += read_until(connection, b"\x53\x15" if len(payload) < 1 << 20 else b"\x53\x16")
            connection.sendall(CLOSE)
            return values(data + read_all(connection))

    return list(await in_thread(work))


DATA = encode(Described(ULong(0x75), b"x"))


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (encode(Described(ULong(0x75), b"x" * 9000)), "MQ_ERROR_INSUFFICIENT_RESOURCES"),
        (encode(Described(ULong(0x99), b"x")), "amqp:decode-error"),
        (encode(Described(ULong(0x74), {"list": [1]})) + DATA, "amqp:decode-error"),
    ],
    ids=["refused by the queue", "no message", "a list as a property"],
)
async def test_a_message_is_rejected_with_the_reason_as_condition(door: Door, payload: bytes, condition: str) -> None:
    await door.manager.set_queue(r".\private$\orders", quota=8)
    (disposition,) = [one for one in await answered(door, payload) if one is not None and one.descriptor == 0x15]
    rejected = disposition.value[4]
    assert (rejected.descriptor, rejected.value[0].value[0]) == (0x25, condition)
    assert await door.bodies("orders") == []
    assert door.door.counts.rejected == 1


async def test_a_message_that_is_too_large_closes_the_link(tmp_path: Path) -> None:
    async with open_door(tmp_path, anonymous=True, message_size="1MiB", frame_size="2MiB") as door:
        payload = encode(Described(ULong(0x75), bytes(1 << 20)))
        (detach,) = [one for one in await answered(door, payload) if one is not None and one.descriptor == 0x16]
        assert detach.value[2].value[0] == "amqp:link:message-size-exceeded"
        assert await door.bodies("orders") == []


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("nothing", "amqp:not-found"),
        ("DIRECT=nonsense", "amqp:not-found"),
        (r"orders;journal", "amqp:not-allowed"),
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
