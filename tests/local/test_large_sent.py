"""A large message that is sent alone becomes what is stored where it was read: it is what it was, whatever came before
it, and also when it is refused.
"""

import asyncio
import random
from typing import Literal

import pytest

import qmnode
from qmnode.errors import MessageQueuingError
from qmnode.local.frames import SEND_HEAD, FrameKind, pack_sent
from qmnode.local.remote import RemoteQueueManager
from qmnode.model.serialization import address_packets
from qmnode.structures.error_codes import ErrorCode
from tests.local.conftest import Service

QUEUES = (r".\private$\orders", r".\private$\a name that is longer", r".\private$\t")
ANSWERS = r"DIRECT=OS:.\private$\answers"
SIZES = (100, 60_000, 129_000, 140_000, 400_000, 1_000_001, 4_190_000)


def body(number: int, size: int) -> bytes:
    return random.Random(number).randbytes(size)


Sent = tuple[bytes, str, bytes, str]


def content(message: qmnode.Message) -> Sent:
    return message.body, message.label, message.extension, message.response_queue_format_name


def as_others_know_it(sent: Sent, computer: str) -> Sent:
    """What is stored of it: the queue for answers has a name that other machines can use."""
    content, label, extension, answers = sent
    return content, label, extension, answers.replace("OS:.", f"OS:{computer}")


@pytest.mark.parametrize("seed", range(6))
async def test_messages_of_several_applications_are_what_was_sent(
    service: Service, own_memory: None, seed: int
) -> None:
    sent = {name: list[Sent]() for name in QUEUES}
    for name in QUEUES:
        await service.manager.create_queue(name, transactional=name == QUEUES[2])

    async def application(number: int) -> None:
        dice = random.Random(f"{seed} {number}")
        async with qmnode.connect(service.socket) as manager:
            queues = {name: await manager.open_queue(rf"DIRECT=OS:{name}", qmnode.Access.SEND) for name in QUEUES}
            for _ in range(12):
                name = dice.choice(QUEUES)
                message = qmnode.Message(
                    dice.randbytes(dice.choice(SIZES)), label="größe" * dice.randrange(3), priority=3,
                    recoverable=dice.random() < 0.7, extension=bytes(dice.randrange(3)),
                    response_queue_format_name=dice.choice(["", ANSWERS]),
                )  # fmt: skip
                sent[name].append(content(message))
                transaction: Literal["single"] | None = "single" if name == QUEUES[2] else None
                if dice.choice([True, False]):
                    await queues[name].send_many([message], transaction)
                else:
                    await queues[name].send(message, transaction)

    await asyncio.gather(*map(application, range(3)))
    for name in QUEUES:
        queue = await service.manager.open_queue(rf"DIRECT=OS:{name}")
        found = [await queue.receive(5) for _ in sent[name]]
        expected = [as_others_know_it(one, service.manager.computer_name) for one in sent[name]]
        assert sorted(map(content, found)) == sorted(expected)
        assert not any(one.unreadable for one in found)


async def test_only_the_first_is_copied(
    service: Service, remote: RemoteQueueManager, own_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = []

    def addressed(packets: list[memoryview], *others: object) -> list[bytes] | None:
        values = address_packets(packets, *others)  # type: ignore[arg-type]
        assert values is not None
        copied.append(values[0] is not getattr(packets[0].obj, "content", None))
        return values

    monkeypatch.setattr("qmnode.model.open_queue.address_packets", addressed)
    await remote.create_queue(QUEUES[0])
    queue = await remote.open_queue(rf"DIRECT=OS:{QUEUES[0]}", qmnode.Access.SEND)
    for number in range(8):
        await queue.send(qmnode.Message(body(number, 500_000), recoverable=True))
    assert copied == [True] + [False] * 7  # the first one shows how much they grow


async def test_one_that_has_no_room_is_refused_and_the_next_is_taken(
    service: Service, remote: RemoteQueueManager, own_memory: None
) -> None:
    await remote.create_queue(QUEUES[0])
    queue = await remote.open_queue(rf"DIRECT=OS:{QUEUES[0]}", qmnode.Access.SEND)
    for number in range(3):
        await queue.send(qmnode.Message(body(number, 500_000)))
    quotas = service.manager.context.quotas
    quotas.limit = quotas.used + 499_999
    for send in (queue.send, lambda message: queue.send_many([message])):
        with pytest.raises(MessageQueuingError, match="the quota of the queue manager"):
            await send(qmnode.Message(body(7, 500_000)))
    quotas.limit = quotas.used + 500_300  # it may just have room, and is looked at closely
    await queue.send(qmnode.Message(body(3, 500_000)))
    reading = await remote.open_queue(rf"DIRECT=OS:{QUEUES[0]}")
    assert [(await reading.receive(5)).body for _ in range(4)] == [body(number, 500_000) for number in range(4)]


async def test_one_that_cannot_be_stored_is_refused_once(
    service: Service, remote: RemoteQueueManager, own_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await remote.create_queue(QUEUES[0])
    queue = await remote.open_queue(rf"DIRECT=OS:{QUEUES[0]}", qmnode.Access.SEND)
    for number in range(2):
        await queue.send(qmnode.Message(body(number, 500_000), recoverable=True))
    tried = []

    def full() -> None:
        tried.append(None)
        raise MessageQueuingError(ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED, "no room on the disk")

    monkeypatch.setattr(service.manager.context.store, "durable", full)
    with pytest.raises(MessageQueuingError, match="no room on the disk"):
        await queue.send(qmnode.Message(body(2, 500_000), recoverable=True))
    assert len(tried) == 1


@pytest.mark.parametrize("together", [True, False])
async def test_one_that_is_no_packet_is_refused(
    service: Service, remote: RemoteQueueManager, own_memory: None, together: bool
) -> None:
    await remote.create_queue(QUEUES[0])
    queue = await remote.open_queue(rf"DIRECT=OS:{QUEUES[0]}", qmnode.Access.SEND)
    for number in range(2):
        await queue.send(qmnode.Message(body(number, 500_000)))
    head = SEND_HEAD.pack(queue.handle, 0, together, 1)  # type: ignore[attr-defined]
    with pytest.raises(MessageQueuingError, match="no UserMessage packet"):
        await remote.connection.call(FrameKind.SEND, head, *pack_sent([(500_000, (bytes(500_000),), b"")]))
    await queue.send(qmnode.Message(body(2, 500_000)))
    reading = await remote.open_queue(rf"DIRECT=OS:{QUEUES[0]}")
    assert [(await reading.receive(5)).body for _ in range(3)] == [body(number, 500_000) for number in range(3)]
