"""A machine knows itself by all its names, and gives its queues names that other machines can use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from qmnode import Access, Message, QueueManager, QueueType
from qmnode.host import host_addresses, host_names
from qmnode.model.serialization import Destination, Travelling
from qmnode.settings.node import Settings, TransportSettings
from qmnode.structures.guid import guid_to_text
from qmnode.structures.names import parse_single_format_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

IN = r"DIRECT=OS:.\private$\in"
SETTINGS = Settings(
    computer_name="ALPHA",
    other_names=("depot", "alpha.shop.example", "orders.shop.example"),
    addresses=("10.1.2.3", "2001:db8::7"),
    transport=TransportSettings(address="127.44.0.9"),
)


@pytest.fixture
async def alpha(tmp_path: Path) -> AsyncIterator[QueueManager]:
    async with QueueManager.open(tmp_path, SETTINGS) as manager:
        await manager.create_queue(r".\private$\answers")
        await manager.create_queue(r".\private$\in")
        yield manager


async def test_every_name_of_the_machine_is_its_own(alpha: QueueManager) -> None:
    identifier = guid_to_text(alpha.identifier).upper()
    names = (
        ".", "alpha", "ALPHA.", "Alpha.Shop.Example", "alpha.shop.example.", "DEPOT", "Orders.Shop.Example.",
        "localhost", "127.44.0.9", "10.1.2.3", "127.0.0.1", identifier, f"{{{identifier}}}",
    )  # fmt: skip
    for number, name in enumerate(names, 1):
        async with await alpha.open_queue(rf"DIRECT=OS:{name}\private$\answers", Access.SEND) as queue:
            await queue.send(Message(b"x"))
        assert alpha.names.find(rf"{name}\private$\answers").message_count == number


async def test_every_address_of_the_machine_is_its_own(alpha: QueueManager) -> None:
    for address in ("10.1.2.3", "127.44.0.9", "[2001:DB8:0:0::7]", "127.0.0.1", "::1"):
        assert alpha.names.is_local(parse_single_format_name(rf"DIRECT=TCP:{address}\private$\answers")), address


async def test_names_of_other_machines_are_not_its_own(alpha: QueueManager) -> None:
    for computer in (
        "alph",
        "..",
        "alpha.shop",
        "beta.shop.example",
        "10.1.2.4",
        "00000000-0000-0000-0000-000000000001",
    ):
        assert not alpha.names.is_local(parse_single_format_name(rf"DIRECT=OS:{computer}\private$\answers"))


async def stored(manager: QueueManager, response: str, **more: str) -> Message:
    async with await manager.open_queue(IN, Access.SEND) as queue:
        await queue.send(Message(b"x", response_queue_format_name=response, **more))  # type: ignore[arg-type]
    return await received(manager)


async def received(manager: QueueManager) -> Message:
    async with await manager.open_queue(IN) as queue:
        return await queue.receive(timeout=60)


async def test_an_own_queue_is_named_for_others(alpha: QueueManager) -> None:
    for relative in ("OS:.", "OS:localhost", "OS:LOCALHOST.", "OS:127.0.0.1", "TCP:127.0.0.1", "TCP:[::1]"):
        message = await stored(
            alpha,
            rf"DIRECT={relative}\private$\answers",
            administration_queue_format_name=r"DIRECT=OS:.\private$\later",
        )
        assert message.response_queue_format_name == r"DIRECT=OS:alpha.shop.example\private$\answers", relative
        assert message.administration_queue_format_name == r"DIRECT=OS:alpha.shop.example\private$\later"


async def test_without_a_directory_nobody_finds_a_queue_by_its_number(alpha: QueueManager) -> None:
    number = alpha.names.find(r".\private$\answers").private_queue_number
    message = await stored(alpha, f"PRIVATE={guid_to_text(alpha.identifier)}\\{number:x}")
    assert message.response_queue_format_name.casefold() == r"direct=os:alpha.shop.example\private$\answers"


async def test_a_name_that_others_can_use_stays(alpha: QueueManager) -> None:
    for computer in ("OS:ALPHA", "TCP:10.1.2.3", "OS:beta"):
        name = rf"DIRECT={computer}\private$\answers"
        assert (await stored(alpha, name)).response_queue_format_name == name


async def test_several_response_queues_are_all_named_for_others(alpha: QueueManager) -> None:
    several = r"DIRECT=OS:.\private$\answers,DIRECT=OS:beta\private$\b"
    message = await stored(alpha, "", response_multi_queue_format_name=several)
    assert message.response_multi_queue_format_name == (
        r"DIRECT=OS:alpha.shop.example\private$\answers,DIRECT=OS:beta\private$\b"
    )


async def test_a_packet_that_an_application_made_is_named_anew(alpha: QueueManager) -> None:
    """As applications beside the node send it: a packet whose names they have written."""
    travelling = Travelling(Destination(alpha.identifier, parse_single_format_name(IN)))
    async with await alpha.open_queue(IN, Access.SEND) as queue:
        for name in (r"DIRECT=OS:.\private$\answers", IN, r"DIRECT=OS:localhost\private$\other"):
            _, parts = travelling.pack(Message(b"y", response_queue_format_name=name))
            await cast("Any", queue).send_packets([b"".join(parts)] * 2)
            for _ in range(2):
                message = await received(alpha)
                local = name.rpartition("\\")[2]
                assert message.response_queue_format_name == rf"DIRECT=OS:alpha.shop.example\private$\{local}"
                assert message.body == b"y"


async def test_in_a_directory_queues_have_the_names_of_the_directory(alpha: QueueManager) -> None:
    alpha.names.enter_directory()
    number = alpha.names.find(r".\private$\answers").private_queue_number
    message = await stored(alpha, r"DIRECT=OS:.\private$\answers")
    assert message.response_queue_format_name == f"PRIVATE={guid_to_text(alpha.identifier)}\\{number:08x}"
    missing = await stored(alpha, r"DIRECT=OS:.\private$\not-yet")
    assert missing.response_queue_format_name == r"DIRECT=OS:alpha.shop.example\private$\not-yet"


async def test_a_name_is_looked_up_again_when_a_queue_is_made(alpha: QueueManager) -> None:
    alpha.names.enter_directory()
    async with await alpha.open_queue(IN, Access.SEND) as queue:
        named = []
        for _ in range(2):
            await queue.send(Message(b"x", response_queue_format_name=r"DIRECT=OS:.\private$\new"))
            named.append((await received(alpha)).response_queue_format_name.partition("=")[0])
            if len(named) == 1:
                await alpha.create_queue(r".\private$\new")
    assert named == ["DIRECT", "PRIVATE"]
    assert alpha.names.find(r".\private$\new").queue_type is QueueType.PRIVATE


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose resolver knows its full DNS name and an alias."""
    monkeypatch.setattr("socket.gethostname", lambda: "gamma")
    monkeypatch.setattr(
        "socket.gethostbyname_ex", lambda _: ("gamma.shop.example", ["till-3", "localhost"], ["127.0.1.1"])
    )
    host_names.cache_clear()
    yield
    host_names.cache_clear()


