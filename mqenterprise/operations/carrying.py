"""Carry a queue of another queue manager to a node: read it with two steps over RemoteRead, and confirm at the node.

A message is read under an exclusive open, held at the node with its entry in the ledger, ended at the source, and then
confirmed. A carrier that begins again compares the held messages with the source: one that is still there was not
ended, and is read again; one that is gone was ended, if nobody else may receive there.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mqenterprise.operations.errors import NodeError, OperationsError
from qmnode.administration.carry_exchange import CarryExchange, key_from_text, key_of, key_text, lookup_of_key
from qmnode.errors import MessageQueuingError
from qmnode.management.carry_routes import BegunCarry, Unconfirmed
from qmnode.model.api import Access, Share
from qmnode.model.stored_message import (
    ABORTS,
    HAS_TRANSACTION,
    MOVES,
    PREFIX_SIZE,
    TransferredMessage,
    arrival,
    stored_value,
)
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.packet_view import user_flags_of

if TYPE_CHECKING:
    from mqenterprise.operations.node_client import NodeClient
    from qmnode.commands.remote import RemoteTarget
    from qmnode.model.message import Message
    from qmnode.remote_read.client_interfaces import RemoteNode
    from qmnode.remote_read.client_queue import RemoteReadQueue

_BATCH: Final = 400
_BATCH_BYTES: Final = 2 * 1024 * 1024
_AHEAD: Final = 300
"""Seconds by which a clock may differ."""
_SETTLED: Final = 64
"""Messages of an earlier carrier that are ended and confirmed together."""
_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 2.0


@dataclass(frozen=True, slots=True)
class CarryOptions:
    """The speed, the patience, and the decisions of a person."""

    rate: float = 0.0
    """Messages a second; 0 for as many as there are."""
    follow: float = 0.0
    """Seconds to wait for further messages before the carry ends."""
    patience: float = 60.0
    """Seconds without progress after which a side that does not answer ends the carry."""
    sole_reader: bool = False
    """Whether nobody else receives from the source: then a held message that is gone there was ended by a carrier."""
    drop: frozenset[str] = frozenset()
    """Keys of held messages that somebody else has received."""
    until: str = ""
    """The last step of a switch; empty for all."""


@dataclass(slots=True)
class Summary:
    """The outcome of a carry or of a rehearsal."""

    source: str
    target: str
    carry: int = 0
    messages: int = 0
    """Carried now, or counted."""
    bytes: int = 0
    known: int = 0
    """Messages at the source that the ledger has as carried before: ended there, and not carried again."""
    interrupted: int = 0
    """Times that a side did not answer, and the carry went on where it was."""
    undecided: list[str] = field(default_factory=list)
    """Keys of held messages of which it is unknown whether a carrier or somebody else took them from the source."""
    seconds: float = 0.0


class Carrier:
    """Carries one queue to a node, or rehearses that."""

    def __init__(self, client: NodeClient, source: RemoteTarget, queue: str, into: str, options: CarryOptions) -> None:
        self._client = client
        self._source = source
        self._name = source.format_name(queue)
        self._into = into
        self._options = options
        self._wave = 16
        self._was_open = False
        self._moved = 0
        self._ended: list[bytes] = []
        """Keys of messages whose reads have ended, and that are to be confirmed; also those of a broken connection."""
        self._before: tuple[int, int] | None = None
        """Messages and bytes that the ledger had as carried at the start."""
        self.summary = Summary(self._name, f"{into} at {client.machine}")
        self.report: Callable[[int], None] = lambda count: None
        """Called with the messages that have been carried."""

    # Rehearsal

    async def rehearse(self) -> Summary:
        """Read and count, and check what a carry would check: nothing changes. Raises OperationsError."""
        began = time.monotonic()
        begun = await self._ask(self._client.begin_carry(self._name, self._into, dry_run=True))
        try:
            async with await self._source.connect() as node:
                queue = await node.open_queue(parse_single_format_name(self._name), Access.PEEK)
                await self._count(queue, begun)
        except MessageQueuingError as error:
            raise self._of_source(error) from error
        self.summary.undecided = [one.key for one in begun.unconfirmed]
        self.summary.seconds = time.monotonic() - began
        return self.summary

    async def _count(self, queue: RemoteReadQueue, begun: BegunCarry) -> None:
        async with queue.cursor() as cursor:
            peek = cursor.peek
            while True:
                try:
                    message = await peek(0)
                except MessageQueuingError as error:
                    if error.code is ErrorCode.MQ_ERROR_IO_TIMEOUT:
                        return
                    raise
                peek = cursor.peek_next
                found = _transferred(message)
                self._check([found], begun)
                self.summary.messages += 1
                self.summary.bytes += len(found.packet)
                if self.summary.bytes > begun.room:
                    raise OperationsError(self._no_room(self.summary.bytes, begun))
                self.report(self.summary.messages)

    def _no_room(self, size: int, begun: BegunCarry) -> str:
        return (
            f"{self._client.machine} has room for {begun.room:,} bytes in {begun.target}, and the messages have "
            f"{size:,} or more: raise its quota, or that of all queues"
        )

    # Carrying

    async def carry(self) -> Summary:
        """Carry all messages, and go on whenever a side was unavailable for a while. Raises OperationsError."""
        began = time.monotonic()
        progress, pause = (began, self._moved), _PAUSE
        while True:
            try:
                await self._go_on()
                break
            except _UnavailableError as error:
                now = time.monotonic()
                if self._moved != progress[1]:
                    progress, pause = (now, self._moved), _PAUSE
                if not self._was_open:
                    raise OperationsError(error.sentence) from None
                if now - progress[0] > self._options.patience:
                    raise OperationsError(
                        f"{error.sentence}. {self.summary.messages:,} messages are carried: correct it, and carry again"
                    ) from None
                self.summary.interrupted += 1
                self._wave = 16
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        self.summary.seconds = time.monotonic() - began
        return self.summary

    async def _go_on(self) -> None:
        try:
            if not self._was_open:  # a mistake is found before anything changes
                begun = await self._ask(self._client.begin_carry(self._name, self._into, dry_run=True))
                await self._check_before(begun)
            async with await self._source.connect() as node:
                queue = await self._open(node)
                begun = await self._ask(self._client.begin_carry(self._name, self._into))
                self._was_open = True
                self.summary.carry = begun.carry
                self._count_carried(begun.carried, begun.carried_bytes)
                if await self._settle(queue, begun):
                    await self._work(queue, begun)
        except MessageQueuingError as error:
            raise self._of_source(error) from error

    async def check(self, *, owns: str = "") -> None:
        """Look whether the queue can be carried: readers have stopped, the account may receive, clocks are right, and
        the node has room for all messages. Nothing changes. ``owns``: the PUBLIC= name that the queue must have at the
        source. Raises OperationsError.
        """
        begun = await self._ask(self._client.begin_carry(self._name, self._into, dry_run=True))
        try:
            await self._check_before(begun)
            async with await self._source.connect() as node:
                queue = await self._open(node)
                if owns:
                    await self._check_owner(node, owns)
                await self._count(queue, begun)
        except MessageQueuingError as error:
            raise OperationsError(self._of_source(error).sentence) from error

    async def _check_owner(self, node: RemoteNode, name: str) -> None:
        try:
            await node.open_queue(parse_single_format_name(name), Access.PEEK)
        except MessageQueuingError as error:
            if error.code is not ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND:
                raise
            raise OperationsError(
                f"{self._source.host} has a queue of that name, and it is not {name}: name its owner with --from"
            ) from error

    async def _check_before(self, begun: BegunCarry) -> None:
        """Look at the clock of the node and at the first message: its kind and its time."""
        if abs(begun.now - time.time()) > _AHEAD:
            raise OperationsError(
                f"the clock of {self._client.machine} differs from the one here by "
                f"{abs(begun.now - time.time()):.0f} s, by which messages would expire: set it"
            )
        async with await self._source.connect() as node:
            if node.interface is not REMOTE_READ:
                raise OperationsError(
                    f"{self._source.host} has no RemoteRead (MS-MQRR), which a carry needs: move the messages there "
                    "with a program of its own"
                )
            queue = await node.open_queue(parse_single_format_name(self._name), Access.PEEK)
            with suppress(_EmptyError):
                first = _transferred(await _first(queue))
                self._check([first], begun)
                if len(first.packet) > begun.room:
                    raise OperationsError(self._no_room(len(first.packet), begun))

    def _check(self, messages: Sequence[TransferredMessage], begun: BegunCarry) -> None:
        ahead = max([one.arrival for one in messages]) - time.time()
        if ahead > _AHEAD:
            raise OperationsError(
                f"the clock of {self._source.host} is {ahead:.0f} s ahead, by the arrival of a message: set it"
            )
        if begun.plain and any(_is_transactional(one) is not begun.transactional for one in messages):
            here, there = ("transactional", "not") if begun.transactional else ("not transactional", "transactional")
            raise OperationsError(
                f"{begun.target} at {self._client.machine} is {here}, and messages of {self._name} are {there}: create "
                "the queue like its source, or name another with --into"
            )

    async def _open(self, node: RemoteNode) -> RemoteReadQueue:
        try:
            return await node.open_queue(parse_single_format_name(self._name), Access.RECEIVE, Share.DENY_RECEIVE)
        except MessageQueuingError as error:
            if error.code is ErrorCode.MQ_ERROR_SHARING_VIOLATION and self._was_open:
                raise _UnavailableError(f"{self._name} is still open for the connection that broke") from error
            raise

    async def _settle(self, queue: RemoteReadQueue, begun: BegunCarry) -> bool:
        """Find out about each message that an earlier carrier left: end what is still at the source, and confirm. False
        if there are messages that only a person can decide about; then nothing is ended.
        """
        options, now = self._options, time.time()
        left = [one for one in begun.unconfirmed if one.key not in options.drop]
        found: list[TransferredMessage | None] = []
        ended = {*self._ended}
        for start in range(0, len(left), _BATCH):
            keys = [key_from_text(one.key) for one in left[start : start + _BATCH]]
            found += await queue.begin_these([lookup_of_key(key) for key in keys])
        there = {one.key: message for one, message in zip(left, found, strict=True) if _is(one, message)}
        self.summary.undecided = [
            one.key
            for one in left
            if not (one.key in there or key_from_text(one.key) in ended)
            and (not options.sole_reader or (one.expires and one.expires <= now + _AHEAD))
        ]
        drop = [key_from_text(one.key) for one in begun.unconfirmed if one.key in options.drop]
        if drop:
            await self._exchange(begun, drop=drop)
        if self.summary.undecided:  # later messages must not pass them; the connection's end leaves all in their places
            return False
        for start in range(0, len(left), _SETTLED):
            some = [one.key for one in left[start : start + _SETTLED]]
            found_there = [message for key in some if (message := there.get(key)) is not None]
            _, failure = await self._end(queue, [message.lookup_identifier for message in found_there])
            if failure is not None:
                raise failure
            await self._exchange(begun, confirm=[key_from_text(key) for key in some])
        self._ended.clear()
        return True

    async def _work(self, queue: RemoteReadQueue, begun: BegunCarry) -> None:
        """Read, hold and end at the same time, with a batch waiting before each, so that none waits for another's turn.
        Messages are confirmed together with those that are held next.
        """
        read, held = _Batches(1), _HeldBatches(1)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_on(queue, read))
                group.create_task(self._hold_on(begun, read, held))
                group.create_task(self._end_on(queue, held))
        except* (MessageQueuingError, OperationsError) as failures:
            failure = failures.exceptions[0]
            if self._ended and not isinstance(failure, _UnavailableError):
                with suppress(OperationsError):
                    await self._confirm_ended(begun)
            raise failure from None

    async def _read_on(self, queue: RemoteReadQueue, read: _Batches) -> None:
        """Read batches. An empty one: there are no more now. None: no more are expected."""
        began, count = time.monotonic(), 0
        while True:
            if self._options.rate:
                await asyncio.sleep(max(0.0, began + count / self._options.rate - time.monotonic()))
            batch, is_last = await self._read(queue, read)
            if batch:
                count += len(batch)
                await read.put(batch)
                if not is_last:
                    continue
            await read.put([])
            if batch := await self._read_later(queue):
                count += len(batch)
                await read.put(batch)
                continue
            await read.put(None)
            return

    async def _hold_on(self, begun: BegunCarry, read: _Batches, held: _HeldBatches) -> None:
        """Hold batches at the node. After an empty one everything is confirmed."""
        while (batch := await read.get()) is not None:
            if batch:
                self._check(batch, begun)
                await held.put((batch, await self._confirm_ended(begun, batch)))
            else:
                await held.join()
                if self._ended:
                    await self._confirm_ended(begun)
            read.task_done()
        await held.put(None)

    async def _confirm_ended(self, begun: BegunCarry, hold: Sequence[TransferredMessage] = ()) -> list[str]:
        """Confirm what has ended, and hold a batch; return its states. Keys are kept until it succeeded."""
        count = len(self._ended)
        states = await self._exchange(begun, confirm=self._ended[:count], hold=hold)
        del self._ended[:count]
        return states

    async def _end_on(self, queue: RemoteReadQueue, held: _HeldBatches) -> None:
        """End the reads of held batches."""
        while (one := await held.get()) is not None:
            ending = asyncio.ensure_future(self._end_held(queue, *one))
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                with suppress(MessageQueuingError):
                    await ending  # its keys must be known
                raise
            held.task_done()

    async def _end_held(
        self, queue: RemoteReadQueue, batch: Sequence[TransferredMessage], states: Sequence[str]
    ) -> None:
        """End the reads of held messages. Raises MessageQueuingError if not all have ended."""
        ended, failure = await self._end(queue, [one.lookup_identifier for one in batch])
        # One that was carried before, and is at the source again, is ended there, and not carried again.
        keys = [key_of(one) for one, state in zip(batch[:ended], states, strict=False) if state != "carried"]
        self.summary.known += ended - len(keys)
        self._ended += keys
        if failure is not None:
            raise failure

    async def _read(self, queue: RemoteReadQueue, read: _Batches) -> tuple[list[TransferredMessage], bool]:
        """Begin to receive the next messages, without ending their reads; none if the queue is empty. The second value
        says that there were no more then, and none are waited for: senders may go on for ever.
        """
        asked = self._wave
        try:
            found = await queue.begin_many(asked)
        except MessageQueuingError as error:
            if error.code is not ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES:
                raise
            await read.put([])  # the source holds only so many bytes for one reader
            await read.join()
            asked = self._wave = 1
            found = await queue.begin_many(1)
        if found:
            size = sum([len(one.packet) for one in found])
            most = max(1, min(_BATCH, int(self._options.rate or _BATCH)))
            self._wave = min(most, max(1, _BATCH_BYTES * len(found) // max(1, size)), 4 * self._wave)
        return found, len(found) < asked and not self._options.follow

    async def _read_later(self, queue: RemoteReadQueue) -> list[TransferredMessage]:
        """Wait for the next message; none if none comes in the time to follow."""
        if not self._options.follow:
            return []
        try:
            return [_transferred(await queue.receive_begin(self._options.follow))]
        except MessageQueuingError as error:
            if error.code is ErrorCode.MQ_ERROR_IO_TIMEOUT:
                return []
            raise

    async def _end(self, queue: RemoteReadQueue, batch: Sequence[int]) -> tuple[int, MessageQueuingError | None]:
        """End the reads; how many of the first have ended, and why the next one has not."""
        outcomes = await queue.end_many(batch, delete=True)
        for index, failure in enumerate(outcomes):
            if failure is not None:
                return index, failure
        return len(batch), None

    async def _exchange(
        self,
        begun: BegunCarry,
        *,
        confirm: Sequence[bytes] = (),
        drop: Sequence[bytes] = (),
        hold: Sequence[TransferredMessage] = (),
    ) -> list[str]:
        exchange = CarryExchange(begun.epoch, confirm, drop, hold)
        done = await self._ask(self._client.carry_messages(begun.carry, exchange))
        self._moved += len(confirm) + len(drop)
        self._count_carried(done.carried, done.carried_bytes)
        states: list[str] = done.states
        return states

    def _count_carried(self, messages: int, size: int) -> None:
        if self._before is None:
            self._before = messages, size
        self.summary.messages, self.summary.bytes = messages - self._before[0], size - self._before[1]
        self.report(self.summary.messages)

    # Errors

    async def _ask(self, question: Any) -> Any:
        try:
            return await question
        except NodeError as error:
            sentence = f"{self._client.machine}: {error.sentence}"
            if error.unavailable:
                raise _UnavailableError(sentence) from error
            raise OperationsError(sentence) from error

    def _of_source(self, error: MessageQueuingError) -> OperationsError | _UnavailableError:
        host, name = self._source.host, self._name
        match error.code:
            case ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE:
                return _UnavailableError(error.sentence)
            case ErrorCode.MQ_ERROR_ACCESS_DENIED:
                why = (
                    "the account may not receive from it: allow it ReceiveMessage and PeekMessage there, or use --user"
                )
            case ErrorCode.MQ_ERROR_SHARING_VIOLATION:
                why = "a program has it open to receive, perhaps another carry: stop that, and carry again"
            case ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND:
                why = "there is no such queue there: correct the name; a public queue is '.\\NAME'"
            case _:
                why = error.sentence
        return OperationsError(f"{name} at {host}: {why} ({error.code.name})")


_Batches = asyncio.Queue["list[TransferredMessage] | None"]
_HeldBatches = asyncio.Queue["tuple[list[TransferredMessage], list[str]] | None"]


class _UnavailableError(OperationsError):
    """A side that does not answer, and may do so later."""


class _EmptyError(Exception):
    """The queue is empty."""


async def _first(queue: RemoteReadQueue) -> Message:
    try:
        return await queue.peek(0)
    except MessageQueuingError as error:
        if error.code is ErrorCode.MQ_ERROR_IO_TIMEOUT:
            raise _EmptyError from None
        raise


def _transferred(message: Message) -> TransferredMessage:
    """A message that was read alone, as those of a series."""
    value = stored_value(message)
    return TransferredMessage(
        message.lookup_identifier, int(arrival(value)), value[ABORTS], value[MOVES], value[PREFIX_SIZE:]
    )


def _is_transactional(message: TransferredMessage) -> bool:
    try:
        return bool(user_flags_of(message.packet) & HAS_TRANSACTION)
    except struct.error:  # it is cut off
        return False


def _is(held: Unconfirmed, message: TransferredMessage | None) -> bool:
    """Whether a message of the source is the held one. A source that was installed anew begins its numbers again."""
    return message is not None and key_text(key_of(message)) == held.key and _digest(message.packet) == held.digest


def _digest(packet: bytes) -> str:
    return hashlib.sha256(packet).hexdigest()
