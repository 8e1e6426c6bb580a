"""Public queues and the directory: MS-MQDMPR 3.1.7.1.3 to 3.1.7.1.5 and 3.1.7.1.26."""

import asyncio

import pytest

from qmnode import Access, MessageQueuingError
from qmnode.directory.port import (
    DirectoryOperationError,
    DirectoryOperationResult,
    Queue,
    QueueManager,
    WorkgroupDirectory,
)
from qmnode.model.public_queues import PublishedQueues
from qmnode.settings.protocol import TransferSettings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_to_text, new_guid
from qmnode.structures.names import parse_single_format_name


class MemoryDirectory(WorkgroupDirectory):
    """Objects in a dictionary."""

    def __init__(self):
        self.objects = {}

    async def create_directory_object(self, directory_object, attributes=None):
        identifier = directory_object.identifier or new_guid()
        self.objects[identifier] = directory_object
        return identifier

    async def delete_directory_object(self, directory_object):
        del self.objects[directory_object.identifier]

    async def write_directory(self, directory_object, attributes=None):
        self.objects[directory_object.identifier] = directory_object

    async def read_directory(self, object_type, filters=(), attributes=None, *, force_directory_read=False):
        found = self.objects.get(filters[0].value)
        if not isinstance(found, object_type):
            raise DirectoryOperationError(DirectoryOperationResult.OBJECT_NOT_FOUND, "there is no such object")
        return found


@pytest.fixture
def directory(qm):
    directory = MemoryDirectory()
    qm.published = PublishedQueues(qm.context, directory)
    return directory


async def failure(awaitable) -> ErrorCode:
    with pytest.raises(MessageQueuingError) as error:
        await awaitable
    return error.value.code


async def test_a_public_queue_is_in_the_directory_as_long_as_it_exists(qm, directory):
    queue = await qm.create_queue(r".\news", label="News", base_priority=4, journaling=True)
    published = directory.objects[queue.identifier]
    assert (published.pathname, published.label, published.base_priority) == (r"ALPHA\news", "News", 4)
    await qm.set_queue(r".\news", label="Old news")
    assert directory.objects[queue.identifier].label == "Old news"
    await qm.delete_queue(r".\news")
    assert directory.objects == {}


async def test_a_queue_that_is_deleted_while_the_directory_is_written_stays_deleted(qm, monkeypatch):
    class Slow(MemoryDirectory):
        async def write_directory(self, directory_object, attributes=None):
            await qm.delete_queue(r".\news")

    qm.published = PublishedQueues(qm.context, Slow())
    queue = await qm.create_queue(r".\news")
    written = []
    monkeypatch.setattr(qm.store, "put_queue", lambda queue_id, definition: written.append(queue_id))
    code = ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert await failure(qm.set_queue(r".\news", label="Old news")) is code
    assert written == [], f"{queue.pathname} comes back with the next start"


async def test_private_queues_are_not_published(qm, directory):
    await qm.create_queue(r".\private$\own")
    assert directory.objects == {}


async def test_a_queue_that_the_directory_refuses_is_not_created(qm):
    qm.published = PublishedQueues(qm.context, WorkgroupDirectory())
    assert await failure(qm.create_queue(r".\news")) is ErrorCode.MQ_ERROR_NO_DS
    assert await failure(qm.queue(r".\news")) is ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND


async def test_a_public_queue_elsewhere_is_looked_up_and_lends_its_priority(qm, directory):
    identifier = await directory.create_directory_object(Queue(pathname=r"beta\news", base_priority=9))
    name = f"PUBLIC={guid_to_text(identifier)}"
    await qm.open_queue(name, Access.SEND)
    assert (await qm.queue(name)).base_priority == 9
    unknown = f"PUBLIC={guid_to_text(new_guid())}"
    code = ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    assert await failure(qm.open_queue(unknown, Access.SEND)) is code


async def test_a_directory_that_does_not_answer_costs_seconds_and_is_named(qm):
    """Packets are swallowed on the way: nothing refuses, nothing answers."""

    class Swallowed(WorkgroupDirectory):
        async def read_directory(self, *_):
            await asyncio.Event().wait()

    patience = TransferSettings(directory_answer_timeout=0.05)
    qm.context.settings = qm.context.settings.model_copy(update={"transfer": patience})
    qm.published = PublishedQueues(qm.context, Swallowed())
    with pytest.raises(MessageQueuingError) as refused:
        await qm.open_queue(f"PUBLIC={guid_to_text(new_guid())}", Access.SEND)
    assert refused.value.code is ErrorCode.MQ_ERROR_NO_DS
    assert "transfer.directory_answer_timeout" in refused.value.sentence
    assert TransferSettings().directory_answer_timeout <= 5


async def test_a_directory_that_is_down_is_named(qm):
    qm.published = PublishedQueues(qm.context, WorkgroupDirectory())
    name = f"PUBLIC={guid_to_text(new_guid())}"
    assert await failure(qm.open_queue(name, Access.SEND)) is ErrorCode.MQ_ERROR_NO_DS


async def test_without_a_directory_a_public_queue_elsewhere_cannot_be_opened(qm):
    code = ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    name = f"PUBLIC={guid_to_text(new_guid())}"
    assert await failure(qm.open_queue(name, Access.SEND)) is code
    assert await failure(qm.open_queue(name, Access.RECEIVE)) is code


async def test_the_path_of_a_queue_is_found_from_its_format_name(qm, directory):
    private = await qm.create_queue(r".\private$\own")
    there = await directory.create_directory_object(QueueManager(computer_name="beta"))
    news = await directory.create_directory_object(Queue(pathname=r"gamma\news"))
    for text, expected in (
        (r"DIRECT=OS:beta\private$\x", (r"beta\private$\x", "beta")),
        (r"DIRECT=TCP:10.0.0.1\x", (r"10.0.0.1\x", "10.0.0.1")),
        ("DIRECT=HTTP://beta/msmq/x", ("", "beta")),
        (f"PUBLIC={guid_to_text(news)}", (r"gamma\news", "gamma")),
        (f"PRIVATE={guid_to_text(there)}\\1", ("", "beta")),
        (f"PRIVATE={guid_to_text(qm.identifier)}\\{private.private_queue_number:x}", (r"ALPHA\private$\own", "ALPHA")),
        (f"PRIVATE={guid_to_text(qm.identifier)}\\ff", ("", "ALPHA")),
    ):
        assert await qm.published.get_queue_path(parse_single_format_name(text)) == expected
    for text in (f"PUBLIC={guid_to_text(new_guid())}", f"PRIVATE={guid_to_text(new_guid())}\\1"):
        assert await failure(qm.published.get_queue_path(parse_single_format_name(text))) is (
            ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME
        )


async def test_public_and_private_queues_elsewhere_are_read_at_their_computer(qm, directory, monkeypatch):
    hosts = []

    async def connect(host, options):
        hosts.append(host)
        raise MessageQueuingError(ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE)

    monkeypatch.setattr("qmnode.remote_read.client_interfaces.RemoteNode.connect", connect)
    beta = await directory.create_directory_object(QueueManager(computer_name="beta"))
    news = await directory.create_directory_object(Queue(pathname=r"gamma\news"))
    for name in (f"PUBLIC={guid_to_text(news)}", f"PRIVATE={guid_to_text(beta)}\\00000007"):
        assert await failure(qm.open_queue(name, Access.RECEIVE)) is ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE
    assert hosts == ["gamma", "beta"]