@pytest.mark.usefixtures("host")
async def test_a_node_with_the_name_of_its_host_has_all_names_of_the_host(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path) as gamma:
        await gamma.create_queue(r".\private$\in")
        for own in ("GAMMA", "Gamma.shop.example.", "TILL-3", *host_addresses()):
            assert gamma.names.is_local(parse_single_format_name(rf"DIRECT=OS:{own}\private$\in")), own
        message = await stored(gamma, r"DIRECT=OS:.\private$\answers")
        assert message.response_queue_format_name == r"DIRECT=OS:gamma.shop.example\private$\answers"


@pytest.mark.usefixtures("host")
async def test_a_node_with_a_name_and_an_address_of_its_own_has_no_others_of_the_host(tmp_path: Path) -> None:
    settings = Settings(computer_name="DELTA", transport=TransportSettings(address="127.44.0.10"))
    async with QueueManager.open(tmp_path, settings) as delta:
        await delta.create_queue(r".\private$\in")
        for other in ("gamma", "gamma.shop.example", "till-3", *host_addresses()):
            assert not delta.names.is_local(parse_single_format_name(rf"DIRECT=OS:{other}\private$\in")), other
        message = await stored(delta, r"DIRECT=OS:.\private$\answers")
        assert message.response_queue_format_name == r"DIRECT=OS:DELTA\private$\answers"


@pytest.mark.public_report("rabbitmq/rabbitmq-server#8582", "docker-library/rabbitmq#106")
async def test_a_node_whose_host_was_renamed_has_all_its_queues_and_messages(tmp_path: Path) -> None:
    for computer, bodies in (("ALPHA", []), ("a1b2c3d4e5f6", [b"1"]), ("ALPHA", [b"1", b"2"])):
        async with QueueManager.open(tmp_path, Settings(computer_name=computer)) as manager:
            if not bodies:
                await manager.create_queue(r".\private$\in", label="kept")
            assert (await manager.queue(rf"{computer}\private$\in")).label == "kept"
            async with await manager.open_queue(IN, Access.RECEIVE) as queue:
                for body in bodies:
                    received = await queue.receive(0)
                    assert received.body == body
            async with await manager.open_queue(rf"DIRECT=OS:{computer}\private$\in", Access.SEND) as queue:
                for number in range(len(bodies) + 1):
                    await queue.send(Message(b"%d" % (number + 1), recoverable=True))
