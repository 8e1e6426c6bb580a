"""The endpoint mapper, the server's side: the port of this node's interfaces. It knows no others."""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from qmnode.dcerpc.endpoint_mapper_interface import (
    ENDPOINT_MAPPER,
    FREE_HANDLE,
    LOOKUP,
    MAP,
    NOT_REGISTERED,
    Entry,
    FreeHandleRequest,
    FreeHandleResponse,
    InquiryType,
    LookupRequest,
    LookupResponse,
    MapRequest,
    MapResponse,
    VersionOption,
    interface_of,
    tower_of,
)
from qmnode.dcerpc.interface import Interface, SyntaxId
from qmnode.dcerpc.ndr import NULL_CONTEXT_HANDLE, Parameters, Room
from qmnode.dcerpc.server import Caller, Service, service
from qmnode.structures.guid import ZERO_GUID

_OF_INTERFACE: Final = (InquiryType.OF_INTERFACE, InquiryType.OF_BOTH)
_OF_OBJECT: Final = (InquiryType.OF_OBJECT, InquiryType.OF_BOTH)


@dataclass(slots=True)
class _Listing:
    """A caller's position in the list of entries."""

    read: int


class EndpointMapper:
    """Answers for interfaces that are all on one port."""

    def __init__(self, interfaces: Mapping[Interface, str], port: Callable[[], int]) -> None:
        """``interfaces`` have an annotation each."""
        self._known = {one.syntax: annotation for one, annotation in interfaces.items()}
        self._port = port

    def service(self) -> Service:
        """The interface with its handlers."""
        return service(ENDPOINT_MAPPER, {LOOKUP: self.lookup, MAP: self.map, FREE_HANDLE: self.free_handle})

    async def map(self, caller: Caller, request: MapRequest) -> MapResponse:
        """ept_map: one tower, or that the interface is not registered. The entry handle is never needed again."""
        wanted = interface_of(request.tower) if request.tower is not None else None
        if wanted not in self._known or not request.max_towers:
            return MapResponse(towers=Room([], request.max_towers), status=NOT_REGISTERED)
        assert wanted is not None
        tower = tower_of(wanted, self._port(), _address_of(caller))
        return MapResponse(towers=Room([tower], request.max_towers), status=0)

    async def lookup(self, caller: Caller, request: LookupRequest) -> LookupResponse:
        """ept_lookup: return matching entries, as many at a time as the caller accepts."""
        handles = caller.association.handles
        listing = handles.get(request.entry_handle, _Listing, caller.principal)
        wanted = [one for one in self._known if _is_wanted(one, request)]
        first = listing.read if listing is not None else 0
        last = min(first + request.max_entries, len(wanted))
        handle = request.entry_handle
        if last == len(wanted):
            handles.close(handle)
            handle = NULL_CONTEXT_HANDLE
        elif listing is None:
            handle = handles.create(_Listing(last), caller.principal, _nothing)
        else:
            listing.read = last
        port, address = self._port(), _address_of(caller)
        found = [Entry(tower=tower_of(one, port, address), annotation=self._known[one]) for one in wanted[first:last]]
        return LookupResponse(
            entry_handle=handle,
            entries=Room(found, request.max_entries),
            status=0 if found else NOT_REGISTERED,
        )

    async def free_handle(self, caller: Caller, request: FreeHandleRequest) -> Parameters:
        """ept_lookup_handle_free: end a listing."""
        handles = caller.association.handles
        if handles.get(request.entry_handle, _Listing, caller.principal) is not None:
            handles.close(request.entry_handle)
        return FreeHandleResponse()


def _nothing() -> None:
    """Do nothing: a list that is not read to its end needs no clean-up."""


def _address_of(caller: Caller) -> str:
    """The address at which the caller reached this node, where it also reaches the interfaces."""
    address = ipaddress.ip_address(caller.local_address.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _is_wanted(identifier: SyntaxId, request: LookupRequest) -> bool:
    """Whether an entry, which belongs to no particular object, matches the request."""
    if request.inquiry_type in _OF_OBJECT and request.object not in (None, ZERO_GUID):
        return False
    if request.inquiry_type not in _OF_INTERFACE:
        return request.inquiry_type in (InquiryType.ALL, InquiryType.OF_OBJECT)
    wanted = request.interface
    if wanted is None or wanted.uuid != identifier.uuid:
        return False
    version = identifier.version & 0xFFFF, identifier.version >> 16
    match request.version_option:
        case VersionOption.ALL:
            return True
        case VersionOption.COMPATIBLE:
            return version[0] == wanted.major and version[1] >= wanted.minor
        case VersionOption.EXACT:
            return version == (wanted.major, wanted.minor)
        case VersionOption.MAJOR_ONLY:
            return version[0] == wanted.major
        case VersionOption.UP_TO:
            return version <= (wanted.major, wanted.minor)
    return False
