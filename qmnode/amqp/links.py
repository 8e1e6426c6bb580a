"""The common parts of links, without I/O: their refusal, and the credit and messages of those that bring some."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from proton import Condition, Delivery, Endpoint, Link, Terminus

from qmnode.amqp.codec import CodecError, Decoder, encode
from qmnode.amqp.error_conditions import RefusedError
from qmnode.amqp.mapping import MappingContext, from_amqp, identity
from qmnode.amqp.sections import AmqpMessage
from qmnode.errors import MessageQueuingError
from qmnode.model.administration import AmqpCounts
from qmnode.model.api import InTransaction, QueueApi
from qmnode.model.message import Message
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.settings.amqp import AmqpSettings

if TYPE_CHECKING:
    from qmnode.amqp.addresses import TemporaryQueues
    from qmnode.amqp.end_to_end import Arrivals
    from qmnode.amqp.principals import Principal
    from qmnode.amqp.transactions import Transactions
    from qmnode.model.queue_manager import QueueManager
    from qmnode.shares import Party

_MOST: Final = 10_000
_BYTES: Final = 4 << 20
"""Bytes of all annotations together; beyond them, and beyond so many messages, the oldest are forgotten."""
_LONGEST: Final = 64 * 1024


class Returned:
    """The messages that came back since the node started, by queue and lookup identifier."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._size = 0

    def __contains__(self, key: tuple[int, int]) -> bool:
        return key in self._kept

    def annotations(self, key: tuple[int, int]) -> dict[Any, Any]:
        """The annotations for the next receiver of a message."""
        kept = self._kept.get(key)
        return Decoder(kept).value() if kept else {}

    def add(self, key: tuple[int, int], annotations: bytes = b"") -> None:
        """Remember a message, and an encoded map of annotations, which replace those with the same names."""
        if annotations:
            annotations = self._merged(key, annotations)
        kept = self._kept.pop(key, b"")
        self._size += len(annotations or kept) - len(kept)
        self._kept[key] = annotations or kept
        while len(self._kept) > _MOST or self._size > _BYTES:
            self._size -= len(self._kept.popitem(last=False)[1])

    def _merged(self, key: tuple[int, int], annotations: bytes) -> bytes:
        try:
            found = Decoder(annotations).value()
            merged = encode(self.annotations(key) | {name: one for name, one in found.items() if isinstance(name, str)})
        except (CodecError, AttributeError):  # no map, or one that is not taken in messages either
            return b""
        return merged if len(merged) <= _LONGEST else b""

    def discard(self, key: tuple[int, int]) -> None:
        """Forget a message that is gone."""
        self._size -= len(self._kept.pop(key, b""))


_CLOSED: Final = Endpoint.REMOTE_CLOSED | Endpoint.LOCAL_CLOSED


class Host(Protocol):
    """The connection as its links see it."""

    manager: QueueManager
    settings: AmqpSettings
    place: MappingContext
    principal: Principal
    transactions: Transactions
    counts: AmqpCounts
    arrivals: Arrivals
    returned: Returned
    party: Party
    temporary: TemporaryQueues
    held_bytes: int
    """Bytes of the messages that the connection's links have locked."""
    closed: bool
    writable: bool
    """Whether the peer takes what is sent."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work that waits for the node; what it has for the peer is sent when it ends."""

    def flush(self) -> None:
        """Send soon what the engine has for the peer."""

    def later(self, seconds: float, work: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back after a time, unless the connection has ended by then."""

    def take_partial(self, size: int) -> None:
        """Count bytes of a message that is not whole, or no longer. RefusedError if there are too many."""

    def take_attached(self, size: int) -> bool:
        """Count the bytes of a frame that attaches a link, or no longer; False if there are too many."""


class Sent(NamedTuple):
    """A message that a queue is to take."""

    message: Message
    identity: bytes
    """That of its message id, if the queue detects duplicates; otherwise empty."""

    @classmethod
    def read(cls, found: AmqpMessage, queue: QueueApi | None, place: MappingContext) -> Sent:
        """The message for a queue. MessageQueuingError or CodecError if there is none for it."""
        message = from_amqp(found, place)
        return cls(message, identity(found) if detects_duplicates(queue) else b"")

    async def into(self, queue: QueueApi, transaction: InTransaction) -> None:
        """Send the message to its queue. MessageQueuingError if that refuses it."""
        if self.identity and isinstance(queue, OpenQueueDescriptor):
            await queue.send_once(self.message, self.identity, transaction)
        else:
            await queue.send(self.message, transaction)


def detects_duplicates(queue: QueueApi | None) -> bool:
    """Whether an open queue is one of this node that has a window."""
    return isinstance(queue, OpenQueueDescriptor) and queue.queue.duplicate_window > 0


async def send_all(
    queue: QueueApi, messages: Sequence[Sent], transaction: InTransaction
) -> list[MessageQueuingError | None]:
    """Send messages with one sync, as one if none needs a transaction or a look at its id; why each was refused."""
    if messages and transaction is None and not any(one.identity for one in messages):
        try:
            await queue.send_many([one.message for one in messages])
        except MessageQueuingError as error:
            if len(messages) == 1:
                return [error]
        else:
            return [None] * len(messages)
    results = await asyncio.gather(*(one.into(queue, transaction) for one in messages), return_exceptions=True)
    return [_refusal(result) for result in results]


def _refusal(result: BaseException | None) -> MessageQueuingError | None:
    if result is None or isinstance(result, MessageQueuingError):
        return result
    raise result


class DoorLink(Protocol):
    """One link, as the connection sees it."""

    number: int

    def flow(self) -> None:
        """Use the credit that the peer has given or taken back."""

    def delivery(self, delivery: Delivery) -> None:
        """Something has happened to a delivery."""

    def pass_ended(self) -> None:
        """Finish the work of one pass, after its last event."""

    async def close(self) -> None:
        """The link has ended: store what it brought, and give back what it holds."""


def refuse(endpoint: Any, error: RefusedError) -> None:
    """Close a link, session or connection, opening it first if need be, and say why."""
    if endpoint.state & Endpoint.LOCAL_UNINIT:
        if isinstance(endpoint, Link):  # 2.6.3: a link that will not be has no terminus
            endpoint.source.type = endpoint.target.type = Terminus.UNSPECIFIED
        endpoint.open()
    if not endpoint.state & Endpoint.LOCAL_CLOSED:
        endpoint.condition = Condition(error.condition, error.description)
        endpoint.close()


def is_gone(link: Any) -> bool:
    """Whether a link has ended meanwhile, by itself or with its session."""
    return bool(link.state & _CLOSED)


def reject(delivery: Delivery, error: RefusedError) -> None:
    """The outcome of a message that is not taken."""
    delivery.local.condition = Condition(error.condition, error.description)
    delivery.update(Delivery.REJECTED)


def credit_to_give(window: int, given: int, under_way: int, room: int | None) -> int:
    """Messages more that a sender may send.

    ``window`` is what one link may have under way at most, of which ``given`` is credit that is not used and
    ``under_way`` waits for the disk. ``room`` is what the queue has room for; None for any number. New credit is given
    when a quarter of the window is unused: not each message costs a frame, and a sender that uses the whole window need
    not wait until half of it is on disk.
    """
    used = given + under_way
    wanted = window - used
    if room is not None:
        wanted = min(wanted, room - used)
        return max(0, wanted)
    return wanted if wanted * 4 >= window else 0
