"""Large messages are what they are, although an application has only a view of them: whatever it reads, keeps or sends
on.
"""

import asyncio
import copy
import pickle

import pytest

import qmnode
from qmnode.allocator import lend
from qmnode.local.frames import pack_received, unpack_received
from qmnode.local.remote import RemoteQueueManager
from qmnode.model.positions import insert_lent, take_received
from qmnode.structures.names import parse_single_format_name
from tests.lab.waiting import eventually
from tests.local.conftest import FORMAT, NAME, Service

SIZES = (65_000, 66_000, 300_000, 1_000_000, 4_190_000)


def body(size: int) -> bytes:
    return ((b"%d " % size) * (size // 6 + 1))[:size]


@pytest.fixture
async def queue(remote: RemoteQueueManager) -> qmnode.QueueApi:
    await remote.create_queue(NAME)
    return await remote.open_queue(FORMAT)


@pytest.fixture
async def sender(remote: RemoteQueueManager, queue: qmnode.QueueApi) -> qmnode.QueueApi:
    return await remote.open_queue(FORMAT, qmnode.Access.SEND)


def message(size: int) -> qmnode.Message:
    return qmnode.Message(body(size), label=f"größe {size}", recoverable=True, extension=b"e" * 9, app_specific=size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("first", ["body", "label", "identifier", "extension", "packet", "priority"])
async def test_every_property_is_read_in_any_order(
    queue: qmnode.QueueApi, sender: qmnode.QueueApi, size: int, first: str
) -> None:
    identifier = await sender.send(message(size))
    found = await queue.receive(5)
    getattr(found, first)
    assert type(found.body) is bytes and found.body == body(size)
    assert (found.label, found.extension, found.app_specific) == (f"größe {size}", b"e" * 9, size)
    assert found.identifier == identifier and found.recoverable
    assert type(found.packet) is bytes and body(size) in found.packet and not found.unreadable


async def test_messages_of_one_answer_are_kept_by_themselves(queue: qmnode.QueueApi, sender: qmnode.QueueApi) -> None:
    await sender.send_many([message(size) for size in SIZES])
    found = []
    while len(found) < len(SIZES):
        found += await queue.receive_many(99, timeout=5)
    assert [one.body for one in found] == [body(size) for size in SIZES]


def test_a_view_does_not_keep_an_answer_with_others() -> None:
    items = [(number, bytes(70_000)) for number in range(9)]
    assert [type(value) for _, value in unpack_received(b"".join(pack_received(items)))] == [bytes] * 9
    (alone,) = unpack_received(b"".join(pack_received(items[:1])))
    assert type(alone[1]) is memoryview and alone == items[0]


@pytest.mark.parametrize("read", [False, True])
async def test_it_is_pickled_copied_and_sent_on(
    queue: qmnode.QueueApi, sender: qmnode.QueueApi, remote: RemoteQueueManager, read: bool
) -> None:
    await sender.send(message(300_000))
    found = await queue.receive(5)
    if read:
        assert found.body
    for same in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), found.copy()):
        assert (same.body, same.label, same.app_specific) == (body(300_000), "größe 300000", 300_000)
    await sender.send(found)
    again = await queue.receive(5)
    assert (again.body, again.label) == (body(300_000), "größe 300000")
    assert again.identifier != found.identifier


async def test_one_in_lent_memory_is_back_in_its_queue_when_its_receiver_goes_away(
    own_memory: None, service: Service, sender: qmnode.QueueApi, queue: qmnode.QueueApi
) -> None:
    await sender.send(message(300_000))
    stored = service.manager.names.local(parse_single_format_name(FORMAT))
    assert stored is not None
    ((place, value),) = take_received(stored, 1, 1 << 30)
    view = lend(len(value))
    assert view is not None
    view[:] = value

    async with qmnode.connect(service.socket, reconnect=0) as gone:
        receiving = asyncio.ensure_future((await gone.open_queue(FORMAT)).receive())
        await eventually(lambda: stored.waiting, "the receive waits")
        kept = insert_lent(stored, place, view.toreadonly())
        assert isinstance(kept, memoryview) and not stored.message_count
        (connection,) = (one for one in service.server.connections if len(one._receives))
        connection._transport.abort()
        await eventually(lambda: stored.message_count == 1, "the message is back")
        view[:] = bytes(len(view))  # the memory is used again
    with pytest.raises(qmnode.MessageQueuingError):
        await receiving
    assert (await queue.receive(5)).body == body(300_000)
