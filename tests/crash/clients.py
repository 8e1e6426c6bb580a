"""Applications that send, receive, move and purge at random, and write down what they asked and what was answered."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from qmnode import Access, Message, MessageQueuingError
from qmnode.local.remote import RemoteQueueManager
from qmnode.model.api import QueueApi, Seek, TransactionApi
from qmnode.storage.large_messages import SMALLEST
from qmnode.structures.error_codes import ErrorCode
from tests.crash.ledger import Ledger, Sent, State, Unit

PLAIN: Final = r".\private$\plain"
JOURNALED: Final = r".\private$\journaled"
FIRST, SECOND = r".\private$\first", r".\private$\second"
TRANSACTIONAL: Final = (FIRST, SECOND)
SIDE: Final = ";side"
"""The subqueue of each queue that messages are moved to."""
CLIENTS: Final = 5
LARGE: Final = 0.05
"""The part of large messages."""
OWN: Final = tuple(rf".\private$\own{number}" for number in range(CLIENTS))
"""Queues of one client each, which it purges."""
QUEUES: Final = (PLAIN, JOURNALED, *TRANSACTIONAL, *OWN)
WITH_SIDE: Final = (PLAIN, *TRANSACTIONAL)
CONTENTS: Final = (*QUEUES, *(queue + SIDE for queue in WITH_SIDE))
_NOTHING_THERE: Final = (
    ErrorCode.MQ_ERROR_IO_TIMEOUT,
    ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
    ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
)
"""What a read by lookup identifier, or of an empty queue, may answer when others were faster."""


class Gone(Exception):
    """The node no longer answers."""


@contextlib.asynccontextmanager
async def asking() -> AsyncIterator[None]:
    """Tell a node that is gone from one that refuses."""
    try:
        yield
    except MessageQueuingError as error:
        if error.code is ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE:
            raise Gone from error
        raise


async def create_queues(qm: RemoteQueueManager) -> None:
    """Create all queues that are not there."""
    for queue in QUEUES:
        with contextlib.suppress(MessageQueuingError):
            await qm.create_queue(queue, transactional=queue in TRANSACTIONAL, journaling=queue == JOURNALED)
    for queue in WITH_SIDE:
        with contextlib.suppress(MessageQueuingError):
            await qm.create_queue(queue + SIDE)


async def contents(qm: RemoteQueueManager, queue: str, suffix: str = "") -> list[bytes]:
    """The bodies of all messages in a queue, first to last."""
    bodies = []
    async with await qm.open_queue(f"DIRECT=OS:{queue}{suffix}", Access.PEEK) as source, source.cursor() as cursor:
        step = cursor.peek
        while True:
            try:
                bodies.append((await step(timeout=0)).body)
            except MessageQueuingError as error:
                if error.code is ErrorCode.MQ_ERROR_IO_TIMEOUT:
                    return bodies
                raise
            step = cursor.peek_next


class Client:
    """One application."""

    def __init__(self, number: int, qm: RemoteQueueManager, ledger: Ledger, seed: int) -> None:
        self.number = number
        self.qm = qm
        self.ledger = ledger
        self.random = random.Random(seed)
        self._senders: dict[str, QueueApi] = {}
        self._receivers: dict[str, QueueApi] = {}
        self._targets: dict[str, QueueApi] = {}

    async def run(self) -> None:
        """Work until the node is gone."""
        acts: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self.send),
            (3, self.send_many),
            (2, self.send_at_once),
            (4, self.receive),
            (2, self.receive_in_two_steps),
            (8, self.transact),
            (2, self.send_single),
            (2, self.move),
            (1, self.purge),
            (1, self.peek),
        ]
        weights = [weight for weight, _ in acts]
        with contextlib.suppress(Gone):
            async with asking():
                await self._open()
            while True:
                await self.random.choices(acts, weights)[0][1]()

    async def _open(self) -> None:
        for queue in CONTENTS:
            self._receivers[queue] = await self.qm.open_queue(f"DIRECT=OS:{queue}", Access.RECEIVE)
            if SIDE not in queue:
                self._senders[queue] = await self.qm.open_queue(f"DIRECT=OS:{queue}", Access.SEND)
            if queue not in OWN and queue != JOURNALED:
                self._targets[queue] = await self.qm.open_queue(f"DIRECT=OS:{queue}", Access.MOVE)

    # Sending

    def _message(self, unit: Unit, queue: str) -> tuple[Sent, Message]:
        transactional = queue in TRANSACTIONAL
        express = queue == PLAIN and self.random.random() < 0.3
        priority = 0 if transactional else self.random.choice((3, 3, 3, 0, 5, 7))
        size = self.random.choice((10, 200, 1000, 1000, 4000, 20000))
        if self.random.random() < LARGE:  # in a file of its own
            size = self.random.choice((SMALLEST - 300, SMALLEST, SMALLEST * 3 // 2, SMALLEST * 3, SMALLEST * 8))
        sent = self.ledger.sending(unit, self.number, queue, priority, size, express)
        return sent, Message(sent.body, priority=priority, recoverable=not express, label=str(sent.number))

    def _any_plain(self) -> str:
        return self.random.choice((PLAIN, PLAIN, JOURNALED, OWN[self.number]))

    async def _send(self, queue: str, count: int, transaction: str | None = None) -> None:
        """As one unit."""
        unit = self.ledger.unit()
        unit.state = State.COMMITTING
        messages = [self._message(unit, queue)[1] for _ in range(count)]
        async with asking():
            sender = self._senders[queue]
            if count == 1:
                identifiers = [await sender.send(messages[0], transaction=transaction)]  # type: ignore[arg-type]
            else:
                identifiers = await sender.send_many(messages, transaction=transaction)  # type: ignore[arg-type]
        self.ledger.identified(identifiers)
        self.ledger.committed(unit)

    async def send(self) -> None:
        """One message."""
        await self._send(self._any_plain(), 1)

    async def send_many(self) -> None:
        """Some messages as one."""
        await self._send(self._any_plain(), self.random.randint(2, 12))

    async def send_at_once(self) -> None:
        """Some messages at the same time, each for itself."""
        queue = self._any_plain()
        answers = await asyncio.gather(*(self._send(queue, 1) for _ in range(8)), return_exceptions=True)
        for answer in answers:
            if answer is not None:
                raise answer

    async def send_single(self) -> None:
        """In a transaction of its own."""
        await self._send(self.random.choice(TRANSACTIONAL), self.random.randint(1, 3), "single")

    # Receiving

    def _done(self) -> Unit:
        """A unit for what is done when it is answered."""
        unit = self.ledger.unit()
        self.ledger.committed(unit)
        return unit

    async def receive(self) -> None:
        """A few messages."""
        queue = self.random.choice((PLAIN, PLAIN, JOURNALED, PLAIN + SIDE, *TRANSACTIONAL))
        limit = self.random.randint(1, 12)
        self.ledger.blind_takes[queue] += limit
        async with asking():
            try:
                messages = await self._receivers[queue].receive_many(limit, timeout=0)
            except MessageQueuingError as error:
                if error.code not in _NOTHING_THERE:
                    raise
                messages = []
        self.ledger.blind_takes[queue] -= limit
        self.ledger.received(self._done(), queue, [message.body for message in messages])

    async def receive_in_two_steps(self) -> None:
        """Begin, look, and take it or leave it."""
        queue = self.random.choice((PLAIN, JOURNALED))
        receiver = self._receivers[queue]
        unit = self.ledger.unit()
        self.ledger.blind_locks[queue] += 1
        async with asking():
            try:
                message = await receiver.receive_begin(timeout=0)
            except MessageQueuingError as error:
                if error.code not in _NOTHING_THERE:
                    raise
                self.ledger.blind_locks[queue] -= 1
                self.ledger.aborted(unit)
                return
            self.ledger.blind_locks[queue] -= 1
            self.ledger.received(unit, queue, [message.body])
            delete = self.random.random() < 0.7
            unit.state = State.COMMITTING if delete else State.ABORTING
            await receiver.receive_end(message.lookup_identifier, delete)
        (self.ledger.committed if delete else self.ledger.aborted)(unit)

    async def peek(self) -> None:
        """Look at the first message."""
        queue = self.random.choice(CONTENTS)
        asked = self.ledger.now()
        async with asking():
            message = await self._found(self._receivers[queue].peek(timeout=0))
        if message is not None:
            self.ledger.seen(queue, message.body, asked)

    @staticmethod
    async def _found(read: Awaitable[Message]) -> Message | None:
        try:
            return await read
        except MessageQueuingError as error:
            if error.code in _NOTHING_THERE:
                return None
            raise

    # Transactions

    async def transact(self) -> None:
        """Send, receive and move in one transaction, and commit it or not."""
        unit = self.ledger.unit()
        transaction = self.qm.transaction()
        async with asking():
            for _ in range(self.random.randint(1, 5)):
                steps = (self._send_in, self._send_in, self._receive_in, self._receive_in, self._move_in)
                await self.random.choice(steps)(unit, transaction)
            if self.random.random() < 0.75:
                unit.state = State.COMMITTING
                await transaction.commit()
                self.ledger.committed(unit)
            else:
                unit.state = State.ABORTING
                await transaction.abort()
                self.ledger.aborted(unit)

    async def _send_in(self, unit: Unit, transaction: TransactionApi) -> None:
        queue = self.random.choice(TRANSACTIONAL)
        messages = [self._message(unit, queue)[1] for _ in range(self.random.randint(1, 3))]
        self.ledger.identified(await self._senders[queue].send_many(messages, transaction=transaction))

    async def _receive_in(self, unit: Unit, transaction: TransactionApi) -> None:
        queue = self.random.choice((*TRANSACTIONAL, *TRANSACTIONAL, FIRST + SIDE))
        limit = self.random.randint(1, 4)
        self.ledger.blind_locks[queue] += limit
        try:
            messages = await self._receivers[queue].receive_many(limit, timeout=0, transaction=transaction)
        except MessageQueuingError as error:
            if error.code not in _NOTHING_THERE:
                raise
            messages = []
        self.ledger.blind_locks[queue] -= limit
        self.ledger.received(unit, queue, [message.body for message in messages])

    async def _move_in(self, unit: Unit, transaction: TransactionApi) -> None:
        queue = self.random.choice(TRANSACTIONAL)
        await self._move(unit, queue, transaction)

    async def move(self) -> None:
        """To the subqueue or back, at once."""
        unit = self.ledger.unit()
        async with asking():
            moved = await self._move(unit, PLAIN, None)
        if moved:
            self.ledger.committed(unit)
        else:
            self.ledger.aborted(unit)

    async def _move(self, unit: Unit, queue: str, transaction: TransactionApi | None) -> bool:
        source, target = (queue, queue + SIDE) if self.random.random() < 0.6 else (queue + SIDE, queue)
        end: Seek = "first" if self.random.random() < 0.5 else "last"
        asked = self.ledger.now()
        message = await self._found(self._receivers[source].peek_by_lookup_id(seek=end))
        if message is None:
            return False
        sent = self.ledger.seen(source, message.body, asked)
        if sent is None or sent.place != source or sent.taken_by is not None:
            return False
        self.ledger.moving(unit, sent, target)
        if transaction is None:
            unit.state = State.COMMITTING
        try:
            await self._receivers[source].move(message.lookup_identifier, self._targets[target], transaction)
        except MessageQueuingError as error:
            if error.code not in _NOTHING_THERE:
                raise
            unit.moved.pop()
            return False
        self.ledger.moved(unit, sent)
        return True

    # Purging

    async def purge(self) -> None:
        """All messages of the queue that nobody else uses."""
        queue = OWN[self.number]
        unit = self.ledger.unit()
        unit.taken = [message for message in self.ledger.messages.values() if message.place == queue]
        unit.state = State.COMMITTING
        async with asking():
            await self._receivers[queue].purge()
        self.ledger.committed(unit)
