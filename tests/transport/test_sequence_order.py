"""Transactional messages of an outgoing queue leave in the order of their numbers, and none stays for ever.

The destination takes a number that was overtaken for a duplicate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from qmnode import Access, Message, QueueManager
from qmnode.delivery.queue_sender import QueueSender
from qmnode.model.queue import OutgoingQueue
from qmnode.settings.protocol import TransferSettings
from tests.lab.waiting import eventually
from tests.transport.conftest import TRANSACTIONAL, Pair, settings_of
from tests.transport.test_transfer import bodies, send_in_transaction

pytestmark = pytest.mark.servers


class SlowDisk:
    """The store as a queue_sender sees it: nothing is on disk before ``done``."""

    def __init__(self, queue_sender: QueueSender) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self._queue_sender = queue_sender
        self._state = queue_sender._state

    def __enter__(self) -> SlowDisk:
        self._queue_sender._state = _Replaced(
            self._state, store=SimpleNamespace(durable=self._wait, pending=self._wait)
        )  # type: ignore[assignment]
        return self

    def _wait(self) -> asyncio.Future[None]:
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    def __exit__(self, *_: object) -> None:
        """All of it is on disk now, with one sync."""
        self._queue_sender._state = self._state
        for written in self.waiting:
            written.set_result(None)


class _Replaced:
    """An object, some attributes of which are others."""

    def __init__(self, other: object, **attributes: object) -> None:
        self._other = other
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> object:
        return getattr(self._other, name)


def queue_senders(node: QueueManager) -> Iterator[QueueSender]:
    yield from node.network._queue_senders.values()


def waiting(node: QueueManager) -> int:
    queues = node.queue_collection.values()
    return sum(queue.message_count for queue in queues if isinstance(queue, OutgoingQueue))


async def test_what_waits_for_the_disk_when_its_session_breaks_is_not_overtaken_in_the_next(pair: Pair) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    await send_in_transaction(pair.alice, name, [Message(b"0")])
    assert await bodies(pair.bob, TRANSACTIONAL, 1) == [b"0"]
    (queue_sender,) = queue_senders(pair.alice)
    with SlowDisk(queue_sender) as disk:
        await send_in_transaction(pair.alice, name, [Message(b"1"), Message(b"2")])
        await eventually(lambda: len(disk.waiting) == 1)
        first = queue_sender.queue_connection.connection
        assert first is not None
        first.close()
        await eventually(
            lambda: (
                queue_sender.queue_connection.connection not in (None, first)
                and queue_sender.queue_connection.connection.room() > 0
            )
        )
        await send_in_transaction(pair.alice, name, [Message(b"3")])
        await asyncio.sleep(0)
    assert await bodies(pair.bob, TRANSACTIONAL, 3) == [b"1", b"2", b"3"]
    await eventually(lambda: not waiting(pair.alice))


async def test_what_waits_for_the_disk_is_not_overtaken_when_all_is_on_disk(pair: Pair) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    await send_in_transaction(pair.alice, name, [Message(b"0")])
    assert await bodies(pair.bob, TRANSACTIONAL, 1) == [b"0"]
    (queue_sender,) = queue_senders(pair.alice)
    with SlowDisk(queue_sender) as disk:
        await send_in_transaction(pair.alice, name, [Message(b"1")])
        await eventually(lambda: len(disk.waiting) == 1)
        queue_sender._state = _Replaced(  # type: ignore[assignment]
            queue_sender._state, store=SimpleNamespace(durable=lambda: None, pending=lambda: None)
        )
        await send_in_transaction(pair.alice, name, [Message(b"2")])
        await asyncio.sleep(0)
    assert await bodies(pair.bob, TRANSACTIONAL, 2) == [b"1", b"2"]


async def test_a_message_whose_place_is_acknowledged_does_not_wait_for_ever(pair: Pair) -> None:
    """Nor do those behind it."""
    await pair.stop("BOB")
    settings = settings_of("BOB", pair.addresses["BOB"])
    late = TransferSettings(retry_interval=0.1, retry_maximum=0.2, order_ack_timeout=10)
    bob = await QueueManager.open(pair.folder / "BOB", settings.model_copy(update={"transfer": late}))
    pair.nodes["BOB"] = bob
    await bob.network.start()
    await send_in_transaction(
        pair.alice, pair.direct("BOB", TRANSACTIONAL), [Message(b"%d" % number) for number in range(3)]
    )
    assert await bodies(bob, TRANSACTIONAL, 3) == [b"0", b"1", b"2"]
    state = pair.alice.network.state
    (sequence,) = state.outgoing
    assert waiting(pair.alice) == 3
    sequence.acknowledged = 2
    state.changed(sequence)
    await pair.stop("ALICE")
    await pair.start("ALICE")
    await eventually(lambda: not waiting(pair.alice))
    assert not (await bob.queue(TRANSACTIONAL)).message_count


async def test_a_node_that_starts_says_again_what_it_had_accepted(pair: Pair) -> None:
    """Its word may have been lost with it, and its sender asks again only after a long time."""
    async with await pair.alice.open_queue(pair.direct("BOB", TRANSACTIONAL), Access.SEND):
        pass
    await pair.stop("BOB")
    settings = settings_of("BOB", pair.addresses["BOB"])
    never = TransferSettings(retry_interval=0.1, retry_maximum=0.2, order_ack_timeout=3600)
    bob = await QueueManager.open(pair.folder / "BOB", settings.model_copy(update={"transfer": never}))
    pair.nodes["BOB"] = bob
    await bob.network.start()
    await send_in_transaction(pair.alice, pair.direct("BOB", TRANSACTIONAL), [Message(b"0")])
    assert await bodies(bob, TRANSACTIONAL, 1) == [b"0"]
    assert waiting(pair.alice) == 1
    (queue_sender,) = queue_senders(pair.alice)
    queue_sender.queue_connection.disconnect()  # it does not send again
    await pair.stop("BOB")
    await pair.start("BOB")
    await eventually(lambda: not waiting(pair.alice))
