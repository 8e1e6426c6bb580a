"""Another queue manager as an administrator sees it over MS-MQMR: R_QMMgmtGetInfo of the client's side. It only reads.

The answers are another machine's: values of other types than the properties have, and vectors of variants, whose
nesting has no bound, are refused. The size of an answer is bounded by the RPC client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from qmnode.dcerpc.errors import RpcError
from qmnode.dcerpc.initiator import BindRefusedError
from qmnode.dcerpc.interface import Method
from qmnode.dcerpc.ndr import NDR, U32, Array, Parameters, member
from qmnode.dcerpc.protection import AuthenticationError
from qmnode.errors import MessageQueuingError
from qmnode.remote_management.qmmgmt import (
    GET_INFO,
    QMMGMT,
    GetInfoRequest,
    ManagementObject,
    ManagementObjectType,
)
from qmnode.remote_management.variants import FlatVariant
from qmnode.remote_read.client_interfaces import RemoteReadOptions, connected, find_port
from qmnode.remote_read.client_sessions import CALL_TIMEOUT, check_status, rpc_error
from qmnode.remote_read.queue_format import to_queue_format
from qmnode.structures.enumerations import VariantType as V
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import FormatName

if TYPE_CHECKING:
    from qmnode.dcerpc.client import RpcClient
    from qmnode.structures.properties import ManagementMachineProperty, ManagementQueueProperty, PropertyId

_NOTHING: Final = frozenset({V.VT_NULL, V.VT_EMPTY})
_VECTORS: Final = frozenset({V.VT_VECTOR_LPWSTR})


class _Information(Parameters):
    """Response of R_QMMgmtGetInfo, 3.1.4.1, of properties that are no vectors of variants."""

    values: list[FlatVariant] = member(Array(FlatVariant), "apVar")
    status: int = member(U32, "return value", default=0)


_GET_INFORMATION: Final = Method(GET_INFO.name, GET_INFO.opnum, GetInfoRequest, _Information, GET_INFO.section)


class ManagementClient:
    """A connection to the interface qmmgmt of one queue manager."""

    def __init__(self, host: str, client: RpcClient, limit: float) -> None:
        self.host = host
        self._client = client
        self._limit = limit

    @classmethod
    async def connect(cls, host: str, options: RemoteReadOptions | None = None, limit: float = CALL_TIMEOUT) -> Self:
        """Connect through the endpoint mapper. ``limit``: seconds for an answer.

        Raises MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE if there is no answer, MQ_ERROR_ACCESS_DENIED if authentication
        fails, MQ_ERROR_UNSUPPORTED_OPERATION if the queue manager does not have the interface.
        """
        options = options or RemoteReadOptions()
        try:
            port = await find_port(host, QMMGMT, options)
            return cls(host, await connected(host, port, (QMMGMT,), options, (NDR,)), limit)
        except BindRefusedError as error:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION, f"{host}: {error}") from error
        except AuthenticationError as error:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{host}: {error}") from error
        except (RpcError, OSError, TimeoutError) as error:
            raise rpc_error(host, error) from error

    async def machine(self, *properties: ManagementMachineProperty) -> list[Any]:
        """Return the values of properties of the machine (2.2.3.1), in their order; None for one without a value."""
        return await self._values(ManagementObject(type=ManagementObjectType.MGMT_MACHINE), properties)

    async def queue(self, name: FormatName, *properties: ManagementQueueProperty) -> list[Any]:
        """Return the values of properties of a queue (2.2.3.2). Windows answers MQ_ERROR for one that is not active."""
        return await self._values(
            ManagementObject(type=ManagementObjectType.MGMT_QUEUE, identifier=to_queue_format(name)), properties
        )

    async def _values(
        self,
        target: ManagementObject,
        properties: Sequence[PropertyId],
    ) -> list[Any]:
        request = GetInfoRequest(
            object=target, properties=[int(one) for one in properties], values=[FlatVariant() for _ in properties]
        )
        try:
            async with asyncio.timeout(self._limit):
                response = await self._client.call(QMMGMT, _GET_INFORMATION, request)
        except (RpcError, TimeoutError) as error:
            raise rpc_error(self.host, error) from error
        check_status(response.status, self.host)
        if len(response.values) != len(properties):
            raise MessageQueuingError(ErrorCode.MQ_ERROR, f"{self.host} returned another number of values")
        return [self._value(one, found) for one, found in zip(properties, response.values, strict=True)]

    def _value(self, wanted: PropertyId, found: FlatVariant) -> Any:
        if found.vt in _NOTHING:
            return None
        if found.vt != wanted.variant_type:
            raise MessageQueuingError(ErrorCode.MQ_ERROR, f"{self.host} returned {wanted.name} with type {found.vt:#x}")
        return found.value if found.vt not in _VECTORS else [text or "" for text in found.value.items or ()]

    def close(self) -> None:
        """End the connection at once, also calls that wait for their answer."""
        self._client.abort()
