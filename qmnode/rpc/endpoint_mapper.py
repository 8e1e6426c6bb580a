"""The endpoint mapper, the server's side: which port the interfaces of this node are on. It knows no others."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from qmnode.rpc.interfaces.endpoint_mapper import (
    ENDPOINT_MAPPER,
    MAP,
    NOT_REGISTERED,
    MapRequest,
    MapResponse,
    interface_of,
    tower_of,
)
from qmnode.rpc.server import Caller, Service, service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from qmnode.rpc.interface import Interface


class EndpointMapper:
    """Answers ept_map for interfaces that are all on one port."""

    def __init__(self, interfaces: Iterable[Interface], port: Callable[[], int]) -> None:
        self._known = {one.syntax for one in interfaces}
        self._port = port

    def service(self) -> Service:
        """The interface with its handler."""
        return service(ENDPOINT_MAPPER, {MAP: self.map})

    async def map(self, caller: Caller, request: MapRequest) -> MapResponse:
        """ept_map: one tower, or that the interface is not registered. The entry handle is never needed again."""
        wanted = interface_of(request.tower) if request.tower is not None else None
        if wanted not in self._known or not request.max_towers:
            return MapResponse(towers=[], status=NOT_REGISTERED)
        assert wanted is not None
        address = ipaddress.ip_address(caller.local_address.partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return MapResponse(towers=[tower_of(wanted, self._port(), str(mapped or address))], status=0)
