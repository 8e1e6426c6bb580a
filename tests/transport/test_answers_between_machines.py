"""Acknowledgments and replies find the machine that asked for them, whatever short name it wrote for its queue."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from qmnode import Access, Message
from qmnode.settings.node import Settings
from qmnode.structures.enumerations import MessageClass
from tests.transport import conftest
from tests.transport.conftest import PLAIN, Pair, settings_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DOMAIN = "shop.example"


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """ALICE and BOB with full DNS names, which DNS resolves."""
    resolve, addresses = socket.getaddrinfo, {}

    def settings(name: str, address: str, **transport: object) -> Settings:
        addresses[f"{name}.{DOMAIN}".casefold()] = address
        return settings_of(name, address, **transport).model_copy(update={"other_names": (f"{name}.{DOMAIN}",)})

    def getaddrinfo(host: str, *others: Any, **more: Any) -> Any:
        return resolve(addresses.get(host.casefold(), host), *others, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(conftest, "settings_of", settings)
    made = conftest.pair.__wrapped__ if hasattr(conftest.pair, "__wrapped__") else conftest.pair
    async for pair in made(tmp_path):
        yield pair


async def test_answers_come_back_to_the_sender(shop: Pair) -> None:
    for name in (r"DIRECT=OS:.\private$\admin", r"DIRECT=OS:localhost\private$\admin"):
        out = await shop.alice.open_queue(shop.direct("BOB", PLAIN), Access.SEND)
        sent = await out.send(
            Message(
                b"order",
                acknowledgements_requested=1,
                administration_queue_format_name=name,
                response_queue_format_name=name,
            )
        )
        order = await (await shop.bob.open_queue(f"DIRECT=OS:{PLAIN}")).receive(timeout=60)
        reply = await shop.bob.open_queue(order.response_queue_format_name, Access.SEND)
        await reply.send(order.reply(b"thanks"))
        answers = await shop.alice.open_queue(r"DIRECT=OS:.\private$\admin")
        came = [await answers.receive(timeout=60) for _ in range(2)]
        assert {one.correlation_identifier for one in came} == {sent}
        assert {one.message_class for one in came} == {MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE, 0}
    assert not shop.bob.names.find(r".\private$\admin").message_count


async def test_an_acknowledgment_names_a_queue_of_this_machine_for_others(shop: Pair) -> None:
    """ALICE's own queue takes a message whose acknowledgments go to BOB."""
    out = await shop.alice.open_queue(f"DIRECT=OS:{PLAIN}", Access.SEND)
    await out.send(
        Message(
            b"order",
            acknowledgements_requested=1,
            administration_queue_format_name=shop.direct("BOB", ".\\private$\\admin"),
        )
    )
    arrived = await (await shop.bob.open_queue(r"DIRECT=OS:.\private$\admin")).receive(timeout=60)
    assert arrived.response_queue_format_name == rf"DIRECT=OS:ALICE.{DOMAIN}\private$\plain"


async def test_all_acknowledgments_of_a_message_are_alike(shop: Pair) -> None:
    """At another machine as here: label, application value and priority are the message's, so none overtakes."""
    for destination, node in ((shop.direct("BOB", PLAIN), shop.bob), (f"DIRECT=OS:{PLAIN}", shop.alice)):
        for label, number, priority in (("order 7", 7, 6), ("🚀", 0xFFFFFFFF, 0), ("", 0, 3)):
            out = await shop.alice.open_queue(destination, Access.SEND)
            await out.send(
                Message(
                    b"order",
                    label=label,
                    app_specific=number,
                    priority=priority,
                    acknowledgements_requested=3,
                    administration_queue_format_name=r"DIRECT=OS:.\private$\admin",
                )
            )
            await (await node.open_queue(f"DIRECT=OS:{PLAIN}")).receive(timeout=60)
            answers = await shop.alice.open_queue(r"DIRECT=OS:.\private$\admin")
            came = [await answers.receive(timeout=60) for _ in range(2)]
            assert [one.message_class for one in came] == [
                MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE,
                MessageClass.MQMSG_CLASS_ACK_RECEIVE,
            ]
            assert {(one.label, one.app_specific, one.priority) for one in came} == {(label, number, priority)}
