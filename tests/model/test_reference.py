"""The node beside a simple model of the specification: both do the same at random, and must always agree.

Hypothesis chooses the steps and, when the two disagree, searches for the shortest way there. ``--hypothesis-seed=N``
does the same steps again.
"""

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    precondition,
    rule,
    run_state_machine_as_test,
)

from qmnode import Access, Message, MessageQueuingError
from qmnode.model.api import TransactionApi
from qmnode.structures.error_codes import ErrorCode
from tests.model.reference import (
    LOCKED,
    NOT_FOUND,
    START,
    Cursor,
    Position,
    Queue,
    Refused,
    Unit,
    Waiter,
)
from tests.model.side_by_side import BODY, STEPS, SUBQUEUE, SideBySide, numbers

pytestmark = pytest.mark.slow


class Machine(SideBySide):
    """The rules."""

    # Sending

    @rule(
        which=numbers,
        count=st.integers(1, 3),
        priority=st.integers(0, 7),
        recoverable=st.booleans(),
        lifetime=st.none() | st.integers(1, 20),
        peek_when_locked=st.booleans(),
        dead_letter=st.booleans(),
    )
    def send(
        self,
        which: int,
        count: int,
        priority: int,
        recoverable: bool,
        lifetime: int | None,
        peek_when_locked: bool,
        dead_letter: bool,
    ) -> None:
        queue = self.plain[which % len(self.plain)]
        bodies = [self.body() for _ in range(count)]
        if queue.limit is not None:
            bodies = [body.ljust(BODY) for body in bodies]
        more: dict[str, Any] = {} if lifetime is None else {"time_to_be_received": lifetime}
        messages = [
            Message(
                body,
                priority=priority,
                recoverable=recoverable,
                allow_peek_when_locked=peek_when_locked,
                negative_journaling_requested=dead_letter,
                **more,
            )
            for body in bodies
        ]

        def expected() -> None:
            self.reference.check_quota(queue, count)
            for body in bodies:
                position = self.reference.position(
                    body,
                    priority,
                    lifetime,
                    express=not recoverable,
                    peek_when_locked=peek_when_locked,
                    dead_letter=dead_letter,
                )
                self.reference.arrive(queue, position)

        sender = self.handle(queue, Access.SEND)
        self.same(lambda: sender.send(messages[0]) if count == 1 else sender.send_many(messages), expected)

    @rule(
        which=numbers,
        unit=numbers,
        lifetime=st.none() | st.integers(1, 20),
        peek_when_locked=st.booleans(),
        dead_letter=st.booleans(),
    )
    @precondition(lambda self: self.units)
    def send_in(self, which: int, unit: int, lifetime: int | None, peek_when_locked: bool, dead_letter: bool) -> None:
        queue = self.transactional[which % 2]
        transaction, reference_unit = self.units[unit % len(self.units)]
        more: dict[str, Any] = {} if lifetime is None else {"time_to_be_received": lifetime}
        body = self.body()
        message = Message(
            body, allow_peek_when_locked=peek_when_locked, negative_journaling_requested=dead_letter, **more
        )
        self.run(self.handle(queue, Access.SEND).send(message, transaction=transaction))
        position = self.reference.position(
            body, 0, lifetime, peek_when_locked=peek_when_locked, dead_letter=dead_letter, transactional=True
        )
        self.reference.send_in(reference_unit, queue, position)

    @rule(which=numbers)
    def send_single(self, which: int) -> None:
        queue = self.transactional[which % 2]
        body = self.body()
        self.run(self.handle(queue, Access.SEND).send(Message(body), transaction="single"))
        self.reference.arrive(queue, self.reference.position(body, 0, transactional=True))

    # Receiving

    def choose_unit(self, queue: Queue, unit: int) -> tuple[TransactionApi | None, Unit | None]:
        """None two times in three, or when there is none."""
        if not queue.transactional or not self.units or unit % 3:
            return None, None
        return self.units[unit % len(self.units)]

    @rule(which=numbers, unit=numbers, limit=st.integers(1, 4))
    def receive(self, which: int, unit: int, limit: int) -> None:
        queue = self.all[which % len(self.all)]
        transaction, reference_unit = self.choose_unit(queue, unit)

        def expected() -> list[Position]:
            taken = [self.reference.first(queue)]
            self.reference.take(queue, taken[0], reference_unit)
            for _ in range(limit - 1):
                with contextlib.suppress(Refused):
                    taken.append(self.reference.first(queue))
                    self.reference.take(queue, taken[-1], reference_unit)
            return taken

        receiver = self.handle(queue)
        if limit == 1:
            got, wanted = self.same(lambda: receiver.receive(timeout=0, transaction=transaction), expected)
            got = [got]
        else:
            got, wanted = self.same(lambda: receiver.receive_many(limit, timeout=0, transaction=transaction), expected)
        if wanted is not None:
            assert len(got) == len(wanted)
            for message, position in zip(got, wanted, strict=True):
                self.agree(message, position)

    @rule(which=numbers)
    def peek(self, which: int) -> None:
        queue = self.all[which % len(self.all)]
        message, position = self.same(
            lambda: self.handle(queue).peek(timeout=0), lambda: self.reference.first(queue, peek=True)
        )
        if position is not None:
            self.agree(message, position)

    @rule(which=numbers, unit=numbers, seconds=st.integers(1, 12), destructive=st.booleans())
    def wait(self, which: int, unit: int, seconds: int, destructive: bool) -> None:
        """A read that waits, in a queue with nothing to read."""
        queue = self.all[which % len(self.all)]
        transaction, reference_unit = self.choose_unit(queue, unit)
        if queue.after(START, peek=not destructive) is not None:
            return
        receiver = self.handle(queue)
        read = receiver.receive(timeout=seconds, transaction=transaction) if destructive else receiver.peek(seconds)
        waiter = Waiter(queue, self.reference.now + seconds, destructive, reference_unit if destructive else None)
        queue.waiting.append(waiter)
        self.waiters.append((self.loop.create_task(read), waiter))  # type: ignore[arg-type]

    @rule(which=numbers)
    @precondition(lambda self: self.waiters)
    def cancel(self, which: int) -> None:
        task, waiter = self.waiters.pop(which % len(self.waiters))
        task.cancel()
        waiter.queue.waiting.remove(waiter)
        if waiter.cursor is not None:
            waiter.cursor.at = None
        self.settle()
        assert task.cancelled()

    @rule(which=numbers)
    def begin(self, which: int) -> None:
        queue = self.all[which % len(self.all)]
        receiver = self.handle(queue)
        token = object()

        def expected() -> Position:
            position = self.reference.first(queue)
            position.holder = token
            return position

        message, position = self.same(lambda: receiver.receive_begin(timeout=0), expected)
        if position is not None:
            self.agree(message, position)
            self.begun.append((receiver, queue, position, token))

    @rule(which=numbers, delete=st.booleans())
    @precondition(lambda self: self.begun)
    def end(self, which: int, delete: bool) -> None:
        receiver, queue, position, token = self.begun.pop(which % len(self.begun))
        assert position.holder is token
        assert position.lookup is not None
        self.run(receiver.receive_end(position.lookup, delete))
        if delete and not position.purge_pending:
            self.reference.delete(queue, position)
        else:  # what was purged meanwhile is released to nowhere
            self.reference.release(queue, position)

    # Cursors and lookup identifiers

    @rule(which=numbers)
    def open_cursor(self, which: int) -> None:
        queue = self.all[which % len(self.all)]
        self.cursors.append((self.handle(queue).cursor(), Cursor(queue)))

    @rule(which=numbers, step=st.sampled_from(["peek", "peek_next"]))
    @precondition(lambda self: self.cursors)
    def cursor_peek(self, which: int, step: str) -> None:
        cursor, reference_cursor = self.cursors[which % len(self.cursors)]
        if self._waits(reference_cursor):
            return
        message, position = self.same(
            lambda: getattr(cursor, step)(timeout=0), lambda: getattr(reference_cursor, step)()
        )
        if position is not None:
            self.agree(message, position)

    def _waits(self, cursor: Cursor) -> bool:
        return any(waiter.cursor is cursor for _, waiter in self.waiters)

    @rule(which=numbers, unit=numbers)
    @precondition(lambda self: self.cursors)
    def cursor_receive(self, which: int, unit: int) -> None:
        cursor, reference_cursor = self.cursors[which % len(self.cursors)]
        if self._waits(reference_cursor):
            return
        queue = reference_cursor.queue
        transaction, reference_unit = self.choose_unit(queue, unit)

        def expected() -> Position:
            position = reference_cursor.for_receive()
            self.reference.take(queue, position, reference_unit)
            return position

        message, position = self.same(lambda: cursor.receive(timeout=0, transaction=transaction), expected)
        if position is not None:
            self.agree(message, position)

    @rule(which=numbers, seconds=st.integers(1, 12), step=st.sampled_from(["peek", "peek_next", "receive"]))
    @precondition(lambda self: self.cursors)
    def cursor_wait(self, which: int, seconds: int, step: str) -> None:
        """A cursor behind the last message waits for the next."""
        cursor, reference_cursor = self.cursors[which % len(self.cursors)]
        queue = reference_cursor.queue
        if self._waits(reference_cursor) or (reference_cursor.at is None) is (step == "peek_next"):
            return
        if step != "peek_next" and reference_cursor.at is not None:
            return
        if queue.after(reference_cursor.key, peek=step != "receive") is not None:
            return
        waiter = Waiter(queue, self.reference.now + seconds, step == "receive", None, reference_cursor)
        queue.waiting.append(waiter)
        self.waiters.append((self.loop.create_task(getattr(cursor, step)(timeout=seconds)), waiter))

    @rule(which=numbers)
    @precondition(lambda self: self.cursors)
    def close_cursor(self, which: int) -> None:
        cursor, reference_cursor = self.cursors.pop(which % len(self.cursors))
        self.run(cursor.close())
        for _, waiter in self.waiters:
            if waiter.cursor is reference_cursor:
                self.reference.give_up(waiter, ErrorCode.MQ_ERROR_OPERATION_CANCELLED)

    @rule(which=numbers, seek=st.sampled_from(["first", "last", "next", "prev", "current"]), start=numbers)
    def lookup(self, which: int, seek: str, start: int) -> None:
        queue = self.all[which % len(self.all)]
        known = [one for one in queue.positions if one.lookup is not None]
        at = known[start % len(known)] if known else None
        if at is None and seek not in ("first", "last"):
            return
        identifier = at.lookup if at is not None else 0

        def expected() -> Position:
            match seek:
                case "first":
                    found = queue.after(START, peek=True)
                case "last":
                    found = queue.before(None)
                case "next":
                    found = queue.after(at.key, peek=True)  # type: ignore[union-attr]
                case "prev":
                    found = queue.before(at.key)  # type: ignore[union-attr]
                case _:
                    if not at.visible:  # type: ignore[union-attr]
                        raise Refused(LOCKED)
                    found = at
            if found is None:
                raise Refused(NOT_FOUND)
            return found

        message, position = self.same(lambda: self.handle(queue).peek_by_lookup_id(identifier, seek), expected)  # type: ignore[arg-type]
        if position is not None:
            self.agree(message, position)

    @rule(which=numbers, start=numbers, unit=numbers)
    def receive_by_lookup(self, which: int, start: int, unit: int) -> None:
        queue = self.all[which % len(self.all)]
        known = [one for one in queue.positions if one.lookup is not None]
        if not known:
            return
        at = known[start % len(known)]
        transaction, reference_unit = self.choose_unit(queue, unit)

        def expected() -> Position:
            if not at.available:
                raise Refused(NOT_FOUND)
            self.reference.take(queue, at, reference_unit)
            return at

        message, position = self.same(
            lambda: self.handle(queue).receive_by_lookup_id(at.lookup, transaction=transaction),  # type: ignore[arg-type]
            expected,
        )
        if position is not None:
            self.agree(message, position)

    # Moving and purging

    @rule(which=numbers, start=numbers, unit=numbers)
    def move(self, which: int, start: int, unit: int) -> None:
        queue = self.movable[which % len(self.movable)]
        name = queue.name.removesuffix(SUBQUEUE) if SUBQUEUE in queue.name else queue.name + SUBQUEUE
        target = self.reference.queues[name]
        known = [one for one in queue.positions if one.lookup is not None]
        if not known:
            return
        at = known[start % len(known)]
        transaction, reference_unit = self.choose_unit(queue, unit)

        def expected() -> None:
            if not at.available:
                raise Refused(NOT_FOUND)
            if reference_unit is None:
                self.reference.move(queue, at, target)
            else:
                at.holder = reference_unit
                reference_unit.moved.append((queue, at, target))

        into = self.handle(target, Access.MOVE)
        self.same(lambda: self.handle(queue).move(at.lookup, into, transaction), expected)  # type: ignore[arg-type]

    @rule(which=numbers)
    @precondition(lambda self: self.age % 3 == 0)
    def purge(self, which: int) -> None:
        queue = self.all[which % len(self.all)]
        self.run(self.handle(queue).purge())
        self.reference.purge(queue)

    # Transactions

    @rule()
    @precondition(lambda self: len(self.units) < 4)
    def begin_transaction(self) -> None:
        self.units.append((self.node.qm.transaction(), Unit()))

    @rule(which=numbers, commit=st.booleans())
    @precondition(lambda self: self.units)
    def end_transaction(self, which: int, commit: bool) -> None:
        transaction, unit = self.units.pop(which % len(self.units))
        if commit:
            self.run(transaction.commit())
            self.reference.commit(unit)
        else:
            self.run(transaction.abort())
            self.reference.abort(unit)

    # Time, handles, restarts

    @rule(seconds=st.sampled_from([0, 0.5, 1, 3, 10, 70]))
    def advance(self, seconds: float) -> None:
        async def advance() -> None:
            self.clock.advance(seconds)

        self.run(advance())
        self.reference.advance(seconds)

    @rule(which=numbers)
    @precondition(lambda self: self.handles)
    def close_handle(self, which: int) -> None:
        key = sorted(self.handles)[which % len(self.handles)]
        handle = self.handles.pop(key)
        name, access = key
        self.run(handle.close())
        if access is not Access.RECEIVE:
            return
        queue = self.reference.queues[name]
        for reader in list(queue.waiting):
            self.reference.give_up(reader, ErrorCode.MQ_ERROR_OPERATION_CANCELLED)
        self.cursors = [one for one in self.cursors if one[1].queue is not queue]
        for one in [one for one in self.begun if one[0] is handle]:
            self.begun.remove(one)
            self.reference.release(queue, one[2])

    @rule(clean=st.booleans())
    @precondition(lambda self: self.age > 20)
    def restart(self, clean: bool) -> None:
        self.age = 0
        self.run(self.node.restart() if clean else self.node.crash())
        for task, _ in self.waiters:
            self.run(asyncio.wait([task]))
            assert isinstance(task.exception(), MessageQueuingError)
        self.waiters.clear()
        begun = [(queue, position) for _, queue, position, _ in self.begun]
        self.reference.restart([unit for _, unit in self.units], begun, clean)
        self.handles.clear()
        self.cursors.clear()
        self.units.clear()
        self.begun.clear()


def check(examples: int, least: int, *, derandomize: bool = False) -> None:
    before = Machine.steps
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=derandomize,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
    print(f"{Machine.steps - before} steps, after each of which node and reference agreed")
    assert Machine.steps - before >= least


def test_the_node_does_what_the_reference_does() -> None:
    check(examples=50, least=1_500, derandomize=True)  # new examples are for the soak


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_node_does_what_the_reference_does_for_long() -> None:
    check(examples=5_000, least=200_000)
