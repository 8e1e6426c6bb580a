"""Transactions of AMQP 1.0 (part 4) as the node's own, without I/O: declared, used and discharged by their numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from qmnode.amqp.codec import Described
from qmnode.amqp.error_conditions import (
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT,
    ROLLBACK,
    UNKNOWN_TRANSACTION,
    RefusedError,
)
from qmnode.amqp.sections import VALUE, AmqpMessage
from qmnode.errors import MessageQueuingError
from qmnode.model.api import QueueManagerApi, TransactionApi

DECLARED: Final = 0x33
"""Delivery states of part 4.5, beside those of part 3.4."""
TRANSACTIONAL: Final = 0x34
ACCEPTED: Final = 0x24
_DECLARE: Final = 0x31
_DISCHARGE: Final = 0x32
_NAMES: Final = {"amqp:declare:list": _DECLARE, "amqp:discharge:list": _DISCHARGE}


@dataclass(frozen=True, slots=True)
class Declare:
    """A request to begin a transaction."""


@dataclass(frozen=True, slots=True)
class Discharge:
    """A request to end a transaction."""

    identifier: bytes
    fail: bool


def read_request(message: AmqpMessage) -> Declare | Discharge:
    """The request in a message to the coordinator. RefusedError."""
    body = message.body
    if message.body_kind == VALUE and isinstance(body, Described) and isinstance(body.value, list):
        number = _NAMES.get(body.descriptor, body.descriptor)
        fields = [*body.value, None, None]
        if number == _DECLARE:
            if fields[0] is not None:
                raise RefusedError(
                    NOT_IMPLEMENTED, "there are no distributed transactions: declare without a global-id"
                )
            return Declare()
        if number == _DISCHARGE and isinstance(fields[0], bytes):
            return Discharge(fields[0], fields[1] is True)
    raise RefusedError(NOT_ALLOWED, "the coordinator takes declare and discharge, and nothing else")


def transaction_of(state: Any) -> bytes | None:
    """The number of the transaction in the fields of a transactional state."""
    identifier = state[0] if isinstance(state, list) and state else None
    return bytes(identifier) if isinstance(identifier, bytes | memoryview) else None


class Transactions:
    """The transactions of one connection that have not ended."""

    def __init__(self, manager: QueueManagerApi, limit: int, take: Callable[[int], bool]) -> None:
        """``take`` counts bytes of messages sent in transactions, or no longer; False if there are too many."""
        self._manager = manager
        self._take = take
        self._sizes: dict[bytes, int] = {}
        self._limit = limit
        self._last = 0
        self._open: dict[bytes, TransactionApi] = {}
        self._doomed: dict[bytes, str] = {}
        """Those of which a part has failed, with the reason: they can only be rolled back."""
        self._parties: dict[bytes, list[Callable[[bool], None]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def declare(self) -> bytes:
        """Begin one; its number. RefusedError when there are too many."""
        if len(self._open) >= self._limit:
            raise RefusedError(RESOURCE_LIMIT, f"{self._limit} transactions are open: discharge some")
        self._last += 1
        identifier = self._last.to_bytes(8, "big")
        self._open[identifier] = self._manager.transaction()
        return identifier

    def find(self, identifier: bytes | None) -> TransactionApi:
        """An open transaction. RefusedError."""
        unit = self._open.get(identifier or b"")
        if unit is None:
            raise RefusedError(UNKNOWN_TRANSACTION, "there is no such transaction: it has ended, or took too long")
        return unit

    def doom(self, identifier: bytes | None, reason: str) -> None:
        """Let a transaction end in a rollback whatever its program asks for, as a part of it was not done."""
        if identifier is not None and identifier in self._open:
            self._doomed.setdefault(identifier, reason)

    def hold(self, identifier: bytes | None, size: int) -> TransactionApi:
        """An open transaction that a message of this size is sent in: the node keeps it in memory. RefusedError."""
        unit = self.find(identifier)
        if not self._take(size):
            raise RefusedError(RESOURCE_LIMIT, "transactions hold too many bytes: discharge some, or send less in each")
        self._sizes[identifier or b""] = self._sizes.get(identifier or b"", 0) + size
        return unit

    def at_end(self, identifier: bytes | None, party: Callable[[bool], None]) -> None:
        """Call back when an open transaction has ended: True if it is committed."""
        self._parties.setdefault(identifier or b"", []).append(party)

    def _ended(self, identifier: bytes, committed: bool) -> None:
        if size := self._sizes.pop(identifier, 0):
            self._take(-size)
        for party in self._parties.pop(identifier, ()):
            party(committed)

    async def discharge(self, request: Discharge) -> None:
        """End one. RefusedError if it cannot be committed: then nothing of it has happened."""
        unit = self.find(request.identifier)
        del self._open[request.identifier]
        reason = self._doomed.pop(request.identifier, "")
        committed = False
        try:
            await (unit.abort() if request.fail or reason else unit.commit())
            committed = not (request.fail or reason)
        except MessageQueuingError as error:
            raise RefusedError(ROLLBACK, str(error)) from None
        finally:
            self._ended(request.identifier, committed)
        if reason and not request.fail:
            raise RefusedError(ROLLBACK, f"a part of the transaction was refused, so none of it is done: {reason}")

    async def abort(self, identifier: bytes) -> None:
        """Roll one back that nobody will discharge any more."""
        self._doomed.pop(identifier, None)
        unit = self._open.pop(identifier, None)
        if unit is not None:
            try:
                await unit.abort()
            finally:
                self._ended(identifier, committed=False)

    async def abort_all(self) -> None:
        """The connection, or the link to the coordinator, is gone."""
        for identifier in list(self._open):
            await self.abort(identifier)
