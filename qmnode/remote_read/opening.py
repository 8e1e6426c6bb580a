"""Open Queue (MS-MQDMPR 3.1.7.1.5) for a remote caller, by its QUEUE_FORMAT."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from qmnode.errors import MessageQueuingError
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.remote_read.queue_format import QueueFormatValue, to_format_name
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.names import (
    DirectFormatName,
    DirectProtocol,
    FormatName,
    MachineFormatName,
    PrivateFormatName,
    PublicFormatName,
    QueueNameError,
)

if TYPE_CHECKING:
    from qmnode.dcerpc.server import Caller
    from qmnode.model.api import Access, Share
    from qmnode.model.queue_manager import QueueManager
    from qmnode.remote_read.identities import Identities
    from qmnode.remote_read.opened import RemoteQueue, RemoteQueues

_READABLE: Final = (DirectFormatName, PublicFormatName, PrivateFormatName, MachineFormatName)


class RemoteOpening:
    """Opens local queues for callers of other machines, with their own rights."""

    def __init__(self, manager: QueueManager, queues: RemoteQueues, identities: Identities) -> None:
        self._manager = manager
        self._queues = queues
        self._identities = identities

    async def open(
        self, caller: Caller, queue_format: QueueFormatValue | None, access: Access, share: Share
    ) -> RemoteQueue:
        """Open a queue of this queue manager. Raises the MQ_ERROR code of the reason if it cannot be opened."""
        self._queues.check_room()
        name = self._at_home(_name_of(queue_format), caller)
        if not self._manager.names.is_local(name):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"{name} is not a queue of this computer")
        principal = await self._identities.principal(caller.principal)
        opened = await self._manager.open_queue(str(name), access, share, caller=principal)
        assert isinstance(opened, OpenQueueDescriptor)
        return self._queues.add(opened, caller)

    def _at_home(self, name: FormatName, caller: Caller) -> FormatName:
        """The name with a local address: the one that the caller connected to is ours, whatever the settings know."""
        if not isinstance(name, DirectFormatName) or name.protocol not in (DirectProtocol.TCP, DirectProtocol.OS):
            return name
        if name.path.computer != caller.local_address:
            return name
        return DirectFormatName(DirectProtocol.OS, replace(name.path, computer=self._manager.computer_name))


def _name_of(value: QueueFormatValue | None) -> FormatName:
    if value is None:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, "no QUEUE_FORMAT")
    try:
        name = to_format_name(value)
    except (QueueNameError, PacketError, ValueError) as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME, str(error)) from None
    if not isinstance(name, _READABLE):
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"{name} cannot be read remotely"
        )
    return name
