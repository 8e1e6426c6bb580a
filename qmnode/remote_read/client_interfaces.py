"""Another queue manager, as a remote reader sees it: finding its ports, opening its queues.

RemoteRead is tried first; a peer that does not have it is read over MS-MQQP (MS-MQRR 3.2.4.1, MS-MQQP 3.2.4.1).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from qmnode.dcerpc import endpoint_mapper
from qmnode.dcerpc.client import RpcClient
from qmnode.dcerpc.endpoint_mapper import ENDPOINT_MAPPER, NOT_REGISTERED, port_of, tower_of
from qmnode.dcerpc.errors import RpcError, RpcFault
from qmnode.dcerpc.initiator import BindRefusedError
from qmnode.dcerpc.interface import Interface
from qmnode.dcerpc.ndr import Representation
from qmnode.dcerpc.protection import AuthenticationError, SecurityContext
from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, Share
from qmnode.remote_read import qm2qm, qmcomm, remoteread
from qmnode.remote_read.client_queue import RemoteReadQueue
from qmnode.remote_read.client_sessions import (
    CALL_TIMEOUT,
    Qm2qmSession,
    ReadPeer,
    ReadSession,
    RemoteReadSession,
    check_status,
    moves_unknown,
    rpc_error,
)
from qmnode.remote_read.qm2qm import QM2QM, PortType
from qmnode.remote_read.qmcomm import QMCOMM
from qmnode.remote_read.queue_format import to_queue_format
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, new_guid
from qmnode.structures.names import FormatName

ENDPOINT_MAPPER_PORT: Final = 135
DEFAULT_PORT: Final = 2103
"""The port of the interfaces if no endpoint mapper is asked (MS-MQMP 3.1.4.24)."""
OPEN_TIMEOUT: Final = 300.0
"""Seconds that opening may take: 3.2.4.1."""
TICKET_TIMEOUT: Final = 30.0
"""Seconds that a domain controller has to issue a ticket."""
_OLD_VERSION: Final = (5, 1)
"""Servers below this version lack RemoteQMStartReceive2 (3.2.4.2)."""


@dataclass(frozen=True, slots=True)
class RemoteReadOptions:
    """The way to reach a queue manager, and the identity to use."""

    endpoint_mapper_port: int = ENDPOINT_MAPPER_PORT
    """The port of the endpoint mapper; 0 to ask none."""
    port: int = DEFAULT_PORT
    """The port of the interfaces when no endpoint mapper is asked."""
    own_address: str = ""
    security: Callable[[str], SecurityContext] | None = None
    """Makes the initiator's side of a security context for a host; None to read anonymously."""
    representations: Sequence[Representation] = ()
    """The transfer syntaxes to offer; none means all."""
    identifier: Guid = field(default_factory=new_guid)
    """pLicGuid: QueueManager.Identifier of this side."""
    mqs: int = 0
    """dwMQS: 1 for a routing server or a directory server."""


