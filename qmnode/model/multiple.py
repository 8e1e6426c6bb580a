"""Sending to several queues at once: MS-MQDMPR 3.1.7.1.5, 3.1.7.1.27 and Expand Format Name, 3.1.7.3.8."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NoReturn

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, CursorApi, InTransaction, QueueApi, QueueType, Seek, Share
from qmnode.model.message import Message
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.open_to_send import asks_for_authentication
from qmnode.model.ports import PutSignature
from qmnode.model.transaction import Transaction
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import DistributionListFormatName, FormatName, MultipleElementFormatName
from qmnode.structures.names.parts import fold

ResolveDistributionList = Callable[[DistributionListFormatName], Awaitable[Iterable[FormatName]]]
"""Resolve Distribution List (MS-MQDSSM 3.1.6.9): the members of a group in the directory."""

_MAXIMUM_LISTS = 1000


async def expand_format_name(
    name: FormatName | MultipleElementFormatName, resolve: ResolveDistributionList | None
) -> tuple[FormatName, ...]:
    """The single names that a name stands for, sorted and without doubles.

    MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION for a distribution list when there is no directory.
    """
    if not isinstance(name, MultipleElementFormatName | DistributionListFormatName):
        return (name,)
    waiting: list[FormatName] = list(name.elements) if isinstance(name, MultipleElementFormatName) else [name]
    found: dict[str, FormatName] = {}
    lists: set[str] = set()
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, DistributionListFormatName):
            found.setdefault(fold(str(one)), one)
            continue
        if resolve is None or len(lists) > _MAXIMUM_LISTS:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                f"{one} is a distribution list, and there is no directory to look it up in",
            )
        # A list that contains itself, directly or not, is looked up once.
        if fold(str(one)) not in lists:
            lists.add(fold(str(one)))
            waiting.extend(await resolve(one))
    return tuple(found[key] for key in sorted(found))


class MultipleQueueDescriptor(QueueApi):
    """An OpenQueueDescriptor whose ``Multiple`` is true (3.1.1.16): it sends a copy of a message to each queue."""

    def __init__(self, format_name: str, descriptors: list[OpenQueueDescriptor]) -> None:
        self.format_name = format_name
        self.access = Access.SEND
        self.share = Share.DENY_NONE
        self.descriptors = descriptors
        self._manager = descriptors[0].manager
        self._open = True

    async def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        """Enqueue Message To An Open Queue (3.1.7.1.27)."""
        return (await self.send_many([message], transaction))[0]

    async def send_many(self, messages: Iterable[Message], transaction: InTransaction = None) -> list[bytes]:
        """Send a copy of each message to each queue, or of none if one is refused."""
        if not self._open:
            self._refuse(ErrorCode.MQ_ERROR_INVALID_HANDLE, f"{self.format_name} was closed: open it again")
        copies = [message.copy(destination_multi_queue_format_name=self.format_name) for message in messages]
        signatures = [await self._signatures(descriptor, copies, transaction) for descriptor in self.descriptors]
        units = [descriptor.unit_of_work(transaction) for descriptor in self.descriptors]
        unit = next((one for one in units if one is not None), None)
        identifiers = [self._send_copies(copy, unit, puts) for copy, *puts in zip(copies, *signatures, strict=True)]
        if transaction == "single" and unit is not None:
            await unit.commit()
        elif unit is None:
            await self._manager.store.durable()
        return identifiers

    async def _signatures(
        self, descriptor: OpenQueueDescriptor, copies: list[Message], transaction: InTransaction
    ) -> Sequence[PutSignature | None]:
        if not any(map(asks_for_authentication, copies)):
            return [None] * len(copies)
        descriptor.user_id = self.user_id
        return await descriptor.signatures(copies, transaction)

    def _send_copies(self, copy: Message, unit: Transaction | None, puts: Sequence[PutSignature | None]) -> bytes:
        shared = self._manager.ordinal.next()
        left = False
        accepted = []
        for descriptor, put in zip(self.descriptors, puts, strict=True):
            # A receiver knows repetitions by their identifier (MS-MQQB 3.1.5.8.1): it would drop the second of two
            # copies for queues of its own. So of those that leave, only one has the identifier that the sender is told.
            is_outgoing = descriptor.queue.queue_type is QueueType.OUTGOING
            ordinal = self._manager.ordinal.next() if is_outgoing and left else shared
            left = left or is_outgoing
            accepted.append(descriptor.accept(copy, unit, ordinal=ordinal, put_signature=put))
        for descriptor, (lookup_identifier, value, _) in zip(self.descriptors, accepted, strict=True):
            descriptor.put(lookup_identifier, value, unit)
        return accepted[0][2]

    def _refuse(self, code: ErrorCode, sentence: str) -> NoReturn:
        raise MessageQueuingError(code, sentence)

    def _only_sends(self) -> NoReturn:
        self._refuse(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{self.format_name} names several queues: it only sends")

    async def receive(self, timeout: float | None = None, transaction: InTransaction = None) -> Message:
        """Refused."""
        self._only_sends()

    async def receive_many(
        self, limit: int, timeout: float | None = None, transaction: InTransaction = None
    ) -> list[Message]:
        """Refused."""
        self._only_sends()

    async def receive_begin(self, timeout: float | None = None) -> Message:
        """Refused."""
        self._only_sends()

    async def receive_end(self, lookup_identifier: int, delete: bool) -> None:
        """Refused."""
        self._only_sends()

    async def peek(self, timeout: float | None = None) -> Message:
        """Refused."""
        self._only_sends()

    async def receive_by_lookup_id(self, lookup_identifier: int, transaction: InTransaction = None) -> Message:
        """Refused."""
        self._only_sends()

    async def peek_by_lookup_id(self, lookup_identifier: int = 0, seek: Seek = "current") -> Message:
        """Refused."""
        self._only_sends()

    def cursor(self) -> CursorApi:
        """Refused."""
        self._only_sends()

    async def move(self, lookup_identifier: int, target: QueueApi, transaction: InTransaction = None) -> None:
        """Refused."""
        self._only_sends()

    async def purge(self) -> None:
        """Refused."""
        self._only_sends()

    async def close(self) -> None:
        """Close Queue (3.1.7.1.6), for each."""
        self._open = False
        for descriptor in self.descriptors:
            descriptor.closed()
