"""Random work on one queue, step by step beside a plain list that says what must be there."""

import random

import pytest

from qmnode import Access, Message, MessageQueuingError, Settings
from qmnode.structures.error_codes import ErrorCode
from tests.model.conftest import FakeClock, Node

NAME = r"DIRECT=OS:.\private$\q"


class Expected:
    """The specification's list: messages in the order of delivery, and who holds them."""

    def __init__(self):
        self.messages: dict[int, tuple[bytes, bool]] = {}
        self.held: dict[int, object] = {}

    def available(self) -> list[int]:
        return sorted(self.messages.keys() - self.held.keys())


class Work:
    def __init__(self, node: Node, seed: int, transactional: bool) -> None:
        self.node, self.random, self.transactional = node, random.Random(seed), transactional
        self.expected = Expected()
        self.transactions: list = []
        self.sent = 0

    async def start(self) -> None:
        await self.node.start()
        await self.node.qm.create_queue(r".\private$\q", transactional=self.transactional)
        await self.open()

    async def open(self) -> None:
        self.send_queue = await self.node.qm.open_queue(NAME, Access.SEND)
        self.queue = await self.node.qm.open_queue(NAME)

    def transaction(self):
        if not self.transactions or self.random.random() < 0.3:
            self.transactions.append((self.node.qm.transaction(), []))
        return self.random.choice(self.transactions)

    def message(self) -> Message:
        self.sent += 1
        size = self.random.choice((10, 100, 3000))
        return Message(
            b"<%d>" % self.sent + bytes(size),
            priority=self.random.choice((3, 3, 3, 0, 7)),
            recoverable=self.random.random() < 0.6,
        )

    async def _found(self, body: bytes) -> int:
        """The lookup identifier that the queue gave the message, which the list does not know yet."""
        queue = self.node.qm.names.find(NAME)
        for lookup, value in queue.scan():
            if lookup not in self.expected.messages and body in value:
                return lookup
        raise AssertionError(f"{body!r} is not in the queue")

    async def send(self) -> None:
        messages = [self.message() for _ in range(self.random.choice((1, 1, 5, 40)))]
        if self.transactional and self.random.random() < 0.5:
            tx, sent = self.transaction()
            await self.send_queue.send_many(messages, transaction=tx)
            sent += [message.body for message in messages]
            return
        await self.send_queue.send_many(messages, transaction="single" if self.transactional else None)
        known = set(self.expected.messages)
        entries = [entry for entry in self.node.qm.names.find(NAME).scan() if entry[0] not in known]
        assert len(entries) == len(messages)
        bodies = {message.body: message for message in messages}
        for lookup, value in entries:
            body = next(body for body in bodies if body in value)
            message = bodies.pop(body)
            self.expected.messages[lookup] = body, message.recoverable or self.transactional

    async def receive(self) -> None:
        limit = self.random.choice((1, 1, 3, 30))
        available = self.expected.available()
        unit = None
        if self.transactional and self.random.random() < 0.6:
            unit = self.transaction()
        try:
            messages = await self.queue.receive_many(limit, timeout=0, transaction=unit[0] if unit else None)
        except MessageQueuingError as error:
            assert error.code is ErrorCode.MQ_ERROR_IO_TIMEOUT
            assert available == []
            return
        found = [message.lookup_identifier for message in messages]
        assert found == available[:limit]
        for message in messages:
            assert message.body == self.expected.messages[message.lookup_identifier][0]
            if unit:
                self.expected.held[message.lookup_identifier] = unit[0]
            else:
                del self.expected.messages[message.lookup_identifier]

    async def receive_one_of_them(self) -> None:
        available = self.expected.available()
        if available:
            lookup = self.random.choice(available)
            message = await self.queue.receive_by_lookup_id(lookup)
            assert message.body == self.expected.messages.pop(lookup)[0]

    async def look(self) -> None:
        available = self.expected.available()
        if not available:
            with pytest.raises(MessageQueuingError):
                await self.queue.peek(timeout=0)
            return
        assert (await self.queue.peek(timeout=0)).lookup_identifier == available[0]
        assert (await self.queue.peek_by_lookup_id(seek="last")).lookup_identifier == available[-1]
        at = self.random.randrange(len(available))
        for seek, index in (("next", at + 1), ("prev", at - 1)):
            if 0 <= index < len(available):
                found = await self.queue.peek_by_lookup_id(available[at], seek)
                assert found.lookup_identifier == available[index]

    async def walk(self) -> None:
        cursor = self.queue.cursor()
        for number, lookup in enumerate(self.expected.available()[:50]):
            message = await (cursor.peek_next(timeout=0) if number else cursor.peek(timeout=0))
            assert message.lookup_identifier == lookup
        await cursor.close()

    async def end_a_transaction(self) -> None:
        if not self.transactions:
            return
        tx, sent = self.transactions.pop(self.random.randrange(len(self.transactions)))
        held = [lookup for lookup, holder in self.expected.held.items() if holder is tx]
        for lookup in held:
            del self.expected.held[lookup]
        if self.random.random() < 0.5:
            await tx.abort()
            return
        await tx.commit()
        for lookup in held:
            del self.expected.messages[lookup]
        for body in sent:
            self.expected.messages[await self._found(body)] = body, True

    async def purge(self) -> None:
        if self.random.random() < 0.9 or self.expected.held:
            return
        await self.queue.purge()
        self.expected.messages.clear()

    async def restart(self) -> None:
        if self.random.random() < 0.5:
            return
        crash = self.random.random() < 0.5
        await (self.node.crash() if crash else self.node.restart())
        self.transactions.clear()
        self.expected.held.clear()
        for lookup in [one for one, (_, recoverable) in self.expected.messages.items() if not recoverable]:
            del self.expected.messages[lookup]
        await self.open()

    async def check_counts(self) -> None:
        info = await self.node.qm.queue(NAME)
        assert info.message_count == len(self.expected.messages)

    async def run(self, steps: int) -> None:
        kinds = [self.send] * 6 + [self.receive] * 8 + [self.receive_one_of_them] * 3 + [self.look] * 4
        kinds += [self.walk, self.purge, self.end_a_transaction, self.end_a_transaction, self.end_a_transaction]
        for step in range(steps):
            await self.random.choice(kinds)()
            await self.check_counts()
            if step % 60 == 59:
                await self.restart()
        for tx, _ in self.transactions:
            await tx.abort()
        await self.node.qm.close()
        from qmnode.storage.verification import verify

        assert verify(self.node.path).findings == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
async def test_a_queue_has_at_every_step_what_it_should_have(tmp_path, seed, transactional):
    settings = Settings(
        computer_name="ALPHA",
        storage={"sync": "thread" if seed % 2 else "inline"},
        read_ahead={"messages": 7 + seed * 20, "queue_bytes": 20_000, "total_bytes": 50_000},
    )
    work = Work(Node(tmp_path / "n", FakeClock(), settings), seed, transactional)
    await work.start()
    await work.run(240)
