"""A node and the reference, kept side by side: doing the same to both, and comparing them after each step."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
)

from qmnode import Access, Message, MessageQueuingError, Settings
from qmnode.model.api import CursorApi, QueueApi, TransactionApi
from qmnode.settings.node import ReadAheadSettings, StorageSettings
from qmnode.storage.verification import verify
from tests.model.conftest import FakeClock, Node
from tests.model.reference import (
    Cursor,
    Position,
    Queue,
    Reference,
    Refused,
    Unit,
    Waiter,
)

BODY: Final = 4000
"""Bytes of a body for the queue with a quota: four of them are more than its 16 KB, three are not."""
FULL: Final = 3
SUBQUEUE: Final = ";side"
STEPS: Final = 60
PASSES: Final = 6
"""Passes of the event loop in which every read that was served returns."""

numbers = st.integers(0, 1 << 16)
"""Choose among what there is: the number modulo how many there are."""


class SideBySide(RuleBasedStateMachine):
    """What the rules stand on."""

    steps = 0
    """Of all examples together."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        # In memory where there is such a place: what syncing does is tests/crash's subject.
        place = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = tempfile.TemporaryDirectory(prefix="qmnode-reference-", dir=place)
        self.clock = FakeClock()
        self.node: Node
        self.bodies = 0
        self.age = 0
        """Steps since the node was started."""
        self.handles: dict[tuple[str, Access], QueueApi] = {}
        self.cursors: list[tuple[CursorApi, Cursor]] = []
        self.units: list[tuple[TransactionApi, Unit]] = []
        self.waiters: list[tuple[asyncio.Task[Message], Waiter]] = []
        self.begun: list[tuple[QueueApi, Queue, Position, object]] = []
        queues = [
            Queue("plain"),
            Queue("journaled", journaling=True),
            Queue("small", limit=FULL),
            Queue("unit", transactional=True),
            Queue("unitjournaled", transactional=True, journaling=True),
            Queue("plain" + SUBQUEUE),
            Queue("unit" + SUBQUEUE, transactional=True),
        ]
        self.reference = Reference(queues, self.clock.now)
        self.plain = [queue for queue in queues if not queue.transactional and SUBQUEUE not in queue.name]
        self.transactional = [queue for queue in queues if queue.transactional]
        self.all = queues
        self.movable = [queue for queue in queues if queue.name.partition(";")[0] in ("plain", "unit")]

    # Running both

    def run(self, awaitable: Awaitable[Any]) -> Any:
        async def wrapped() -> Any:
            return await awaitable

        return self.loop.run_until_complete(wrapped())

    def same(self, call: Callable[[], Awaitable[Any]], expected: Callable[[], Any]) -> tuple[Any, Any]:
        """Do both. The results, or Nones if both refused for the same reason."""
        try:
            wanted, code = expected(), None
        except Refused as refused:
            wanted, code = None, refused.code
        try:
            got = self.run(call())
        except MessageQueuingError as error:
            assert code is not None, f"the node refused: {error}; the reference has {wanted}"
            assert error.code is code, f"the node refused: {error}; the reference says {code.name}"
            return None, None
        assert code is None, f"the node answered {got}; the reference says {code.name}"
        return got, wanted

    def agree(self, message: Message, position: Position) -> None:
        """A message that the node returned is that of the reference."""
        assert message.body == position.body
        assert position.lookup in (None, message.lookup_identifier)
        position.lookup = message.lookup_identifier
        assert (message.aborted_receives, message.move_count) == (position.aborts, position.moves)
        assert message.priority == 7 - position.key[0]

    def settle(self) -> None:
        """Everything that can go on has gone on."""

        async def passes() -> None:
            for _ in range(PASSES):
                await asyncio.sleep(0)

        self.loop.run_until_complete(passes())
        waiting = []
        for task, waiter in self.waiters:
            if waiter.outcome is None:
                assert not task.done(), f"a read of {waiter.queue.name} should still wait: {task}"
                waiting.append((task, waiter))
                continue
            assert task.done(), f"a read of {waiter.queue.name} should have ended: {waiter.outcome!r}"
            error = task.exception()
            if isinstance(error, MessageQueuingError):
                assert error.code is waiter.outcome
            else:
                assert task.result().body == waiter.outcome
        self.waiters = waiting

    @staticmethod
    def format_name(queue: Queue) -> str:
        return rf"DIRECT=OS:.\private${chr(92)}{queue.name}"

    def handle(self, queue: Queue, access: Access = Access.RECEIVE) -> QueueApi:
        found = self.handles.get((queue.name, access))
        if found is None:
            found = self.run(self.node.qm.open_queue(self.format_name(queue), access))
            self.handles[queue.name, access] = found
        return found

    def body(self) -> bytes:
        self.bodies += 1
        return b"%d" % self.bodies

    # Beginning and ending

    @initialize(window=st.sampled_from([1, 2, 3, 256]), window_bytes=st.sampled_from([1, 600, 1 << 20]), block=numbers)
    def open(self, window: int, window_bytes: int, block: int) -> None:
        settings = Settings(
            computer_name="ALPHA",
            read_ahead=ReadAheadSettings(messages=window, queue_bytes=window_bytes),
            storage=StorageSettings(identifier_block=4 + block % 60),
        )
        self.node = Node(Path(self.folder.name) / "node", self.clock, settings)
        self.run(self.node.start())
        for queue in self.all:
            more: dict[str, Any] = {"transactional": True} if queue.transactional else {}
            if SUBQUEUE in queue.name:
                more = {}
            if queue.journaling:
                more["journaling"] = True
            if queue.limit is not None:
                more["quota"] = 16
            self.run(self.node.qm.create_queue(rf".\private${chr(92)}{queue.name}", **more))

    def teardown(self) -> None:
        if not hasattr(self, "node"):
            return
        try:
            if sys.exc_info()[0] is None:  # nothing was wrong until now
                self._drain()
                self.run(self.node.qm.close())
                found = verify(self.node.path).findings
                assert not found, list(map(str, found))
        finally:
            for task, _ in self.waiters:
                task.cancel()
            self.settle_quietly()
            self.run(self.node.qm.close())
            self.loop.close()
            self.folder.cleanup()

    def settle_quietly(self) -> None:
        with contextlib.suppress(AssertionError):
            self.settle()

    def _drain(self) -> None:
        """What is received at last is all there is, in order."""
        if self.waiters:
            return
        for queue in self.all:
            expected = [one.body for one in queue.positions if one.available]
            received: list[bytes] = []
            with contextlib.suppress(MessageQueuingError):
                while True:
                    received += [one.body for one in self.run(self.handle(queue).receive_many(3, timeout=0))]
            assert received == expected

    # Always

    @invariant()
    def contents_agree(self) -> None:
        if not hasattr(self, "node"):
            return
        SideBySide.steps += 1
        self.age += 1
        self.settle()
        qm = self.node.qm
        used = 0
        for queue in self.all:
            real = qm.names.find(self.format_name(queue))
            available = list(real.scan())
            assert len(available) == sum(one.available for one in queue.positions), queue.name
            assert real.message_count == len(queue.positions), queue.name
            for (lookup, _), position in zip(available, [one for one in queue.positions if one.available], strict=True):
                assert position.lookup in (None, lookup), queue.name
            journal = list(real.journal.scan()) if real.has_journal else []
            assert len(journal) == len(queue.journal), f"the journal of {queue.name}"
            used += real.total_bytes + real.reserved_bytes
        for letters, reference_letters in (
            (qm.queue_collection.dead_letter, self.reference.dead_letter),
            (qm.queue_collection.transactional_dead_letter, self.reference.transactional_dead_letter),
        ):
            assert len(list(letters.scan())) == len(reference_letters.positions)
            assert letters.message_count == len(reference_letters.positions)
            used += letters.total_bytes
        assert qm.quotas.used == used
