"""The remote read server: the interfaces on their port, and the endpoint mapper on its own."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.dcerpc.endpoint_mapper import EndpointMapper
from qmnode.dcerpc.protection import AuthenticationLevel, AuthenticationType, SecurityContext
from qmnode.dcerpc.server import RpcServer, ServerLimits, Service
from qmnode.directory.port import Directory
from qmnode.errors import MessageQueuingError
from qmnode.remote_read.qm2qm import QM2QM
from qmnode.remote_read.qm2qm_server import Qm2qmServer
from qmnode.remote_read.qmcomm import QMCOMM
from qmnode.remote_read.qmcomm_server import QmcommServer
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.remote_read.remoteread_server import RemoteReadInterface
from qmnode.remote_read.server_reads import Identities, Reads, RemoteOpening, RemoteQueues
from qmnode.security.principals import Principals
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.shares import RPC_ANSWER_BYTES
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

log = structlog.get_logger(__name__)

_ANNOTATIONS: Final = {
    QMCOMM: "Message Queuing - QMRT V1",
    QM2QM: "Message Queuing - QM2QM V1",
    REMOTE_READ: "Message Queuing - RemoteRead V1",
}
"""The annotations of the interfaces at the endpoint mapper, in Windows' words."""
_STEP: Final = 11
_ATTEMPTS: Final = 100


class RemoteReadServer:
    """Serves the queues of a queue manager to remote readers."""

    def __init__(
        self,
        manager: QueueManager,
        settings: RemoteReadSettings,
        directory: Directory,
        security: Callable[[AuthenticationType, AuthenticationLevel, int], SecurityContext] | None = None,
        principals: Principals | None = None,
        beside: Mapping[Service, str] | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        """``security`` makes security contexts; without it all callers are anonymous. ``principals`` says who the
        others are. ``beside`` are other services on the same port, with their annotations."""
        self.settings = settings
        self.queues = RemoteQueues(settings.open_queues)
        self._manager = manager
        identities = Identities(manager, principals or Principals(manager.settings.security, directory))
        limits = replace(
            limits or ServerLimits(),
            connections=settings.connections,
            connections_per_peer=settings.connections_per_peer,
        )
        opening = RemoteOpening(manager, self.queues, identities)
        reads = Reads(settings.held_bytes)
        patience = settings.pending_request_timeout
        services = dict(beside or {})
        if settings.enabled:
            served = [
                QmcommServer(opening, self.queues, identities, lambda: self.port).service(),
                Qm2qmServer(self.queues, identities, lambda: self.port, reads).service(),
                RemoteReadInterface(opening, self.queues, lambda: self.port, reads, patience).service(),
            ]
            services |= {one: _ANNOTATIONS[one.interface] for one in served}
        shares = manager.context.shares
        answers = shares.open(RPC_ANSWER_BYTES, settings.answer_bytes)
        self.server = RpcServer(list(services), answers, turns=shares.turns, limits=limits, security=security)
        mapper = EndpointMapper({one.interface: name for one, name in services.items()}, lambda: self.port)
        self.endpoint_mapper = RpcServer([mapper.service()], answers, turns=shares.turns, limits=limits)

    @property
    def port(self) -> int:
        return self.server.port

    async def start(self) -> None:
        """Start to listen. Raises MQ_ERROR_SERVICE_NOT_AVAILABLE if a port is taken or the node is hardened."""
        settings = self.settings
        if self._manager.settings.hardened_security:
            # HardenedSecurity, MS-MQDMPR 3.1.1.1: no RPC request is responded to.
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
                "a node in hardened mode answers no remote procedure calls: hardened_security or remote_read, not both",
            )
        await self._listen()
        if settings.endpoint_mapper_port:
            try:
                await self.endpoint_mapper.start(settings.address, settings.endpoint_mapper_port)
            except OSError as error:
                await self.server.stop()
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
                    f"the endpoint mapper cannot listen on port {settings.endpoint_mapper_port}: {error}. Ports below "
                    "1024 need the capability CAP_NET_BIND_SERVICE: give it, or set remote_read.endpoint_mapper_port "
                    "to another, or to 0 for none",
                ) from error

    async def _listen(self) -> None:
        """Listen, 3.1.4.8: while the port is in use, try the one eleven further."""
        settings = self.settings
        port = settings.port
        for _ in range(_ATTEMPTS):
            try:
                await self.server.start(settings.address, port)
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port + _STEP > 0xFFFF:
                    raise MessageQueuingError(
                        ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
                        f"remote read cannot listen on {settings.address or 'any address'}, port {port}: {error}. "
                        "Change remote_read.address or remote_read.port",
                    ) from error
            port += _STEP
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
            f"remote read found no free port from {settings.port} on: set remote_read.port",
        )

    async def stop(self) -> None:
        """Stop listening; messages of unfinished reads are returned."""
        await self.endpoint_mapper.stop()
        await self.server.stop()
        self.queues.close_all()
