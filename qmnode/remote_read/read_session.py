"""A peer, and the calls by which :mod:`~qmnode.remote_read.remote_queue` reads one of its queues, in any interface."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Final, NamedTuple

from qmnode.dcerpc.client import RpcClient
from qmnode.dcerpc.errors import RpcError
from qmnode.dcerpc.interface import Interface, Method
from qmnode.dcerpc.ndr import Parameters
from qmnode.model.api import Seek
from qmnode.model.message import Message
from qmnode.model.stored_message import TransferredMessage, received_message
from qmnode.remote_read.qm2qm import QM2QM, Action
from qmnode.remote_read.remote_errors import rpc_error

CALL_TIMEOUT: Final = 60.0
"""Seconds for calls that do not wait for a message."""
LAST: Final = 0xFFFFFFFFFFFFFFFF
SEEKS: Final[dict[Seek, tuple[Action, Action]]] = {
    # Actions that peek and actions that receive.
    "current": (Action.MQ_LOOKUP_PEEK_CURRENT, Action.MQ_LOOKUP_RECEIVE_CURRENT),
    "next": (Action.MQ_LOOKUP_PEEK_NEXT, Action.MQ_LOOKUP_RECEIVE_NEXT),
    "first": (Action.MQ_LOOKUP_PEEK_NEXT, Action.MQ_LOOKUP_RECEIVE_NEXT),
    "prev": (Action.MQ_LOOKUP_PEEK_PREV, Action.MQ_LOOKUP_RECEIVE_PREV),
    "last": (Action.MQ_LOOKUP_PEEK_PREV, Action.MQ_LOOKUP_RECEIVE_PREV),
}

Call = tuple[Method, Parameters]
"""A call that is to begin."""


class Reading(NamedTuple):
    """A message that has arrived."""

    message: Message
    key: Any
    """The identity of its unfinished read at the server; None if that has ended."""


class ReadPeer:
    """The connections to a queue manager that is read, and their calls."""

    def __init__(self, host: str, client: RpcClient, reader: RpcClient, interface: Interface) -> None:
        self.host = host
        self._client = client
        self.reader = reader
        """The connection for reads."""
        self.interface = interface
        """The interface of reads: RemoteRead, or qm2qm."""
        self.request_id = 0
        self.takes_lookup_ids = True
        """Whether the server has RemoteQMStartReceive2 and RemoteQMStartReceiveByLookupId."""

    @property
    def is_lost(self) -> bool:
        """Whether a connection has ended."""
        return self._client.lost is not None or self.reader.lost is not None

    def next_request_id(self) -> int:
        """A RequestId, 3.2.1.1, that no waiting read has, since there are never four billion of them."""
        self.request_id = self.request_id % 0xFFFFFFFF + 1
        return self.request_id

    async def call(self, interface: Interface, method: Method, request: Parameters, limit: float = CALL_TIMEOUT) -> Any:
        """Call a method that does not wait for a message; raises errors with MQ_ERROR codes."""
        client = self.reader if interface is QM2QM else self._client
        return await self.answer(client.begin(interface, method, request), limit)

    async def answer(self, call: asyncio.Future[Any], limit: float = CALL_TIMEOUT) -> Any:
        """The response of a call that does not wait for a message; raises errors with MQ_ERROR codes."""
        try:
            async with asyncio.timeout(limit):
                return await call
        except (RpcError, TimeoutError) as error:
            raise rpc_error(self.host, error) from error


class ReadSession(ABC):
    """An open queue at the peer. Errors have MQ_ERROR codes; futures raise RpcError."""

    takes_lookup_ids = True
    move_context: int | None = None
    """pMoveContext of a queue that is open for moves (MS-MQRR 3.1.4.11)."""

    @abstractmethod
    def begin(self, call: Call) -> asyncio.Future[Any]:
        """Begin a call of this queue, and return the future of its response."""

    @abstractmethod
    def start(self, request_id: int, action: Action, milliseconds: int = 0, cursor: int = 0) -> Call:
        """A read at the front of the queue or at a cursor."""

    @abstractmethod
    def start_by_lookup_id(self, request_id: int, action: Action, lookup_id: int) -> Call:
        """A read by lookup identifier."""

    @abstractmethod
    def transferred(self, response: Any) -> TransferredMessage:
        """The message of a successful response. MQ_ERROR if there is none in it."""

    def reading_of(self, request_id: int, action: Action, response: Any) -> Reading:
        """The same message, as applications read it, and the key of its read."""
        found = self.transferred(response)
        message = received_message(found.lookup_identifier, found.value())
        return Reading(message, self.key_of(request_id, action, response))

    @abstractmethod
    def key_of(self, request_id: int, action: Action, response: Any) -> Any:
        """The key of the read that a response leaves open; None if it leaves none."""

    @abstractmethod
    def end(self, key: Any, *, delete: bool) -> Call:
        """The end of a read: delete its message or leave it."""

    @abstractmethod
    def cancel(self, request_id: int) -> asyncio.Future[Any]:
        """Begin to cancel a waiting read."""

    @abstractmethod
    async def create_cursor(self) -> int:
        """Create a cursor and return its number."""

    @abstractmethod
    async def close_cursor(self, cursor: int) -> None:
        """Close a cursor at the server."""

    @abstractmethod
    async def move(self, lookup_id: int, target: ReadSession) -> int:
        """Move a message into a queue that is open for moves, and return the status."""

    @abstractmethod
    async def purge(self) -> int:
        """Delete all messages and return the status."""

    @abstractmethod
    async def close(self) -> None:
        """Close the queue at the server."""
