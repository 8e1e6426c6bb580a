"""Bridges between queues of the node and AMQP 1.0 peers: begun, kept going, changed and stopped, with their state.

A bridge never stays down by itself. After an attempt has ended, by a cut, a refusal or a missing queue, the next
one follows after a wait.

Out, at least once: a message is gone from its queue when the peer has taken it. A message that may have been sent
before says so: its ``delivery-count`` is not 0 (AMQP 1.0, 3.2.1). That is what was under way when a connection was cut
and, after a start of the node, as many of the older messages as can have been.

In, at least once: a message is accepted when it is in its queue, on disk. A message that may have come before has the
header ``qmnode-redelivered``: the peer says so, or it is one of the first after a cut or a start, as many as can have
been under way.

Exactly once, with the transactions of the peer and a ledger: a queue of the peer with one message, which names the last
batch that the peer has committed. Each transaction at the peer takes that message, puts the next one in its place, and
sends or accepts the batch. A cut leaves one question open, whether the last transaction was committed, and the ledger
answers it. While an older connection still holds the ledger's message, its transaction has not ended: the bridge waits
until the peer has ended it. Out: the batch is named by the lookup identifiers of its messages, which stay locked in the
queue meanwhile. In: the batch is stored in a queue of the bridge first, with its name, and moved on when the peer has
committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import socket
import ssl
import time
import uuid
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
from proton import Condition, Delivery

from qmnode.amqp.addresses import opened_name
from qmnode.amqp.client import (
    AmqpClient,
    Arrival,
    ClientReceiver,
    ClientSender,
    DeliveryOutcome,
    Login,
    PeerError,
    to_its_end,
)
from qmnode.amqp.codec import CodecError
from qmnode.amqp.error_conditions import DECODE, RefusedError, of_message
from qmnode.amqp.links import Sent, send_all
from qmnode.amqp.mapping import MappingContext, to_amqp
from qmnode.amqp.sections import AmqpMessage, parse, write
from qmnode.errors import ConfigurationError, MessageQueuingError, MessageTooLargeError, reason_of
from qmnode.model.administration import BridgeInformation
from qmnode.model.api import Access, QueueApi
from qmnode.model.message import Message
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.reading import ReadOutcome
from qmnode.security.tls import load_certificate
from qmnode.settings.bridges import BridgeSettings, SecretSettings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_to_text

if TYPE_CHECKING:
    from qmnode.model.message import Message
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 64
"""Messages that are read from the queue at a time."""
_PATIENCE: Final = 3.0
"""Seconds that a stop waits for the peer's answers."""
_BYTES: Final = 16 * 1024 * 1024
"""Bytes under way; more are not read from the queue."""


@dataclass(slots=True)
class Uncertain:
    """Messages of which nobody knows whether the peer has taken them."""

    started: float
    """When the bridge began: what arrived later was never sent before that."""
    left: int
    """The number of older messages that can have been under way when the bridge last ended."""
    known: set[int] = field(default_factory=set)
    """Lookup identifiers of those that were under way when a connection was cut."""

    def takes(self, message: Message) -> bool:
        """Whether this message may have been sent before."""
        if message.lookup_identifier in self.known:
            self.known.discard(message.lookup_identifier)
            return True
        if self.left > 0 and message.arrival_time <= self.started:
            self.left -= 1
            return True
        return False


async def open_source(bridge: Bridge) -> OpenQueueDescriptor:
    """The queue of a bridge, for receiving. MessageQueuingError."""
    queue = await bridge.manager.open_queue(opened_name(bridge.settings.queue), Access.RECEIVE)
    if not isinstance(queue, OpenQueueDescriptor):
        await queue.close()
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
            f"{bridge.settings.queue} is no queue of this node: put the bridge on the machine that has it",
        )
    return queue


def encoded(bridge: Bridge, message: Message, *, again: bool) -> bytes:
    """The message for the peer. One that cannot be put into AMQP goes as the bytes of its body."""
    try:
        out = to_amqp(message, bridge.settings.address, bridge.place)
        if again:
            out.header["delivery_count"] = max(1, out.header.get("delivery_count", 0))
        return write(out)
    except (CodecError, ValueError):
        return write(AmqpMessage(body=message.body))


def report_rejected(bridge: Bridge, lookup_identifier: int, reason: str) -> None:
    """Note that the peer does not take a message: it is a dead letter."""
    bridge.state.rejected += 1
    log.warning(
        "a peer rejected a message of a bridge: it is a dead letter",
        bridge=bridge.name, lookup_identifier=lookup_identifier, reason=reason,
    )  # fmt: skip


async def carry_out(bridge: Bridge, client: AmqpClient) -> None:
    """Carry messages until the connection is lost. PeerError, MessageQueuingError."""
    queue = await open_source(bridge)
    sending = _Sending(bridge, client, queue)
    try:
        await sending.run()
    finally:
        await sending.close()


class _Sending:
    def __init__(self, bridge: Bridge, client: AmqpClient, queue: OpenQueueDescriptor) -> None:
        self._bridge, self._client, self._queue = bridge, client, queue
        self._under_way: dict[int, int] = {}
        """Bytes of each message that has no outcome, by lookup identifier."""
        self._bytes = 0
        self._room = asyncio.Event()
        self._pause = 0.0
        self._closed = False

    async def run(self) -> None:
        """Send until the connection is lost; a stop waits a little for the answers to what was sent."""
        try:
            await self._send()
        except asyncio.CancelledError:
            with contextlib.suppress(PeerError, TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    while self._under_way:
                        self._room.clear()
                        await self._client.unless_lost(self._room.wait())
            raise

    async def _send(self) -> None:
        settings, client = self._bridge.settings, self._client
        async with asyncio.timeout(settings.connect_timeout):
            sender = await client.sender(settings.address)
        self._bridge.connected()
        while True:
            while len(self._under_way) >= settings.window or self._bytes >= _BYTES:
                self._room.clear()
                await client.unless_lost(self._room.wait())
            if self._pause:
                pause, self._pause = self._pause, 0.0
                await client.unless_lost(asyncio.sleep(pause))
            credit = await sender.credit()
            limit = min(credit, settings.window - len(self._under_way), _AT_ONCE)
            messages: list[Message] = await client.unless_lost(self._queue.receive_begin_many(limit))
            for message in messages:
                again = self._bridge.uncertain.takes(message)
                data = encoded(self._bridge, message, again=again)
                self._under_way[message.lookup_identifier] = len(data)
                self._bridge.state.repeated += again
                self._bytes += len(data)
                answer = sender.send(data)
                answer.add_done_callback(functools.partial(self._answered, message.lookup_identifier))

    def _answered(self, lookup_identifier: int, answer: asyncio.Future[Any]) -> None:
        if self._closed or answer.cancelled():
            return
        outcome: DeliveryOutcome = answer.result()
        self._bytes -= self._under_way.pop(lookup_identifier)
        self._room.set()
        state = self._bridge.state
        if outcome.accepted:
            self._queue.end_read(lookup_identifier, ReadOutcome.TAKEN)
            self._queue.context.store.durable()
            state.carried += 1
        elif outcome.rejected:
            report_rejected(self._bridge, lookup_identifier, outcome.reason)
            self._queue.end_read(lookup_identifier, ReadOutcome.REJECTED)
        else:  # it has come back whole: nothing of it is left there
            self._pause = self._bridge.settings.retry
            self._queue.end_read(lookup_identifier, ReadOutcome.FAILED if outcome.failed else ReadOutcome.RETURNED)

    async def close(self) -> None:
        """Return messages without an outcome to their places: they may come twice."""
        self._closed = True
        self._bridge.uncertain.known |= self._under_way.keys()
        await self._queue.close()


REDELIVERED: Final = "qmnode-redelivered"
_OF_THE_MESSAGE: Final = frozenset(
    {
        ErrorCode.MQ_ERROR_PROPERTY,
        ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_SIZE,
        ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
        ErrorCode.MQ_ERROR_LABEL_TOO_LONG,
        ErrorCode.MQ_ERROR_INVALID_PARAMETER,
        ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME,
    }
)
"""Errors that the next attempt would meet as well. With any other, the message stays with the peer."""


def is_of_the_message(error: MessageQueuingError) -> bool:
    """Whether no attempt will ever store the message that met this error."""
    return error.code in _OF_THE_MESSAGE or isinstance(error, MessageTooLargeError)


def decoded(bridge: Bridge, arrival: Arrival, queue: QueueApi | None = None) -> tuple[Sent, bool]:
    """The message, as a queue takes it, and whether it may have come before. RefusedError if there is none for it.

    The peer gives again what was stored when its answer was lost; not every peer says so.
    """
    doubtful = bridge.doubtful > 0
    bridge.doubtful -= doubtful
    try:
        found = parse(arrival.data)
        # RabbitMQ counts nothing, and denies that this is the first receiver of the message.
        again = doubtful or bool(found.header.get("delivery_count")) or found.header.get("first_acquirer") is False
        if again:
            found.application_properties[REDELIVERED] = True
        return Sent.read(found, queue, bridge.place), again
    except CodecError as error:
        raise RefusedError(DECODE, str(error)) from None
    except MessageQueuingError as error:
        raise of_message(error) from None


def reject(bridge: Bridge, receiver: ClientReceiver, arrival: Arrival, error: RefusedError) -> None:
    """Let the peer do with a message what it does with those that nobody can use."""
    bridge.state.rejected += 1
    log.warning("a bridge rejects a message of its peer", bridge=bridge.name, reason=str(error))
    receiver.end(arrival, Delivery.REJECTED, Condition(error.condition, error.description))


async def carry_in(bridge: Bridge, client: AmqpClient) -> None:
    """Carry messages until the connection is lost. PeerError, MessageQueuingError."""
    settings = bridge.settings
    bridge.doubtful = settings.window
    queue = await bridge.manager.open_queue(opened_name(settings.queue), Access.SEND)
    try:
        async with asyncio.timeout(settings.connect_timeout):
            receiver = await client.receiver(settings.address, settings.message_size)
        bridge.connected()
        while True:
            receiver.give(settings.window, 0)
            await to_its_end(_store(bridge, receiver, queue, await receiver.messages(_AT_ONCE)))
    finally:
        await queue.close()


async def _store(bridge: Bridge, receiver: ClientReceiver, queue: QueueApi, arrivals: list[Arrival]) -> None:
    taken: list[tuple[Arrival, Sent, bool]] = []
    for arrival in arrivals:
        try:
            taken.append((arrival, *decoded(bridge, arrival, queue)))
        except RefusedError as error:
            reject(bridge, receiver, arrival, error)
    transactional = isinstance(queue, OpenQueueDescriptor) and queue.queue.transactional
    outcomes = await send_all(queue, [message for _, message, _ in taken], "single" if transactional else None)
    failed: MessageQueuingError | None = None
    for (arrival, _, again), refused in zip(taken, outcomes, strict=True):
        if refused is None:
            receiver.accept(arrival)
            bridge.state.carried += 1
            bridge.state.repeated += again
        elif is_of_the_message(refused):
            reject(bridge, receiver, arrival, of_message(refused))
        else:
            receiver.end(arrival, Delivery.RELEASED)
            failed = refused
    if failed is not None:
        raise failed


_NEW: Final = "A bridge that has no ledger yet"
_BEGUN: Final = "A bridge with a ledger"
_BATCH: Final = 100
"""Messages of a transaction."""
_ENTRY: Final = 64 * 1024
"""Bytes of an entry of the ledger."""


class Ledger:
    """The ledger of a bridge at its peer."""

    def __init__(self, bridge: Bridge, client: AmqpClient) -> None:
        self._bridge = bridge
        self._client = client
        self._held: Arrival | None = None
        self._begun = False
        self._sender: ClientSender
        self._receiver: ClientReceiver

    async def open(self) -> dict[str, Any]:
        """Take the ledger's message; what it says, empty before the first batch. PeerError."""
        address = self._bridge.settings.ledger
        self._sender = await self._client.sender(address)
        self._receiver = await self._client.receiver(address, _ENTRY)
        found = await self._receiver.drained(2)
        if len(found) > 1:
            raise PeerError(f"the ledger {address} has more than one message: give each bridge a ledger of its own")
        if not found:
            if (await self._bridge.manager.queue(path_of(self._bridge))).label == _BEGUN:
                raise PeerError(
                    f"the ledger {address} is held by an earlier connection, or its message is gone. If it was "
                    f"deleted, delete the queue {path_of(self._bridge)}: the messages of one batch may come twice then"
                )
            return {}
        self._held = found[0]
        entry = _entry_in(found[0].data)
        if entry.get("bridge") != self._name:
            raise PeerError(f"the ledger {address} belongs to another bridge: {entry.get('bridge', 'unknown')!s:.100}")
        return entry

    @property
    def _name(self) -> str:
        return f"{guid_to_text(self._bridge.manager.identifier)}/{self._bridge.name}"

    async def write(self, transaction: bytes, batch: Any) -> asyncio.Future[Any]:
        """Let the transaction replace the ledger's message; the peer's answer to the new one."""
        if self._held is not None:
            self._receiver.accept(self._held, transaction)
        await self._sender.credit()
        entry = {"bridge": self._name, "batch": batch}
        return self._sender.send(
            write(AmqpMessage(header={"durable": True}, body=json.dumps(entry).encode())), transaction
        )

    async def written(self) -> None:
        """Take the message of the transaction that was committed. PeerError."""
        if not self._begun:
            await self._bridge.manager.set_queue(path_of(self._bridge), label=_BEGUN)
            self._begun = True
        self._receiver.give(1, 0)
        self._held = (await self._receiver.messages(1))[0]


def path_of(bridge: Bridge) -> str:
    r"""The queue ``.\private$\bridge$NAME`` of a bridge, in which a batch from the peer waits for the peer's commit."""
    return f".\\private$\\bridge${bridge.name}"


async def _own_queue(bridge: Bridge) -> None:
    """Create it; its label says whether the ledger was ever written."""
    try:
        await bridge.manager.create_queue(path_of(bridge), transactional=True, label=_NEW)
    except MessageQueuingError as error:
        if error.code != ErrorCode.MQ_ERROR_QUEUE_EXISTS:
            raise


def _entry_in(data: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(parse(data).body)
    except (CodecError, ValueError, TypeError, RecursionError):
        raise PeerError("the message in the ledger is none of a bridge: give the bridge a queue of its own") from None
    return entry if isinstance(entry, dict) else {}


# Out


async def carry_out_exactly(bridge: Bridge, client: AmqpClient) -> None:
    """Carry messages until the connection is lost. PeerError, MessageQueuingError."""
    settings = bridge.settings
    queue = await open_source(bridge)
    ledger = Ledger(bridge, client)
    try:
        await _own_queue(bridge)
        async with asyncio.timeout(settings.connect_timeout):
            sender = await client.sender(settings.address)
            await _forget_sent(bridge, queue, await ledger.open())
        bridge.connected()
        while True:
            limit = min(await sender.credit(), settings.window, _BATCH)
            messages = await client.unless_lost(queue.receive_begin_many(limit))
            await to_its_end(_send_batch(bridge, client, queue, sender, ledger, messages))
    finally:
        await queue.close()


async def _forget_sent(bridge: Bridge, queue: OpenQueueDescriptor, entry: dict[str, Any]) -> None:
    """Take the messages of the last batch out of the queue, which an earlier connection has committed."""
    for lookup_identifier in entry.get("batch") or ():
        with contextlib.suppress(MessageQueuingError):  # most often it is gone already
            await queue.receive_by_lookup_id(int(lookup_identifier), held=True)
            bridge.state.carried += 1


async def _send_batch(
    bridge: Bridge, client: AmqpClient, queue: OpenQueueDescriptor, sender: ClientSender, ledger: Ledger,
    messages: list[Message],
) -> None:  # fmt: skip
    transaction = await client.declare()
    identifiers = [message.lookup_identifier for message in messages]
    noted = await ledger.write(transaction, identifiers)
    answers = []
    for message in messages:
        await sender.credit()
        answers.append(sender.send(encoded(bridge, message, again=False), transaction))
    outcomes: list[DeliveryOutcome] = [await client.unless_lost(answer) for answer in [*answers, noted]]
    refused = [outcome for outcome in outcomes if not outcome.accepted]
    if refused:
        await client.discharge(transaction, fail=True)
        for identifier, outcome in zip(identifiers, outcomes, strict=False):
            if outcome.rejected:
                report_rejected(bridge, identifier, outcome.reason)
                queue.end_read(identifier, ReadOutcome.REJECTED)
        raise PeerError(f"the peer refuses a part of a transaction: {refused[0].reason}")
    ended = await client.discharge(transaction)
    if not ended.accepted:
        raise PeerError(f"the peer does not commit: {ended.reason}")
    for identifier in identifiers:
        queue.end_read(identifier, ReadOutcome.TAKEN)
    bridge.state.carried += len(messages)
    await ledger.written()
    if (durable := queue.context.store.durable()) is not None:
        await durable


# In


async def carry_in_exactly(bridge: Bridge, client: AmqpClient) -> None:
    """Carry messages until the connection is lost. PeerError, MessageQueuingError."""
    settings, manager = bridge.settings, bridge.manager
    target = await manager.open_queue(opened_name(settings.queue), Access.SEND)
    try:
        if not isinstance(target, OpenQueueDescriptor) or not target.queue.transactional:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
                f"{settings.queue} is no transactional queue of this node, and exactly-once needs one",
            )
        await _own_queue(bridge)
        own = f"DIRECT=OS:{path_of(bridge)}"
        async with (
            await manager.open_queue(own, Access.RECEIVE) as staged,
            await manager.open_queue(own, Access.SEND) as staging,
        ):
            await _receive_batches(bridge, client, Staging(staging, staged), target)
    finally:
        await target.close()


@dataclass(frozen=True, slots=True)
class Staging:
    """The queue of the bridge, open both ways."""

    into: QueueApi
    out_of: QueueApi


async def _receive_batches(bridge: Bridge, client: AmqpClient, staging: Staging, target: QueueApi) -> None:
    settings = bridge.settings
    ledger = Ledger(bridge, client)
    async with asyncio.timeout(settings.connect_timeout):
        receiver = await client.receiver(settings.address, settings.message_size)
        entry = await ledger.open()
    await _finish(bridge, staging, target, str(entry.get("batch", "")))
    bridge.connected()
    while True:
        receiver.give(settings.window, 0)
        batch: list[tuple[Arrival, Message]] = []
        for arrival in await receiver.messages(_BATCH):
            try:
                batch.append((arrival, decoded(bridge, arrival)[0].message))
            except RefusedError as error:
                reject(bridge, receiver, arrival, error)
        if batch:
            await to_its_end(_take_batch(bridge, client, receiver, ledger, staging, batch))
            await to_its_end(_finish(bridge, staging, target, None))


async def _take_batch(
    bridge: Bridge, client: AmqpClient, receiver: ClientReceiver, ledger: Ledger, staging: Staging,
    batch: list[tuple[Arrival, Message]],
) -> None:  # fmt: skip
    name = str(uuid.uuid4())
    async with bridge.manager.transaction() as unit:
        await staging.into.send(Message(b"", label=name), unit)
        for arrival, message in list(batch):
            try:
                await staging.into.send(message, unit)
            except MessageQueuingError as error:
                if not is_of_the_message(error):
                    raise
                batch.remove((arrival, message))
                reject(bridge, receiver, arrival, of_message(error))
    transaction = await client.declare()
    noted = await ledger.write(transaction, name)
    for arrival, _ in batch:
        receiver.accept(arrival, transaction)
    outcome = await client.unless_lost(noted)
    ended = await client.discharge(transaction, fail=not outcome.accepted)
    if not outcome.accepted or not ended.accepted:
        raise PeerError(f"the peer does not commit: {outcome.reason or ended.reason}")
    await ledger.written()


async def _finish(bridge: Bridge, staging: Staging, target: QueueApi, committed: str | None) -> None:
    """Move the batch that waits, or drop it if the peer has not committed that one (None: it has)."""
    async with bridge.manager.transaction() as unit:
        try:
            waiting = await staging.out_of.receive_many(_BATCH + 1, 0, unit)
        except MessageQueuingError as error:
            if error.code != ErrorCode.MQ_ERROR_IO_TIMEOUT:
                raise
            return
        while True:
            try:
                waiting += await staging.out_of.receive_many(_BATCH + 1, 0, unit)
            except MessageQueuingError as error:
                if error.code != ErrorCode.MQ_ERROR_IO_TIMEOUT:
                    raise
                break
        name, messages = waiting[0].label, waiting[1:]
        if committed in (None, name):
            await target.send_many(messages, unit)
            bridge.state.carried += len(messages)


ENTRY_POINT_GROUP: Final = "qmnode.secrets"
"""An entry point is a function from the name of a secret and the store's settings to the secret's text."""
_STOPPING: Final = 10.0
"""Seconds after which a bridge that still runs is asked to stop again."""
_STEADY: Final = 10.0
"""Seconds of a connection after which the next wait is the shortest again."""


class Bridge:
    """One bridge, with its state and its attempts."""

    def __init__(self, name: str, settings: BridgeSettings, manager: QueueManager) -> None:
        self.name = name
        self.settings = settings
        self.manager = manager
        # Names in messages that leave are those that any machine can use.
        self.place = MappingContext(lambda name: False, time.time, is_foreign=True)
        self.state = BridgeInformation(
            name, settings.direction, settings.queue, settings.peer, settings.address, since=time.time()
        )
        self.uncertain = Uncertain(time.time(), settings.window)
        self.doubtful = 0
        """The number of next messages of the peer that may have come before, whatever it says."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to carry messages."""
        self.manager.amqp.bridges[self.name] = self.state
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"bridge {self.name}")

    async def stop(self) -> None:
        """Stop: messages under way are where they came from."""
        if self._task is not None:
            while not self._task.done():  # a wait that ends in the same moment may swallow a cancellation
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=_STOPPING)
        self.manager.amqp.bridges.pop(self.name, None)
        self.manager.troubles.pop(self._trouble, None)

    @property
    def _trouble(self) -> str:
        return f"bridge {self.name}"

    def connected(self) -> None:
        """The link is there: messages can be carried."""
        self.state.connected, self.state.since, self.state.reason = True, time.time(), ""
        self.manager.troubles.pop(self._trouble, None)
        log.info("a bridge is connected", bridge=self.name, peer=self.settings.peer, address=self.settings.address)

    def _failed(self, reason: str) -> None:
        state = self.state
        state.failures += 1
        if state.connected or not state.reason:
            state.since = time.time()
        if reason != state.reason:
            log.warning("a bridge is interrupted and tries again", bridge=self.name, reason=reason)
        state.connected, state.reason = False, reason
        self.manager.troubles[self._trouble] = f"{reason}. It tries again by itself"

    async def _run(self) -> None:
        wait = self.settings.retry
        while True:
            began = time.monotonic()
            try:
                await self._attempt()
            except (PeerError, MessageQueuingError, ConfigurationError) as error:
                self._failed(str(error))
            except TimeoutError:
                limit = self.settings.connect_timeout
                self._failed(f"{self.settings.peer} does not accept connection and link within {limit:g} s")
            except OSError as error:
                plain = error.errno is not None and not isinstance(error, ssl.SSLError | socket.gaierror)
                self._failed(f"{self.settings.peer}: {os.strerror(error.errno or 0) if plain else reason_of(error)}")
            except Exception as error:
                log.exception("a bridge fails", bridge=self.name)
                self._failed(f"{type(error).__name__}: the log of the node has the details")
            if time.monotonic() - began > _STEADY:
                wait = self.settings.retry
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 (so that not all come at once)
            wait = min(wait * 2, self.settings.longest_retry)

    async def _attempt(self) -> None:
        settings = self.settings
        login = await asyncio.to_thread(login_of, settings)
        tls = await asyncio.to_thread(client_context, settings) if settings.uses_tls else None
        async with asyncio.timeout(settings.connect_timeout):
            client = await AmqpClient.connect(
                f"{self.manager.computer_name}:{self.name}", (settings.host, settings.port), tls, login,
                settings.virtual_host, settings.idle_timeout,
            )  # fmt: skip
        try:
            exactly = settings.guarantee == "exactly-once"
            match settings.direction:
                case "out":
                    await (carry_out_exactly if exactly else carry_out)(self, client)
                case "in":
                    await (carry_in_exactly if exactly else carry_in)(self, client)
        finally:
            await client.close()


