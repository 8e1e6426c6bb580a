"""What administrators ask of a queue manager."""

import pytest

from qmnode import Access, Message, MessageQueuingError
from qmnode.model.transaction import ExternalTransactions
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import new_guid
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
    with pytest.raises(MessageQueuingError, match="not in doubt"):
        await qm.resolve_transaction(transaction.identifier, commit=True)
    await transaction.commit()
    assert await qm.list_transactions() == []


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_in_doubt_is_resolved_after_a_restart(node: Node, commit: bool) -> None:
    qm = node.qm
    await qm.create_queue(NAME, transactional=True)
    queue = await qm.open_queue(FORMAT, Access.SEND)
    external: ExternalTransactions = qm.external
    transaction = external.enlist(new_guid())
    await queue.send(Message(b"a"), transaction=transaction)
    await external.prepare(transaction.identifier)
    qm = await node.restart()
    assert [(one.identifier, one.in_doubt) for one in await qm.list_transactions()] == [(transaction.identifier, True)]
    assert (await qm.status()).in_doubt_count == 1
    await qm.resolve_transaction(transaction.identifier, commit)
    assert (await qm.queue(NAME)).message_count == int(commit)
    assert (await qm.status()).in_doubt_count == 0


async def test_a_transaction_that_is_not_there_cannot_be_resolved(node: Node) -> None:
    qm = node.qm
    with pytest.raises(MessageQueuingError) as caught:
        await qm.resolve_transaction(new_guid(), commit=False)
    assert caught.value.code == ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE


@pytest.mark.parametrize("name", ["administration_queue_format_name", "response_queue_format_name"])
async def test_a_property_that_is_no_format_name_is_refused(node: Node, name: str) -> None:
    await node.qm.create_queue(NAME)
    queue = await node.qm.open_queue(FORMAT, Access.SEND)
    with pytest.raises(MessageQueuingError) as caught:
        await queue.send(Message(b"a", **{name: "nonsense"}))  # type: ignore[misc]
    assert caught.value.code == ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME
