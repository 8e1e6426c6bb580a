"""What administrators ask of a queue manager."""

import pytest

from qmnode import Access, Message, MessageQueuingError
from qmnode.structures.error_codes import ErrorCode
from tests.model.conftest import Node

NAME = r".\private$\orders"
FORMAT = rf"DIRECT=OS:{NAME}"


async def test_the_status_counts_queues_messages_and_bytes(node: Node) -> None:
    qm = node.qm
    await qm.create_queue(NAME)
    queue = await qm.open_queue(FORMAT, Access.SEND)
    await queue.send_many([Message(b"a", recoverable=True)] * 3)
    status = await qm.status()
    assert (status.queue_count, status.message_count, status.outgoing_queue_count) == (1, 3, 0)
    assert status.quota_used == status.total_bytes == (await qm.queue(NAME)).total_bytes > 0
    assert status.quota == 0x00100000


async def test_open_transactions_are_listed_with_their_queues(node: Node) -> None:
    qm = node.qm
    await qm.create_queue(NAME, transactional=True)
    queue = await qm.open_queue(FORMAT, Access.SEND)
    transaction = qm.transaction()
    await queue.send(Message(b"a"), transaction=transaction)
    (found,) = await qm.list_transactions()
    assert (found.state, found.in_doubt, found.operation_count) == ("active", False, 1)
    assert found.queues == ((await qm.queue(NAME)).pathname,)
    await transaction.commit()
    assert await qm.list_transactions() == []


@pytest.mark.parametrize("name", ["administration_queue_format_name", "response_queue_format_name"])
async def test_a_property_that_is_no_format_name_is_refused(node: Node, name: str) -> None:
    await node.qm.create_queue(NAME)
    queue = await node.qm.open_queue(FORMAT, Access.SEND)
    with pytest.raises(MessageQueuingError) as caught:
        await queue.send(Message(b"a", **{name: "nonsense"}))  # type: ignore[misc]
    assert caught.value.code == ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME
