"""Messages from other queue managers: MS-MQDMPR 3.1.7.1.9."""

import pytest

from qmnode import Message, Settings
from qmnode.delivery.notices import next_position
from qmnode.model.queue import Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.quotas import EnqueueStatus
from qmnode.model.serialization import Destination, TransactionFields, serialize
from qmnode.model.stored_message import PREFIX_SIZE, value_of_packet
from qmnode.structures.guid import new_guid
from qmnode.structures.names import parse_single_format_name
from tests.model.conftest import Node

NAME = r"DIRECT=OS:.\private$\orders"
THERE = new_guid()


def packet(message: Message, now: float, transaction: TransactionFields | None = None) -> bytes:
    destination = Destination(THERE, parse_single_format_name(r"DIRECT=OS:alpha\private$\orders"))
    return serialize(message, destination, 7, now, transaction)[PREFIX_SIZE:]


def arrive(qm: QueueManager, queue: Queue, packet: bytes) -> EnqueueStatus:
    """What delivery does with a packet of another queue manager that passed its checks."""
    value = value_of_packet(packet, qm.clock.time())
    status = qm.quotas.status(queue, len(packet))
    if status is EnqueueStatus.ACCEPTED:
        queue.arrive(next_position(qm, packet), value)
    return status


@pytest.fixture
async def orders(qm):
    await qm.create_queue(r".\private$\orders")
    return qm.names.find(NAME)


async def test_a_packet_is_received_as_it_was_sent_elsewhere(node, qm, orders, clock):
    sent = packet(Message(b"1", label="l", recoverable=True, priority=6), clock.now - 5)
    assert arrive(qm, orders, sent) is EnqueueStatus.ACCEPTED
    assert arrive(qm, orders, packet(Message(b"2", priority=7), clock.now)) is EnqueueStatus.ACCEPTED
    await qm.store.durable()
    qm = await node.crash()
    message = await (await qm.open_queue(NAME)).receive(timeout=0)
    assert (message.body, message.label, message.priority) == (b"1", "l", 6)
    assert message.identifier == THERE + (7).to_bytes(4, "little")
    assert message.packet == sent
    assert (message.sent_time, message.arrival_time) == (int(clock.now) - 5, clock.now)


async def test_quotas_are_said_apart(tmp_path, clock):
    node = Node(tmp_path / "n", clock, Settings(computer_name="ALPHA", quotas={"queue_manager_quota": 4}))
    qm = await node.start()
    await qm.create_queue(r".\private$\orders", quota=2)
    await qm.create_queue(r".\private$\other")
    orders, other = qm.names.find(NAME), qm.names.find(r".\private$\other")
    large = packet(Message(bytes(1024)), clock.now)
    assert arrive(qm, orders, large) is EnqueueStatus.ACCEPTED
    assert arrive(qm, orders, large) is EnqueueStatus.QUEUE_QUOTA_EXCEEDED
    assert arrive(qm, other, large) is EnqueueStatus.ACCEPTED
    assert arrive(qm, other, large) is EnqueueStatus.ACCEPTED
    assert arrive(qm, other, large) is EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED
    await qm.close()


async def test_a_transactional_packet_keeps_its_place_in_its_sequence(node, clock):
    await node.qm.create_queue(r".\private$\ledger", transactional=True)
    ledger = node.qm.names.find(r".\private$\ledger")
    sent = packet(Message(b"1"), clock.now, TransactionFields(3, 9 << 32, 4, 3))
    arrive(node.qm, ledger, sent)
    await node.qm.store.durable()
    message = await (await node.qm.open_queue(r"DIRECT=OS:.\private$\ledger")).receive(timeout=0)
    assert (message.transaction_sequence_number, message.transaction_previous_sequence_number) == (4, 3)
    assert message.transactional_message_sequence_identifier == (9 << 32).to_bytes(8, "little")