class RemoteNode(ReadPeer):
    """Connections to one queue manager. Its open queues share them; ``close`` ends all."""

    def __init__(
        self, host: str, options: RemoteReadOptions, client: RpcClient, reader: RpcClient, interface: Interface
    ) -> None:
        super().__init__(host, client, reader, interface)
        self._options = options
        self.queues: set[RemoteReadQueue] = set()
        """RemoteOpenQueueEntryCollection, 3.2.1.4: the queues opened through it."""
        self.on_idle: Callable[[RemoteNode], object] | None = None
        """Called when no queue is open any longer."""
        self._opening: set[asyncio.Future[RemoteReadQueue]] = set()
        self._closing: set[asyncio.Future[None]] = set()

    @classmethod
    async def connect(cls, host: str, options: RemoteReadOptions | None = None) -> Self:
        """Connect, through the endpoint mapper, to RemoteRead; without that, to qmcomm and the port that it names for
        qm2qm.

        Raises MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE if there is no answer, MQ_ERROR_ACCESS_DENIED if authentication
        fails.
        """
        options = options or RemoteReadOptions()
        try:
            try:
                port = await find_port(host, REMOTE_READ, options)
                client = await connected(host, port, (REMOTE_READ,), options)
            except BindRefusedError:
                return await cls._connect_old(host, options)
            return cls(host, options, client, client, REMOTE_READ)
        except AuthenticationError as error:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{host}: {error}") from error
        except (RpcError, OSError, TimeoutError) as error:
            raise rpc_error(host, error) from error

    @classmethod
    async def _connect_old(cls, host: str, options: RemoteReadOptions) -> Self:
        """Connect to a queue manager that does not have RemoteRead."""
        port = await find_port(host, QMCOMM, options)
        client = await connected(host, port, (QMCOMM, QM2QM), options)
        try:
            reader = await cls._reader(host, port, client, options)
            node = cls(host, options, client, reader, QM2QM)
            await node._ask_version()
        except BaseException:
            client.abort()
            raise
        return node

    @staticmethod
    async def _reader(host: str, port: int, client: RpcClient, options: RemoteReadOptions) -> RpcClient:
        """Connect to qm2qm if qmcomm reports another port for it; otherwise share one connection."""
        request = qmcomm.ServerPortRequest(ip=PortType.IP_READ)
        read_port = (await client.call(QMCOMM, qmcomm.GET_SERVER_PORT, request)).status
        if read_port in (0, port):
            return client
        return await connected(host, read_port, (QM2QM,), options)

    async def _ask_version(self) -> None:
        try:
            version = await self.reader.call(QM2QM, qm2qm.GET_VERSION, qm2qm.GetVersionRequest())
        except RpcFault:
            self.takes_lookup_ids = False  # the first servers lack the method (note 21)
        else:
            self.takes_lookup_ids = (version.major, version.minor) >= _OLD_VERSION

    async def open_queue(
        self, name: FormatName, access: Access = Access.RECEIVE, share: Share = Share.DENY_NONE
    ) -> RemoteReadQueue:
        """Open a queue to read it."""
        opening = asyncio.ensure_future(self._open_queue(name, access, share))
        self._opening.add(opening)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if not opening.cancelled():  # it is open there, or soon will be, for no user
                closing = asyncio.ensure_future(_close_when_open(opening))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            raise
        finally:
            if opening.done():
                self._opened(opening)
            else:
                opening.add_done_callback(self._opened)

    def _opened(self, opening: asyncio.Future[RemoteReadQueue]) -> None:
        self._opening.discard(opening)
        self.queue_closed()

    async def _open_queue(self, name: FormatName, access: Access, share: Share) -> RemoteReadQueue:
        opened = self._open_remote_read if self.interface is REMOTE_READ else self._open_qm2qm
        queue = RemoteReadQueue(self, str(name), access, share, await opened(name, access, share), self._closed)
        self.queues.add(queue)
        return queue

    async def _open_remote_read(self, name: FormatName, access: Access, share: Share) -> ReadSession:
        """Open it with R_OpenQueue, or R_OpenQueueForMove as the target of moves (MS-MQRR 3.2.4.1)."""
        if access is Access.MOVE and share is not Share.DENY_NONE:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
                f"{name}: the target of moves is opened with Share.DENY_NONE",
            )
        request = remoteread.OpenQueueRequest(
            queue_format=to_queue_format(name),
            access=int(access),
            share_mode=int(share),
            client_id=self._options.identifier,
            non_routing_server=int(not self._options.mqs),
        )
        if access is Access.MOVE:
            target = await self.call(REMOTE_READ, remoteread.OPEN_QUEUE_FOR_MOVE, request, OPEN_TIMEOUT)
            return RemoteReadSession(self, target.context, target.move_context)
        opened = await self.call(REMOTE_READ, remoteread.OPEN_QUEUE, request, OPEN_TIMEOUT)
        return RemoteReadSession(self, opened.context)

    async def _open_qm2qm(self, name: FormatName, access: Access, share: Share) -> ReadSession:
        """R_QMOpenRemoteQueue, RemoteQMOpenQueue, R_QMCloseRemoteQueueContext (MS-MQMP 4.2)."""
        if access is Access.MOVE:
            raise moves_unknown(self.host)
        options = self._options
        opened = await self.call(
            QMCOMM,
            qmcomm.OPEN_REMOTE_QUEUE,
            qmcomm.OpenRemoteQueueRequest(
                queue_format=to_queue_format(name),
                desired_access=int(access),
                share_mode=int(share),
                license_guid=options.identifier,
            ),
            OPEN_TIMEOUT,
        )
        check_status(opened.status, f"{name} at {self.host}")
        session = await self.call(
            QM2QM,
            qm2qm.OPEN_QUEUE,
            qm2qm.OpenQueueRequest(
                license_guid=options.identifier,
                mqs=options.mqs,
                h_queue=opened.h_queue,
                p_queue=opened.p_queue,
                context=opened.context,
            ),
            OPEN_TIMEOUT,
        )
        await self.call(QMCOMM, qmcomm.CLOSE_REMOTE_QUEUE_CONTEXT, qmcomm.CloseRemoteQueueContext(handle=opened.handle))
        check_status(session.status, f"{name} at {self.host}")
        return Qm2qmSession(self, opened.h_queue, opened.p_queue, session.context)

    def _closed(self, queue: RemoteReadQueue) -> None:
        self.queues.discard(queue)
        self.queue_closed()

    def queue_closed(self) -> None:
        """Count a queue that was closed, or could not be opened."""
        if not self.queues and not self._opening and self.on_idle is not None:
            self.on_idle(self)

    async def close(self) -> None:
        """Close the queues, then the connections."""
        self.on_idle = None
        for queue in list(self.queues):
            with contextlib.suppress(MessageQueuingError):  # the connection's end closes the rest
                await queue.close()
        self.abort()

    def abort(self) -> None:
        """End the connections at once: the server closes everything that they opened."""
        self._client.abort()
        self.reader.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _close_when_open(opening: asyncio.Future[RemoteReadQueue]) -> None:
    with contextlib.suppress(MessageQueuingError):
        await (await opening).close()


