"""One queue over RemoteRead, method by method: for tests of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qmnode.dcerpc.client import RpcClient
from qmnode.dcerpc.ndr import NDR
from qmnode.remote_read import remoteread
from qmnode.remote_read.qm2qm import RemoteReadAck
from qmnode.remote_read.queue_format import to_queue_format
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.structures.names import parse_single_format_name
from tests.remote_read.conftest import THERE

if TYPE_CHECKING:
    from types import TracebackType

    from qmnode.dcerpc.interface import Method
    from qmnode.dcerpc.ndr import Representation
    from tests.remote_read.conftest import Remote


class RawRemoteRead:
    """A connection with an open queue, used as ``async with``."""

    def __init__(self, remote: Remote, name: str = THERE, representation: Representation = NDR, group: int = 0) -> None:
        self._remote, self._name = remote, name
        self._representation, self._group = representation, group
        self.context = bytes(20)
        self.rpc: RpcClient

    async def __aenter__(self) -> RawRemoteRead:
        self.rpc = await RpcClient.connect(
            self._remote.address, self._remote.port, (REMOTE_READ,), representations=(self._representation,),
            group_id=self._group,
        )  # fmt: skip
        if self._name:
            self.context = (await self.open(self._name)).context
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rpc.abort()

    async def call(self, method: Method, **parameters: Any) -> Any:
        return await self.rpc.call(REMOTE_READ, method, method.request(**parameters))

    async def open(self, name: str, access: int = 1, share: int = 0, method: Method = remoteread.OPEN_QUEUE) -> Any:
        queue_format = to_queue_format(parse_single_format_name(name))
        return await self.call(method, queue_format=queue_format, access=access, share_mode=share)

    async def start(self, request: int = 1, **more: Any) -> Any:
        return await self.call(remoteread.START_RECEIVE, context=self.context, request_id=request, **more)

    async def end(self, request: int = 1, *, delete: bool = True) -> int:
        ack = RemoteReadAck.RR_ACK if delete else RemoteReadAck.RR_NACK
        ended = await self.call(remoteread.END_RECEIVE, context=self.context, ack=ack, request_id=request)
        return int(ended.status)

    async def status(self, method: Method, **parameters: Any) -> int:
        return int((await self.call(method, context=self.context, **parameters)).status)
