"""Bridges that carry each message exactly once, with the transactions of a peer and a ledger.

The ledger is a queue of the peer with one message, which names the last batch that the peer has committed. Each
transaction at the peer takes that message, puts the next one in its place, and sends or accepts the batch. A cut leaves
one question open, whether the last transaction was committed, and the ledger answers it. While an older connection
still holds the ledger's message, its transaction has not ended: the bridge waits until the peer has ended it.

Out: the batch is named by the lookup identifiers of its messages, which stay locked in the queue meanwhile. In: the
batch is stored in a queue of the bridge first, with its name, and moved on when the peer has committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from qmnode.amqp.addresses import opened_name
from qmnode.amqp.bridge_in import decoded, is_of_the_message, reject
from qmnode.amqp.bridge_out import encoded, open_source, report_rejected
from qmnode.amqp.client_links import Arrival, ClientReceiver, ClientSender, Outcome, PeerError, to_its_end
from qmnode.amqp.codec import CodecError
from qmnode.amqp.conditions import RefusedError, of_message
from qmnode.amqp.sections import AmqpMessage, parse, write
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueApi
from qmnode.model.message import Message
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.reading import ReadOutcome
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_to_text

if TYPE_CHECKING:
    from qmnode.amqp.bridges import Bridge
    from qmnode.amqp.client import AmqpClient

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
    outcomes: list[Outcome] = [await client.unless_lost(answer) for answer in [*answers, noted]]
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