async def find_port(host: str, interface: Interface, options: RemoteReadOptions) -> int:
    """Return the port of an interface. Raises BindRefusedError if the endpoint mapper does not know the interface."""
    if not options.endpoint_mapper_port:
        return options.port
    mapper = await RpcClient.connect(
        host, options.endpoint_mapper_port, (ENDPOINT_MAPPER,), own_address=options.own_address
    )
    try:
        request = endpoint_mapper.MapRequest(tower=tower_of(interface.syntax, 0, "0.0.0.0"))  # noqa: S104  # any host
        async with asyncio.timeout(CALL_TIMEOUT):
            response = await mapper.call(ENDPOINT_MAPPER, endpoint_mapper.MAP, request)
    finally:
        mapper.abort()
    towers = [tower for tower in response.towers if tower is not None]
    if response.status == NOT_REGISTERED:
        raise BindRefusedError(f"the endpoint mapper does not know {interface.name} there")
    if response.status or not towers:
        raise RpcError(f"the endpoint mapper does not answer for {interface.name} (status {response.status:#010x})")
    return port_of(towers[0])


async def connected(
    host: str,
    port: int,
    interfaces: Sequence[Interface],
    options: RemoteReadOptions,
    representations: Sequence[Representation] = (),
) -> RpcClient:
    """Connect to interfaces with the options' identity. Without ``representations`` it offers those of the options.

    Raises RpcError, AuthenticationError, OSError, TimeoutError.
    """
    security = None
    if options.security is not None:
        # A domain controller that issues tickets slowly must not delay other work.
        async with asyncio.timeout(TICKET_TIMEOUT):
            security = await asyncio.to_thread(options.security, host)
    return await RpcClient.connect(
        host,
        port,
        interfaces,
        representations=representations or options.representations,
        security=security,
        own_address=options.own_address,
    )
