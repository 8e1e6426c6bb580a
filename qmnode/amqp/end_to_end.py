"""End-to-end acceptance: a sender learns that its message has arrived in a queue of another machine.

The node asks for arrival acknowledgments (MS-MQMQ 2.2.19.3) to a private queue of the door, and reads them there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.amqp.error_conditions import NOT_ALLOWED, NOT_IMPLEMENTED, RefusedError
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, InTransaction, QueueApi
from qmnode.model.message import Acknowledgment, Message
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.queue import OutgoingQueue
from qmnode.structures.enumerations import MessageClass, is_negative_acknowledgment
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_to_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)

ARRIVAL: Final = "qmnode:arrival"
"""Property of a link: the seconds in which its messages have to arrive in a queue of another machine."""
_LONGEST: Final = 7 * 24 * 3600
_LATE: Final = 5.0
"""Seconds that an acknowledgment may take after the time for the arrival."""
_PATH: Final = r".\private$\amqp$arrivals"
_NAME: Final = _PATH.removeprefix(".\\")
_AT_ONCE: Final = 256
_AGAIN: Final = 1.0
"""Seconds until the queue is opened again after it was closed or deleted."""


def arrival_limit(value: object, queue: QueueApi) -> int | None:
    """The seconds that a link gives its messages; None if they are accepted on disk. RefusedError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LONGEST:
        raise RefusedError(NOT_ALLOWED, f"{ARRIVAL} is a whole number of seconds, from 1 to {_LONGEST}")
    if not isinstance(queue, OpenQueueDescriptor):
        raise RefusedError(NOT_IMPLEMENTED, f"{ARRIVAL} is for one queue: use a link for each queue")
    return int(value) if isinstance(queue.queue, OutgoingQueue) else None


class Arrivals:
    """The messages whose senders wait for their arrival."""

    def __init__(self, manager: QueueManager, address: Callable[[], str]) -> None:
        """``address`` returns an IP address of this node for other machines; empty if none is known."""
        self._manager = manager
        self._address = address
        self._waiting: dict[bytes, asyncio.Future[int]] = {}
        """By message identifier: the class of the acknowledgment."""
        self._early: dict[bytes, int] = {}
        """Acknowledgments that came before the identifier of their message was known here."""
        self._sending = 0
        self._starting = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._private_name = ""

    async def start(self) -> None:
        """Be ready to receive acknowledgments. MessageQueuingError if there can be no queue for them."""
        async with self._starting:
            if self._reader is None:
                await self._create()
                self._reader = asyncio.get_running_loop().create_task(self._read(), name="AMQP arrivals")

    async def stop(self) -> None:
        """Stop reading; the door has closed its connections."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
            self._reader = None

    async def send(
        self, queue: QueueApi, message: Message, transaction: InTransaction, seconds: int
    ) -> tuple[bytes, asyncio.Future[int]]:
        """Send a message. Its identifier, and what ``wait`` waits for. MessageQueuingError: refused."""
        asked = message.copy(
            acknowledgements_requested=Acknowledgment.FULL_REACH_QUEUE,
            administration_queue_format_name=self._name_for(queue),
            time_to_reach_queue=seconds,
        )
        arrived: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._sending += 1
        try:
            identifier = await queue.send(asked, transaction)
            self._waiting[identifier] = arrived
            if (early := self._early.get(identifier)) is not None:
                arrived.set_result(early)
        finally:
            self._sending -= 1
            if not self._sending:
                self._early.clear()
        return identifier, arrived

    async def wait(self, identifier: bytes, arrived: asyncio.Future[int], seconds: int) -> None:
        """Wait for its arrival. MessageQueuingError: unknown; RefusedError: it did not arrive."""
        try:
            async with asyncio.timeout(seconds + _LATE):
                outcome = await arrived
        except TimeoutError:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_IO_TIMEOUT,
                f"no acknowledgment came within {seconds} s: the message has arrived, or was dropped without one",
            ) from None
        finally:
            del self._waiting[identifier]
        if is_negative_acknowledgment(outcome):
            raise RefusedError(_class_name(outcome), "the message did not reach its queue")

    def _name_for(self, queue: QueueApi) -> str:
        """The name of the queue of acknowledgments, of the kind by which the sender has named the other machine."""
        name = queue.format_name.upper()
        if name.startswith("DIRECT=TCP:") and (address := self._address()):
            return f"DIRECT=TCP:{address}\\{_NAME}"
        if name.startswith("DIRECT="):
            return f"DIRECT=OS:{_PATH}"
        return self._private_name

    async def _create(self) -> None:
        try:
            found = await self._manager.create_queue(_PATH, label="Acknowledgments for senders over AMQP")
        except MessageQueuingError as error:
            if error.code != ErrorCode.MQ_ERROR_QUEUE_EXISTS:
                raise
            found = await self._manager.queue(_PATH)
        self._private_name = f"PRIVATE={guid_to_text(self._manager.identifier)}\\{found.private_queue_number:08x}"

    async def _read(self) -> None:
        while True:
            try:
                async with await self._manager.open_queue(f"DIRECT=OS:{_PATH}", Access.RECEIVE) as queue:
                    while True:
                        for message in await queue.receive_many(_AT_ONCE):
                            self._take(message)
            except MessageQueuingError as error:
                log.warning("acknowledgments for senders over AMQP cannot be read", reason=str(error))
            await asyncio.sleep(_AGAIN)

    def _take(self, message: Message) -> None:
        # Applications cannot send these classes (MS-MQDMPR 3.1.7.1.27), and anyone may send others here.
        if message.message_class != MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE and not is_negative_acknowledgment(
            message.message_class
        ):
            return
        identifier = message.correlation_identifier
        arrived = self._waiting.get(identifier)
        if arrived is None:
            if self._sending:
                self._early[identifier] = message.message_class
        elif not arrived.done():
            arrived.set_result(message.message_class)


def _class_name(message_class: int) -> str:
    try:
        return MessageClass(message_class).name
    except ValueError:
        return f"{message_class:#06x}"