class Bridges:
    """The bridges of a node."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._bridges: dict[str, Bridge] = {}
        self._changing = asyncio.Lock()

    async def apply(self, wanted: dict[str, BridgeSettings]) -> None:
        """Let exactly these run. Those that have not changed go on undisturbed."""
        async with self._changing:
            gone = [one for name, one in self._bridges.items() if wanted.get(name) != one.settings]
            for bridge in gone:
                await bridge.stop()
                del self._bridges[bridge.name]
            for name, settings in wanted.items():
                if name not in self._bridges:
                    self._bridges[name] = Bridge(name, settings, self._manager)
                    self._bridges[name].start()

    async def stop(self) -> None:
        """Stop all of them."""
        await self.apply({})


def login_of(settings: BridgeSettings) -> Login:
    """Return the credentials for the peer, read anew for each attempt. ConfigurationError."""
    if settings.password_file is not None:
        return Login("PLAIN", settings.user, _secret_in(settings.password_file))
    if settings.password_secret is not None:
        return Login("PLAIN", settings.user, _stored(settings.password_secret))
    return Login("EXTERNAL" if settings.certificate is not None else "ANONYMOUS")


def _secret_in(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"the password in {path} cannot be read: {reason}") from None


def _stored(secret: SecretSettings) -> str:
    installed: list[Any] = list(entry_points(group=ENTRY_POINT_GROUP))
    for entry_point in installed:
        if entry_point.name == secret.store:
            try:
                return str(entry_point.load()(secret.name, secret.settings))
            except ImportError:
                raise ConfigurationError(
                    f"the store of secrets {secret.store!r} is not complete: pip install 'qmnode[{secret.store}]'"
                ) from None
    known = ", ".join(sorted(one.name for one in installed)) or "none"
    raise ConfigurationError(f"no store of secrets named {secret.store!r} is installed (known: {known})")


def client_context(settings: BridgeSettings) -> ssl.SSLContext:
    """TLS to the peer, whose certificate and name are checked. ConfigurationError."""
    try:
        context = ssl.create_default_context(cafile=settings.authorities)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if settings.certificate is not None:
            load_certificate(context, settings.certificate, settings.private_key)
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(str(one) for one in (settings.authorities, settings.certificate, settings.private_key) if one)
        raise ConfigurationError(f"{files}: no certificates, or not a certificate and its key: {error}") from None
    return context
